"""The port that channel adapters implement, and the core's side of it.

An adapter only translates between a platform and `nanobot.bus.events`. Access, durability, order,
retries and splitting are the core's, the same for every platform.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from nanobot.bus.events import InboundMessage, Media, OutboundPart, Progress, Receipt


@dataclass(frozen=True, slots=True)
class Limits:
    """What one part may hold on this platform; 0 means without limit.

    `text` is counted in UTF-16 code units, which is how the platforms count.
    """

    text: int = 0
    caption: int = 0
    media: int = 0


Admission = Literal["allowed", "refused"]


class ChannelHost(Protocol):
    """All that an adapter gets from the core."""

    def admit(self, sender_id: str, chat_id: str) -> Admission:
        """Ask this before anything else is done with what a sender sent."""
        ...

    async def publish(
        self, messages: Sequence[InboundMessage], cursor: str | None = None
    ) -> Sequence[str]:
        """Store messages, and with them the platform cursor that covers them, in one transaction.

        Returns when they are durable (only then may the platform be told), with the event ids that
        were new; the others had been seen before. Waits while too many are unanswered: that is the
        back-pressure, so do not poll on meanwhile. Raises `StorageError` when the disk refuses.
        """
        ...

    async def cursor(self) -> str | None:
        """The cursor stored last, or None."""
        ...

    @property
    def state_folder(self) -> Path:
        """A folder (0700) for this adapter's own state."""
        ...


class Channel(Protocol):
    """One platform. Found by entry point in the group `nanobot.channels`."""

    @property
    def name(self) -> str:
        """As it stands in session keys: `telegram`."""
        ...

    @property
    def limits(self) -> Limits:
        """What one part may hold."""
        ...

    async def run(self, host: ChannelHost) -> None:
        """Receive until cancelled. Raising means a crash: the supervisor starts it again."""
        ...

    async def send(self, part: OutboundPart) -> Receipt:
        """Deliver one part; raise one of the `SendError`s when that did not work."""
        ...

    async def fetch(self, media: Media, limit: int) -> bytes:
        """The content of an inbound file of at most `limit` bytes."""
        ...

    async def show(self, event: Progress) -> None:
        """Show progress if the platform can; never raise for want of it."""
        ...
