"""The log's file: lines are added to it, and a new one is begun when it is full.

`nanobot.log` becomes `nanobot.log.1`, that `nanobot.log.2` and so on; the oldest goes. Every line
is in exactly one of them. What the disk refuses is lost, which is said once on standard error, and
writing goes on when it can; a line that was cut short never runs into the next one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from nanobot.security.atomic import write_all

_OPEN = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC

_NUMBER = re.compile(r"[1-9][0-9]{0,3}")
"""Longer ones are dates: copies that somebody keeps."""

Complain = Callable[[str], None]


class LogFile:
    """The log at `path`, of up to `max_bytes`, with `keep` older files beside it. `complain` is
    told of trouble. Calls come from one thread at a time."""

    def __init__(self, path: Path, max_bytes: int, keep: int, complain: Complain) -> None:
        self._path, self._max_bytes, self._keep = path, max_bytes, keep
        self._complain = complain
        self._descriptor = -1
        self._refused = False
        self._stuck = False

    def write(self, line: str) -> None:
        """Add a line. Never raises."""
        data = line.encode("utf-8", "backslashreplace") + b"\n"
        try:
            self._open()
            if self._is_full(len(data)):
                self._rotate()
            write_all(self._descriptor, data)
        except OSError as error:
            self.close()  # opened anew, it is looked at anew
            if not self._refused:
                self._complain(f"the log {self._path} cannot be written: {error.strerror or error}")
            self._refused = True
        else:
            self._refused = False

    def close(self) -> None:
        """Let go of the file; the next line opens it again."""
        if self._descriptor >= 0:
            with suppress(OSError):
                os.close(self._descriptor)
        self._descriptor = -1

    def _open(self) -> None:
        """Open the file, also where somebody has moved it away or removed it."""
        if self._descriptor >= 0 and self._is_in_place():
            return
        self.close()
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._descriptor = os.open(self._path, _OPEN, 0o600)
        size = os.fstat(self._descriptor).st_size
        if size and os.pread(self._descriptor, 1, size - 1) != b"\n":
            write_all(self._descriptor, b"\n")

    def _is_in_place(self) -> bool:
        ours = os.fstat(self._descriptor)
        try:
            return os.path.samestat(ours, os.stat(self._path))  # noqa: PTH116 - for each line
        except FileNotFoundError:
            return False

    def _is_full(self, coming: int) -> bool:
        size = os.fstat(self._descriptor).st_size
        return size > 0 and size + coming > self._max_bytes

    def _rotate(self) -> None:
        """Begin a new file; where the disk refuses that, the old one grows."""
        try:
            self._move_on()
        except OSError as error:
            if not self._stuck:
                self._complain(f"no new log can be begun: {error.strerror or error}")
            self._stuck = True
        else:
            self._stuck = False
        self._open()

    def _move_on(self) -> None:
        for surplus in older_files(self._path)[self._keep :]:
            surplus.unlink(missing_ok=True)
        names = [self._path, *(numbered(self._path, n) for n in range(1, self._keep + 1))]
        for newer, older in zip(names[-2::-1], names[:0:-1], strict=True):
            with suppress(FileNotFoundError):
                newer.replace(older)


def numbered(path: Path, number: int) -> Path:
    """The name of the file that is `number` files older than the one at `path`."""
    return path.with_name(f"{path.name}.{number}")


def older_files(path: Path) -> list[Path]:
    """The older files of the log at `path` that are there, the newest first."""
    found = {}
    for file in path.parent.glob(f"{path.name}.*"):
        number = file.name.removeprefix(f"{path.name}.")
        if _NUMBER.fullmatch(number):
            found[int(number)] = file
    return [found[number] for number in sorted(found)]
