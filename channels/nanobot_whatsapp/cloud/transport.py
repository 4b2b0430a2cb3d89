"""The Cloud API as a transport: puts its parts together."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from loguru import logger

from nanobot.bus.events import Media, OutboundPart, Progress, Receipt
from nanobot.channel import ChannelHost, Limits
from nanobot.channel.health import HealthReporter
from nanobot.channel.waiting import Backoff, first_error
from nanobot.errors import ChannelOff, SendRefused
from nanobot_whatsapp.cloud.failures import GraphError, Refused, as_send_error
from nanobot_whatsapp.cloud.files import LARGEST_FILE
from nanobot_whatsapp.cloud.graph import Graph, Identity
from nanobot_whatsapp.cloud.inbox import Inbox
from nanobot_whatsapp.cloud.outbound import Outbound
from nanobot_whatsapp.cloud.recent import Recent
from nanobot_whatsapp.cloud.seeing import Seeing
from nanobot_whatsapp.cloud.webhook import Receiver
from nanobot_whatsapp.cloud.wire import Wire
from nanobot_whatsapp.live import Live
from nanobot_whatsapp.markup import CAPTION_LIMIT, TEXT_LIMIT, fits
from nanobot_whatsapp.people import People
from nanobot_whatsapp.settings import WhatsAppSettings
from nanobot_whatsapp.taking import Taking
from nanobot_whatsapp.typing import Typing

_LONGEST_PAUSE = 60.0


@dataclass(frozen=True, slots=True)
class _Account:
    """What there is while the channel runs."""

    graph: Graph
    outbound: Outbound
    typing: Typing


class CloudTransport:
    """Implements `nanobot_whatsapp.transport.Transport`."""

    def __init__(self, options: WhatsAppSettings) -> None:
        self._options = options
        self._live: Live[_Account] = Live()

    @property
    def limits(self) -> Limits:
        """What a business may send."""
        return Limits(
            text=TEXT_LIMIT, caption=CAPTION_LIMIT, files=1, file_bytes=LARGEST_FILE, fits=fits
        )

    async def run(self, host: ChannelHost) -> None:
        """Receive until cancelled. Raises `ChannelOff` for a token or number that is refused."""
        wire = Wire(self._options.base_url, self._options.access_token)
        try:
            await self._run(host, wire)
        except BaseExceptionGroup as group:
            raise first_error(group) from None
        finally:
            await self._live.end()
            await wire.close()

    async def send(self, part: OutboundPart) -> Receipt:
        """Deliver one part; see `nanobot.channel`."""
        async with self._live.used() as account:
            return await account.outbound.send(part)

    async def reach(self) -> None:
        """Ask Meta which number this is; see `nanobot.channel`."""
        try:
            await (await self._live.got()).graph.whoami()
        except GraphError as error:
            raise as_send_error(error, harmless=True) from None

    async def fetch(self, media: Media, limit: int) -> bytes:
        """The content of a file that someone sent; see `nanobot.channel`."""
        if media.size > limit:
            raise SendRefused(f"the file has {media.size:,} bytes, more than {limit:,}")
        return await (await self._live.got()).graph.download(media.ref, limit)

    async def show(self, event: Progress) -> None:
        """Show progress; nothing while the channel does not run."""
        if (account := self._live.now) is not None:
            account.typing.show(event)

    async def _run(self, host: ChannelHost, wire: Wire) -> None:
        options, health = self._options, HealthReporter("whatsapp", host)
        graph = Graph(wire, options, host.clock, health)
        people, recent = People(host.state_folder), Recent()
        taking = Taking(host, people, self_chat=False, pairing=options.answers_strangers)
        inbox = Inbox(host, people, taking, recent, health, options.phone_number_id)
        seeing = Seeing(graph, inbox, host.clock)
        typing = Typing(seeing, host.clock)
        receiver = Receiver(options.app_secret, options.verify_token, inbox, health)
        self._live.begin(_Account(graph, Outbound(graph, people, host, recent), typing))
        # First of all Meta finds somebody at home, however long it takes to say who this is: what
        # it posts is signed, and names the number that it is for.
        async with asyncio.TaskGroup() as group, host.webhook(options.local_path, receiver):
            if options.read_receipts:  # to be seen typing, one has to have read
                group.create_task(typing.run())
            backoff = Backoff(host.clock, _LONGEST_PAUSE)
            while (identity := await _asked(graph, health)) is None:
                await backoff.wait()
            logger.info("whatsapp: this is {} ({})", identity.number, identity.name)
            host.connected(f"+{identity.number} (cloud)")
            await asyncio.Event().wait()


async def _asked(graph: Graph, health: HealthReporter) -> Identity | None:
    """Which number this is; None where Meta cannot say it now.

    Raises `ChannelOff` where a person has to mend the settings.
    """
    try:
        identity = await graph.whoami()
    except Refused as error:
        if (off := settings_fault(error)) is not None:
            raise off from None
        health.report("meta", f"Meta does not say which number this is: {error}")
    except GraphError as error:
        health.report("meta", f"Meta cannot be reached: {error}")
    else:
        health.resolve("meta")
        return identity
    return None


def settings_fault(error: Refused) -> ChannelOff | None:
    """What only a change of the settings mends. Other refusals may pass: they are trouble."""
    if error.kind == "token":
        return ChannelOff(
            f"Meta does not accept the access token: {error}",
            hint="Make a new one for a system user, with the permission "
            "whatsapp_business_messaging, and put it into channels.whatsapp.access_token.",
        )
    if error.is_unknown:
        return ChannelOff(
            f"Meta knows no such phone number: {error}",
            hint="Compare channels.whatsapp.phone_number_id with Meta's app dashboard; it is "
            "not the number itself.",
        )
    return None
