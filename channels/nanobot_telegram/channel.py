"""Telegram as a channel of nanobot: puts the parts of this adapter together."""

from __future__ import annotations

import asyncio
import secrets
from contextlib import suppress
from dataclasses import dataclass

from telegram.error import TelegramError

from nanobot.bus.events import Media, OutboundPart, Progress, Receipt
from nanobot.channel import ChannelHost, Limits
from nanobot.channel.health import HealthReporter
from nanobot.channel.waiting import first_error
from nanobot.errors import SendRefused
from nanobot_telegram.chats import Chats
from nanobot_telegram.client import TelegramClient
from nanobot_telegram.content import Me
from nanobot_telegram.failures import as_send_error
from nanobot_telegram.ingest import UpdateIngest
from nanobot_telegram.markdown import CAPTION_LIMIT, TEXT_LIMIT, fits
from nanobot_telegram.menu import tell_menu
from nanobot_telegram.message import LARGEST_FILE
from nanobot_telegram.outbound import Outbound
from nanobot_telegram.polling import Polling
from nanobot_telegram.preview import Previews
from nanobot_telegram.settings import TelegramSettings
from nanobot_telegram.webhook import Webhook

_ALBUM = 10
_PARTING_SECONDS = 1.0
"""What is being sent when the channel stops gets that long: cut off, it would be sent again."""


@dataclass(frozen=True, slots=True)
class _Live:
    """What there is while the channel runs."""

    client: TelegramClient
    outbound: Outbound
    previews: Previews


class TelegramChannel:
    """Implements `nanobot.channel.Channel`."""

    def __init__(self, options: TelegramSettings) -> None:
        self._options = options
        self._live: _Live | None = None
        self._running = asyncio.Event()
        self._sending = 0
        self._sent = asyncio.Event()

    @property
    def name(self) -> str:
        """As it stands in session keys."""
        return "telegram"

    @property
    def limits(self) -> Limits:
        """What a bot may send."""
        return Limits(
            text=TEXT_LIMIT,
            caption=CAPTION_LIMIT,
            files=_ALBUM,
            file_bytes=LARGEST_FILE,
            together=(
                frozenset({"image", "video"}),
                frozenset({"document"}),
                frozenset({"audio"}),
            ),
            fits=fits,
        )

    async def run(self, host: ChannelHost) -> None:
        """Receive until cancelled. Raises `ChannelOff` for a token or address that is refused."""
        client = TelegramClient(self._options, host.clock)
        await client.open()
        try:
            await self._run(host, client)
        except BaseExceptionGroup as group:
            raise first_error(group) from None
        finally:
            self._running.clear()
            self._live = None
            await self._let_sends_end()
            await client.close()

    async def send(self, part: OutboundPart) -> Receipt:
        """Deliver one part; see `nanobot.channel`."""
        live = await self._alive()
        self._sending += 1
        try:
            return await live.outbound.send(part)
        finally:
            self._sending -= 1
            self._sent.set()

    async def reach(self) -> None:
        """Ask Telegram who we are; see `nanobot.channel`."""
        client = (await self._alive()).client
        try:
            await client.me()
        except TelegramError as error:
            raise as_send_error(error) from None

    async def fetch(self, media: Media, limit: int) -> bytes:
        """The content of a file that someone sent; see `nanobot.channel`."""
        if media.size > limit:
            raise SendRefused(f"the file has {media.size:,} bytes, more than {limit:,}")
        return await (await self._alive()).client.download(media.ref, limit)

    async def show(self, event: Progress) -> None:
        """Show progress; nothing while the channel does not run."""
        if self._live is not None:
            await self._live.previews.show(event)

    async def _alive(self) -> _Live:
        while self._live is None:
            await self._running.wait()
        return self._live

    async def _let_sends_end(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_PARTING_SECONDS):
                while self._sending:
                    self._sent.clear()
                    await self._sent.wait()

    async def _run(self, host: ChannelHost, client: TelegramClient) -> None:
        chats = Chats(host.state_folder)
        previews = Previews(client, chats, host.clock, enabled=self._options.previews)
        self._live = _Live(client, Outbound(client, chats, host, previews), previews)
        self._running.set()
        health = HealthReporter(self.name, host)
        async with asyncio.TaskGroup() as group:
            group.create_task(previews.run())
            identity = await client.identify(health)
            health.resolve("connection")
            host.connected(f"@{identity.username}")
            group.create_task(tell_menu(client, host, identity.id))
            names = frozenset(entry.name for entry in host.menu())
            me = Me(identity.id, identity.username, names)
            ingest = UpdateIngest(client, host, chats, me, group)
            if self._options.mode == "webhook":
                secret = secrets.token_urlsafe()
                await Webhook(client, host, ingest, self._options, secret, health).run()
            else:
                await Polling(client, host, ingest, identity.id, health).run()
