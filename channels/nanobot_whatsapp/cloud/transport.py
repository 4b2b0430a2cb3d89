"""The Cloud API as a channel: composes its parts."""

from __future__ import annotations

import asyncio

from loguru import logger
from msgspec import Struct

from nanobot.bus.events import Media, OutboundPart, Progress, Receipt
from nanobot.channel import ChannelHost, Limits
from nanobot.channel.health import ConnectionSlot, HealthReporter
from nanobot.channel.http import HttpFault
from nanobot.clock import Backoff, first_error
from nanobot.errors import SendRefused
from nanobot_whatsapp.cloud.graph import Graph, Identity, Refused, as_send_error
from nanobot_whatsapp.cloud.inbound import Inbox, Receiver
from nanobot_whatsapp.cloud.outbound import MAX_FILE_BYTES, Outbound
from nanobot_whatsapp.ingest import Ingest, RecentMessages
from nanobot_whatsapp.markup import CAPTION_LIMIT, TEXT_LIMIT, fits
from nanobot_whatsapp.people import People
from nanobot_whatsapp.settings import WhatsAppSettings
from nanobot_whatsapp.transport import TypingIndicator

_MAX_PAUSE = 60.0
_TYPING_SECONDS = 20.0  # the interval at which it is shown again. Meta hides it after 25.


class _Connection(Struct, frozen=True):
    """The parts that exist while the channel runs."""

    graph: Graph
    outbound: Outbound
    typing: TypingIndicator


class CloudTransport:
    """The Cloud API as a `nanobot.channel.Channel`."""

    name = "whatsapp"
    limits = Limits(
        text=TEXT_LIMIT,
        caption=CAPTION_LIMIT,
        files=1,
        file_bytes=MAX_FILE_BYTES,
        fits=fits,
        voice=True,
        tells_writing=True,
    )

    def __init__(self, options: WhatsAppSettings) -> None:
        self._options = options
        self.paths = (options.local_path,)
        self._slot: ConnectionSlot[_Connection] = ConnectionSlot()

    async def run(self, host: ChannelHost) -> None:
        """Receive until cancelled. Raises `ChannelOff` if the token or number is rejected."""
        health = HealthReporter(self.name, host)
        graph = Graph(self._options, host.clock, health)
        try:
            await self._run(host, graph, health)
        except BaseExceptionGroup as group:
            raise first_error(group) from None
        finally:
            await self._slot.clear()
            await graph.close()

    async def send(self, part: OutboundPart) -> Receipt:
        """Deliver one part; see `nanobot.channel`."""
        async with self._slot.use() as connection:
            return await connection.outbound.send(part)

    async def reach(self) -> None:
        """Make a harmless request; see `nanobot.channel`."""
        try:
            await (await self._slot.wait()).graph.whoami()
        except HttpFault as error:
            raise as_send_error(error, is_idempotent=True) from None

    async def fetch(self, media: Media, limit: int) -> bytes:
        """Return an inbound file; see `nanobot.channel`."""
        if media.size > limit:
            raise SendRefused(f"the file is {media.size:,} bytes, but the limit is {limit:,}")
        return await (await self._slot.wait()).graph.download(media.ref, limit)

    async def show_progress(self, event: Progress) -> None:
        """Show progress, if the channel runs."""
        if (connection := self._slot.current) is not None:
            connection.typing.show_progress(event)

    async def _run(self, host: ChannelHost, graph: Graph, health: HealthReporter) -> None:
        options = self._options
        people, recent = People(host.state_folder), RecentMessages()
        ingest = Ingest(host, people, self_chat=False, pairing=options.answers_strangers)
        inbox = Inbox(host, people, ingest, recent, options.phone_number_id)

        async def set_typing(chat_id: str, is_typing: bool) -> None:
            # One call marks the last message as read and shows typing. The one at the end covers a
            # message that arrived during the turn.
            if last := inbox.last_in(chat_id):
                await graph.mark_read(last, typing=is_typing)

        typing = TypingIndicator(set_typing, host.clock, seconds=_TYPING_SECONDS)
        receiver = Receiver(
            options.app_secret, options.verify_token, inbox.ingest, inbox.quarantine.keep, health
        )
        outbound = Outbound(graph, people, host.media_path, recent)
        self._slot.fill(_Connection(graph, outbound, typing))
        # Serve the webhook before the number is known: Meta's calls are signed and contain the
        # number that they are for.
        async with asyncio.TaskGroup() as group, host.serve_webhook(options.local_path, receiver):
            if options.read_receipts:  # Meta combines typing and read receipts
                group.create_task(typing.run())
            backoff = Backoff(host.clock, _MAX_PAUSE)
            while (identity := await identify(graph, health)) is None:
                await backoff.wait()
            logger.info("whatsapp: connected as {} ({})", identity.number, identity.name)
            host.report_connected(f"+{identity.number} (cloud)")
            await asyncio.Event().wait()


async def identify(graph: Graph, health: HealthReporter) -> Identity | None:
    """Return the business number, or None if Meta can't be asked now. Raises `ChannelOff` if a
    person must correct the settings."""
    try:
        identity = await graph.whoami()
    except HttpFault as error:
        if isinstance(error, Refused) and (off := error.as_channel_off()) is not None:
            raise off from None
        refused = isinstance(error, Refused)
        problem = "did not identify the number" if refused else "cannot be reached"
        health.report("meta", f"Meta {problem}: {error}")
        return None
    health.resolve("meta")
    return identity
