"""A model of a disk after a power loss.

SIGKILL keeps the page cache, so a forgotten sync is never noticed. With `--power`, a fault campaign
logs each change of the home (`writelog.c`), and after each kill the next process finds only data
that a disk may have kept. The rules come from POSIX (fsync) and its manual page (fsync(2)), and are
stricter than any one file system:

- A sync of a file keeps its content and size, but not its name.
- A sync of a folder keeps the names in it: creations, renames, links and removals.
- A rename replaces a name atomically. It keeps no content: the new name may be of an empty file,
  as on XFS, or on ext4 with `noauto_da_alloc` (kernel.org, admin-guide/ext4).
- Nothing else is kept in any order. Without a sync, new names may be there before their content
  (`Loss.NAMES`), or not at all (`Loss.SYNCED`). With `Loss.TORN` a part of it is there: the changes
  of some folders up to some moment, and of a file none, all, the first bytes, or any of its blocks.
  Gaps are zeros, as on XFS; ext4 with `data=ordered` only cuts the end.
- A write changes no byte around it. SQLite relies on that (sqlite.org/psow.html) and on syncs
  (sqlite.org/atomiccommit.html): with `synchronous=FULL`, each commit syncs the log, and the log is
  synced before the database. Caches have `synchronous=OFF`, and so any content.
- SQLite's index (-shm) is mapped, and so it is unknown: missing, empty, or the newest.

The world outside goes on: sent replies remain sent, and an acknowledged message is never repeated.
Changes by other programs, such as a tool's, are not logged. They fail the campaign.
"""

from __future__ import annotations

import os
import random
import shutil
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

_HEAD = struct.Struct("=5q")
_BLOCK = 4096
_INDEX = "-shm"


class Loss(Enum):
    """The part of the unsynced changes that is kept."""

    SYNCED, NAMES, TORN = range(3)


@dataclass(eq=False)
class File:
    """A file: the content at its last sync, and each later write (its offset and data; None cuts
    it there)."""

    inode: int
    kept: bytes = b""
    later: list[tuple[int, bytes | None]] = field(default_factory=list)

    def sync(self) -> None:
        self.kept, self.later = self.content(), []

    def content(self, count: int | None = None) -> bytes:
        """Return the content after `count` of the later writes."""
        content = bytearray(self.kept)
        for at, data in self.later[:count]:
            if len(content) < at:
                content += bytes(at - len(content))
            if data is None:
                del content[at:]
            else:
                content[at : at + len(data)] = data
        return bytes(content)

    def torn(self, rng: random.Random) -> bytes:
        """Return the synced content and some of the later changes."""
        match rng.randrange(4):
            case 0:
                return self.kept
            case 1:
                return self.content()
            case 2:
                return self._first_bytes(rng)
        new, old = self.content(), self.kept.ljust(len(self.content()), b"\0")
        starts = range(0, len(new), _BLOCK)
        return b"".join((new, old)[rng.randrange(2)][at : at + _BLOCK] for at in starts)

    def _first_bytes(self, rng: random.Random) -> bytes:
        """Return the content after some writes, the last of which is torn."""
        count = rng.randint(0, len(self.later))
        if count == len(self.later):
            return self.content()
        at, data = self.later[count]
        cut = None if data is None else data[: rng.randint(0, len(data))]
        return File(0, self.content(count), [(at, cut)] if cut else []).content()


@dataclass(eq=False)
class Folder:
    """A folder: its entries now, and those of its last sync."""

    now: dict[str, Node] = field(default_factory=dict)
    kept: dict[str, Node] = field(default_factory=dict)


Node = File | Folder
Change = list[tuple[Folder, str, Node | None]]
"""An atomic change of names: for each folder and name the new entry."""


