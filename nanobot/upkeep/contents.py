"""The values that a backup is described in, and how they are written down.

What of a home is in a backup, and which of it has to be taken in one moment. Pure.

Everything is in it but backups themselves, what belongs to a process that runs (locks, sockets),
what is made anew by itself (the search index, the log, caches) and, where it is not wanted, media.
`state/journal.db` is not copied as a file: SQLite does that.

What refers to each other is taken *together*, while the journal stands still and nobody writes
memory: configuration, conversations, memory with its versions, state, what adapters keep. The rest
is taken *apart*, after it: files that are written once (media, spilled results), and the agent's
own working files, of which there may be very many.

Opening what is in a home, the way that its path says and no other.

In the workspace programs of the agent are at work meanwhile. So no link is followed below the
home's own entries, whatever takes a folder's place between a look and the next, and nothing that is
not a plain file is waited for.

Going through a home for a backup, in an order that keeps it whole.

The files of a folder come before its subfolders, both by name. That order is relied upon: what is
written down first is taken last, so that what refers to something is never taken without it. A
conversation says that it is consolidated after the history says so, and `sessions/` comes before
`workspace/`; a message moves to `archive/` before it leaves the live file, and that comes first;
an adapter's keys move on after the message they opened is in `spool/`.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from errno import ELOOP, ENOTDIR, ENXIO
from pathlib import Path
from typing import BinaryIO, Literal

FORMAT = 1
"""The layout of a backup: `backup.json`, the files below `home/`, `manifest.json`."""

Kind = Literal["file", "folder", "link"]
_KINDS: tuple[Kind, ...] = ("file", "folder", "link")


@dataclass(frozen=True, slots=True)
class Item:
    """Something that goes into a backup. `path` is relative to the home, and so is `source`: where
    the first `size` bytes of a file are read, if not at `path`. `target` is what a link says;
    `modified` is in seconds since 1970."""

    path: str
    kind: Kind
    mode: int
    modified: int
    size: int = 0
    source: str = ""
    target: str = ""


@dataclass(frozen=True, slots=True)
class Head:
    """What a backup says first. `journal` is the format of its journal; `live`: a gateway ran when
    it was made; `files` and `size` (in bytes) are what it holds; `left_out` is what of the home is
    not in it and may be missed, the first of it."""

    nanobot: str
    journal: int
    made_at: datetime
    live: bool
    media: bool
    files: int
    size: int
    left_out: tuple[str, ...] = ()
    format: int = FORMAT

    def encoded(self) -> bytes:
        """As it is stored."""
        return json.dumps({**asdict(self), "made_at": self.made_at.isoformat()}, indent=1).encode()

    @classmethod
    def decoded(cls, data: bytes) -> Head:
        """What `encoded` made, of this format or another. Raises `ValueError` for what is none."""
        match json.loads(data):
            case {
                "format": int(format_),
                "nanobot": str(nanobot),
                "journal": int(journal),
                "made_at": str(made_at),
                "live": bool(live),
                "media": bool(media),
                "files": int(files),
                "size": int(size),
                "left_out": list(left_out),
            }:
                when = datetime.fromisoformat(made_at)
                if when.tzinfo is None or files < 0 or size < 0:
                    raise ValueError("no head of a backup")
                names = tuple(str(name) for name in left_out)
                return cls(nanobot, journal, when, live, media, files, size, names, format_)
        raise ValueError("no head of a backup")


def encode_sums(sums: Mapping[str, str]) -> bytes:
    """`manifest.json`: the SHA-256 of each file, in hex."""
    return json.dumps({"sha256": sums}, indent=0).encode()


def decode_sums(data: bytes) -> dict[str, str]:
    """What `encode_sums` made. Raises `ValueError` for anything else."""
    match json.loads(data):
        case {"sha256": dict(sums)} if all(isinstance(value, str) for value in sums.values()):
            return sums
    raise ValueError("no manifest of a backup")


def encode_items(items: Iterable[Item]) -> Iterator[bytes]:
    """One line for each, to hand them to another process."""
    for item in items:
        yield json.dumps(asdict(item)).encode() + b"\n"


def decode_items(lines: Iterable[bytes]) -> Iterator[Item]:
    """What `encode_items` made. Raises `ValueError` for anything else."""
    for line in lines:
        match json.loads(line):
            case {
                "path": str(path),
                "kind": str(kind),
                "mode": int(mode),
                "modified": int(modified),
                "size": int(size),
                "source": str(source),
                "target": str(target),
            } if kind in _KINDS:
                yield Item(path, kind, mode, modified, size, source, target)
            case _:
                raise ValueError("no item of a snapshot")


Part = Literal["together", "apart", "mixed", "out"]

BACKUPS = "backups"
"""The folder in a home where backups go by default."""
SNAPSHOT = "state/backup"
"""Where what is taken together stands until it is packed."""
JOURNAL = "state/journal.db"
WORKSPACE = "workspace"
MEDIA = "media"
CACHE_TAG = "CACHEDIR.TAG"
"""A folder with this file in it is a cache, says bford.info/cachedir, and is left out if it
`may_be_cache`."""
CACHE_SIGNATURE = b"Signature: 8a477f597d28d172789f06886806bc55"

UNFINISHED = ".restore-under-way.json"
"""In a home whose entries are changing places with those of a backup (see `placing`)."""

_MIXED = {"", "logs", "state", "workspace"}
_TOGETHER = re.compile(
    r"sessions|state/(memory\.git|channels)|workspace/(memory|people|groups)"  # folders
    r"|[^/]+|state/[^/]+\.json|workspace/[^/]+\.md"  # files
)
_LINKED = ("sessions/", "state/memory.git/", "state/channels/")
_OUT = re.compile(
    r"backups|before-restore-[^/]*|\.restoring-[^/]*|\.restore-under-way\.json"
    r"|state/(backup|backup\.lock|gateway\.(lock|sock)|memory\.git\.(lock|syncing))"
    r"|state/index\.db[^/]*|state/journal\.db(-wal|-shm|-journal|\.before-[^/]*)?"
    r"|logs/(?!audit)[^/]*"
)
_NO_CACHE = re.compile(
    r"(sessions|media|spill|logs)(/.*)?|state(/channels(/[^/]+)?|/(?!channels/).*)?"
    r"|workspace(/(memory|people|groups|skills)(/.*)?)?",
    re.DOTALL,
)
_TEMPORARY = re.compile(r"\..*\.nanobot-tmp")


def part_of(path: str, *, folder: bool, media: bool = True) -> Part:
    """Where a path in the home belongs, empty for the home itself; `mixed` is a folder of which
    each entry has to be asked about. What is in a folder that is none of those belongs where that
    folder does."""
    name = path.rpartition("/")[2]
    if _OUT.fullmatch(path) or _TEMPORARY.fullmatch(name) or (path == MEDIA and not media):
        return "out"
    if folder and path in _MIXED:
        return "mixed"
    if folder and "/" not in path and path != "sessions":
        return "apart"
    return "together" if _TOGETHER.fullmatch(path) else "apart"


def may_be_linked(path: str) -> bool:
    """Whether a file that is taken together may have a second name for a while. Where the agent
    has a say, nanobot reads no file that has one; those are small enough to be copied."""
    return path.startswith(_LINKED)


def may_be_cache(path: str) -> bool:
    """Whether a tag can make a folder a cache: not where nanobot itself keeps what lasts, whoever
    puts one there. The workspace's other folders can be one, and what an adapter installed."""
    return not _NO_CACHE.fullmatch(path)


