"""Compare a message by Telegram, WhatsApp, the API, the page and the terminal with a turn.

    python -m bench.doors [--only telegram] [--rounds N] [--json]

For each of them a gateway runs in this process, with that channel and one for tests. The model
answers at once. The platform and its person, or the client, are a separate process, so only nanobot
is measured: CPU, commits of the journal, and requests to the platform. Of a linked WhatsApp, the
helper in Node.js is a separate process too. The terminal is `nanobot agent` with piped input in a
thread of this process, as it runs when there is no other gateway.

Messages and turns alternate, so that they see the same machine. Work that waits to share a commit
counts. With a pause after each message, Telegram gets a reaction as well, and the process sleeps in
between, which makes both more expensive. A request in a conversation continues a chat, and other
requests are each in a new one."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import io
import json
import sqlite3
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import aiohttp

from bench.common import Instant, gateway, median
from bench.reporting import report
from bench.whatsapp_network import BRIDGE, TRUST, network
from bench.whatsapp_side import folder_of
from nanobot.channel import Channel
from nanobot.channel.keys import ApiKeys
from nanobot.cli.agent import run_agent
from nanobot.cli.command import Options
from nanobot.clock import SystemClock
from nanobot.testing.channel import FakeChannel
from nanobot.validation import SecretStr
from nanobot_api import ApiChannel
from nanobot_telegram import TelegramChannel
from nanobot_telegram.settings import TelegramSettings
from nanobot_web.channel import WebChannel
from nanobot_whatsapp.cloud.transport import CloudTransport
from nanobot_whatsapp.linked.transport import LinkedTransport
from nanobot_whatsapp.settings import WhatsAppSettings
from tests.channels.web.support import Served, Visit
from tests.doubles.graph import FakeGraphAPI
from tests.doubles.telegram import TOKEN, FakeTelegram
from tests.ports import free_port

WARM_UP, MESSAGES = 10, 40
QUESTION = "What shall I cook tonight?"
PERSON, NUMBER = 7, "15557770000"
NAMED: dict[str, object] = {"metadata": {"session_id": "bench"}}
REQUESTS: Mapping[str, Mapping[str, object]] = {
    "": {},
    ", streamed": {"stream": True},
    " in a conversation": NAMED,
    " in a conversation, streamed": {**NAMED, "stream": True},
    " with an Idempotency-Key": {**NAMED, "key": True},
}
_REACTED_SECONDS = 1.2  # a reaction keeps a pace of one second


class Player(NamedTuple):
    """A platform and its person, or a client. `address` leads the channel to it. `send` sends a
    message of a kind, and waits for its answer. `requests`: the number that it got so far."""

    address: str
    send: Callable[[str], Awaitable[None]]
    requests: Callable[[], int] = lambda: 0


Play = Callable[[Path, int], AbstractAsyncContextManager[Player]]
"""Starts a player before there is a gateway on this home and port."""


@dataclass(frozen=True, slots=True)
class Door:
    """A way to reach nanobot. `channel` makes its channel, given the home and an address. `kinds`
    has the messages in a round, and the seconds after each. `settled`: the seconds until the work
    of a message is done. Without `play` it is the terminal."""

    name: str
    goals: tuple[str, str]
    channel: Callable[[str], Channel] | None = None
    play: Play | None = None
    kinds: Mapping[str, tuple[int, float]] = field(default_factory=lambda: {"": (MESSAGES, 0.0)})
    settled: float = 0.2


class CountingConnection(sqlite3.Connection):
    """A connection that counts its commits with changes, each of which is a sync."""

    commits = 0
    _written = 0

    def commit(self) -> None:
        """Commit. The journal's writer calls this."""
        if self.total_changes > self._written:
            CountingConnection.commits += 1
            self._written = self.total_changes
        super().commit()


@contextlib.contextmanager
def counting() -> Iterator[None]:
    """Count the commits of connections that are opened inside."""
    connect = sqlite3.connect
    sqlite3.connect = partial(connect, factory=CountingConnection)  # type: ignore[assignment]
    try:
        yield
    finally:
        sqlite3.connect = connect


@asynccontextmanager
async def telegram(home: Path, port: int) -> AsyncIterator[Player]:
    """Play Telegram."""
    async with FakeTelegram() as fake:

        async def send(kind: str) -> None:
            known = len(fake.messages(PERSON))
            fake.say(QUESTION, user=PERSON, chat=PERSON)
            await fake.wait_for(lambda: len(fake.messages(PERSON)) > known, patience=None)

        yield Player(fake.base_url, send, lambda: len(fake.calls))


@asynccontextmanager
async def linked(home: Path, port: int) -> AsyncIterator[Player]:
    """Play WhatsApp with a linked device."""
    folder_of(home).mkdir(parents=True, mode=0o700)
    received = count(1)
    last = 0
    async with network() as fake:
        await fake.do("person", key="ann", number=NUMBER, lid="888000111", name="Ann")
        await fake.do("seed", folder=str(folder_of(home)))

        def hear(event: dict[str, Any]) -> None:
            nonlocal last
            if event["event"] == "received" and "ann" in event["by"]:
                last = next(received)

        fake.heard = hear

        async def send(kind: str) -> None:
            known = last
            await fake.do("say", **{"from": "ann", "text": QUESTION})
            await fake.until(lambda: last > known)

        yield Player(fake.trust, send)