class Disk:
    """The folder `home`, whose present state is on the disk, and the later changes of it."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._root = _read_tree(home)
        self._names: list[Change] = []

    def replay(self, log: Path) -> None:
        """Apply a log of `writelog.c`, whose last record may be cut short."""
        content, at = log.read_bytes() if log.exists() else b"", 0
        while len(content) - at >= _HEAD.size:
            kind, inode, where, first, second = _HEAD.unpack_from(content, at)
            middle = at + _HEAD.size + first
            at = middle + second
            if at > len(content):
                return
            path = Path(os.fsdecode(content[middle - first : middle]))
            self._apply(chr(kind), inode, where, path, content[middle:at])

    def _apply(self, kind: str, inode: int, where: int, path: Path, more: bytes) -> None:
        """Apply a record of the log. The letters are explained there."""
        match kind:
            case "c" | "w" | "t":
                file = self._file(path, inode)
                if file is not None and kind != "c":
                    file.later.append((where, more if kind == "w" else None))
            case "s":
                self._sync(path, inode)
            case "a":
                self._sync_all()
            case "m":
                self._rename(((path, Folder()),))
            case "u":
                self._rename(((path, None),))
            case "l":
                self._rename(((Path(os.fsdecode(more)), self._find(path)),))
            case "r":
                self._rename(((path, None), (Path(os.fsdecode(more)), self._find(path))))

    def _find(self, path: Path) -> Node | None:
        if not path.is_relative_to(self._home):
            return None
        node: Node | None = self._root
        for part in path.relative_to(self._home).parts:
            node = node.now.get(part) if isinstance(node, Folder) else None
        return node

    def _file(self, path: Path, inode: int) -> File | None:
        """Return the file with a path and an inode, new if it was not known. None if it has no
        name any more, or is not kept on purpose."""
        if path.name.endswith((" (deleted)", _INDEX)):
            return None
        node = self._find(path)
        if not isinstance(node, File) or node.inode != inode:
            node = File(inode)
            self._rename(((path, node),))
        return node

    def _rename(self, entries: Iterable[tuple[Path, Node | None]]) -> None:
        change: Change = []
        for path, node in entries:
            folder = self._find(path.parent)
            if isinstance(folder, Folder) and not path.name.endswith(_INDEX):
                change.append((folder, path.name, node))
        for folder, name, node in change:
            _set(folder.now, name, node)
        self._names.append(change)

    def _sync(self, path: Path, inode: int) -> None:
        node = self._find(path)
        if isinstance(node, Folder):
            self._keep(node, len(self._names))
        elif file := self._file(path, inode):
            file.sync()

    def _sync_all(self) -> None:
        for _, node in _walk(self._root, now=True):
            if isinstance(node, File):
                node.sync()
        for change in self._names:
            _keep_change(change)
        self._names = []

    def _keep(self, folder: Folder, count: int) -> None:
        """Keep the names in a folder after the first `count` pending changes, and thus every
        earlier change of the folders from and to which names moved."""
        folders, kept, rest = {id(folder)}, list[Change](), list[Change]()
        for change in reversed(self._names[:count]):
            if touched := {id(one) for one, _, _ in change} & folders:
                folders |= touched | {id(one) for one, _, _ in change}
            (kept if touched else rest).append(change)
        for change in reversed(kept):
            _keep_change(change)
        self._names[:count] = reversed(rest)

    def lose(self, loss: Loss, rng: random.Random) -> None:
        """Write to the home what the disk has after a power loss."""
        if loss is Loss.TORN:
            folders = [one for _, one in _walk(self._root, now=True) if isinstance(one, Folder)]
            for folder in folders:
                self._keep(folder, rng.randint(0, len(self._names)))
        elif loss is Loss.NAMES:
            for change in self._names:
                _keep_change(change)
        wanted = dict(_walk(self._root, now=False))
        _lose_indexes(self._home, rng if loss is Loss.TORN else None)
        _remove_others(self._home, wanted)
        for path, node in wanted.items():
            if isinstance(node, Folder):
                (self._home / path).mkdir(mode=0o700, exist_ok=True)
            else:
                content = node.torn(rng) if loss is Loss.TORN else node.kept
                _put(self._home / path, node.inode, content)

    def differences(self) -> list[str]:
        """Return the paths whose logged state is not the present one. None, or the log has gaps."""
        there = _walk(_read_tree(self._home), now=True)
        logged = _walk(self._root, now=True)
        found, known = ({p: _look(n) for p, n in tree} for tree in (there, logged))
        return sorted(p for p in {*found, *known} if found.get(p) != known.get(p))


def _look(node: Node) -> bytes | None:
    return node.content() if isinstance(node, File) else None


def _set(entries: dict[str, Node], name: str, node: Node | None) -> None:
    entries.pop(name, None)
    if node is not None:
        entries[name] = node


def _keep_change(change: Change) -> None:
    for folder, name, node in change:
        _set(folder.kept, name, node)


def _walk(folder: Folder, *, now: bool, above: str = "") -> Iterator[tuple[str, Node]]:
    """Yield everything below a folder with its path, folders first."""
    for name, node in (folder.now if now else folder.kept).items():
        yield f"{above}{name}", node
        if isinstance(node, Folder):
            yield from _walk(node, now=now, above=f"{above}{name}/")


def _read_tree(home: Path) -> Folder:
    """Read a folder whose state is on the disk. Only its files and folders count."""
    folder = Folder()
    for entry in os.scandir(home):
        if entry.is_dir(follow_symlinks=False):
            folder.now[entry.name] = _read_tree(Path(entry.path))
        elif entry.is_file(follow_symlinks=False) and not entry.name.endswith(_INDEX):
            content = Path(entry.path).read_bytes()
            folder.now[entry.name] = File(entry.inode(), content)
    folder.kept = dict(folder.now)
    return folder


def _remove_others(home: Path, wanted: dict[str, Node]) -> None:
    """Remove all that the disk does not have. An index is left."""
    for top, folders, files in os.walk(home, topdown=False):
        for name in (*files, *folders):
            path = Path(top, name)
            node = wanted.get(str(path.relative_to(home)))
            is_folder = name in folders and not path.is_symlink()
            if isinstance(node, Folder) if is_folder else isinstance(node, File):
                continue
            if is_folder:
                shutil.rmtree(path)
            elif not name.endswith(_INDEX):
                path.unlink()


def _put(path: Path, inode: int, content: bytes) -> None:
    """Write a file. The same inode keeps its time, so caches may take it for unchanged."""
    status = path.stat() if path.exists() else None
    if status is not None and status.st_ino == inode:
        if path.read_bytes() != content:
            path.write_bytes(content)
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        return
    path.unlink(missing_ok=True)
    path.write_bytes(content)
    path.chmod(0o600)


def _lose_indexes(home: Path, rng: random.Random | None) -> None:
    """Remove SQLite's indexes. With `rng`, empty or leave some of them."""
    for path in home.rglob(f"*{_INDEX}"):
        match rng.randrange(3) if rng else 0:
            case 0:
                path.unlink()
            case 1:
                path.write_bytes(bytes(path.stat().st_size))
