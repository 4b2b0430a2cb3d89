"""How long a stop takes, from SIGTERM to the end of the process, and whether it repeats a send.

    python -m bench.stopping           at rest, during 42 sends, during turns, while a memory of
                                       50 MB is read, and all of that together
    python -m bench.stopping --short   during sends, with a small memory

Telegram and the model are servers in this process. A send is carried out at once and answered
seconds later, so one that is cut and repeated is seen twice. `nanobot gateway` gets SIGTERM in the
middle, is started again, and has to say each reply once. The model holds the turns until then.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import sqlite3
import sys
import tempfile
import time
from asyncio.subprocess import DEVNULL, Process
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path

from bench.reporting import report
from nanobot.gateway import STOP_MARGIN
from tests.doubles.openai.answers import Answer, ChatRequest, Step
from tests.doubles.openai.faults import Held
from tests.doubles.openai.server import FakeOpenAI
from tests.doubles.telegram import TOKEN, FakeTelegram

GRACE = 8.0
"""Seconds; the default of 20 would only make it take longer."""
SHORTEST, LONGEST = 0.3, 5.0
"""Seconds that a send takes."""
_SENDS = range(1_001, 1_043)
_TURNS = range(2_001, 2_011)
_LINE = "- The {} of the boat was painted in the colour of the sea on a day in May.\n"


@dataclass(frozen=True)
class Load:
    """What goes on when the stop is asked for: chats with a send under way, chats whose turn asks
    the model, and megabytes of memory that are new to the index."""

    sends: range = range(0)
    turns: range = range(0)
    megabytes: int = 0


LOADS = {
    "at rest": Load(),
    "during 42 sends": Load(sends=_SENDS),
    "during 10 turns": Load(turns=_TURNS),
    "while 50 MB of memory are indexed": Load(megabytes=50),
    "with all of it": Load(_SENDS, _TURNS, 50),
}
SHORT = {"during 5 sends": Load(sends=_SENDS[:5])}


@dataclass(frozen=True)
class Stop:
    """How long it took, and what the chats saw after the next start."""

    seconds: float
    twice: int
    lost: int


async def measure(load: Load, home: Path) -> Stop:
    """One stop under this load."""
    gate, rng = asyncio.Event(), random.Random(1)

    def author(request: ChatRequest) -> Step:
        said = request.last_user_text
        return Held(gate, Answer(f"re {said}")) if "slow" in said else Answer(f"re {said}")

    async with FakeTelegram() as telegram, FakeOpenAI(author) as model:
        _configure(home, telegram, model, load)
        for _ in load.sends:
            telegram.late("sendMessage", rng.uniform(SHORTEST, LONGEST))
        async with _gateway(home) as first:
            for chat in load.turns:
                telegram.say("slow", user=chat, chat=chat)
            await telegram.wait_for(lambda: len(model.requests) >= len(load.turns), patience=None)
            for chat in load.sends:
                telegram.say("quick", user=chat, chat=chat)
            await telegram.wait_for(
                lambda: len(telegram.called("sendMessage")) >= len(load.sends), patience=None
            )
            if load.megabytes:
                await _until_indexed(home)
            seconds = await _stop(first)
        gate.set()
        async with _gateway(home) as second:
            everyone = (*load.sends, *load.turns)
            await telegram.wait_for(
                lambda: all(telegram.texts(chat) for chat in everyone), patience=None
            )
            await _until_sent(home)
            await _stop(second)
    seen = Counter(chat for chat in everyone for _ in telegram.texts(chat))
    twice = sum(count - 1 for count in seen.values())
    return Stop(seconds, twice, len(everyone) - len(seen))


def _configure(home: Path, telegram: FakeTelegram, model: FakeOpenAI, load: Load) -> None:
    channel = {"enabled": True, "token": TOKEN, "base_url": telegram.base_url, "allow_from": ["*"]}
    config = {
        "model": {"name": "fake-model", "base_url": model.base_url},
        "channels": {"telegram": {**channel, "previews": False, "reactions": False}},
        "agent": {"shutdown_grace_seconds": GRACE, "max_concurrent_turns": 100},
    }
    (home / "config.yaml").write_text(json.dumps(config))
    (home / "config.yaml").chmod(0o600)
    if load.megabytes:
        folder = home / "workspace" / "memory"
        folder.mkdir(parents=True)
        lines = load.megabytes * 1_000_000 // len(_LINE)
        text = "".join(_LINE.format(f"plank {number:06}") for number in range(lines))
        (folder / "MEMORY.md").write_text(f"# Memory\n\n{text}")


@asynccontextmanager
async def _gateway(home: Path) -> AsyncIterator[Process]:
    """`nanobot gateway` once it is ready, killed at the end if it lives."""
    command = (sys.executable, "-m", "nanobot", "gateway")
    process = await asyncio.create_subprocess_exec(
        *command, env={**os.environ, "NANOBOT_HOME": str(home)}, stderr=DEVNULL
    )
    try:
        while not (home / "state" / "gateway.sock").exists():
            assert process.returncode is None, f"it ended with {process.returncode}"
            await asyncio.sleep(0.05)
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _until_indexed(home: Path) -> None:
    """Wait until the index is being written."""
    index = home / "state" / "index.db"
    while not index.exists():  # noqa: ASYNC110 - another process makes it
        await asyncio.sleep(0.05)
    await asyncio.sleep(1.0)


async def _until_sent(home: Path) -> None:
    """Wait until no part of a reply waits any more."""
    with closing(sqlite3.connect(home / "state" / "journal.db")) as db:
        waiting = "SELECT 1 FROM outbox WHERE state IN ('pending', 'sending')"
        while db.execute(waiting).fetchone():  # noqa: ASYNC110 - another process changes it
            await asyncio.sleep(0.05)


async def _stop(process: Process) -> float:
    """Ask it to end; the seconds that takes."""
    begun = time.perf_counter()
    process.send_signal(signal.SIGTERM)
    code = await process.wait()
    assert code == 0, f"it ended with {code}"
    return time.perf_counter() - begun


def main() -> int:
    """Run and print; exit code 1 when a promise was broken."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    most = GRACE + STOP_MARGIN
    figures: dict[str, object] = {}
    broken = 0
    for label, load in (SHORT if options.short else LOADS).items():
        with tempfile.TemporaryDirectory() as name:
            stop = asyncio.run(measure(load, Path(name)))
        broken += stop.twice + stop.lost + (stop.seconds > most)
        figures[f"seconds {label} (at most {most:.0f})"] = round(stop.seconds, 1)
        if load.sends or load.turns:
            figures[f"replies seen twice, {label}"] = stop.twice
            figures[f"replies lost, {label}"] = stop.lost
    report("stopping", {**figures, "promises broken (target 0)": broken})
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
