"""Going through a home for a backup, in an order that keeps it whole.

The files of a folder come before its subfolders, both by name. That order is relied upon: what is
written down first is taken last, so that what refers to something is never taken without it. A
conversation says that it is consolidated after the history says so, and `sessions/` comes before
`workspace/`; a message moves to `archive/` before it leaves the live file, and that comes first;
an adapter's keys move on after the message they opened is in `spool/`.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from nanobot.upkeep.contents import Item
from nanobot.upkeep.reading import open_folder, open_plain
from nanobot.upkeep.selection import CACHE_SIGNATURE, CACHE_TAG, Part, may_be_cache, part_of

_DEEPEST, _LONGEST = 100, 2000
"""Folders within each other, and bytes of a path: the system takes 4096, the home's included."""


def walk(
    home: Path, part: Part, *, media: bool = True, on_left_out: Callable[[str], None] | None = None
) -> Iterator[Item]:
    """What of `home` belongs to `part` ("together" or "apart"), the folders it is in as well.

    What vanishes meanwhile is left out, and so are sockets and devices; `on_left_out` hears of
    what is apart and may not be read, of caches, and of folders that lie too deep. Links directly
    in the home are followed. Raises `OSError`.
    """
    tell = on_left_out or (lambda _: None)

    def inside(path: str, standing: Part) -> Iterator[Item]:
        folders = []
        for entry in _entries(home, path):
            inner = f"{path}/{entry.name}" if path else entry.name
            is_folder = stat.S_ISDIR(entry.status.st_mode)
            belongs = standing
            if standing == "mixed":
                belongs = part_of(inner, folder=is_folder, media=media)
            if is_folder and belongs in (part, "mixed"):
                folders.append((inner, belongs, entry))
            elif belongs == part:
                yield from _item(inner, entry, part, tell)
        for inner, belongs, entry in folders:
            unreadable = part == "apart" and not entry.readable
            if unreadable or _is_endless(inner) or _is_cache(home, inner):
                tell(inner)
                continue
            if part in (belongs, "together"):
                status = entry.status
                yield Item(inner, "folder", stat.S_IMODE(status.st_mode), int(status.st_mtime))
            yield from inside(inner, belongs)

    yield from inside("", "mixed")


def _is_endless(path: str) -> bool:
    """Whether a folder lies so deep that no home could hold it again: whoever makes such ones must
    not keep the rest from being restored."""
    return path.count("/") >= _DEEPEST or len(os.fsencode(path)) > _LONGEST


@dataclass(frozen=True, slots=True)
class _Entry:
    """Something in a folder. `readable`, of a folder also whether it may be entered; `target` is
    what a link says."""

    name: str
    status: os.stat_result
    readable: bool
    target: str


def _entries(home: Path, path: str) -> list[_Entry]:
    """What is in a folder, by name; nothing where it is gone. Links in the home itself are
    followed."""
    try:
        folder = open_folder(home, path)
    except FileNotFoundError:
        return []
    found = []
    try:
        for name in sorted(os.listdir(folder)):  # noqa: PTH208 - a descriptor
            with suppress(FileNotFoundError):
                found.append(_entry(name, folder, follow=not path))
    finally:
        os.close(folder)
    return found


def _entry(name: str, folder: int, *, follow: bool) -> _Entry:
    status = os.stat(name, dir_fd=folder, follow_symlinks=follow)
    if stat.S_ISLNK(status.st_mode):
        return _Entry(name, status, readable=True, target=os.readlink(name, dir_fd=folder))
    wanted = os.R_OK | os.X_OK if stat.S_ISDIR(status.st_mode) else os.R_OK
    return _Entry(name, status, os.access(name, wanted, dir_fd=folder), target="")


def _item(path: str, entry: _Entry, part: Part, tell: Callable[[str], None]) -> Iterator[Item]:
    status = entry.status
    mode, modified = stat.S_IMODE(status.st_mode), int(status.st_mtime)
    if stat.S_ISREG(status.st_mode):
        if part == "together" or entry.readable:
            yield Item(path, "file", mode, modified, status.st_size)
        else:
            tell(path)
    elif stat.S_ISLNK(status.st_mode):
        yield Item(path, "link", mode, modified, target=entry.target)


def _is_cache(home: Path, path: str) -> bool:
    if not may_be_cache(path):
        return False
    try:
        with open_plain(home, f"{path}/{CACHE_TAG}") as file:
            return file.read(len(CACHE_SIGNATURE)) == CACHE_SIGNATURE
    except OSError:
        return False
