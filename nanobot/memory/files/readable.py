"""HISTORY.md: the history for people and grep, one paragraph an entry, a blank line after each.

It is a copy, and the person's: nothing here is read back into memory, what they delete stays
deleted. Only a paragraph that a crash kept from reaching it, wholly or in part, is added later.
"""

from __future__ import annotations

import os

from nanobot.memory.files.linefile import LIMIT
from nanobot.security.paths import Place, write_all


class Readable:
    """The file at `place`. One writer at a time: the caller sees to that."""

    def __init__(self, place: Place) -> None:
        self._place = place

    def text(self) -> str:
        """What stands in it, empty where there is no file."""
        return (self._place.read_bytes(LIMIT) or b"").decode("utf-8", "replace")

    def append(self, paragraph: str) -> None:
        """Add a paragraph, durably. Raises `StorageError`."""
        self._add(_encoded(paragraph), torn=b"")

    def ensure(self, paragraph: str) -> None:
        """Add a paragraph unless it stands there; complete one that was cut short."""
        wanted = _encoded(paragraph)
        standing = self._place.read_bytes(LIMIT) or b""
        if wanted in standing.replace(b"\r\n", b"\n"):
            return
        torn = standing.rpartition(b"\n\n")[2]
        self._add(wanted, torn=torn if wanted.startswith(torn) else b"")

    def _add(self, paragraph: bytes, torn: bytes) -> None:
        with self._place.opened(os.O_RDWR | os.O_APPEND, create=True) as descriptor:
            size = os.fstat(descriptor).st_size
            end = os.pread(descriptor, 4, max(0, size - 4)).replace(b"\r", b"")
            gap = b"" if torn or not size else b"\n\n"[: 2 - _newlines(end)]
            write_all(descriptor, gap + paragraph[len(torn) :] + b"\n\n")
            os.fsync(descriptor)


def _encoded(paragraph: str) -> bytes:
    return paragraph.encode("utf-8", "backslashreplace")


def _newlines(end: bytes) -> int:
    return min(2, len(end) - len(end.rstrip(b"\n")))
