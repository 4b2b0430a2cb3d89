"""The shared folder of a team: whether it is suitable, and which team it belongs to.

The folder (`state/team`) and the database hold the same secret word. A worker whose file server is
not mounted would find an empty folder and answer without memory. One with another team's database
would mix the two. The start rejects both. Neither has a word before `nanobot team init`. After
`nanobot team leave` the folder has `LEFT`.

A worker that was only stopped may resume after a takeover, just before it renames a temporary file
over a file of the new owner. Its temporary files carry its number (`nanobot.io.Fence`), and once
they are removed, the rename fails."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from itertools import filterfalse
from pathlib import Path

import psycopg
from loguru import logger
from msgspec import Struct

from nanobot.errors import NanobotError, StorageError
from nanobot.io import replace_file, storage_errors, sync_folder
from nanobot.team import schema
from nanobot.team.connection import DatabaseAddress, Row

LEFT = "left"

_LOCAL_ONLY = ("cifs", "smb3", "smbfs", "vfat", "exfat", "ntfs", "ntfs3", "9p", "fuse.sshfs")
"""File systems on which a rename does not replace a file atomically, or modes are lost."""
_COHERENT = ("fuse.ceph", "fuse.ceph-fuse")
"""FUSE file systems that show changes by other machines at once."""
_NFS = "nfsvers=4.2,hard,noac"


def word_file(shared: Path) -> Path:
    return shared / "state" / "team"


def word_of_folder(shared: Path) -> str:
    """Return the word in the shared folder, or an empty string. Raises `StorageError`."""
    path = word_file(shared)
    with storage_errors(path), suppress(FileNotFoundError):
        return path.read_text().strip()
    return ""


def word_of_database(db: psycopg.Connection[Row]) -> str:
    """Return the word in the database, or an empty string if there is none or no table."""
    if not schema.has_tables(db):
        return ""
    row = db.execute("SELECT word FROM team").fetchone()
    return row[0] if row else ""


def put_word(db: psycopg.Connection[Row], word: str) -> None:
    db.execute("DELETE FROM team")
    db.execute("INSERT INTO team VALUES (%s)", (word,))


def expect_together(address: DatabaseAddress, shared: Path) -> str:
    """Return the word that folder and database share, empty if neither has one. Changes neither.
    Raises `NanobotError` if they don't belong together."""
    with address.errors(), address.connect_blocking() as db:
        here = word_of_database(db)
    there = word_of_folder(shared)
    if here == there:
        return here
    if there == LEFT:
        raise NanobotError(
            f"the team in {shared} no longer exists, and its data is in another home",
            hint="Stop this worker, or start a new team with `nanobot team init`.",
        )
    if here and not there:
        raise NanobotError(
            f"{shared} is not the folder of the team in {address.place}",
            hint=(
                "Check that the file server is mounted there and that team.shared is the same "
                "folder on all workers."
            ),
        )
    raise mismatch(address, shared)


def mismatch(address: DatabaseAddress, shared: Path) -> NanobotError:
    return NanobotError(
        f"{shared} and {address.place} belong to different teams",
        hint=(
            "If `nanobot team init` or `nanobot team leave` was interrupted, run it again in "
            "that home. Otherwise, correct team.shared or team.database."
        ),
    )


def check_folder(home: Path, shared: Path, mounts: str | None = None) -> None:
    """Raise `NanobotError` if workers can't share `shared`, as far as one worker can tell. `mounts`
    is the text of /proc/self/mountinfo."""
    if not shared.is_dir():
        raise NanobotError(
            f"there is no folder {shared}",
            hint="Mount the file server there, or create a folder that all workers share.",
        )
    mine, ours = home.resolve(), shared.resolve()
    if mine.is_relative_to(ours) or ours.is_relative_to(mine):
        raise NanobotError(
            f"one of the folders {shared} and {home} contains the other",
            hint=(
                "A home contains locks, sockets, and SQLite caches, which must be on the "
                "worker's own disk. Set NANOBOT_HOME or team.shared to another folder."
            ),
        )
    check_mounts(shared, mounts)
    with storage_errors(shared):
        _try_out(ours)


class _Mount(Struct, frozen=True):
    """A file system at `point`, as the kernel lists it."""

    point: str
    kind: str
    source: str
    options: frozenset[str]

    @property
    def fault(self) -> str:
        """Reason why workers can't share files on it, or an empty string."""
        if self.kind in _LOCAL_ONLY:
            return f"its file system ({self.kind}) can't replace a file atomically"
        if self.kind == "nfs":
            return "it is mounted with NFS 3"
        if self.kind != "nfs4":
            return ""
        if self.options & {"soft", "softerr"}:
            return "it is mounted with `soft`, which loses writes when the server is slow"
        # True if the client asks the server each time (nfs(5), "Attribute caching"). Any
        # `lookupcache` will do: names are cached only as long as the folder's attributes.
        is_fresh = "noac" in self.options or {"acregmax=0", "acdirmax=0"} <= self.options
        if not is_fresh or self.options & {"nocto", "softreval"}:
            return (
                "its NFS client caches file attributes, so this worker would miss changes by "
                "other workers"
            )
        return ""


