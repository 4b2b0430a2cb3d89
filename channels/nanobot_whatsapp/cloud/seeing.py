"""Marks what is being answered as read, and shows that an answer is being written.

Both are one call of the Cloud API, about the last message of a private chat; groups have neither.
Best effort: what goes wrong is logged and forgotten.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Protocol

from loguru import logger

from nanobot.clock import Clock
from nanobot_whatsapp.cloud.failures import GraphError
from nanobot_whatsapp.cloud.graph import Graph

_LASTS = 20.0
"""Seconds after which it is shown again: Meta takes it away after 25."""
_MOST = 256


class Lasts(Protocol):
    """What was said last; see `Inbox`."""

    def last_in(self, chat_id: str) -> str:
        """The id of the last message in a private chat, or nothing."""
        ...


class Seeing:
    """To be called whenever it should be seen, or not any more (see `nanobot_whatsapp.typing`)."""

    def __init__(self, graph: Graph, lasts: Lasts, clock: Clock) -> None:
        self._graph, self._lasts, self._clock = graph, lasts, clock
        self._shown: OrderedDict[str, tuple[str, float]] = OrderedDict()

    async def __call__(self, chat_id: str, on: bool) -> None:
        """Meta takes it away itself when something is sent, and is not asked to."""
        last = self._lasts.last_in(chat_id)
        if not on or not last:
            self._shown.pop(chat_id, None)
            return
        now = self._clock.monotonic()
        shown, at = self._shown.get(chat_id, ("", 0.0))
        if shown == last and now - at < _LASTS:
            return
        self._shown[chat_id] = (last, now)
        if len(self._shown) > _MOST:
            self._shown.popitem(last=False)
        try:
            await self._graph.seen(last, typing=True)
        except GraphError as error:
            logger.debug("whatsapp: typing is not shown: {}", error)
