"""Figures for which older versions have no bench.

It runs with the code of either version, this one or 3120a9f, and with that version's
`bench.common`. `bench.against` starts it so:

    PYTHONPATH=CHECKOUT CHECKOUT/.venv/bin/python -P bench/either.py [--json]
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import nanobot.logs
from bench.common import START, Instant, gateway, median, write_session
from bench.reporting import report
from nanobot.clock import SystemClock
from nanobot.security.redaction import Redactor
from nanobot.session.manager import SessionManager
from nanobot.testing.channel import FakeChannel

STORED, ENTRIES, EACH, TURNS = 100_000, 5_000, 10, 200
LONGEST = 20.0


async def time_sessions(home: Path) -> tuple[float, float]:
    """Return the seconds to open 100,000 messages that are all in the window, and to read 11 of
    them."""
    write_session(home, "fake:long", STORED, 0)
    make: Any = getattr(SessionManager, "in_folder", SessionManager)
    opening, reading = [], []
    for at in (2, 3, 4):
        manager = make(home / "sessions", SystemClock())
        begun = time.perf_counter()
        await manager.get_or_create("fake:long")
        opening.append(time.perf_counter() - begun)
        for first in (STORED // at, STORED // at + 500, STORED - 20):
            begun = time.perf_counter()
            manager.read_window("fake:long", first, first + 10)
            reading.append(time.perf_counter() - begun)
        await manager.close()
    return median(opening), median(reading)


async def time_logged_chats(home: Path, latency: float) -> float:
    """Return the seconds for 50 chats with 20 messages each, with the log on as in a gateway."""
    channel, logs = FakeChannel(), nanobot.logs
    file: Any = getattr(logs, "LogFile", None) or vars(logs)["Stored"]
    with home.with_suffix(".stderr").open("w") as stream:
        async with gateway(home, Instant(latency), channel):
            outputs = logs.Console(stream, "text"), file(home / "log", 10_000_000, 5)
            logs.log_to(outputs, "info", Redactor())

            async def one(chat: str) -> None:
                for number in range(20):
                    await channel.ask(f"message {number}", chat)

            await channel.ask("warm up", "warm")
            begun = time.perf_counter()
            await asyncio.gather(*(one(str(chat)) for chat in range(50)))
            return time.perf_counter() - begun


async def measure_beside_dream(home: Path) -> tuple[float, float]:
    """Return how much longer turns take while Dream reads 400 of 5,000 history entries, as a ratio,
    and for how many seconds."""
    write_session(home, "fake:old", ENTRIES * EACH, ENTRIES * EACH)
    memory, channel = home / "workspace" / "memory", FakeChannel()
    memory.mkdir(parents=True)
    with (memory / "history.jsonl").open("w") as history:
        for cursor in range(1, ENTRIES + 1):
            first = (cursor - 1) * EACH + 1
            entry = {
                "cursor": cursor,
                "timestamp": (START + timedelta(minutes=first)).isoformat(),
                "type": "consolidation",
                "session": "fake:old",
                "range": [first, cursor * EACH],
                "summary": "They spoke about plans and what to cook. " * 8,
                **dict.fromkeys(("key_facts", "operations", "origin"), ()),
            }
            history.write(json.dumps(entry) + "\n")

    async def turns(last: Callable[[], bool]) -> tuple[float, float]:
        begun, done = time.perf_counter(), 0
        while not last():
            await channel.ask("What shall I cook tonight?", "1")
            done += 1
        seconds = time.perf_counter() - begun
        return seconds / done, seconds

    async with gateway(home, Instant(), channel):
        await turns(iter([False] * TURNS + [True]).__next__)
        alone, _ = await turns(iter([False] * TURNS + [True]).__next__)
        dream, end = asyncio.ensure_future(channel.ask("/dream", "2")), time.monotonic() + LONGEST
        beside, seconds = await turns(lambda: dream.done() or time.monotonic() > end)
        return beside / alone, seconds


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        opening, reading = asyncio.run(time_sessions(home / "sessions"))
        at_once = asyncio.run(time_logged_chats(home / "fast", 0.0))
        waiting = asyncio.run(time_logged_chats(home / "slow", 0.2))
        beside, seconds = asyncio.run(measure_beside_dream(home / "dream"))
    report(
        "either",
        {
            "opening 100,000 messages, all in the window [s]": opening,
            "reading 11 of 100,000 messages [ms]": 1000 * reading,
            "50 chats x 20 messages at 0 ms, with the log on [turns/s]": 1000 / at_once,
            "50 chats x 20 messages at 200 ms, with the log on [s]": waiting,
            "a turn beside a Dream over a backlog, against one alone": beside,
            "400 of its 5,000 entries, turns beside them [s, at most 20]": seconds,
        },
    )


if __name__ == "__main__":
    main()