def check_mounts(shared: Path, mounts: str | None = None) -> None:
    """Raise `StorageError` if `shared`, or a folder in it, is on a file system that several workers
    can't share. `mounts` is as in `check_folder`."""
    places = (shared, *(shared / name for name in _FOLDERS))  # which may be links
    for mount in (one for place in places for one in _mounts_of(place, mounts)):
        if mount.fault:
            point = mount.point.replace(" ", "\\040")
            hint = "Use NFS 4 with `noac`, CephFS or EFS."
            if mount.kind in ("nfs", "nfs4"):
                hint = (
                    f"Put `{mount.source} {point} nfs4 {_NFS} 0 0` into /etc/fstab. Then "
                    "unmount and mount it, because a remount keeps the old options."
                )
            raise StorageError(mount.point, mount.fault, hint=hint)


def unknown_caches(shared: Path, mounts: str | None = None) -> str:
    """Return the kind of the file system if it hides how long it caches attributes, else an empty
    string."""
    kinds = (one.kind for one in _mounts_of(shared, mounts))
    known = (*_LOCAL_ONLY, *_COHERENT)
    doubtful = (one for one in kinds if one.startswith("fuse.") or one == "virtiofs")
    return next((one for one in doubtful if one not in known), "")


def _mounts_of(shared: Path, mounts: str | None) -> list[_Mount]:
    """Return the file systems of `shared` and of folders in it, the topmost of each mount point."""
    shared = shared.resolve()
    text = Path("/proc/self/mountinfo").read_text() if mounts is None else mounts
    found: dict[str, _Mount] = {}
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        point = re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), before.split()[4])
        if shared.is_relative_to(point) or Path(point).is_relative_to(shared):
            kind, source, options = (*after.split(), "", "")[:3]
            found[point] = _Mount(point, kind, source, frozenset(options.split(",")))
    above = [point for point in found if shared.is_relative_to(point)]
    nearest = max(above, key=len, default="")
    return [one for point, one in found.items() if point == nearest or point not in above]


def _try_out(shared: Path) -> None:
    """Do a worker's file operations. Raises `OSError`, or `StorageError` for silent failures."""
    # Other workers may test at the same time.
    path = shared / f".{secrets.token_hex(8)}.nanobot-try"
    try:
        replace_file(path, b"old")
        with path.open("rb") as reader:
            replace_file(path, b"new")
            seen = reader.read(), path.read_bytes(), path.stat().st_mode & 0o777
        sync_folder(shared)
        if seen != (b"old", b"new", 0o600):
            raise StorageError(shared, "replacing a file there is not atomic")
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        raise StorageError(shared, "two workers could create the same file there")
    finally:
        path.unlink(missing_ok=True)


_TEMPORARY = re.compile(r"\.[0-9a-f]{16}\.(\d+)\.nanobot-tmp")
_FOLDERS = ("sessions", "state", "media", "workspace")
_PASSED_OVER = (".git", "node_modules", ".venv")


def temporaries(
    shared: Path, is_over: Callable[[], bool] = lambda: False, *, everywhere: bool = False
) -> dict[Path, int]:
    """Return the temporary files, with the numbers of the workers that made them. Without
    `everywhere`, only memory folders of the workspace are searched, because there may be any number
    of other files. Stops early once `is_over`. Blocks. Ask for the living workers afterwards, so
    that each file's worker is known."""
    made = dict[Path, int]()
    for top in _FOLDERS:
        for folder, inner, names in os.walk(shared / top):
            if is_over():
                return made
            inner[:] = filterfalse(partial(_is_passed_over, folder), inner)
            if top == "workspace" and not everywhere:
                place = Path(folder).relative_to(shared / top).parts
                inner[:] = [name for name in inner if _leads_to_memory((*place, name))]
            found = filter(None, map(_TEMPORARY.fullmatch, names))
            made |= {Path(folder, one[0]): int(one[1]) for one in found}
    return made


def _is_passed_over(folder: str, name: str) -> bool:
    """Return True for folders with many files and never a temporary one of nanobot."""
    return name in _PASSED_OVER or (name == "objects" and folder.endswith(".git"))


def _leads_to_memory(place: Sequence[str]) -> bool:
    """Return True if a folder of the workspace is in a scope's memory, or contains such folders."""
    depth = 2 if place[0] in ("people", "groups") else 0
    return len(place) <= depth or place[depth] == "memory"


def clear(paths: Iterable[Path]) -> None:
    """Remove the temporary files of dead workers. Blocks."""
    for path in paths:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            logger.warning("can't remove {} of a dead worker: {}", path, error)
