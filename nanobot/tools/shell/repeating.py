"""Which commands can be allowed for longer than once, and what stands for one and its files.

Nobody can know what a command will read. So only one simple command qualifies whose words say
themselves which files it works on: no quotes, variables, patterns, pipes or further commands. What
stands for it changes with its text, its folder, its program, each file that a word names, and what
is taken along unnamed: modules beside a script, and everything in the working folder unless what
runs is named right at the beginning (`make`, `python3 -m report`).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

_WORD = r"[A-Za-z0-9_./:,+@%=-]+"
_SIMPLE = re.compile(rf"{_WORD}(?: {_WORD})*")

MOST_FILES, MOST_BYTES = 500, 64_000_000
"""Of a command's files, all together; with more it cannot be allowed for longer."""
MOST_ENTRIES = 5_000
"""Names in folders that are gone through for that."""

_CHUNK = 1 << 20


class _Unfit(Exception):
    """What the command works on cannot be pinned down."""


def command_fingerprint(command: str, folder: Path, search_path: str) -> str:
    """What stands for `command`, run in `folder`, and its files as they are now; its program is
    found in `search_path`. Empty where it cannot be pinned down. Blocks."""
    if not _SIMPLE.fullmatch(command) or "=" in command.split(" ", 1)[0]:
        return ""
    try:
        seen = list(_files(command.split(" "), folder, search_path))
    except (_Unfit, OSError):
        return ""
    what = json.dumps([command, os.path.realpath(folder), seen])
    return hashlib.sha256(what.encode("utf-8", "surrogateescape")).hexdigest()


def _files(words: list[str], folder: Path, search_path: str) -> Iterator[tuple[str, ...]]:
    """Everything that counts, each with where a name leads and what is there."""
    first = words[0]
    program = str(folder / first) if "/" in first else shutil.which(first, path=search_path)
    if not program:
        raise _Unfit
    budget = _Budget()
    yield first, *budget.pinned(program)
    named = [(word, path) for word in words[1:] if (path := _named(word, folder))]
    for word, path in named:
        yield word, *budget.pinned(path)
    beside = [path for _, path in named] + ([program] if "/" in first else [])
    for path in beside:
        ending = os.path.splitext(path)[1]  # noqa: PTH122 - a path with dots stays as it is
        yield from budget.listed(os.path.dirname(path), ending)  # noqa: PTH120
    runs_named = "/" in first or (len(words) > 1 and os.path.lexists(folder / words[1]))
    if not runs_named:
        yield from budget.tree(str(folder))


def _named(word: str, folder: Path) -> str:
    """The path of what a word names; empty where it names nothing that is there."""
    for name in dict.fromkeys((word, word.partition("=")[2])):
        path = str(folder / name)
        if name and os.path.lexists(path):
            return path
    return ""


class _Budget:
    """Reads files, as many as can be looked at each time."""

    def __init__(self) -> None:
        self._files, self._bytes, self._seen = 0, 0, 0

    def pinned(self, path: str) -> tuple[str, str]:
        """Where a path leads, and a digest of the file there. Raises `_Unfit` for what is none:
        what lies in a folder, or comes out of a pipe, nobody has looked at."""
        real = os.path.realpath(path)
        handle = os.open(real, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(handle, "rb", buffering=0) as file:
            found = os.fstat(handle)
            if not stat.S_ISREG(found.st_mode):
                raise _Unfit
            self._files, self._bytes = self._files + 1, self._bytes + found.st_size
            if self._files > MOST_FILES or self._bytes > MOST_BYTES:
                raise _Unfit
            digest = hashlib.sha256(str(found.st_mode).encode())
            left = found.st_size
            while left > 0 and (piece := file.read(min(_CHUNK, left))):
                digest.update(piece)
                left -= len(piece)
        return real, digest.hexdigest()

    def listed(self, folder: str, ending: str = "") -> Iterator[tuple[str, ...]]:
        """What lies directly in a folder, as far as it has this ending; folders by their names."""
        for entry in self._entries(folder):
            if not entry.name.endswith(ending):
                continue
            if entry.is_file():
                yield entry.name, *self.pinned(entry.path)
            else:
                yield entry.name, "no file"

    def tree(self, folder: str) -> Iterator[tuple[str, ...]]:
        """All that lies in a folder and in those below it; links to folders are not followed."""
        for entry in self._entries(folder):
            if entry.is_file():
                yield entry.path, *self.pinned(entry.path)
            elif entry.is_dir(follow_symlinks=False):
                yield entry.path, "a folder"
                yield from self.tree(entry.path)
            else:
                yield entry.path, os.path.realpath(entry.path)

    def _entries(self, folder: str) -> list[os.DirEntry[str]]:
        with os.scandir(folder) as found:
            entries = sorted(found, key=lambda entry: entry.name)
        self._seen += len(entries)
        if self._seen > MOST_ENTRIES:
            raise _Unfit
        return entries
