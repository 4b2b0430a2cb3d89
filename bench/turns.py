"""Measure nanobot's own cost of a turn: CPU per turn, and turns per second over many chats.

The model is in this process and answers at once (or after a fixed latency), so only nanobot is
measured: journal, session, prompt, delivery. Every message is durable."""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path

from bench.common import Instant, gateway, median, write_session
from bench.reporting import report
from nanobot.logs import LogFile, log_to
from nanobot.security.redaction import Redactor
from nanobot.testing.channel import FakeChannel

WARM_UP, ROUNDS, TURNS = 20, 5, 60


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
                await channel.ask("What shall I cook tonight?", chat)
            rounds.append((time.process_time() - started) / TURNS * 1000)
    return median(rounds)


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
        waiting = asyncio.run(chats(home / "many", 50, 20, 0.2))
        at_once = asyncio.run(chats(home / "fast", 50, 40, 0.0))
    report(
        "turns",
        {
            "CPU per turn, empty session [ms] (target <= 1.4)": empty,
            "CPU per turn, 10,000 stored, 1,000 in the window [ms]": long,
            "ratio (target <= 1.2)": long / empty,
            "50 chats x 20 messages at 200 ms, at best 4.0 [s] (target <= 4.3)": waiting,
            "50 chats at 0 ms, with the log on [turns/s] (target >= 800)": 50 * 40 / at_once,
        },
    )


if __name__ == "__main__":
    main()
