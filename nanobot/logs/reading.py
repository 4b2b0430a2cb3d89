"""Reading the log again: its last lines, and what comes after them.

Works on the files alone, so a gateway may run or not. A line that cannot be read is left out. Files
are told apart by their number on the disk, because their names move on when a new one is begun.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from nanobot.logs.output import LogLine, older_files

Wanted = Callable[[LogLine], bool]


@dataclass(frozen=True, slots=True)
class Mark:
    """How far the log was read: a file's number on the disk, and bytes."""

    inode: int = 0
    offset: int = 0


def newest_lines(path: Path, wanted: Wanted, limit: int) -> tuple[tuple[LogLine, ...], Mark]:
    """The last `limit` lines of the log at `path` that are `wanted`, the oldest first, and where
    they end. Raises `OSError`."""
    found: list[LogLine] = []
    mark = Mark()
    seen = set[int]()
    for file in (path, *older_files(path)):
        read = _read(file)
        if read is None or read[0].inode in seen:  # it moved on while we looked
            continue
        start, content = read
        whole = content[: content.rfind(b"\n") + 1]
        mark = mark if seen else Mark(start.inode, len(whole))
        seen.add(start.inode)
        lines = filter(wanted, filter(None, map(LogLine.parse, reversed(whole.split(b"\n")))))
        found.extend(islice(lines, limit - len(found)))
        if len(found) >= limit:
            break
    return tuple(reversed(found)), mark


class Tail:
    """What is added to the log at `path` after a mark."""

    def __init__(self, path: Path, mark: Mark) -> None:
        self._path, self._mark = path, mark

    def new_lines(self) -> Iterator[LogLine]:
        """What was added since the last time, over any number of files. Raises `OSError`."""
        files = self._files()
        if not files:  # it was removed: numbers on the disk are used again
            self._mark = Mark()
        for file, inode in files:
            read = _read(file, self._mark)
            if read is None or read[0].inode != inode:  # a new one was begun just now: next time
                return
            start, content = read
            whole = content[: content.rfind(b"\n") + 1]
            self._mark = Mark(inode, start.offset + len(whole))
            yield from filter(None, map(LogLine.parse, whole.split(b"\n")))

    def _files(self) -> list[tuple[Path, int]]:
        """The file that was read last and those that were begun after it; only the newest where
        that one is gone."""
        files = []
        for file in (self._path, *older_files(self._path)):
            with suppress(FileNotFoundError):
                files.append((file, file.stat().st_ino))
                if files[-1][1] == self._mark.inode:
                    return files[::-1]
        return files[:1]


def _read(file: Path, since: Mark = Mark()) -> tuple[Mark, bytes] | None:
    """Where reading began, and what the file holds from there: from the mark on where that is of
    this file, which may have been truncated since. None where there is no such file."""
    try:
        with file.open("rb") as stream:
            status = os.fstat(stream.fileno())
            goes_on = status.st_ino == since.inode and status.st_size >= since.offset
            offset = stream.seek(since.offset if goes_on else 0)
            return Mark(status.st_ino, offset), stream.read()
    except FileNotFoundError:
        return None
