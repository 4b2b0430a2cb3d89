"""Kills around a send: a gateway dies when the platform answers, and inside a send.

The platform (Telegram, and WhatsApp's Cloud API) is a fake in this process. The gateway, with the
real adapter, runs in its own process.

In the first part many chats are answered in a burst, and 0 to 200 ms after a randomly chosen answer
the gateway is killed, several times in a conversation. It is stopped before (SIGSTOP), so that the
system reports which answers it had not read. In the end each message must be answered, in the order
of its chat. A reply that was answered at least a tenth of a second before the kill may come twice
only if its answer was unread.

In the second part the platform takes a reply and does not answer, and the gateway is killed there
repeatedly. The reply must not appear more than twice, its chat gets a notice, `nanobot queue list`
shows it, and the next message is answered.

    python -m bench.crash_sends              100 kills for each platform, and 6 in the same send
    python -m bench.crash_sends --short      a handful
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import logging
import os
import random
import re
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Protocol

from loguru import logger

from bench.reporting import report
from bench.telegram_talk import HastyClock, Model
from nanobot.app.gateway import Gateway
from nanobot.bus.sqlite_journal import SqliteJournal
from nanobot.clock import SystemClock
from nanobot.config.load import load_settings
from tests.doubles.graph.server import FakeGraphAPI
from tests.doubles.telegram import TOKEN, FakeTelegram
from tests.ports import free_port

_PATIENCE = 60.0
_LATEST = 0.2
"""Longest time between an answer and the kill, in seconds."""
_NOTED = 0.1
"""Seconds after which a read answer is recorded, on a busy machine too."""
_SETTLES = 0.05
"""Seconds after which the fake has answered all requests of a stopped gateway."""
_KILLS = 10
"""Kills in one conversation."""
_CHATS, _MESSAGES = 20, 8
_NEVER = 3600.0
_UNDELIVERED = "To resend it"
"""Text of the notice for a reply that is not sent a third time."""
_NUMBER = re.compile(r"\bm(\d+)\b")


class ChatPlatform(Protocol):
    """A platform and its people, who are identified by numbers."""

    @property
    def section(self) -> Mapping[str, object]:
        """The channel's settings."""

    name: str
    port: int

    def begin(self, http_port: int) -> None:
        """Prepare for a gateway on this port."""

    def say(self, person: int, text: str) -> None:
        """Write to nanobot."""

    def texts(self, person: int) -> Sequence[str]:
        """Return nanobot's messages."""

    def answer_late(self) -> None:
        """Deliver the next send without answering it."""

    def heal(self) -> None:
        """Answer everything from now on."""

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition. Raise `TimeoutError`."""


class Telegram:
    """Telegram, which is polled."""

    name = "telegram"

    def __init__(self, fake: FakeTelegram) -> None:
        self._fake = fake
        self.port = _port_of(fake.base_url)
        self.section = {"token": TOKEN, "base_url": fake.base_url}

    def begin(self, http_port: int) -> None:
        """Do nothing, because Telegram is polled."""

    def say(self, person: int, text: str) -> None:
        self._fake.say(text, user=person, chat=person)

    def texts(self, person: int) -> Sequence[str]:
        return self._fake.texts(person)

    def answer_late(self) -> None:
        self._fake.late("sendMessage", _NEVER)

    def heal(self) -> None:
        self._fake.heal()

    async def until(self, condition: Callable[[], bool]) -> None:
        await self._fake.wait_for(condition, patience=_PATIENCE)


class CloudAPI:
    """WhatsApp's Cloud API, which uses a webhook."""

    name = "whatsapp"

    def __init__(self, fake: FakeGraphAPI) -> None:
        self._fake = fake
        self.port = _port_of(fake.base_url)
        webhook = {"webhook_url": "https://bot.example.org/whatsapp"}
        self.section = {**fake.settings(), **webhook}

    def begin(self, http_port: int) -> None:
        self._fake.webhook.deliver_to(f"http://127.0.0.1:{http_port}/whatsapp")

    def say(self, person: int, text: str) -> None:
        self._fake.say(text, person=_phone(person))

    def texts(self, person: int) -> Sequence[str]:
        return self._fake.texts(_phone(person))

    def answer_late(self) -> None:
        self._fake.late("send", _NEVER)

    def heal(self) -> None:
        self._fake.heal()

    async def until(self, condition: Callable[[], bool]) -> None:
        await self._fake.wait_for(condition, patience=_PATIENCE)


@asynccontextmanager
async def telegram() -> AsyncIterator[ChatPlatform]:
    """Run a fake Telegram."""
    async with FakeTelegram() as fake:
        yield Telegram(fake)


