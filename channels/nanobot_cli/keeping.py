"""What was said in a terminal chat while nobody looked, kept until somebody does.

What always holds: the file is the old one or the new one, whole, and for its owner's eyes (0600);
nothing stands in it twice; it has an end, beyond which the oldest gives way, and the conversation
itself keeps everything anyway.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from loguru import logger
from pydantic import BaseModel, ConfigDict, ValidationError

from nanobot.bus.events import Button, Media, OutboundPart
from nanobot.disk import replace
from nanobot.errors import StorageError

MOST_PARTS = 200
"""Of all chats together."""

MOST_CHARACTERS = 20_000
"""Of one part."""

_MOST_IN_ALL = 1_000_000
_FILE = "unseen.json"


@dataclass(frozen=True, slots=True)
class Unseen:
    """A part that nobody has seen. `key` is that of the part, `at` the moment in ISO format."""

    key: str
    chat_id: str
    at: str
    text: str
    media: tuple[Media, ...] = ()
    buttons: tuple[Button, ...] = ()

    @classmethod
    def of(cls, part: OutboundPart, at: str) -> Unseen:
        """As it is kept: what is very long is cut."""
        text = part.content
        if len(text) > MOST_CHARACTERS:
            where = f"nanobot sessions show {part.channel}:{part.chat_id}"
            text = f"{text[:MOST_CHARACTERS]}\n[cut off here; the whole is in: {where}]"
        return cls(part.key, part.chat_id, at, text, part.media, part.buttons)


class _Stored(BaseModel):
    """The file."""

    model_config = ConfigDict(extra="forbid")

    version: Literal[1]
    parts: tuple[Unseen, ...]


class Shelf:
    """Keeps them in `folder`, which exists. Blocks; one caller at a time."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / _FILE

    def add(self, unseen: Unseen) -> None:
        """Keep one, durably; the same one again changes nothing. Raises `StorageError`."""
        kept = self._read()
        if all(one.key != unseen.key for one in kept):
            self._write(_bounded((*kept, unseen)))

    def take(self, chat_id: str) -> Sequence[Unseen]:
        """Those of a chat, the oldest first, which are kept no more. Raises `StorageError`, and
        then all are kept."""
        kept = self._read()
        taken = [one for one in kept if one.chat_id == chat_id]
        if taken:
            self._write([one for one in kept if one.chat_id != chat_id])
        return taken

    def _read(self) -> list[Unseen]:
        """A damaged file is put aside: nothing is lost but that it is shown."""
        try:
            content = self._path.read_bytes()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise StorageError.of(self._path, error) from error
        try:
            return list(_Stored.model_validate_json(content).parts)
        except ValidationError:
            aside = self._path.with_suffix(".damaged")
            logger.error("cli: {} is damaged and put aside as {}", self._path, aside.name)
            with suppress(OSError):
                self._path.replace(aside)
            return []

    def _write(self, kept: Sequence[Unseen]) -> None:
        stored = _Stored(version=1, parts=tuple(kept)).model_dump()
        # What is no text, such as half a name that is not UTF-8, must not be tried for ever.
        content = json.dumps(stored, ensure_ascii=False).encode(errors="replace")
        try:
            replace(self._path, content)
        except OSError as error:
            raise StorageError.of(self._path, error) from error


def _bounded(kept: Sequence[Unseen]) -> list[Unseen]:
    """The newest of them, as many as there is room for."""
    newest: list[Unseen] = []
    room = _MOST_IN_ALL
    for one in reversed(kept[-MOST_PARTS:]):
        room -= len(one.text)
        if room < 0:
            break
        newest.append(one)
    return newest[::-1]