def stays_inside(path: str, target: str) -> bool:
    """Whether a link at `path` (in the home) that says `target` leads to somewhere in the
    workspace, whatever other such links it passes: steps up come first, from a real folder."""
    if not path.startswith("workspace/") or target.startswith("/") or "\0" in target:
        return False
    depth = path.count("/") - 1
    steps = [step for step in target.split("/") if step not in ("", ".")]
    ups = next((number for number, step in enumerate(steps) if step != ".."), len(steps))
    return ups <= depth and ".." not in steps[ups:]


_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

_REPLACED = (ELOOP, ENOTDIR, ENXIO)
"""What the system says of a link, of a file on the way, and of a socket."""


def open_folder(home: Path, path: str) -> int:
    """A descriptor of the folder at `path` in the home, empty for the home itself; the caller
    closes it. Only `path`'s first step may be a link. Raises `OSError`, `FileNotFoundError` too
    where something else than a folder stands there by now."""
    first, *steps = path.split("/")
    folder = os.open(home / first, _FOLDER)
    for step in steps:
        try:
            inner = _opened(step, _FOLDER | os.O_NOFOLLOW, folder)
        finally:
            os.close(folder)
        folder = inner
    return folder


def open_plain(home: Path, path: str) -> BinaryIO:
    """The file at `path` in the home, to be read. Raises `OSError`, `FileNotFoundError` too where
    something else than a plain file stands there by now."""
    folder_path, _, name = path.rpartition("/")
    if not folder_path:  # an entry of the home, which may be a link
        return _plain(os.open(os.path.realpath(home / name), _FILE), path)
    folder = open_folder(home, folder_path)
    try:
        descriptor = _opened(name, _FILE, folder)
    finally:
        os.close(folder)
    return _plain(descriptor, path)


def _plain(descriptor: int, path: str) -> BinaryIO:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FileNotFoundError(path)
    return os.fdopen(descriptor, "rb")


def _opened(name: str, flags: int, folder: int) -> int:
    try:
        return os.open(name, flags, dir_fd=folder)
    except OSError as error:
        if error.errno in _REPLACED:  # what was meant is gone
            raise FileNotFoundError(name) from error
        raise


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
