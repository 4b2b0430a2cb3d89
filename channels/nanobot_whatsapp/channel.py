"""WhatsApp as a channel of nanobot: chooses the transport that the settings name."""

from __future__ import annotations

from nanobot.bus.events import Media, OutboundPart, Progress, Receipt
from nanobot.channel import ChannelHost, Limits
from nanobot_whatsapp.settings import WhatsAppSettings
from nanobot_whatsapp.transport import Transport


class WhatsAppChannel:
    """Implements `nanobot.channel.Channel`. A `transport` given is used in place of the one that
    the settings name."""

    def __init__(self, options: WhatsAppSettings, *, transport: Transport | None = None) -> None:
        self._transport = transport or _transport(options)

    @property
    def name(self) -> str:
        """As it stands in session keys."""
        return "whatsapp"

    @property
    def limits(self) -> Limits:
        """What the transport takes."""
        return self._transport.limits

    async def run(self, host: ChannelHost) -> None:
        """Receive until cancelled; see `nanobot.channel`."""
        await self._transport.run(host)

    async def send(self, part: OutboundPart) -> Receipt:
        """Deliver one part; see `nanobot.channel`."""
        return await self._transport.send(part)

    async def reach(self) -> None:
        """Whether the platform answers; see `nanobot.channel`."""
        await self._transport.reach()

    async def fetch(self, media: Media, limit: int) -> bytes:
        """The content of a file that someone sent; see `nanobot.channel`."""
        return await self._transport.fetch(media, limit)

    async def show(self, event: Progress) -> None:
        """Show progress; see `nanobot.channel`."""
        await self._transport.show(event)


def _transport(options: WhatsAppSettings) -> Transport:
    """Each transport costs memory, so that only the one in use is imported."""
    if options.transport == "cloud":
        from nanobot_whatsapp.cloud.transport import CloudTransport

        return CloudTransport(options)
    from nanobot_whatsapp.linked.transport import LinkedTransport

    return LinkedTransport(options)