@asynccontextmanager
async def cloud_api() -> AsyncIterator[ChatPlatform]:
    """Run a fake Graph API."""
    async with FakeGraphAPI(clock=SystemClock()) as fake:
        yield CloudAPI(fake)


def _port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


def _phone(person: int) -> str:
    return f"1555{person:07}"


def be_gateway(home: Path) -> None:
    """Run a gateway until the process is killed."""
    logger.remove()
    gc.freeze()  # as the command does
    settings = load_settings(home, {})
    gateway = Gateway(settings, clock=HastyClock(), provider=Model(), chores=False)
    asyncio.run(gateway.run(signals=False))


class GatewayLife:
    """One gateway, from its start to its end by SIGKILL."""

    def __init__(self, platform: ChatPlatform, home: Path, http_port: int) -> None:
        self._stage = platform
        platform.begin(http_port)
        self._process = get_context("forkserver").Process(target=be_gateway, args=(home,))
        self._process.start()

    async def end(self) -> int:
        """Kill it, and return the number of unread answers of the platform."""
        pid = self._process.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        await asyncio.sleep(_SETTLES)
        unread = _unread(self._stage.port)
        self._process.kill()
        await asyncio.to_thread(self._process.join)
        return unread


def _unread(port: int) -> int:
    """Count the connections to a local port that hold bytes unread by their client."""
    count = 0
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, _, remote, _, queues, *_ = line.split()
        count += remote.endswith(f":{port:04X}") and int(queues.partition(":")[2], 16) > 0
    return count


def _furnish(home: Path, platform: ChatPlatform) -> int:
    """Write a configuration, and return the port of the webhook."""
    port = free_port()
    section = {"enabled": True, "allow_from": ["*"], **platform.section}
    config = {
        "http": {"port": port},
        "channels": {platform.name: section},
        "limits": {"messages_per_minute": 0},
        "memory": {"window": 1_000_000},
    }
    home.mkdir()
    (home / "config.yaml").write_text(json.dumps(config))
    (home / "config.yaml").chmod(0o600)
    return port


class Burst:
    """The first part: one conversation in which the gateway is killed `kills` times.

    `unread` counts answers that it had not read at a kill, `twice` repeated replies, `late`
    repeated replies that were answered at least `_NOTED` seconds before the kill, and `aside`
    dropped replies."""

    def __init__(self, platform: ChatPlatform, home: Path, rng: random.Random, kills: int) -> None:
        self._stage, self._home, self._rng, self._left = platform, home, rng, kills
        self.kills = self.unread = self.twice = self.late = self.aside = 0
        self.failures: list[str] = []
        self._people = range(101, 101 + _CHATS)
        self._seen: dict[tuple[int, str], float] = {}
        self._known: list[tuple[set[tuple[int, str]], Counter[tuple[int, str]]]] = []
        """At each kill: the replies that were answered for a while, and all delivered ones."""

    async def run(self) -> None:
        """Let everyone write, and check their replies."""
        port = _furnish(self._home, self._stage)
        for number in range(1, _MESSAGES + 1):
            for person in self._people:
                self._stage.say(person, f"m{number}: a question")
        while self._left and not self._is_over():
            life, wanted = GatewayLife(self._stage, self._home, port), self._rng.randint(1, _CHATS)
            wanted += len(self._seen)
            await self._stage.until(lambda: self._look() >= wanted or self._is_over())  # noqa: B023 - it is awaited here
            until = time.monotonic() + self._rng.uniform(0.0, _LATEST)
            while time.monotonic() < until:
                await asyncio.sleep(0.005)
                self._look()
            noted = {text for text, at in self._seen.items() if at < time.monotonic() - _NOTED}
            self.unread += await life.end()
            self._known.append((noted, Counter(self._texts())))
            self.kills, self._left = self.kills + 1, self._left - 1
        life = GatewayLife(self._stage, self._home, port)
        await self._stage.until(self._is_over)
        await life.end()
        self._judge()

    def _texts(self) -> list[tuple[int, str]]:
        platform, people = self._stage, self._people
        return [(person, text) for person in people for text in platform.texts(person)]

    def _look(self) -> int:
        """Return the number of different replies."""
        for text in self._texts():
            self._seen.setdefault(text, time.monotonic())
        return len(self._seen)

    def _is_over(self) -> bool:
        marks = {str(number) for number in range(1, _MESSAGES + 1)}
        texts = (" ".join(self._stage.texts(person)) for person in self._people)
        return all(marks <= set(_NUMBER.findall(text)) for text in texts)

    def _judge(self) -> None:
        in_the_end = Counter(self._texts())
        self.aside = sum(not _is_reply(text) for _, text in in_the_end)
        self.twice = sum(count - 1 for (_, text), count in in_the_end.items() if _is_reply(text))
        again = {
            text for noted, then in self._known for text in noted if in_the_end[text] > then[text]
        }
        self.late = len(again)
        if self.late > self.unread:
            self.failures.append(f"{again} came twice, {self.unread} answers were not read")
        for person in self._people:
            texts = list(dict.fromkeys(self._stage.texts(person)))
            numbers = [int(n) for text in texts if _is_reply(text) for n in _NUMBER.findall(text)]
            told = {int(n) for text in texts if not _is_reply(text) for n in _NUMBER.findall(text)}
            if [n for n in range(1, _MESSAGES + 1) if n in numbers or n not in told] != numbers:
                self.failures.append(f"{person} got {texts}")


