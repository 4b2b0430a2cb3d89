"""Parts of messages that came while no client was there, for the next watcher of their chat."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from nanobot.bus.events import Button, Media, OutboundPart
from nanobot.channel.documents import StateFile

MOST_PARTS = 200
"""Parts kept for the next watcher, in all chats together."""

MOST_CHARACTERS = 20_000
"""In one such part."""

_FILE = "unseen.json"


class UnseenPart(Struct, frozen=True):
    """A part that no client has seen. `key` is the key of the part, `at` the time in ISO format."""

    key: str
    chat_id: str
    at: str
    text: str
    media: tuple[Media, ...] = ()
    buttons: tuple[Button, ...] = ()


class _Stored(Struct, frozen=True):
    """The content of the file."""

    version: Literal[1] = 1
    parts: tuple[UnseenPart, ...] = ()


class Shelf:
    """The parts that came while no client was there, in the existing `folder`.

    Blocks, one caller at a time. The file is bounded: the oldest parts are dropped, and the
    sessions have everything anyway."""

    def __init__(self, folder: Path) -> None:
        self._file = StateFile(folder / _FILE, _Stored)

    def add(self, part: OutboundPart, at: str) -> None:
        """Keep a part once, durably. Raises `StorageError`."""
        kept = self._file.read().parts
        if any(one.key == part.key for one in kept):
            return
        text = part.content
        if len(text) > MOST_CHARACTERS:
            where = f"nanobot sessions show {part.channel}:{part.chat_id}"
            text = f"{text[:MOST_CHARACTERS]}\n[shortened; to see the full text, run: {where}]"
        unseen = UnseenPart(part.key, part.chat_id, at, text, part.media, part.buttons)
        self._file.write(_Stored(parts=(*kept, unseen)[-MOST_PARTS:]))

    def close(self, part: OutboundPart, outcome: str) -> None:
        """Replace the choices of a kept part with their outcome. Raises `StorageError`."""
        kept = self._file.read().parts
        closed = tuple(
            replace(one, text=f"{one.text}\n\n{outcome}", buttons=())
            if one.key == part.key
            else one
            for one in kept
        )
        if closed != kept:
            self._file.write(_Stored(parts=closed))

    def take(self, chat_id: str) -> Sequence[UnseenPart]:
        """Remove and return the parts of a chat, or of all ("") chats, oldest first. Raises
        `StorageError`, and keeps all then."""
        kept = self._file.read().parts
        taken = [one for one in kept if chat_id in ("", one.chat_id)]
        if taken:
            self._file.write(_Stored(parts=tuple(one for one in kept if one not in taken)))
        return taken
