"""Measure a stop, from SIGTERM to the end of the process, and check that it repeats no send.

    python -m bench.stopping           at rest, during 42 sends by Telegram and by WhatsApp's Cloud
                                       API, during turns, while a memory of 50 MB is read, all of
                                       that together, and 15 restarts with 30 replies
    python -m bench.stopping --short   during five sends by each, and three restarts

The platforms and the model are servers in this process. A send takes effect at once and is answered
0.3 to 5 seconds later, so a repeated send is seen twice. `nanobot gateway` gets
SIGTERM in the middle, is started again, and has to send each reply once. The model holds the turns
until then."""

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
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path

from bench.reporting import report
from nanobot.clock import SystemClock
from nanobot.gateway import STOP_MARGIN
from tests.doubles.graph.server import FakeGraphAPI
from tests.doubles.openai.answers import Answer, ChatRequest, Step
from tests.doubles.openai.faults import HeldStep
from tests.doubles.openai.server import FakeOpenAI
from tests.doubles.telegram import TOKEN, FakeTelegram
from tests.ports import free_port

GRACE = 8.0
"""Grace period in seconds. The default of 20 would only prolong the bench."""
SHORTEST, LONGEST = 0.3, 5.0
"""Duration of a send in seconds."""
_SENDS = range(1_001, 1_043)
_TURNS = range(2_001, 2_011)
_LINE = "- The {} of the boat was painted in the colour of the sea on a day in May.\n"


@dataclass(frozen=True)
class Load:
    """The load during the stop: chats with a send in flight, chats whose turn waits for the model,
    and megabytes of unindexed memory. The sends are made in `rounds`, with a stop in each."""

    sends: range = range(0)
    turns: range = range(0)
    megabytes: int = 0
    rounds: int = 1
    by_whatsapp: bool = False


LOADS = {
    "at rest": Load(),
    "during 42 sends by Telegram": Load(sends=_SENDS),
    "during 42 sends by WhatsApp": Load(sends=_SENDS, by_whatsapp=True),
    "during 10 turns": Load(turns=_TURNS),
    "while 50 MB of memory are indexed": Load(megabytes=50),
    "with all of it": Load(_SENDS, _TURNS, 50),
    "in 15 restarts": Load(sends=_SENDS[:30], rounds=15),
}
SHORT = {
    "during 5 sends by Telegram": Load(sends=_SENDS[:5]),
    "during 5 sends by WhatsApp": Load(sends=_SENDS[:5], by_whatsapp=True),
    "in 3 restarts": Load(sends=_SENDS[:6], rounds=3),
}


@dataclass(frozen=True)
class Stop:
    """The seconds of the longest stop, and the number of chats with a repeated or missing reply."""

    seconds: float
    twice: int
    lost: int


class TelegramSide:
    """Telegram, with a person in each chat."""

    def __init__(self, fake: FakeTelegram) -> None:
        self.fake = fake
        channel = {"enabled": True, "token": TOKEN, "base_url": fake.base_url, "allow_from": ["*"]}
        channel |= {"previews": False, "reactions": False}
        self.settings: dict[str, object] = {"channels": {"telegram": channel}}

    def say(self, chat: int, text: str) -> None:
        """Send a person's message."""
        self.fake.say(text, user=chat, chat=chat)

    def late(self, seconds: float) -> None:
        """Delay the answer to the next send."""
        self.fake.late("sendMessage", seconds)

    def sends(self) -> int:
        """Return the number of started sends."""
        return len(self.fake.calls_of("sendMessage"))

    def texts(self, chat: int) -> list[str]:
        """Return the replies that a person sees."""
        return self.fake.texts(chat)


class WhatsAppSide:
    """WhatsApp's Cloud API, with a person for each chat and the methods of `TelegramSide`."""

    def __init__(self, fake: FakeGraphAPI) -> None:
        self.fake = fake
        port = free_port()
        fake.webhook.deliver_to(f"http://127.0.0.1:{port}/whatsapp")
        channel = {"enabled": True, **fake.settings(), "allow_from": ["*"]}
        channel["webhook_url"] = "https://bot.example.org/whatsapp"
        self.settings: dict[str, object] = {
            "http": {"port": port},
            "channels": {"whatsapp": channel},
        }

    def say(self, chat: int, text: str) -> None:
        self.fake.say(text, person=f"1555000{chat}")

    def late(self, seconds: float) -> None:
        self.fake.late("messages", seconds)

    def sends(self) -> int:
        return len(self.fake.calls_of("messages"))

    def texts(self, chat: int) -> list[str]:
        return self.fake.texts(f"1555000{chat}")


async def measure(load: Load, home: Path) -> Stop:
    """Measure the stops under this load."""
    gate, rng, seconds = asyncio.Event(), random.Random(1), list[float]()

    def author(request: ChatRequest) -> Step:
        said = request.last_user_text
        return HeldStep(gate, Answer(f"re {said}")) if "slow" in said else Answer(f"re {said}")

    fake = FakeGraphAPI(clock=SystemClock()) if load.by_whatsapp else FakeTelegram()
    async with fake, FakeOpenAI(author) as model:
        side = WhatsAppSide(fake) if isinstance(fake, FakeGraphAPI) else TelegramSide(fake)
        _configure(home, side.settings, model, load)
        for number in range(load.rounds):
            chats = load.sends[number :: load.rounds]
            async with _gateway(home) as process:
                await _bring_on(load, chats, side, model, rng)
                if load.megabytes:
                    await _until_indexed(home)
                seconds.append(await _stop(process))
        gate.set()
        everyone = (*load.sends, *load.turns)
        async with _gateway(home) as last:
            await fake.wait_for(lambda: all(map(side.texts, everyone)), patience=None)
            await _until_sent(home)
            await _stop(last)
        seen = [len(side.texts(chat)) for chat in everyone]
    return Stop(max(seconds), sum(n > 1 for n in seen), sum(n == 0 for n in seen))


async def _bring_on(
    load: Load,
    chats: range,
    side: TelegramSide | WhatsAppSide,
    model: FakeOpenAI,
    rng: random.Random,
) -> None:
    """Return when the turns ask the model and the sends to these chats are in flight."""
    before = side.sends()
    for chat in load.turns:
        side.say(chat, "slow")
    await side.fake.wait_for(lambda: len(model.requests) >= len(load.turns), patience=None)
    for chat in chats:
        side.late(rng.uniform(SHORTEST, LONGEST))
        side.say(chat, "quick")
    await side.fake.wait_for(lambda: side.sends() >= before + len(chats), patience=None)


def _configure(home: Path, settings: dict[str, object], model: FakeOpenAI, load: Load) -> None:
    config = {
        "model": {"name": "fake-model", "base_url": model.base_url},
        "agent": {"shutdown_grace_seconds": GRACE, "max_concurrent_turns": 100},
        **settings,
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
    """Run `nanobot gateway`, wait until it is ready, and kill it at the end if it is alive."""
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
    """Wait until no part of a reply is pending."""
    with closing(sqlite3.connect(home / "state" / "journal.db")) as db:
        waiting = "SELECT 1 FROM outbox WHERE state IN ('pending', 'sending')"
        while db.execute(waiting).fetchone():  # noqa: ASYNC110 - another process changes it
            await asyncio.sleep(0.05)


async def _stop(process: Process) -> float:
    """Stop it, and return the seconds until its end."""
    begun = time.perf_counter()
    process.send_signal(signal.SIGTERM)
    code = await process.wait()
    assert code == 0, f"it ended with {code}"
    return time.perf_counter() - begun


def main() -> int:
    """Run the command line. The exit code is 1 if a promise was broken."""
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
