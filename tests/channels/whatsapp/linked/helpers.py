"""The helper's side of a link, played by tests, and the core's side of the port."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

from nanobot.bus.events import InboundMessage, Media
from nanobot.channel import Admission, Chat, HttpHandler, MenuEntry, Sender, WebhookHandler
from nanobot.errors import StorageError
from nanobot.testing.clock import FakeClock
from tests.doubles.server import Changes

PATIENCE = 20.0
"""Real seconds after which a hanging test fails."""

PROGRAM = (sys.executable, "-I", "-S", str(Path(__file__).with_name("fake_helper.py")), "main.js")
US = {"number": "15550001111@s.whatsapp.net", "lid": "999@lid", "name": "Sam"}

Line = dict[str, Any]


class FakeHelper:
    """The helper's end of one connection. `heard` has all lines of the daemon. Pings are answered
    unless it is `deaf`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._changes = Changes()
        self._seen = 0
        self.heard: list[Line] = []
        self.deaf = False
        self.ended = False

    async def listen(self) -> None:
        """Read lines to the end."""
        with contextlib.suppress(ConnectionError):
            while line := await self._reader.readline():
                said = json.loads(line)
                self.heard.append(said)
                if said["type"] == "ping" and not self.deaf:
                    self.say("pong", id=said["id"])
                self._changes.tell()
        self.ended = True
        self._changes.tell()

    def say(self, kind: str, **fields: object) -> None:
        """Send a line of the protocol."""
        self.write(json.dumps({"type": kind, **fields}))

    def write(self, line: str) -> None:
        """Send any line."""
        self._writer.write(line.encode() + b"\n")

    def greet(self, protocol: int = 1) -> None:
        """Send the hello."""
        self.say("hello", protocol=protocol, bridge="0.1.0", baileys="7", node="v22.1.0", pid=1)

    def state(self, name: str, detail: str = "", retry_in: float | None = None) -> None:
        """Report the state of the connection to WhatsApp."""
        self.say("state", state=name, detail=detail, retry_in=retry_in, me=US)

    async def open(self) -> None:
        """Send the hello, wait for the welcome, and report a connection."""
        self.greet()
        await self.until(lambda: self.all("welcome"))
        self.state("open")

    def answer(self, request: Line, **data: object) -> None:
        """Report a request as done."""
        self.say("reply", id=request["id"], ok=True, data=data)

    def fail(self, request: Line, code: str, message: str, retry_after: float = 0.0) -> None:
        """Report a request as failed."""
        error = {"code": code, "message": message, "retry_after": retry_after}
        self.say("reply", id=request["id"], ok=False, error=error)

    def all(self, kind: str) -> list[Line]:
        """Return the received lines of a type."""
        return [line for line in self.heard if line["type"] == kind]

    async def request(self, method: str) -> Line:
        """Wait for the next request of this method, after the last one returned here."""

        def find_request() -> int:
            for at, line in enumerate(self.heard[self._seen :], self._seen + 1):
                if line["type"] == "request" and line["method"] == method:
                    return at
            return 0

        self._seen = await self._changes.until(find_request)
        return self.heard[self._seen - 1]

    async def wait_for_ack(self, seq: int) -> None:
        """Wait until everything up to `seq` is confirmed."""
        await self.until(lambda: any(line["seq"] >= seq for line in self.all("ack")))

    async def until(self, ready: Callable[[], object]) -> None:
        """Wait for a condition on the received lines."""
        await self._changes.until(ready)


