"""The files of a home that a backup contains, and a snapshot of them while a gateway works in it.

Left out are backups themselves, the locks and sockets of a running process, caches (the search
index, the catalogue of conversations), the log and, if so configured, media. SQLite copies
`state/journal.db`.

Files that refer to each other are taken *together*, within one pause: configuration, conversations,
memory with its versions, state, the files of channels. The rest is taken *apart*, afterwards: files
that are written once (media, spilled results), and the agent's working files, of which there may be
very many. Within the pause:

- The journal's writer thread takes them between two transactions. So nothing is received, completed
  or marked as filed in between: work that the journal's copy lists as done is in its session's file
  or in the copy's `unfiled` lines, even if a session's writer is still appending it. A start from
  the copy appends missing lines, and nothing twice, as after a power cut at that moment.
- Writers of memory versions wait: files and versions belong together.
- Conversations, versions and channel files are hard-linked instead of read. A file that is replaced
  later keeps its old content here, and the size of a growing file is recorded. The few others are
  copied. So the pause takes milliseconds instead of minutes.

Writes that the pause does not stop (a history entry, a session's mark) look like a crash between
two steps, which a start repairs, because of the order. Within a folder, files come before
subfolders, both sorted by name. Invariant: data that is written first is taken last, so that
nothing is taken without the data it refers to. A conversation is marked as consolidated after its
history entry is written, and `sessions/` comes before `workspace/`. A message is written to
`archive/` before it leaves the live file, and the live file comes first. A channel's keys advance
after the message they opened is in `spool/`.

The agent's programs may change the workspace during a backup. Below the home's own entries no link
is followed, even if it replaces a folder between two steps, and only plain files are opened."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from errno import ELOOP, ENOTDIR, ENOTSUP, ENXIO
from functools import partial
from pathlib import Path
from typing import BinaryIO, Literal, Protocol

from loguru import logger
from msgspec import Struct, convert, to_builtins
from msgspec.structs import replace

from nanobot.channel import Operation
from nanobot.clock import Clock
from nanobot.errors import StorageError
from nanobot.io import hold_lock
from nanobot.upkeep import SNAPSHOT

BACKUPS = "backups"
"""The default folder for backups in a home."""
JOURNAL = "state/journal.db"
WORKSPACE = "workspace"
MEDIA = "media"

_TOGETHER = re.compile(
    r"(sessions|state/(memory\.git|versions|channels)|workspace/(memory|people|groups))(/.*)?",
    re.DOTALL,
)
_TOGETHER_FILES = re.compile(r"[^/]+|state/[^/]+\.json|workspace/[^/]+\.md")
_MIXED = ("state", "workspace")  # folders with entries of both kinds
_LINKED = ("sessions/", "state/memory.git/", "state/versions/", "state/channels/")
"""Files taken together that may have a hard link for a while. nanobot rejects hard links in folders
that the agent can write. Those files are small and are copied."""
_OUT = re.compile(
    r"backups|before-restore-[^/]*|\.restoring-[^/]*|\.restore-under-way\.json"
    r"|state/(backup|backup\.lock|gateway\.(lock|sock)|sends\.log(\.new)?|versions\.lock|voice)"
    r"|state/(memory|versions/.+)\.git\.(lock|syncing)"
    r"|state/(catalogue|index)\.db[^/]*|state/index\.vectors"
    r"|state/journal\.db(-wal|-shm|-journal|\.damaged-[^/]*|\.(rebuilt|salvage|suspect).*)?"
    r"|state/channels/whatsapp/bridge-[0-9a-f]{16}(\.new)?"
    r"|logs/(?!audit)[^/]*"
    r"|(.*/)?\.[^/]*\.nanobot-tmp"
)
_DEEPEST, _LONGEST = 100, 2000
"""Nested folders, and bytes of a path (the system allows 4096, with the home's). Deeper folders are
left out, because they could not be restored."""

_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_KINDS: dict[int, Literal["file", "folder", "link"]] = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "folder",
    stat.S_IFLNK: "link",
}


class BackupItem(Struct, frozen=True):
    """An entry of a backup. `path` is relative to the home, and so is `source`: the place of the
    first `size` bytes of a file, if not at `path`. `target` is the target of a link. `modified` is
    in seconds since 1970."""

    path: str
    kind: Literal["file", "folder", "link"]
    mode: int
    modified: int
    size: int = 0
    source: str = ""
    target: str = ""

    @property
    def is_too_deep(self) -> bool:
        """True if it could not be restored."""
        return self.path.count("/") > _DEEPEST or len(os.fsencode(self.path)) > _LONGEST


def belongs_in_backup(path: str) -> bool:
    return not _OUT.fullmatch(path)


def stays_inside(path: str, target: str) -> bool:
    """Return True if a link at `path` (in the home) with this target leads into the workspace,
    whatever other such links it passes: its steps up come first, from a real folder."""
    if not path.startswith("workspace/") or target.startswith("/") or "\0" in target:
        return False
    depth = path.count("/") - 1
    steps = [step for step in target.split("/") if step not in ("", ".")]
    ups = next((number for number, step in enumerate(steps) if step != ".."), len(steps))
    return ups <= depth and ".." not in steps[ups:]


def backup_items(
    home: Path, left_out: list[str], *, together: bool, media: bool = True
) -> Iterator[BackupItem]:
    """Yield the items of `home` that are taken together or apart, with their folders.

    Files that vanish, sockets and devices are left out. `left_out` collects folders that are too
    deep and unreadable items taken apart. Links directly in the home are followed. Raises
    `OSError`."""
    is_wanted = partial(_is_wanted, together=together, media=media)
    whole = BackupItem("", "folder", 0, 0)
    return _walk(whole, os.open(home, _OPEN), left_out, is_wanted, together)


def _is_wanted(item: BackupItem, *, together: bool, media: bool) -> bool:
    path, is_folder = item.path, item.kind == "folder"
    if _OUT.fullmatch(path) or (path == MEDIA and not media):
        return False
    if is_folder and path in _MIXED:
        return True
    is_single = not is_folder and _TOGETHER_FILES.fullmatch(path)
    return bool(is_single or _TOGETHER.fullmatch(path)) == together


def _walk(
    folder: BackupItem,
    descriptor: int,
    left_out: list[str],
    is_wanted: Callable[[BackupItem], bool],
    together: bool,
) -> Iterator[BackupItem]:
    """Yield an open folder and its content, then close it."""
    try:
        if folder.path and (together or folder.path not in _MIXED):
            yield folder
        inner: list[BackupItem] = []
        for item, is_readable in _entries(folder.path, descriptor, together):
            if not is_wanted(item):
                continue
            if item.is_too_deep or not is_readable:
                left_out.append(item.path)
            elif item.kind == "folder":
                inner.append(item)
            else:
                yield item
        flags = _OPEN | os.O_NOFOLLOW * bool(folder.path)
        for item in inner:
            with suppress(FileNotFoundError, NotADirectoryError):
                opened = os.open(item.path.rpartition("/")[2], flags, dir_fd=descriptor)
                yield from _walk(item, opened, left_out, is_wanted, together)
    finally:
        os.close(descriptor)


def _entries(folder: str, descriptor: int, together: bool) -> Iterator[tuple[BackupItem, bool]]:
    """Yield the entries of a folder, each with True if it can be read (and a folder entered)."""
    for name in sorted(os.listdir(descriptor)):
        with suppress(FileNotFoundError):
            status = os.stat(name, dir_fd=descriptor, follow_symlinks=not folder)
            kind = _KINDS.get(stat.S_IFMT(status.st_mode))
            if kind is None:
                continue
            item = BackupItem(
                f"{folder}/{name}".lstrip("/"),
                kind,
                stat.S_IMODE(status.st_mode),
                int(status.st_mtime),
                status.st_size if kind == "file" else 0,
                target=os.readlink(name, dir_fd=descriptor) if kind == "link" else "",
            )
            needed = os.R_OK if kind == "file" else os.R_OK | os.X_OK
            is_readable = kind == "link" or os.access(name, needed, dir_fd=descriptor)
            yield item, together or is_readable


def open_plain(home: Path, path: str) -> BinaryIO:
    """Open the file at `path` in the home for reading. Only the first step of `path` may be a link.
    Raises `OSError`, and `FileNotFoundError` if it is not a plain file."""
    first, _, rest = path.partition("/")
    expected = Path(os.path.realpath(home / first), rest)
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (os.O_NOFOLLOW if rest else 0)
    try:
        descriptor = os.open(home / path, flags)
    except OSError as error:
        if error.errno in (ELOOP, ENOTDIR, ENXIO):
            raise FileNotFoundError(path) from error
        raise
    file = os.fdopen(descriptor, "rb")
    # A folder on the way may have become a link since it was listed.
    is_there = not rest or _path_of(descriptor) == expected
    if not (is_there and stat.S_ISREG(os.fstat(descriptor).st_mode)):
        file.close()
        raise FileNotFoundError(path)
    return file


def _path_of(descriptor: int) -> Path:
    """Return the path at which the kernel opened a file."""
    try:
        return Path(f"/proc/self/fd/{descriptor}").readlink()
    except FileNotFoundError as error:  # else the caller would think that the file is gone
        raise OSError(ENOTSUP, "/proc is not mounted") from error


OPERATION = "backup.snapshot"
_MOST_COPIED = 8 << 20  # the largest file, in bytes, that is copied during the pause
_LIST, _JOURNAL, _MEMORY_LOCK = "snapshot.json", "journal.db", "state/versions.lock"


class Snapshot(Struct, frozen=True):
    """A snapshot in `state/backup`, with its items. `live`: a gateway ran."""

    live: bool
    made_at: datetime
    items: tuple[BackupItem, ...]

    def save(self, home: Path) -> None:
        """Save the list for the process that packs it. Raises `OSError`."""
        (home / SNAPSHOT / _LIST).write_text(json.dumps(to_builtins(self)))

    @classmethod
    def load(cls, home: Path) -> Snapshot:
        """Load the snapshot in `home`. Raises `OSError` if there is none."""
        return convert(json.loads((home / SNAPSHOT / _LIST).read_text()), cls)


class Freezable(Protocol):
    """A journal in a file of the home."""

    async def freeze(self, copy: Path, work: Callable[[], None]) -> None:
        """Write a copy to the file `copy` and call `work` while nothing is stored."""
        ...


class BackupOperations:
    """The operations `backup.…` of one home. The caller holds `backups.exclusive_backup`."""

    def __init__(self, home: Path, journal: Freezable, clock: Clock, *, live: bool) -> None:
        self._home, self._journal, self.clock, self._live = home, journal, clock, live
        # The caller of a running request may have disconnected and asked again.
        self._taking = asyncio.Lock()

    def table(self) -> Mapping[str, Operation]:
        return {OPERATION: self._snapshot}

    async def _snapshot(self, _: Mapping[str, object]) -> dict[str, object]:
        await self.take()
        return {}

    async def take(self) -> Snapshot:
        """Take a snapshot into `state/backup`. Raises `StorageError`."""
        folder = self._home / SNAPSHOT
        # A writer of memory may hold the lock, so wait for it in a thread.
        lock = hold_lock(self._home / _MEMORY_LOCK, wait=True)
        try:
            async with self._taking:
                await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
                folder.mkdir(mode=0o700)
                await asyncio.to_thread(lock.__enter__)
                items = list[BackupItem]()
                try:
                    await self._journal.freeze(
                        folder / _JOURNAL, lambda: items.extend(freeze_home(self._home))
                    )
                finally:
                    lock.__exit__(None, None, None)
                taken = Snapshot(self._live, self.clock.now(), tuple(items))
                await asyncio.to_thread(taken.save, self._home)
                return taken
        except OSError as error:
            raise StorageError.of(error.filename or folder, error) from error


def freeze_home(home: Path) -> list[BackupItem]:
    """Link or copy the items taken together into `state/backup`, next to the journal's copy. Raises
    `OSError`."""
    folder = home / SNAPSHOT
    status, source = (folder / _JOURNAL).stat(), f"{SNAPSHOT}/{_JOURNAL}"
    frozen = [BackupItem(JOURNAL, "file", 0o600, int(status.st_mtime), status.st_size, source)]
    for number, item in enumerate(backup_items(home, [], together=True)):
        linked = item.path.startswith(_LINKED)
        if item.kind != "file" or (item.size > _MOST_COPIED and not linked):
            frozen.append(item)  # too large to be one of ours: read it after the pause
            continue
        place = folder / str(number)
        with suppress(FileNotFoundError):
            if linked:
                _link(home / item.path, place)
            if not place.exists():
                with open_plain(home, item.path) as file, place.open("xb") as kept:
                    shutil.copyfileobj(file, kept)
            size, source = place.stat().st_size, f"{SNAPSHOT}/{number}"
            frozen.append(replace(item, size=size, source=source))
    return frozen


def _link(path: Path, place: Path) -> None:
    """Hard-link the file, if the file system supports it."""
    try:
        os.link(path, place)
    except FileNotFoundError:
        raise
    except OSError as error:
        logger.debug("copying {} instead of linking it: {}", path, error)