def _is_reply(text: str) -> bool:
    return _UNDELIVERED not in text


async def die_in_the_same_send(
    platform: ChatPlatform, home: Path, kills: int
) -> tuple[int, list[str]]:
    """Run the second part. Return the number of copies of the reply, and the broken promises."""
    port, failures, copies = _furnish(home, platform), list[str](), Counter[str]()
    platform.say(101, "m1: a question")
    for _ in range(kills):
        platform.answer_late()
        before = len(platform.texts(101))
        life = GatewayLife(platform, home, port)
        await platform.until(lambda: len(platform.texts(101)) > before)  # noqa: B023 - it is awaited here
        await life.end()
        if _UNDELIVERED in platform.texts(101)[-1]:
            break
    platform.heal()
    life = GatewayLife(platform, home, port)
    platform.say(101, "m2: another one")
    await platform.until(lambda: "m2" in platform.texts(101)[-1])
    await life.end()
    copies.update(platform.texts(101))
    journal = SqliteJournal(home / "state" / "journal.db", SystemClock())
    await journal.open()
    _, parts = await journal.queue_rows()
    await journal.close()
    dead = [row.text for row in parts if row.state == "dead"]
    if not any(_UNDELIVERED in text for text in copies):
        failures.append("the chat was not told")
    if ["m1" in text for text in dead] != [True]:
        failures.append(f"the queue has {parts}")
    most = max(copies.values())
    return most, failures + ([f"{most} copies: {copies}"] if most > 2 else [])


STAGES: Mapping[str, Callable[[], AbstractAsyncContextManager[ChatPlatform]]] = {
    "Telegram": telegram,
    "the Cloud API": cloud_api,
}


async def campaign(folder: Path, rng: random.Random, *, short: bool) -> dict[str, object]:
    """Run both parts on both platforms, and return the figures."""
    figures: dict[str, object] = {}
    failures = []
    for label, on_stage in STAGES.items():
        kills = unread = twice = late = aside = 0
        while kills < (3 if short else 100):
            async with on_stage() as platform:
                burst = Burst(platform, folder / f"{label}-{kills}", rng, 3 if short else _KILLS)
                await burst.run()
            kills, unread = kills + burst.kills, unread + burst.unread
            twice, late = twice + burst.twice, late + burst.late
            aside += burst.aside
            failures += [f"{label}: {failure}" for failure in burst.failures]
        async with on_stage() as platform:
            home = folder / f"{label}-inside"
            copies, wrong = await die_in_the_same_send(platform, home, 3 if short else 6)
        failures += wrong
        figures |= {
            f"kills within {_LATEST * 1000:.0f} ms of an answer of {label}": kills,
            f"answers of {label} that were not read": unread,
            f"replies that came twice, {label}": twice,
            f"… of {label}, answered {_NOTED * 1000:.0f} ms before or earlier": late,
            f"replies that were given up, {label}": aside,
            f"copies of a reply in whose send all processes died, {label}": copies,
        }
    return figures | {"promises broken (target 0)": len(failures), "failures": failures}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--short", action="store_true", help="a handful of kills")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    logging.getLogger("aiohttp.server").setLevel(
        logging.CRITICAL
    )  # killed gateways reset connections
    get_context("forkserver").set_forkserver_preload(
        ["nanobot.app.gateway", "nanobot_telegram.channel", "nanobot_whatsapp.cloud.transport"]
    )
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        rng = random.Random(options.seed)
        figures = asyncio.run(campaign(Path(folder), rng, short=options.short))
    report("crash_sends", figures)
    return 1 if figures["failures"] else 0


if __name__ == "__main__":
    sys.exit(main())
