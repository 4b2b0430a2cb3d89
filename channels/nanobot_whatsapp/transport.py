"""A way to reach WhatsApp. The channel has one of them and passes everything on to it."""

from __future__ import annotations

from typing import Protocol

from nanobot.bus.events import Media, OutboundPart, Progress, Receipt
from nanobot.channel import ChannelHost, Limits


class Transport(Protocol):
    """What each transport does; the rules are those of `nanobot.channel.Channel`."""

    @property
    def limits(self) -> Limits:
        """What one part may hold."""
        ...

    async def run(self, host: ChannelHost) -> None:
        """Receive until cancelled; raises `ChannelOff` for what only a person can mend."""
        ...

    async def send(self, part: OutboundPart) -> Receipt:
        """Deliver a part; raises one of the `SendError`s. Waits for `run`."""
        ...

    async def reach(self) -> None:
        """Raises a `SendError` while WhatsApp cannot be reached; nothing where sending a part twice
        does no harm."""
        ...

    async def fetch(self, media: Media, limit: int) -> bytes:
        """A file that someone sent, of at most `limit` bytes; raises `SendRefused`."""
        ...

    async def show(self, event: Progress) -> None:
        """Show progress; never raises for want of it."""
        ...
