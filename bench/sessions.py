"""Measure saving a turn into a long conversation, and opening one.

Ratios within one run are more reliable than milliseconds, which depend on the disk:

- `save_ratio`: a turn saved to a session of 100,000 messages against one in an empty session;
- `open_ratio`: opening 100,000 messages consolidated up to the last 1,000 against those 1,000.

    python bench/sessions.py [--messages N] [--turns N] [--json]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter

from nanobot.clock import SystemClock
from nanobot.messages import Message, Role, ToolCall
from nanobot.session.manager import SessionManager
from nanobot.session.records import SUFFIX, Metadata, encode, stem_of

OPEN = 1000
TEXT = "Some forty words of ordinary prose make a message of ordinary length here. " * 3


def write_session(folder: Path, key: str, first: int, last: int, consolidated: int) -> None:
    """Write a session file with messages `first` to `last`, its newest metadata before the last."""
    now = SystemClock().now()
    metadata = Metadata(key, now, now, consolidated, 1)
    with (folder / f"{stem_of(key)}{SUFFIX}").open("w") as file:
        file.write(encode(Metadata(key, now, now, 0, 1)))
        for seq in range(first, last + 1):
            role: Role = "user" if seq % 2 else "assistant"
            file.write(encode(Message(role, TEXT, now, seq, turn_id=f"t{seq // 2}")))
            if seq == last - 1:
                file.write(encode(metadata))


async def turn(manager: SessionManager, key: str) -> tuple[float, float]:
    """Return the seconds to save one turn: until it is durable, and on the event loop only."""
    session = await manager.get_or_create(key)
    begun = perf_counter()
    session.add_message(Message("user", TEXT, turn_id="t"))
    call = ToolCall("c", "read_file", '{"path": "notes.txt"}')
    session.add_message(Message("assistant", "", tool_calls=(call,), turn_id="t"))
    session.add_message(Message("tool", TEXT, tool_call_id="c", name="read_file", turn_id="t"))
    session.add_message(Message("assistant", TEXT, turn_id="t"))
    saved = manager.save(session)
    on_loop = perf_counter() - begun
    await saved
    return perf_counter() - begun, on_loop


async def opening(folder: Path, key: str) -> tuple[float, SessionManager]:
    """Return the seconds to open a session in a fresh manager, which stays open."""
    manager = SessionManager(folder, SystemClock())
    begun = perf_counter()
    await manager.get_or_create(key)
    return perf_counter() - begun, manager


async def measure(messages: int, turns: int) -> dict[str, float]:
    """Return all figures. Times are in milliseconds."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_session(folder, "bench:consolidated", 1, messages, messages - OPEN)
        write_session(folder, "bench:short", messages - OPEN + 1, messages, messages - OPEN)
        write_session(folder, "bench:long", 1, messages, 0)
        consolidated = [(await opening(folder, "bench:consolidated"))[0] for _ in range(5)]
        short = [(await opening(folder, "bench:short"))[0] for _ in range(5)]
        unconsolidated, manager = await opening(folder, "bench:long")
        pairs = [(await turn(manager, "bench:new"), await turn(manager, "bench:long"))]
        pairs += [
            (await turn(manager, "bench:new"), await turn(manager, "bench:long"))
            for _ in range(turns)
        ]
        reading = []
        for first in (messages // 2, 3, messages // 3, messages - 20, messages // 4):
            begun = perf_counter()
            manager.read_window("bench:long", first, first + 10)
            reading.append(perf_counter() - begun)
        session = await manager.get_or_create("bench:consolidated")
        session.get_history(0)
        begun = perf_counter()
        for _ in range(100):
            session.get_history(0)
        history = (perf_counter() - begun) / 100
        await manager.close()
    empty, long = ([pair[at] for pair in pairs[1:]] for at in (0, 1))
    return {
        "save_ratio": median(t[0] for t in long) / median(t[0] for t in empty),
        "save_loop_ratio": median(t[1] for t in long) / median(t[1] for t in empty),
        "open_ratio": median(consolidated) / median(short),
        "save_empty_ms": 1000 * median(t[0] for t in empty),
        "save_long_ms": 1000 * median(t[0] for t in long),
        "open_consolidated_ms": 1000 * median(consolidated),
        "open_unconsolidated_ms": 1000 * unconsolidated,
        "read_eleven_ms": 1000 * median(reading),
        "get_history_ms": 1000 * history,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="What sessions cost.")
    parser.add_argument("--messages", type=int, default=100_000, help="length of the long session")
    parser.add_argument("--turns", type=int, default=100, help="turns saved to each session")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    figures = asyncio.run(measure(max(options.messages, 2 * OPEN), max(options.turns, 1)))
    if options.json:
        shown = {name: round(value, 4) for name, value in figures.items()}
        print(json.dumps({"bench": "sessions"} | shown))
    else:
        for name, value in figures.items():
            print(f"{name:24}{value:10.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
