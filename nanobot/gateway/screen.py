"""Shows progress in channels, in order within a chat, without ever holding up the agent."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from functools import partial

from loguru import logger

from nanobot.agent.session_queue import Lanes
from nanobot.bus.events import Progress, TextDelta
from nanobot.channel import Channel

_BACKLOG = 1_000
_MOST = 5


class Screen:
    """One lane per chat. Text of a chat that cannot keep up is left out: the final reply has it
    all; the ends of turns never are. A reply waits `patience` seconds for the progress before it; a
    single event may take `_MOST` times as long to show."""

    def __init__(self, channels: Mapping[str, Channel], *, patience: float = 2.0) -> None:
        self._channels, self._patience = channels, patience
        self._lanes = Lanes()

    def show(self, event: Progress) -> None:
        """Queue an event for its chat."""
        channel = self._channels.get(event.channel)
        if channel is None:
            return
        chat = f"{event.channel}:{event.chat_id}"
        if self._lanes.waiting(chat) < _BACKLOG or not isinstance(event, TextDelta):
            self._lanes.submit(chat, partial(self._show, channel, event))

    async def flush(self, channel: str, chat_id: str) -> None:
        """Return when what was queued for a chat has been shown, or after a moment."""
        chat = f"{channel}:{chat_id}"
        if not self._lanes.is_active(chat):
            return
        shown = asyncio.Event()
        self._lanes.submit(chat, partial(_mark, shown))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._patience):
                await shown.wait()

    async def close(self) -> None:
        """Stop showing."""
        await self._lanes.drain(0.0)

    async def _show(self, channel: Channel, event: Progress) -> None:
        try:
            async with asyncio.timeout(_MOST * self._patience):
                await channel.show(event)
        except Exception as error:  # noqa: BLE001 - the boundary: progress is best effort
            logger.opt(exception=error).warning("{} could not show progress", channel.name)


async def _mark(shown: asyncio.Event) -> None:
    shown.set()