class HelperPool:
    """Started helpers, which tests play."""

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self._group = group
        self._entered: asyncio.Queue[FakeHelper] = asyncio.Queue()
        self._playing: list[tuple[asyncio.Task[None], asyncio.StreamWriter]] = []

    async def next(self) -> FakeHelper:
        """Wait for the next started helper."""
        return await self._entered.get()

    def play(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> FakeHelper:
        """Play a helper over a connection."""
        helper = FakeHelper(reader, writer)
        self._playing.append((self._group.create_task(helper.listen()), writer))
        return helper

    async def enter(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Add a started helper."""
        self._entered.put_nowait(self.play(reader, writer))

    def close(self) -> None:
        """Disconnect all helpers."""
        for listening, writer in self._playing:
            listening.cancel()
            writer.close()


@contextlib.asynccontextmanager
async def play_helpers(folder: Path) -> AsyncIterator[HelperPool]:
    """Play the helpers of `PROGRAM` that run in `folder`."""
    async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
        pool = HelperPool(group)
        server = await asyncio.start_unix_server(pool.enter, folder / "control.sock")
        try:
            yield pool
        finally:
            server.close()
            pool.close()


class Core:
    """Implements `nanobot.channel.ChannelHost`. `stored` has the published messages. `disk_full`
    makes publishing fail, and `strangers` are refused."""

    def __init__(self, folder: Path, clock: FakeClock) -> None:
        self._folder, self._clock = folder, clock
        self._changes = Changes()
        self.stored: list[InboundMessage] = []
        self.disk_full = False
        self.strangers: set[str] = set()
        self.reports: list[str] = []
        self.account = ""

    def admit(self, sender: Sender, chat: Chat, *, addressed: bool = True) -> Admission:
        return "refused" if sender.id in self.strangers else "allowed"

    async def publish(
        self, messages: Sequence[InboundMessage], cursor: str | None = None
    ) -> Sequence[str]:
        if self.disk_full:
            raise StorageError("inbox.db", "no space left on device")
        self.stored += messages
        self._changes.tell()
        return [message.event_id for message in messages]

    async def cursor(self) -> str | None:
        return None

    async def has_received(self, chat_id: str, event_id: str, *, unanswered: bool = False) -> bool:
        return False

    async def resolve_button(self, button_id: str, sender: Sender, chat: Chat) -> str | None:
        return None

    def serve_webhook(
        self, path: str, handler: WebhookHandler
    ) -> contextlib.AbstractAsyncContextManager[str]:
        raise AssertionError("a linked device has no webhook")

    def serve_http(
        self, path: str, handler: HttpHandler
    ) -> contextlib.AbstractAsyncContextManager[str]:
        raise AssertionError("WhatsApp needs webhooks only")

    def media_path(self, media: Media) -> Path:
        return self._folder / media.ref

    def menu(self) -> Sequence[MenuEntry]:
        return (MenuEntry("status", "says how it is"),)

    def report_problem(self, problem: str) -> None:
        self.reports.append(problem)
        self._changes.tell()

    def report_idle(self, why: str) -> None:
        raise AssertionError("this channel always runs")

    async def report_undelivered(self, platform_id: str, reason: str) -> None:
        raise AssertionError("this platform reports nothing later")

    def report_connected(self, who: str) -> None:
        self.account = who
        self._changes.tell()

    def report_alive(self, within: float) -> None:
        self.expected = self.clock.monotonic() + within

    @property
    def problem(self) -> str:
        """The last reported problem."""
        return self.reports[-1] if self.reports else "nothing was reported"

    @property
    def owners(self) -> Sequence[str]:
        return ()

    @property
    def clock(self) -> FakeClock:
        return self._clock

    @property
    def state_folder(self) -> Path:
        return self._folder

    @property
    def is_folder_shared(self) -> bool:
        return False

    async def until(self, ready: Callable[[], object]) -> None:
        """Wait for a condition, which is checked after each call."""
        await self._changes.until(ready)


def make_event(id: str, text: str = "hello", **more: object) -> Line:
    """Return an event: a private message of Ann, 15557770000."""
    return {
        "kind": "message",
        "id": id,
        "chat": "15557770000@s.whatsapp.net",
        "sender": "15557770000@s.whatsapp.net",
        "alt": "888@lid",
        "name": "Ann",
        "at": 1_772_442_000,
        "from_me": False,
        "group": False,
        "title": "",
        "offline": False,
        "text": text,
        "mentions": [],
        "mentions_me": False,
        "quote": None,
        "forwarded": False,
        "media": None,
        "notes": [],
        "edits": "",
        "unknown": "",
        **more,
    }
