"""Measure nanobot's own cost of a turn: CPU per turn, and turns per second over many chats.

The model is in this process and answers at once (or after a fixed latency), so only nanobot is
measured: journal, session, prompt, delivery. Every message is durable. The minimum is two commits
of SQLite through a thread. It alternates with turns in an old chat and in new ones."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

from bench.common import Instant, gateway, median, write_session
from bench.reporting import report
from nanobot.logs import LogFile, log_to
from nanobot.security.redaction import Redactor
from nanobot.testing.channel import FakeChannel

WARM_UP, ROUNDS, TURNS = 20, 5, 60
QUESTION = "What shall I cook tonight?"


async def cpu_per_turn(home: Path, chat: str, loops: int = ROUNDS) -> float:
    """Return the median milliseconds of CPU of a turn of `chat`, over rounds of `TURNS` turns."""
    channel = FakeChannel()
    async with gateway(home, Instant(), channel):
        for _ in range(WARM_UP):
            await channel.ask("hello", chat)
        rounds = []
        for _ in range(loops):
            started = time.process_time()
            for _ in range(TURNS):
                await channel.ask(QUESTION, chat)
            rounds.append((time.process_time() - started) / TURNS * 1000)
    return median(rounds)


async def compare(home: Path) -> tuple[float, float]:
    """Return the CPU of a turn relative to the minimum, and of one in a new chat relative to one in
    an old chat."""
    channel, names = FakeChannel(), count()
    async with gateway(home, Instant(), channel), committing(home / "minimum.db") as commit:

        async def commit_twice() -> None:
            await commit()
            await commit()

        kinds: tuple[Callable[[], Awaitable[object]], ...] = (
            lambda: channel.ask(QUESTION, "old"),
            lambda: channel.ask(QUESTION, f"new-{next(names)}"),
            commit_twice,
        )
        rounds = [[await cpu_of(kind) for kind in kinds] for _ in range(ROUNDS + 1)][1:]
    minimum = median([old / least for old, _, least in rounds])
    return minimum, median([new / old for old, new, _ in rounds])


async def cpu_of(work: Callable[[], Awaitable[object]]) -> float:
    """Return the seconds of CPU of some repetitions."""
    started = time.process_time()
    for _ in range(TURNS):
        await work()
    return time.process_time() - started


@contextlib.asynccontextmanager
async def committing(path: Path) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """Yield a function that commits a small row in a thread, as durably as the journal."""
    with contextlib.closing(sqlite3.connect(path, check_same_thread=False)) as database:
        database.executescript(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; CREATE TABLE kept (text TEXT)"
        )

        def write() -> None:
            with database:
                database.execute("INSERT INTO kept VALUES (?)", ("a row of ordinary length " * 8,))

        with ThreadPoolExecutor(1) as thread:
            loop = asyncio.get_running_loop()
            yield lambda: loop.run_in_executor(thread, write)


async def chats(home: Path, count: int, messages: int, latency: float) -> float:
    """Return the seconds of `count` parallel chats with `messages` messages each."""
    channel = FakeChannel()
    async with gateway(home, Instant(latency), channel):
        log_to((LogFile(home / "nanobot.log", 10_000_000, 3),), "info", Redactor())

        async def one(chat: str) -> None:
            for number in range(messages):
                await channel.ask(f"message {number}", chat)

        await channel.ask("warm up", "warm")
        started = time.perf_counter()
        await asyncio.gather(*(one(str(chat)) for chat in range(count)))
        return time.perf_counter() - started


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        empty = asyncio.run(cpu_per_turn(home / "empty", "1"))
        write_session(home / "long", "fake:1", 10_000, 9_000)
        long = asyncio.run(cpu_per_turn(home / "long", "1"))
        minimum, new = asyncio.run(compare(home / "compared"))
        waiting = asyncio.run(chats(home / "many", 50, 20, 0.2))
        at_once = asyncio.run(chats(home / "fast", 50, 40, 0.0))
    report(
        "turns",
        {
            "CPU per turn, empty session [ms] (target <= 1.4)": empty,
            "CPU per turn, 10,000 stored, 1,000 in the window [ms]": long,
            "ratio (target <= 1.2)": long / empty,
            "a turn, against two commits through a thread (target <= 4)": minimum,
            "a turn in a new chat, against one in an old chat (target <= 1.3)": new,
            "50 chats x 20 messages at 200 ms, at best 4.0 [s] (target <= 4.3)": waiting,
            "50 chats at 0 ms, with the log on [turns/s] (target >= 800)": 50 * 40 / at_once,
        },
    )


if __name__ == "__main__":
    main()
