"""The core's side of the channel port: all that an adapter gets to know of nanobot."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from nanobot.bus.events import InboundMessage
from nanobot.bus.journal import Journal
from nanobot.bus.queue import MessageBus
from nanobot.channel import Admission
from nanobot.errors import StorageError


class Host:
    """One channel's view of the core. `everyone` admits all senders (a channel whose senders the
    operating system has already checked); otherwise only those of `allow_from`, or all for `*`."""

    def __init__(
        self,
        channel: str,
        bus: MessageBus,
        journal: Journal,
        state_folder: Path,
        *,
        allow_from: Sequence[str] = (),
        everyone: bool = False,
    ) -> None:
        self._channel, self._bus, self._journal = channel, bus, journal
        self._state_folder = state_folder
        self._allowed = frozenset(allow_from)
        self._everyone = everyone or "*" in self._allowed

    def admit(self, sender_id: str, chat_id: str) -> Admission:
        """See `ChannelHost`."""
        return "allowed" if self._everyone or sender_id in self._allowed else "refused"

    async def publish(
        self, messages: Sequence[InboundMessage], cursor: str | None = None
    ) -> Sequence[str]:
        """See `ChannelHost`. What a refused sender wrote is not stored, only the cursor moves."""
        admitted = [m for m in messages if self.admit(m.sender_id, m.chat_id) == "allowed"]
        return await self._bus.publish(self._channel, admitted, cursor)

    async def cursor(self) -> str | None:
        """See `ChannelHost`."""
        return await self._journal.cursor(self._channel)

    @property
    def state_folder(self) -> Path:
        """See `ChannelHost`. Made when it is first asked for; raises `StorageError`."""
        try:
            self._state_folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError.of(self._state_folder, error) from error
        return self._state_folder
