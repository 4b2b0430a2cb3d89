"""What a backup holds and in which order, and the values that describe it.

Left out are backups themselves, the locks and sockets of a running process, what is rebuilt (the
search index, the catalogue of conversations, the log, caches) and, if so configured, media. SQLite
copies `state/journal.db`.

Files that refer to each other are taken *together*, while the journal pauses and memory is not
written: configuration, conversations, memory with its versions, state, the files of channels. The
rest is taken *apart*, afterwards: files that are written once (media, spilled results), and the
agent's working files, of which there may be very many.

Within a folder, files come before subfolders, both sorted by name. Invariant: what is written first
is taken last, so that nothing is taken without what it refers to. A conversation is marked as
consolidated after its history entry is written, and `sessions/` comes before `workspace/`; a
message is written to `archive/` before it leaves the live file, and the live file comes first; a
channel's keys advance after the message they opened is in `spool/`.

The agent's programs may change the workspace during a backup. Below the home's own entries no link
is followed, even if it replaces a folder between two steps, and only plain files are opened.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from errno import ELOOP, ENOTDIR, ENXIO
from pathlib import Path
from typing import Annotated, BinaryIO, Literal

from msgspec import Meta, Struct, ValidationError, convert
from msgspec.structs import asdict

FORMAT = 1
"""The layout of a backup: `backup.json`, the files below `home/`, `manifest.json`."""

Part = Literal["together", "apart", "mixed", "out"]

BACKUPS = "backups"
"""The folder in a home where backups go by default."""
JOURNAL = "state/journal.db"
WORKSPACE = "workspace"
MEDIA = "media"
_CACHE_TAG = "CACHEDIR.TAG"
"""A folder with this file in it is a cache, says bford.info/cachedir."""
_CACHE_SIGNATURE = b"Signature: 8a477f597d28d172789f06886806bc55"

_MIXED = {"", "logs", "state", "workspace"}
_MIXED |= {"state/versions", "state/versions/groups", "state/versions/people"}
_TOGETHER = re.compile(
    r"sessions|state/(memory\.git|versions/(people|groups)/.+\.git|channels)"  # folders
    r"|workspace/(memory|people|groups)"
    r"|[^/]+|state/[^/]+\.json|workspace/[^/]+\.md"  # files
)
_LINKED = ("sessions/", "state/memory.git/", "state/versions/", "state/channels/")
_OUT = re.compile(
    r"backups|before-restore-[^/]*|\.restoring-[^/]*|\.restore-under-way\.json"
    r"|state/(backup|backup\.lock|gateway\.(lock|sock)|sends\.log(\.new)?|versions\.lock|voice)"
    r"|state/(memory|versions/.+)\.git\.(lock|syncing)"
    r"|state/(catalogue|index)\.db[^/]*|state/index\.vectors"
    r"|state/journal\.db(-wal|-shm|-journal|\.damaged-[^/]*|\.(rebuilt|salvage|suspect).*)?"
    r"|logs/(?!audit)[^/]*"
)
_MAY_BE_CACHE = re.compile(
    r"workspace/(?!(memory|people|groups|skills)(/|\Z)).+|state/channels/[^/]+/.+", re.DOTALL
)
"""Folders in which a tag is obeyed: of the agent's own work, and what a channel installed."""
_TEMPORARY = re.compile(r"\..*\.nanobot-tmp")

_DEEPEST, _LONGEST = 100, 2000
"""Nested folders, and bytes of a path (the system allows 4096, the home's included). Deeper folders
are left out: they could not be restored."""


class BackupItem(Struct, frozen=True):
    """Something that goes into a backup. `path` is relative to the home, and so is `source`: where
    the first `size` bytes of a file are read, if not at `path`. `target` is what a link says;
    `modified` is in seconds since 1970."""

    path: str
    kind: Literal["file", "folder", "link"]
    mode: int
    modified: int
    size: int = 0
    source: str = ""
    target: str = ""


class BackupHeader(Struct, frozen=True):
    """What a backup says first. `journal` is the format of its journal; `live`: a gateway ran when
    it was made; `files` and `size` (in bytes) are what it holds; `left_out` is what of the home is
    not in it and may be missed, the first of it."""

    nanobot: str
    journal: int
    made_at: Annotated[datetime, Meta(tz=True)]
    live: bool
    media: bool
    files: Annotated[int, Meta(ge=0)]
    size: Annotated[int, Meta(ge=0)]
    left_out: tuple[str, ...] = ()
    format: int = FORMAT

    def encoded(self) -> bytes:
        """As it is stored."""
        return json.dumps({**asdict(self), "made_at": self.made_at.isoformat()}, indent=1).encode()

    @classmethod
    def decoded(cls, data: bytes) -> BackupHeader:
        """What `encoded` made, of this format or another. Raises `ValueError` for what is none."""
        try:
            return convert(json.loads(data), cls)
        except ValidationError as error:
            raise ValueError(f"its first file is not that of a backup ({error})") from error


def backup_part(path: str, *, folder: bool, media: bool = True) -> Part:
    """Where a path in the home belongs; the empty path is the home itself. The entries of a `mixed`
    folder have to be classified one by one; the entries of any other folder belong where the folder
    does."""
    name = path.rpartition("/")[2]
    if _OUT.fullmatch(path) or _TEMPORARY.fullmatch(name) or (path == MEDIA and not media):
        return "out"
    if folder and path in _MIXED:
        return "mixed"
    if folder and "/" not in path and path != "sessions":
        return "apart"
    return "together" if _TOGETHER.fullmatch(path) else "apart"


