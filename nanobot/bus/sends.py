"""The log of sends, `state/sends.log`: marks that the journal may not have yet.

The journal syncs each transaction, so its marks are some milliseconds late, and later in a burst. A
line here is written without a sync and survives a kill of the process, because the kernel has it.
The next process brings the journal up to date from the log. A power loss may lose or tear lines.
Then the journal's own marks count.

Each line is the CRC-32 of what follows and a mark as JSON; the last line of a part counts. The
first line holds the random number of the journal: parts of another journal have the same numbers.
A line begins with its line end, so half a line on a full disk spoils no other.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Literal

from loguru import logger
from msgspec import DecodeError, Struct, json

State = Literal["pending", "sending", "sent", "kept"]
"""As in the outbox; `kept` is sent, with its text kept for a day."""

_MOST_LINES = 1_000
"""After so many the file is written again with the lines that are still needed."""
_LONGEST_ID = 200
"""Of a platform; a longer one is left out."""
_LARGEST = 4_000_000
"""Bytes that are read of a file; it never gets so large."""
_SAFELY = os.O_CLOEXEC | os.O_NOFOLLOW


class Mark(Struct, frozen=True, array_like=True):
    """What is known of a part; `doubts` are how many earlier sends of it may have arrived."""

    state: State
    part_id: int
    doubts: int = 0
    platform_id: str = ""


class SendLog:
    """The file at `path`. All methods belong to the event loop, and none raises: while the disk
    refuses the file, only the journal's marks count."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._identity = b""
        self._file, self._lines = -1, 0
        self._is_refused = False
        self.marks: dict[int, Mark] = {}
        """By part: those that the journal may not have yet."""

    def open(self, identity: str) -> None:
        """Read the marks of the process before, if the file belongs to this journal."""
        self._identity = identity.encode()
        try:
            with os.fdopen(os.open(self._path, os.O_RDONLY | _SAFELY), "rb") as file:
                # The bodies of lines that were written whole; empty for others.
                parts = file.read(_LARGEST).split(b"\n")[1:] or [b""]
                bodies = [part[9:] if _checked(part[9:]) == b"\n" + part else b"" for part in parts]
                first, *lines = bodies
        except FileNotFoundError:
            first, lines = b"", []
        except OSError as error:
            first, lines = b"", []
            self._note_refusal(error)
        for line in lines if first == self._identity else ():
            with suppress(DecodeError):
                mark = json.decode(line, type=Mark)
                self.marks[mark.part_id] = mark
        self.rewrite()

    def close(self) -> None:
        """Let go of the file."""
        if self._file >= 0:
            os.close(self._file)
        self._file = -1

    def write(self, mark: Mark) -> None:
        """Add a mark; it outlives this process from here on."""
        if len(mark.platform_id) > _LONGEST_ID:
            mark = Mark(mark.state, mark.part_id, mark.doubts)
        self.marks[mark.part_id] = mark
        if self._file < 0 or self._lines >= _MOST_LINES:
            self.rewrite()
            return
        try:
            self._append((mark,))
        except OSError as error:
            self._note_refusal(error)

    def rewrite(self) -> None:
        """Replace the file by one with the marks that are needed."""
        self.close()
        new = self._path.with_name(f"{self._path.name}.new")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | _SAFELY
        try:
            self._file, self._lines = os.open(new, flags, 0o600), 0
            os.write(self._file, _checked(self._identity))
            self._append(self.marks.values())
            new.replace(self._path)
        except OSError as error:
            self.close()
            self._note_refusal(error)

    def _append(self, marks: Iterable[Mark]) -> None:
        lines = [_checked(json.encode(mark)) for mark in marks]
        data = b"".join(lines)
        if data and os.write(self._file, data) < len(data):
            os.write(self._file, b"\n")  # raises, with the reason
        self._lines += len(lines)
        self._is_refused = False

    def _note_refusal(self, error: OSError) -> None:
        if not self._is_refused:
            logger.warning("{}: {}: after a crash, a reply may come twice", self._path, error)
        self._is_refused = True


def _checked(body: bytes) -> bytes:
    return b"\n%08x %b" % (zlib.crc32(body), body)
