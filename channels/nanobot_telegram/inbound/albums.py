"""Albums in groups: only one of their items carries the words, and with them the mention.

Every item comes as an update of its own, with the album's id. Where one item was meant for the
agent they all were.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace

from nanobot_telegram.inbound.values import Understood

_REMEMBERED = 256
"""How many albums are remembered: their items come within seconds of each other."""


class Albums:
    """The albums that were meant for the agent. One for all batches of a channel."""

    def __init__(self) -> None:
        self._addressed: OrderedDict[tuple[str, str, str], None] = OrderedDict()

    def complete(self, batch: Sequence[Understood | None]) -> tuple[Understood | None, ...]:
        """The same batch, in which an album is addressed as a whole. An item that came in an
        earlier batch than the one with the mention cannot be reached any more."""
        for item in batch:
            if item and item.addressed and (album := _album(item)):
                self._addressed[album] = None
                self._addressed.move_to_end(album)
        while len(self._addressed) > _REMEMBERED:
            self._addressed.popitem(last=False)
        return tuple(self._whole(item) for item in batch)

    def _whole(self, item: Understood | None) -> Understood | None:
        if item is None or item.addressed or _album(item) not in self._addressed:
            return item
        return replace(item, addressed=True)


def _album(item: Understood) -> tuple[str, str, str] | None:
    message = item.message
    if message is None or not message.group_id or not message.is_group:
        return None
    return message.chat_id, message.sender_id, message.group_id
