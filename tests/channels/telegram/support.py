"""The core's side of the port for tests of the adapter: in memory, with failures."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from aiohttp import web

from nanobot.bus.events import InboundMessage, Media
from nanobot.channel import (
    Admission,
    Chat,
    HttpHandler,
    MenuEntry,
    Sender,
    WebhookHandler,
    WebhookRequest,
)
from nanobot.errors import ChannelOff, StorageError
from nanobot.testing.clock import FakeClock
from nanobot.validation import build
from nanobot_telegram.channel import TelegramChannel
from nanobot_telegram.settings import TelegramSettings
from tests.doubles.server import Served
from tests.doubles.telegram import FakeTelegram

PATIENCE = 30.0
"""Real seconds after which a hanging test fails."""


class WatchedClock(FakeClock):
    """A clock that reports requested sleeps."""

    def __init__(self) -> None:
        super().__init__()
        self._asked = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        self._asked.set()
        await super().sleep(seconds)

    async def until_asked(self, seconds: float, times: int = 1) -> None:
        """Wait until sleeps of that many seconds were requested `times` times."""
        await self.until_asked_between(seconds, seconds, times)

    async def until_asked_between(self, least: float, most: float, times: int = 1) -> None:
        """Wait for random pauses within these limits."""
        while sum(least <= seconds <= most for seconds in self.slept) < times:
            self._asked.clear()
            await self._asked.wait()


class RecordingHost:
    """Implements `nanobot.channel.ChannelHost`. `stored` are the new messages.

    `disk_full` makes `publish` raise. It waits while `gate` is not set. `strangers` are refused."""

    def __init__(self, folder: Path, clock: FakeClock) -> None:
        self._folder, self._clock = folder, clock
        self.expected = 0.0
        self._changed: list[asyncio.Future[None]] = []
        self.stored: list[InboundMessage] = []
        self.stored_cursor: str | None = None
        self.published = 0
        self.disk_full = False
        self.gate = asyncio.Event()
        self.gate.set()
        self.strangers: set[str] = set()
        self.asked: list[tuple[Sender, Chat, bool]] = []
        self.buttons: dict[str, str] = {}
        self.reports: list[str] = []
        self.account = ""
        self.undelivered: list[tuple[str, str]] = []
        self.entries: list[MenuEntry] = []
        self.owner_ids: list[str] = []
        self.port = 0

    def admit(self, sender: Sender, chat: Chat, *, addressed: bool = True) -> Admission:
        self.asked.append((sender, chat, addressed))
        return "refused" if sender.id in self.strangers else "allowed"

    async def publish(
        self, messages: Sequence[InboundMessage], cursor: str | None = None
    ) -> Sequence[str]:
        self.published += 1
        self._tell()
        await self.gate.wait()
        if self.disk_full:
            raise StorageError("inbox.db", "no space left on device")
        known = {(message.chat_id, message.event_id) for message in self.stored}
        new = [m for m in messages if (m.chat_id, m.event_id) not in known]
        self.stored += new
        self.stored_cursor = cursor or self.stored_cursor
        self._tell()
        return [message.event_id for message in new]

    async def cursor(self) -> str | None:
        return self.stored_cursor

    async def has_received(self, chat_id: str, event_id: str, *, unanswered: bool = False) -> bool:
        return False

    async def resolve_button(self, button_id: str, sender: Sender, chat: Chat) -> str | None:
        return self.buttons.get(button_id)

    def serve_webhook(self, path: str, handler: WebhookHandler) -> AbstractAsyncContextManager[str]:
        return serve_handler(path, handler, self.port)

    def serve_http(self, path: str, handler: HttpHandler) -> AbstractAsyncContextManager[str]:
        raise AssertionError("Telegram needs webhooks only")

    def media_path(self, media: Media) -> Path:
        return self._folder / media.ref

    def menu(self) -> Sequence[MenuEntry]:
        return self.entries

    def report_problem(self, problem: str) -> None:
        self.reports.append(problem)
        self._tell()

    def report_idle(self, why: str) -> None:
        raise AssertionError("this channel always runs")

    async def report_undelivered(self, platform_id: str, reason: str) -> None:
        self.undelivered.append((platform_id, reason))

    def report_connected(self, who: str) -> None:
        self.account = who

    def report_alive(self, within: float) -> None:
        self.expected = self._clock.monotonic() + within

    @property
    def owners(self) -> Sequence[str]:
        return self.owner_ids

    @property
    def clock(self) -> FakeClock:
        return self._clock

    @property
    def state_folder(self) -> Path:
        return self._folder

    @property
    def is_folder_shared(self) -> bool:
        return False

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait for a condition, which is checked after each call."""
        while not condition():
            change: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._changed.append(change)
            await change

    async def texts(self, count: int) -> list[str]:
        """Return the texts of the messages, once that many are stored."""
        await self.until(lambda: len(self.stored) >= count)
        return [message.content for message in self.stored]

    def _tell(self) -> None:
        changed, self._changed = self._changed, []
        for change in changed:
            if not change.done():
                change.set_result(None)


def options_for(telegram: FakeTelegram, **more: object) -> TelegramSettings:
    """Return settings that lead to the fake server."""
    return build(TelegramSettings, {"token": telegram.token, "base_url": telegram.base_url, **more})


@contextlib.asynccontextmanager
async def running(
    telegram: FakeTelegram, host: RecordingHost, **more: object
) -> AsyncIterator[TelegramChannel]:
    """Run the channel with the fake server. At the end it is killed without time to finish."""
    channel = TelegramChannel(options_for(telegram, **more))
    async with asyncio.timeout(PATIENCE):
        life = asyncio.create_task(channel.run(host))
        try:
            yield channel
        finally:
            life.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await life


async def run_until_off(telegram: FakeTelegram, host: RecordingHost, **more: object) -> ChannelOff:
    """Run the channel until it gives up, and return the reason."""
    channel = TelegramChannel(options_for(telegram, **more))
    async with asyncio.timeout(PATIENCE):
        try:
            await channel.run(host)
        except ChannelOff as off:
            return off
    raise AssertionError("the channel ended by itself")


async def end_poll(telegram: FakeTelegram, clock: WatchedClock) -> None:
    """Let the time of the waiting poll run out."""
    await telegram.wait_for(lambda: telegram.polls)
    await clock.advance(30.0)
    telegram.end_polls()


@contextlib.asynccontextmanager
async def serve_handler(path: str, handler: WebhookHandler, port: int) -> AsyncIterator[str]:
    async def answer(http: web.Request) -> web.Response:
        headers = {name.lower(): value for name, value in http.headers.items()}
        request = WebhookRequest(http.method, "", headers, dict(http.query), await http.read())
        reply = await handler(request)
        return web.Response(status=reply.status, body=reply.body)

    app = web.Application()
    app.router.add_route("*", path, answer)
    served = await Served.start(app, port)
    try:
        yield f"http://127.0.0.1:{port}{path}"
    finally:
        await served.stop()
