"""The files of a home that a backup holds, and their order.

Left out are backups themselves, the locks and sockets of a running process, caches (the search
index, the catalogue of conversations), the log and, if so configured, media. SQLite copies
`state/journal.db`.

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

import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from errno import ELOOP, ENOTDIR, ENOTSUP, ENXIO
from functools import partial
from pathlib import Path
from typing import BinaryIO, Literal

from msgspec import Struct
from msgspec.structs import replace

BACKUPS = "backups"
"""The folder in a home where backups go by default."""
JOURNAL = "state/journal.db"
WORKSPACE = "workspace"
MEDIA = "media"

_TOGETHER = re.compile(
    r"(sessions|state/(memory\.git|versions|channels)|workspace/(memory|people|groups))(/.*)?",
    re.DOTALL,
)
_TOGETHER_FILES = re.compile(r"[^/]+|state/[^/]+\.json|workspace/[^/]+\.md")
_MIXED = ("state", "workspace")
"""Folders with entries of both kinds."""
_LINKED = ("sessions/", "state/memory.git/", "state/versions/", "state/channels/")
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
"""Nested folders, and bytes of a path (the system allows 4096, the home's included). Deeper folders
are left out: they could not be restored."""

_KINDS: dict[int, Literal["file", "folder", "link"]] = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "folder",
    stat.S_IFLNK: "link",
}


class BackupItem(Struct, frozen=True):
    """Something that goes into a backup. `path` is relative to the home, and so is `source`: where
    the first `size` bytes of a file are read, if not at `path`. `target` is that of a link;
    `modified` is in seconds since 1970."""

    path: str
    kind: Literal["file", "folder", "link"]
    mode: int
    modified: int
    size: int = 0
    source: str = ""
    target: str = ""


def may_be_linked(path: str) -> bool:
    """Whether a file that is taken together may have a hard link for a while. Where the agent can
    write, nanobot refuses hard-linked files; those files are small and are copied."""
    return path.startswith(_LINKED)


def belongs_in_backup(path: str) -> bool:
    """Whether a backup may hold this path of a home."""
    return not _OUT.fullmatch(path)


def stays_inside(path: str, target: str) -> bool:
    """Whether a link at `path` (in the home) with this target leads to somewhere in the workspace,
    whatever other such links it passes: steps up come first, from a real folder."""
    if not path.startswith("workspace/") or target.startswith("/") or "\0" in target:
        return False
    depth = path.count("/") - 1
    steps = [step for step in target.split("/") if step not in ("", ".")]
    ups = next((number for number, step in enumerate(steps) if step != ".."), len(steps))
    return ups <= depth and ".." not in steps[ups:]


def backup_items(
    home: Path, left_out: list[str], *, together: bool, media: bool = True
) -> Iterator[BackupItem]:
    """Yield what of `home` is taken together or apart, with its folders.

    Files that vanish, sockets and devices are left out. `left_out` grows by folders that
    are too deep and by what is apart and cannot be read. Links directly in the home are
    followed. Raises `OSError`.
    """

    is_wanted = partial(_is_wanted, together=together, media=media)
    top = os.open(home, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        names = sorted(path.name for path in home.iterdir())
        entries = list(_entries("", names, top, follow=True))
    finally:
        os.close(top)
    yield from (item for item, _ in entries if item.kind == "file" and is_wanted(item))
    for entry, _ in entries:
        if entry.kind == "folder" and is_wanted(entry):
            yield from _tree(home, entry, left_out, is_wanted, together)


def _is_wanted(item: BackupItem, *, together: bool, media: bool) -> bool:
    path, is_folder = item.path, item.kind == "folder"
    if _OUT.fullmatch(path) or (path == MEDIA and not media):
        return False
    if is_folder and path in _MIXED:
        return True
    is_single = not is_folder and _TOGETHER_FILES.fullmatch(path)
    return bool(is_single or _TOGETHER.fullmatch(path)) == together


def _tree(
    home: Path,
    top: BackupItem,
    left_out: list[str],
    is_wanted: Callable[[BackupItem], bool],
    together: bool,
) -> Iterator[BackupItem]:
    real = os.path.realpath(home / top.path)
    folders = {"": top}
    for root, inner, files, descriptor in os.fwalk(real):
        folder = folders.pop(root[len(real) :])
        if together or folder.path not in _MIXED:
            yield folder
        names = sorted(inner) + sorted(files)
        inner.clear()
        for item, is_readable in _entries(f"{folder.path}/", names, descriptor):
            if not is_wanted(item):
                continue
            is_folder = item.kind == "folder"
            is_deep = item.path.count("/") > _DEEPEST or len(os.fsencode(item.path)) > _LONGEST
            if is_deep or not (is_readable or together):
                left_out.append(item.path)
            elif is_folder:
                inner.append(item.path.rpartition("/")[2])
                folders[item.path[len(top.path) :]] = item
            else:
                yield item


def _entries(
    folder: str, names: list[str], descriptor: int, *, follow: bool = False
) -> Iterator[tuple[BackupItem, bool]]:
    """Yield what is in a folder, each with whether it may be read (and a folder entered)."""
    for name in names:
        with suppress(FileNotFoundError):
            status = os.stat(name, dir_fd=descriptor, follow_symlinks=follow)
            kind = _KINDS.get(stat.S_IFMT(status.st_mode))
            if kind is None:
                continue
            item = BackupItem(
                f"{folder}{name}", kind, stat.S_IMODE(status.st_mode), int(status.st_mtime)
            )
            if kind == "link":
                yield replace(item, target=os.readlink(name, dir_fd=descriptor)), True
            elif kind == "file":
                is_readable = os.access(name, os.R_OK, dir_fd=descriptor)
                yield replace(item, size=status.st_size), is_readable
            else:
                yield item, os.access(name, os.R_OK | os.X_OK, dir_fd=descriptor)


def open_plain(home: Path, path: str) -> BinaryIO:
    """Open the file at `path` in the home for reading; only `path`'s first step may be a link.
    Raises `OSError`, `FileNotFoundError` too if something else than a plain file is there."""
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
    """Return where the kernel opened a file."""
    try:
        return Path(f"/proc/self/fd/{descriptor}").readlink()
    except FileNotFoundError as error:  # which would mean that the file is gone
        raise OSError(ENOTSUP, "/proc is not mounted") from error
