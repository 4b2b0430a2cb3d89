"""The log of sends, `state/sends.log`: marks that the journal may not have yet.

The journal syncs each transaction, so its marks are some milliseconds late, and later in a burst. A
line here is written without a sync and survives a kill of the process, because the kernel has it.
The next process brings the journal up to date from the log. A power loss may lose or tear lines.
Then the journal's own marks count.

The file is ASCII lines of `_LINE` bytes: a CRC-32 of what follows, then the state, the number of
the part in the outbox, how many earlier sends of it may have arrived, and the platform's id. The
last line of a part counts. The first line holds the random number of the journal: parts of another
journal have the same numbers. Lines that the journal has are cut off when the file grows.
"""

from __future__ import annotations

import errno
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from loguru import logger
from msgspec import Struct, ValidationError, convert

State = Literal["pending", "sending", "sent", "kept"]
"""As in the outbox; `kept` is sent, with its text kept for a day."""

_LINE = 128
_BODY = _LINE - len("01234567 ") - 1
_MOST_LINES = 1_000
"""After so many the file is written again with the lines that are still needed."""
_LARGEST = 4_000_000
"""Bytes that are read of a file; it never gets so large."""
_SAFELY = os.O_CLOEXEC | os.O_NOFOLLOW


class Mark(Struct, frozen=True, array_like=True):
    """What is known of a part."""

    state: State
    part_id: int
    doubts: int = 0
    platform_id: str = ""

    def as_line(self) -> bytes:
        """The line in the file. An id that has no room there is left out."""
        body = f"{self.state} {self.part_id} {self.doubts} "
        named = body + self.platform_id
        if named.isascii() and named.isprintable() and len(named) <= _BODY:
            body = named
        return _checked(body)


class SendLog:
    """The file at `path`. All methods belong to the event loop, and none raises: while the disk
    refuses the file, only the journal's marks count."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._identity = ""
        self._file, self._end, self._most = -1, 0, 0
        self._is_refused = False
        self.marks: dict[int, Mark] = {}
        """By part: those that the journal may not have yet."""

    def open(self, identity: str) -> None:
        """Read the marks of the process before, if the file belongs to this journal."""
        self._identity = identity
        try:
            with os.fdopen(os.open(self._path, os.O_RDONLY | _SAFELY), "rb") as file:
                self.marks = _marks_in(file.read(_LARGEST), identity)
        except FileNotFoundError:
            pass
        except OSError as error:
            self._note_refusal(error)
        self.rewrite()

    def close(self) -> None:
        """Let go of the file."""
        if self._file >= 0:
            os.close(self._file)
        self._file = -1

    def write(self, mark: Mark) -> None:
        """Add a mark; it outlives this process from here on."""
        self.marks[mark.part_id] = mark
        if (self._file < 0 or self._end >= self._most) and self.rewrite():
            return
        if self._file >= 0:
            self._append(mark.as_line())

    def rewrite(self) -> bool:
        """Replace the file by one with the marks that are needed; whether that was possible."""
        lines = b"".join((_checked(self._identity), *(m.as_line() for m in self.marks.values())))
        self._most = self._end + _MOST_LINES * _LINE  # what the disk refuses is not tried soon
        new = self._path.with_name(f"{self._path.name}.new")
        try:
            file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _SAFELY, 0o600)
            try:
                _write_at(file, lines, 0)
                new.replace(self._path)
            except BaseException:
                os.close(file)
                raise
        except OSError as error:
            self._note_refusal(error)
            return False
        self.close()
        self._file, self._end = file, len(lines)
        self._most = self._end + _MOST_LINES * _LINE
        self._is_refused = False
        return True

    def _append(self, line: bytes) -> None:
        try:
            # At its place: the next line overwrites half a line on a disk that was full.
            _write_at(self._file, line, self._end)
        except OSError as error:
            self._note_refusal(error)
        else:
            self._end += _LINE
            self._is_refused = False

    def _note_refusal(self, error: OSError) -> None:
        if not self._is_refused:
            logger.warning("{}: {}: after a crash, a reply may come twice", self._path, error)
        self._is_refused = True


def _checked(body: str) -> bytes:
    padded = body.ljust(_BODY).encode()
    return b"%08x %b\n" % (zlib.crc32(padded), padded)


def _marks_in(data: bytes, identity: str) -> dict[int, Mark]:
    """The newest mark of each part; none from the log of another journal."""
    bodies = _whole_lines(data)
    if next(bodies, "") != identity:
        return {}
    marks = (_parsed(body) for body in bodies)
    return {mark.part_id: mark for mark in marks if mark is not None}


def _whole_lines(data: bytes) -> Iterator[str]:
    """The bodies of lines that were written whole; empty for others."""
    for start in range(0, len(data), _LINE):
        body = data[start + 9 : start + _LINE - 1].decode("ascii", "replace").rstrip()
        yield body if data[start : start + _LINE] == _checked(body) else ""


def _parsed(body: str) -> Mark | None:
    try:
        return convert(body.split(" ", 3), Mark, strict=False)
    except ValidationError:
        return None


def _write_at(file: int, data: bytes, place: int) -> None:
    if os.pwrite(file, data, place) < len(data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
