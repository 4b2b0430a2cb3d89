"""Compare a message by Telegram with a turn: CPU, and requests to Telegram.

The gateway runs in this process, with Telegram and a channel for tests. The model answers at once.
A `FakeTelegram` and its person run in a separate process, so only nanobot is measured. Messages and
turns alternate, so that they see the same machine. With a pause after each message, a reaction is
set as well, and the process sleeps in between, which makes both more expensive."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

from bench.common import Instant, gateway, median
from bench.reporting import report
from nanobot.testing.channel import FakeChannel
from nanobot.validation import SecretStr
from nanobot_telegram import TelegramChannel
from nanobot_telegram.settings import TelegramSettings
from tests.doubles.telegram import TOKEN, FakeTelegram

WARM_UP, ROUNDS = 10, 5
QUESTION = "What shall I cook tonight?"
PERSON = 7
KINDS = {"message": (30, 0.0), "message with a pause": (8, 1.2)}
"""The messages in a round, and the seconds after each."""


async def write(telegram: FakeTelegram, times: int, pause: float) -> Counter[str]:
    """Send messages one after the other, and return the requests by method."""
    seen, answers = len(telegram.calls), len(telegram.messages(PERSON))
    for count in range(1, times + 1):
        telegram.say(QUESTION, user=PERSON, chat=PERSON)
        await telegram.wait_for(partial(is_answered, telegram, answers + count), patience=None)
        await asyncio.sleep(pause)
    return Counter(call.method for call in telegram.calls[seen:])


def is_answered(telegram: FakeTelegram, answers: int) -> bool:
    return len(telegram.messages(PERSON)) >= answers


async def settle(telegram: FakeTelegram) -> None:
    """Wait for the reactions, which keep a pace."""
    last = telegram.say(QUESTION, user=PERSON, chat=PERSON)
    await telegram.wait_for(lambda: last in telegram.reactions(PERSON), patience=None)


async def play() -> None:
    """Play Telegram. Send the messages that standard input asks for, one line each with their
    number and the pause."""
    loop = asyncio.get_running_loop()
    async with FakeTelegram() as telegram:
        print(telegram.base_url, flush=True)
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            print(json.dumps(await write(telegram, *json.loads(line))), flush=True)
            await settle(telegram)
            print(flush=True)


@contextlib.asynccontextmanager
async def platform() -> AsyncIterator[asyncio.subprocess.Process]:
    """Yield the process of Telegram and its person."""
    command = (sys.executable, "-m", "bench.telegram", "play")
    process = await asyncio.create_subprocess_exec(*command, stdin=-1, stdout=-1)
    yield process
    process.terminate()
    await process.wait()


async def measure(home: Path) -> dict[str, object]:
    """Return the figures."""
    ratios: dict[str, list[float]] = {kind: [] for kind in KINDS}
    turns, requests = list[float](), dict[str, Counter[str]]()
    async with platform() as telegram:
        assert telegram.stdin is not None
        assert telegram.stdout is not None
        address = (await telegram.stdout.readline()).decode().strip()
        options = TelegramSettings(token=SecretStr(TOKEN), base_url=address)
        channel = FakeChannel()
        async with gateway(home, Instant(), channel, TelegramChannel(options)):
            for round in range(ROUNDS + 1):
                for kind, (most, pause) in KINDS.items():
                    times = most if round else WARM_UP
                    started = time.process_time()
                    for _ in range(times):
                        await channel.ask(QUESTION)
                        await asyncio.sleep(pause)
                    turn = time.process_time() - started
                    started = time.process_time()
                    telegram.stdin.write(f"{json.dumps([times, pause])}\n".encode())
                    counted = Counter[str](json.loads(await telegram.stdout.readline()))
                    message = time.process_time() - started
                    await telegram.stdout.readline()
                    if round:
                        ratios[kind].append(message / turn)
                        requests[kind] = requests.get(kind, Counter()) + counted
                        turns += [] if pause else [turn / times * 1000]
    figures: dict[str, object] = {"CPU of a turn [ms]": median(turns)}
    for kind, (times, _) in KINDS.items():
        figures[f"{kind}: CPU [turns] (target <= 2.5)"] = median(ratios[kind])
        figures[f"{kind}: requests"] = requests[kind].total() / times / ROUNDS
    return figures


def main() -> None:
    if "play" in sys.argv:
        asyncio.run(play())
        return
    with tempfile.TemporaryDirectory() as folder:
        report("telegram", asyncio.run(measure(Path(folder))))


if __name__ == "__main__":
    main()
