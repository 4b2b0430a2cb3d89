"""The state of each chat: its current id, and whether it is reachable.

A group that becomes a supergroup gets a new id. Its conversation and memory continue under its
first id, so ids are translated at the edge: `canonical` for inbound, `current` for outbound. Moves
survive a restart only for groups with an admitted person, because anyone can add the bot to a group
and move it. Unreachable chats are remembered only until a restart: another attempt costs one
call."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path

from loguru import logger
from msgspec import Struct

from nanobot.channel.documents import StateFile
from nanobot.errors import SendRefused

_UNREACHABLE = 128  # the number of unreachable chats remembered, strangers' included
_MOVES = 1000  # the number of groups, and of moves, that are stored. The oldest is dropped.
_UNADMITTED = 256  # the number of moves of groups without an admitted person, in memory only

_DIGITS = 18  # the longest id


def number(text: str) -> int | None:
    """Return the id of a message or topic, or None if it is not one."""
    is_id = text.isascii() and text.isdigit() and len(text) <= _DIGITS
    return int(text) if is_id else None


class _Moves(Struct):
    """The file `chats.json`. `moved`: new ids by old id. `groups`: first ids of groups with an
    admitted person."""

    version: int = 1
    moved: dict[str, str] = {}
    groups: list[str] = []


class Chats:
    """The known chats. Ids are texts here, as in the core.

    `state_folder` is the adapter's and exists. If its file is damaged, a moved group has its new
    id, which may be in no list, and starts a new conversation."""

    def __init__(self, state_folder: Path) -> None:
        self._file = StateFile(state_folder / "chats.json", _Moves)
        stored = self._file.read()
        self._moved = stored.moved
        self._came_from = {new: old for old, new in stored.moved.items()}
        self._groups = OrderedDict.fromkeys(stored.groups)
        self._unreachable: OrderedDict[str, None] = OrderedDict()
        self._is_written = True

    def canonical(self, chat_id: str) -> str:
        """Return the first id of a chat, under which the core knows it."""
        return follow_moves(chat_id, self._came_from)[-1] if self._came_from else chat_id

    def current(self, chat_id: str) -> int:
        """Return the id to send to. Raises `SendRefused` if it is not a chat id."""
        newest = follow_moves(chat_id, self._moved)[-1] if self._moved else chat_id
        try:
            return int(newest)
        except ValueError:
            raise SendRefused(
                f"{chat_id!r} is not a Telegram chat",
                hint="Use the chat's number, which is negative for a group.",
            ) from None

    def move(self, old: str, new: str) -> None:
        """Record the new id of a group that we send to. It applies at once. `StorageError` means
        that it is not on disk."""
        self.note_move(old, new)
        self.admit_group(old)
        self.flush()

    def note_move(self, old: str, new: str) -> None:
        """Record the new id of a group. It applies at once, and is stored by the next `flush` after
        `admit_group`, which may come before or after the move."""
        latest = follow_moves(old, self._moved)[-1]
        if latest == new and old != new:
            return
        if new in self._came_from or self.canonical(old) == self.canonical(new):
            logger.warning(
                "telegram: chat {} was not moved to {}, which is another chat's id", old, new
            )
            return
        self._moved[latest] = new
        self._came_from[new] = latest
        self._is_written = self._is_written and not self._is_admitted(old)
        self.set_reachable(old)
        self._trim()

    def admit_group(self, chat_id: str) -> None:
        """Record that a person in this group was admitted, so that its moves are stored."""
        first = self.canonical(chat_id)
        if first in self._groups:
            return
        self._groups[first] = None
        if len(self._groups) > _MOVES:
            self._groups.popitem(last=False)
        self._is_written = False
        self._trim()

    def flush(self) -> None:
        """Write pending changes. After a `StorageError` the next call retries."""
        if self._is_written:
            return
        moved = {old: new for old, new in self._moved.items() if self._is_admitted(old)}
        self._file.write(_Moves(moved=moved, groups=list(self._groups)))
        self._is_written = True

    def set_unreachable(self, chat_id: str) -> None:
        """Record that a chat accepts nothing from the bot: blocked, removed, deleted."""
        self._unreachable[self.canonical(chat_id)] = None
        if len(self._unreachable) > _UNREACHABLE:
            self._unreachable.popitem(last=False)

    def is_unreachable(self, chat_id: str) -> bool:
        """Return True if sending is pointless until someone there writes again."""
        return self.canonical(chat_id) in self._unreachable

    def set_reachable(self, chat_id: str) -> None:
        """Record that someone there wrote, or admitted the bot again."""
        self._unreachable.pop(self.canonical(chat_id), None)

    def _is_admitted(self, chat_id: str) -> bool:
        return self.canonical(chat_id) in self._groups

    def _trim(self) -> None:
        """Drop the oldest moves beyond the limits."""
        unadmitted = [old for old in self._moved if not self._is_admitted(old)]
        admitted = [old for old in self._moved if self._is_admitted(old)]
        for old in (*unadmitted[:-_UNADMITTED], *admitted[:-_MOVES]):
            self._came_from.pop(self._moved.pop(old), None)


def follow_moves(chat_id: str, steps: Mapping[str, str]) -> list[str]:
    """Follow the ids from this one on."""
    path = [chat_id]
    while (step := steps.get(path[-1])) is not None and step not in path:
        path.append(step)
    return path