def may_be_linked(path: str) -> bool:
    """Whether a file that is taken together may have a hard link for a while. Where the agent can
    write, nanobot refuses hard-linked files; those files are small and are copied."""
    return path.startswith(_LINKED)


def stays_inside(path: str, target: str) -> bool:
    """Whether a link at `path` (in the home) that says `target` leads to somewhere in the
    workspace, whatever other such links it passes: steps up come first, from a real folder."""
    if not path.startswith("workspace/") or target.startswith("/") or "\0" in target:
        return False
    depth = path.count("/") - 1
    steps = [step for step in target.split("/") if step not in ("", ".")]
    ups = next((number for number, step in enumerate(steps) if step != ".."), len(steps))
    return ups <= depth and ".." not in steps[ups:]


def backup_items(
    home: Path, part: Part, left_out: list[str], *, media: bool = True
) -> Iterator[BackupItem]:
    """What of `home` belongs to `part` ("together" or "apart"), the folders it is in as well.

    Files that vanish, sockets and devices are left out. `left_out` grows by what is apart and
    cannot be read, by caches, and by folders that are too deep. Links directly in the home are
    followed. Raises `OSError`.
    """

    def inside(path: str, inherited: Part) -> Iterator[BackupItem]:
        folders = []
        for item, readable in _entries(home, path):
            belongs, is_folder = inherited, item.kind == "folder"
            if _OUT.fullmatch(item.path):
                belongs = "out"
            elif inherited == "mixed":
                belongs = backup_part(item.path, folder=is_folder, media=media)
            if belongs != part and not (is_folder and belongs == "mixed"):
                continue
            if (part == "apart" and not readable) or (is_folder and _is_unfit(home, item.path)):
                left_out.append(item.path)
            elif is_folder:
                folders.append((item, belongs))
            else:
                yield item
        for folder, belongs in folders:
            if part in (belongs, "together"):
                yield folder
            yield from inside(folder.path, belongs)

    yield from inside("", "mixed")


def open_plain(home: Path, path: str) -> BinaryIO:
    """The file at `path` in the home, to be read; only `path`'s first step may be a link. Raises
    `OSError`, `FileNotFoundError` too where something else than a plain file stands there by
    now."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    folder_path, _, name = path.rpartition("/")
    if not folder_path:
        descriptor = os.open(os.path.realpath(home / name), flags)
    else:
        with _folder(home, folder_path) as folder:
            descriptor = os.open(name, flags, dir_fd=folder)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FileNotFoundError(path)
    return os.fdopen(descriptor, "rb")


@contextmanager
def _folder(home: Path, path: str) -> Iterator[int]:
    """A descriptor of the folder at `path` in the home, empty for the home itself. What the system
    says of a link, of a file on the way and of a socket means that what was looked for is gone."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    first, *steps = path.split("/")
    folder = os.open(home / first, flags)
    try:
        for step in steps:
            inner = os.open(step, flags | os.O_NOFOLLOW, dir_fd=folder)
            os.close(folder)
            folder = inner
        yield folder
    except OSError as error:
        if error.errno in (ELOOP, ENOTDIR, ENXIO):
            raise FileNotFoundError(path) from error
        raise
    finally:
        os.close(folder)


def _entries(home: Path, path: str) -> list[tuple[BackupItem, bool]]:
    """What is in a folder, by name, each with whether it may be read (and a folder entered);
    nothing where it is gone. Links in the home itself are followed."""
    found = []
    with suppress(FileNotFoundError), _folder(home, path) as folder:
        for name in sorted(os.listdir(folder)):  # noqa: PTH208 - a descriptor
            with suppress(FileNotFoundError):
                inner = f"{path}/{name}" if path else name
                status = os.stat(name, dir_fd=folder, follow_symlinks=not path)
                mode, modified = stat.S_IMODE(status.st_mode), int(status.st_mtime)
                if stat.S_ISLNK(status.st_mode):
                    target = os.readlink(name, dir_fd=folder)
                    found.append((BackupItem(inner, "link", mode, modified, target=target), True))
                elif stat.S_ISDIR(status.st_mode):
                    may_enter = os.access(name, os.R_OK | os.X_OK, dir_fd=folder)
                    found.append((BackupItem(inner, "folder", mode, modified), may_enter))
                elif stat.S_ISREG(status.st_mode):
                    may_read = os.access(name, os.R_OK, dir_fd=folder)
                    found.append(
                        (BackupItem(inner, "file", mode, modified, status.st_size), may_read)
                    )
    return found


def _is_unfit(home: Path, folder: str) -> bool:
    """Whether a folder lies too deep or is a cache."""
    if folder.count("/") >= _DEEPEST or len(os.fsencode(folder)) > _LONGEST:
        return True
    with suppress(OSError):
        if _MAY_BE_CACHE.fullmatch(folder):
            with open_plain(home, f"{folder}/{_CACHE_TAG}") as file:
                return file.read(len(_CACHE_SIGNATURE)) == _CACHE_SIGNATURE
    return False