@asynccontextmanager
async def cloud(home: Path, port: int) -> AsyncIterator[Player]:
    """Play WhatsApp's Cloud API."""
    async with FakeGraphAPI() as fake:
        fake.webhook.deliver_to(f"http://127.0.0.1:{port}/whatsapp")

        async def send(kind: str) -> None:
            known = len(fake.messages(NUMBER))
            fake.say(QUESTION, person=NUMBER)
            await fake.wait_for(lambda: len(fake.messages(NUMBER)) > known, patience=None)

        yield Player(json.dumps(fake.settings()), send, lambda: len(fake.calls))


@asynccontextmanager
async def api(home: Path, port: int) -> AsyncIterator[Player]:
    """Be a client of the API with one connection."""
    keys = ApiKeys(home / "state" / "channels" / "api")
    key = keys.add("bench", "", SystemClock().now(), own_words=True)
    numbers, url = count(), f"http://127.0.0.1:{port}/v1/chat/completions"
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {key}"}) as session:

        async def send(kind: str) -> None:
            messages = [{"role": "user", "content": QUESTION}]
            body = {"model": "nanobot", "messages": messages, **REQUESTS[kind]}
            has_key = body.pop("key", False)
            headers = {"Idempotency-Key": f"bench-{next(numbers)}"} if has_key else {}
            async with session.post(url, json=body, headers=headers) as answer:
                assert "A short answer" in await answer.text()

        yield Player("", send)


@asynccontextmanager
async def page(home: Path, port: int) -> AsyncIterator[Player]:
    """Be a browser with an open chat, whose stream brings the answers."""
    opened: tuple[Visit, str, aiohttp.ClientResponse] | None = None
    async with AsyncExitStack() as stack:

        async def open_chat() -> tuple[Visit, str, aiohttp.ClientResponse]:
            served = Served(f"http://127.0.0.1:{port}", home)
            visit = await stack.enter_async_context(served.visit())
            chat = await visit.new_chat()
            live = await stack.enter_async_context(visit.open(f"/live?c={chat}"))
            return visit, chat, live

        async def send(kind: str) -> None:
            nonlocal opened
            visit, chat, live = opened = opened or await open_chat()
            event = uuid4().hex
            await visit.post("/chat/send", {"c": chat, "event": event, "text": QUESTION})
            async for line in live.content:
                if line.startswith(b"data: ") and f"web:{event}" in json.loads(line[6:]).get(
                    "events", ()
                ):
                    return
            raise ConnectionError("the stream has ended")

        yield Player("", send)


def type_lines(home: Path, times: int) -> int:
    """Run `nanobot agent` with messages as lines of standard input. Return 0 requests."""
    options = Options(
        home=home,
        message=None,
        session="cli:direct",
        json=False,
        continues=False,
        resume=None,
        temporary=False,
    )
    typed, printed = io.BytesIO(f"{QUESTION}\n".encode() * times), io.StringIO()
    before = sys.stdin
    sys.stdin = io.TextIOWrapper(typed)
    try:
        with contextlib.redirect_stdout(printed):
            assert run_agent(options) == 0
    finally:
        sys.stdin = before
    assert len(printed.getvalue().splitlines()) == times
    return 0


def telegram_channel(address: str) -> Channel:
    return TelegramChannel(TelegramSettings(token=SecretStr(TOKEN), base_url=address))


def linked_channel(trust: str) -> Channel:
    helper = ("node", "--import", str(TRUST), str(BRIDGE / "dist" / "main.js"))
    program = ("/usr/bin/env", f"NANOBOT_FAKE_WHATSAPP={trust}", *helper)
    return LinkedTransport(WhatsAppSettings(), find_program=lambda options, folder: program)


def cloud_channel(settings: str) -> Channel:
    secrets = ("access_token", "app_secret", "verify_token")
    found: dict[str, Any] = {
        name: SecretStr(value) if name in secrets else value
        for name, value in json.loads(settings).items()
    }
    address = "https://bot.example.org/whatsapp"
    return CloudTransport(WhatsAppSettings(**found, webhook_url=address))


_API_GOALS = ("<= 1.6", "<= 2.1")
DOORS = (
    Door(
        "Telegram",
        ("<= 2.5", ""),
        telegram_channel,
        telegram,
        {"": (MESSAGES, 0.0), " with a pause": (4, _REACTED_SECONDS)},
        _REACTED_SECONDS,
    ),
    Door("WhatsApp, linked", ("", ""), linked_channel, linked),
    Door("WhatsApp, Cloud API", ("", ""), cloud_channel, cloud),
    Door("API", _API_GOALS, lambda _: ApiChannel(), api, dict.fromkeys(REQUESTS, (MESSAGES, 0.0))),
    Door("page", ("", ""), lambda _: WebChannel(), page),
    Door("terminal", ("", "")),
)


async def play(door: Door, home: Path, port: int) -> None:
    """Be the other process: send the messages that standard input asks for, one line each."""
    loop = asyncio.get_running_loop()
    assert door.play is not None
    async with door.play(home, port) as player:
        print(player.address, flush=True)
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            kind, times, pause = json.loads(line)
            before = player.requests()
            for _ in range(times):
                await player.send(kind)
                await asyncio.sleep(pause)
            print(player.requests() - before, flush=True)


Send = Callable[[str, int, float], Awaitable[int]]
"""Sends this number of messages of a kind, with a pause after each, and returns the number of
requests to the platform."""


@asynccontextmanager
async def other_process(door: Door, home: Path, port: int) -> AsyncIterator[tuple[str, Send]]:
    """Yield the address of the door's player, and how to let it send messages."""
    command = (sys.executable, "-m", "bench.doors", "--play", door.name, str(home), str(port))
    process = await asyncio.create_subprocess_exec(*command, stdin=-1, stdout=-1)
    assert process.stdin is not None
    assert process.stdout is not None
    asked, told = process.stdin, process.stdout

    async def send(kind: str, times: int, pause: float) -> int:
        asked.write(f"{json.dumps([kind, times, pause])}\n".encode())
        return int(await told.readline())

    try:
        yield (await told.readline()).decode().strip(), send
    finally:
        process.terminate()
        await process.wait()


@asynccontextmanager
async def opened(door: Door, home: Path, channel: FakeChannel) -> AsyncIterator[Send]:
    """Yield how to send messages by this door to a gateway in this process."""
    if door.channel is None:
        async with gateway(home, Instant(), channel):
            yield lambda kind, times, pause: asyncio.to_thread(type_lines, home, times)
        return
    port = free_port()
    async with other_process(door, home, port) as (address, send):
        channels, environ = (channel, door.channel(address)), {"NANOBOT_HTTP__PORT": str(port)}
        async with gateway(home, Instant(), *channels, **environ):
            yield send


class Cost(NamedTuple):
    """The milliseconds of CPU, the commits and the requests of a message."""

    cpu: float
    commits: float
    requests: float


async def cost_of(work: Awaitable[int], times: int, settled: float) -> Cost:
    """Return the cost of each of `times` messages, with the work that comes after them."""
    commits, started = CountingConnection.commits, time.process_time()
    requests = await work
    await asyncio.sleep(settled)
    cpu = (time.process_time() - started) * 1000
    return Cost(cpu / times, (CountingConnection.commits - commits) / times, requests / times)


async def measure(door: Door, home: Path, rounds: int) -> Iterator[tuple[str, object]]:
    """Return the figures of a door."""
    channel, found = FakeChannel(), {kind: list[tuple[Cost, Cost]]() for kind in door.kinds}

    async def take_turns(times: int, pause: float) -> int:
        for _ in range(times):
            await channel.ask(QUESTION)
            await asyncio.sleep(pause)
        return 0

    with counting():
        async with opened(door, home, channel) as send:
            for round in range(rounds + 1):
                for kind, (most, pause) in door.kinds.items():
                    times = most if round else min(most, WARM_UP)
                    turn = await cost_of(take_turns(times, pause), times, door.settled)
                    message = await cost_of(send(kind, times, pause), times, door.settled)
                    if round:
                        found[kind].append((turn, message))
    return figures(door, found)


def figures(
    door: Door, found: Mapping[str, list[tuple[Cost, Cost]]]
) -> Iterator[tuple[str, object]]:
    """Yield the medians."""
    cpu, commits = (f" (target {goal})" if goal else "" for goal in door.goals)
    turns = [turn for turn, _ in found[""]]
    yield f"{door.name}: turn, CPU [ms]", median([turn.cpu for turn in turns])
    yield f"{door.name}: turn, commits", median([turn.commits for turn in turns])
    for kind, costs in found.items():
        name = f"{door.name}{kind}"
        yield f"{name}: CPU [turns]{cpu}", median([sent.cpu / turn.cpu for turn, sent in costs])
        yield f"{name}: commits{commits}", median([sent.commits for _, sent in costs])
        if requests := median([sent.requests for _, sent in costs]):
            yield f"{name}: requests", requests


def main() -> None:
    parser = argparse.ArgumentParser(description="A message by each door, against a turn.")
    parser.add_argument("--only", default="", help="the doors whose name holds this")
    parser.add_argument("--rounds", type=int, default=7, help="of each door")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--play", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.play:
        name, home, port = options.play
        asyncio.run(play(next(d for d in DOORS if d.name == name), Path(home), int(port)))
        return
    found: dict[str, object] = {}
    for door in DOORS:
        if options.only.lower() in door.name.lower():
            with tempfile.TemporaryDirectory() as folder:
                found |= dict(asyncio.run(measure(door, Path(folder), options.rounds)))
    report("doors", found)


if __name__ == "__main__":
    main()
