"""Letting one folder stand where another stood, so that there is one at every moment.

In one step, where the system can do that; else whoever is killed in between leaves a whole folder
under another name.

Letting a folder that was made beside a home be the home.

The two change places in one step, where the system can do that; whoever is killed leaves the one or
the other. Where the home cannot be renamed, because it is a mounted volume or its parent may not be
written, its entries change places one by one, under a list that says how far it has to go: no
gateway starts on a home with such a list, and `finish` goes on with it. What is mounted within such
a home cannot move at all, so that one is refused before anything is unpacked.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from errno import EINVAL, ENOSYS
from itertools import chain, count
from pathlib import Path

from nanobot.disk import sync_folder
from nanobot.errors import NanobotError
from nanobot.security.paths import replace as put_file
from nanobot.upkeep.contents import BACKUPS, UNFINISHED

_AT_FDCWD, _EXCHANGE = -100, 2
_CANNOT = (EINVAL, ENOSYS)


def swap(new: Path, home: Path, previous: Path) -> None:
    """Let `new` be at `home`, and what was there at `previous`, where nothing is yet. All are
    folders on one file system. Raises `OSError`; all is as it was then."""
    new.rename(previous)  # the name that the old one has once they have changed places
    try:
        _change_places(previous, home)
    except BaseException:
        previous.rename(new)
        raise


def _change_places(one: Path, other: Path) -> None:
    """In one step; where the system has none, in as few as there are, and back if that fails."""
    libc = ctypes.CDLL(None, use_errno=True)
    exchange = getattr(libc, "renameat2", None)
    if exchange is not None:
        names = os.fsencode(one), os.fsencode(other)
        if not exchange(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _EXCHANGE):
            return
        if (code := ctypes.get_errno()) not in _CANNOT:
            raise OSError(code, os.strerror(code), str(other))
    aside = one.with_name(f".{one.name}.aside")
    other.rename(aside)
    try:
        one.rename(other)
    except BaseException:
        aside.rename(other)
        raise
    aside.rename(one)


STAGING = ".restoring-"
"""How the name of a folder in a home begins that a restore unpacks into."""
_BEFORE = "before-restore"


@contextlib.contextmanager
def staging_for(home: Path) -> Iterator[Path]:
    """A new folder beside the home, or in it where that cannot be. What an attempt that was killed
    has left is cleared. Raises `OSError`, and `NanobotError` where something in the home cannot
    change places."""
    folder = _made(home)
    lock = _lock(folder)
    try:
        yield folder
    finally:
        os.close(lock)
        if not (home / UNFINISHED).exists():
            shutil.rmtree(folder, ignore_errors=True)


def put_in_place(staging: Path, home: Path, now: datetime) -> Path | None:
    """Let `staging` be the home; where the one before went, None where nothing was in it. Backups
    stay in the home. Raises `OSError`; the home is as it was then, or `finish` takes it on."""
    stamp = f"{now.astimezone(UTC):%Y%m%dT%H%M%SZ}"
    if staging.parent == home:
        return _exchange_entries(staging, home, stamp)
    if not home.exists() or not any(home.iterdir()):
        staging.rename(home)  # over an empty one, too
        sync_folder(home.parent)
        return None
    previous = _free(home.with_name(f"{home.name}.{_BEFORE}-{stamp}"))
    swap(staging, home, previous)
    sync_folder(home.parent)
    # Where that fails they are where the old home is, which is told.
    with contextlib.suppress(OSError):
        (previous / BACKUPS).rename(home / BACKUPS)
    return previous


def is_unfinished(home: Path) -> bool:
    """Whether the entries of a home have not all changed places. Its lock may have moved on: only
    `finish` is for such a home."""
    return (home / UNFINISHED).exists()


def finish(home: Path) -> None:
    """Go on with what was cut short, if so. Raises `OSError`, and `NanobotError` where something in
    the home cannot change places."""
    if not is_unfinished(home):
        return
    _expect_movable(home)
    lock = _lock(home)
    try:
        match json.loads((home / UNFINISHED).read_bytes()):
            case {"staging": str(staging), "previous": str(previous), "standing": list(standing)}:
                _move_entries(home, staging, previous, [str(name) for name in standing])
    except ValueError:
        raise OSError(EINVAL, "it makes no sense", str(home / UNFINISHED)) from None
    finally:
        os.close(lock)


def _made(home: Path) -> Path:
    try:
        if _is_mounted(home):
            raise PermissionError
        home.parent.mkdir(parents=True, exist_ok=True)
        _clear(home.parent, f".{home.name}{STAGING}")
        return Path(tempfile.mkdtemp(prefix=f".{home.name}{STAGING}", dir=home.parent))
    except OSError:
        home.mkdir(mode=0o700, exist_ok=True)
        _expect_movable(home)
        _clear(home, STAGING)
        return Path(tempfile.mkdtemp(prefix=STAGING, dir=home))


def _clear(folder: Path, prefix: str) -> None:
    """Remove what killed attempts left, but not what somebody is unpacking into."""
    for path in folder.iterdir():
        if path.name.startswith(prefix) and path.is_dir() and not path.is_symlink():
            with contextlib.suppress(OSError):
                os.close(_lock(path))
                shutil.rmtree(path, ignore_errors=True)


def _lock(folder: Path) -> int:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _is_mounted(home: Path) -> bool:
    """Whether a file system begins there, be it one that is in use elsewhere as well."""
    if home.is_mount():
        return True
    try:
        lines = Path("/proc/self/mountinfo").read_text("utf-8", "surrogateescape").splitlines()
    except OSError:
        return False
    escaped = str(home)
    for character in "\\ \t\n":
        escaped = escaped.replace(character, f"\\{ord(character):03o}")
    return any(line.split(" ")[4:5] == [escaped] for line in lines)


def _standing(home: Path) -> list[str]:
    """What in a home gives way to what comes."""
    ours = (STAGING, _BEFORE, UNFINISHED)
    names = (path.name for path in home.iterdir())
    return [name for name in names if name != BACKUPS and not name.startswith(ours)]


def _expect_movable(home: Path) -> None:
    """Raise where something in the home is mounted there of its own: that cannot be renamed."""
    mounted = [name for name in _standing(home) if _is_mounted(home / name)]
    if mounted:
        raise NanobotError(
            f"in {home} something else is mounted, which a restore cannot move: "
            + ", ".join(sorted(mounted)),
            hint="Unmount that (in a container: leave it out of the volumes), give the same command"
            " again, and mount it afterwards. Or restore into another folder with --to.",
        )


def _exchange_entries(staging: Path, home: Path, stamp: str) -> Path | None:
    previous = _free(home / f"{_BEFORE}-{stamp}")
    standing = _standing(home)
    plan = {"staging": staging.name, "previous": previous.name, "standing": standing}
    folder = os.open(home, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        put_file(folder, UNFINISHED, json.dumps(plan).encode(), 0o600, lambda: None)
    finally:
        os.close(folder)
    _move_entries(home, staging.name, previous.name, standing)
    return previous if standing else None


def _move_entries(home: Path, staging: str, previous: str, standing: list[str]) -> None:
    """First all that stands goes, then all that is new comes; may be done again from anywhere."""
    new, old = home / staging, home / previous
    if standing:
        old.mkdir(mode=0o700, exist_ok=True)
    coming = {path.name for path in new.iterdir()} if new.is_dir() else set()
    gone = {path.name for path in old.iterdir()} if standing else set()
    try:
        for name in standing:
            if name not in gone:
                with contextlib.suppress(FileNotFoundError):
                    (home / name).rename(old / name)
    except OSError:
        _take_back(home, old)
        raise
    for name in coming:
        if name != BACKUPS:
            if os.path.lexists(home / name):  # somebody has begun a home there meanwhile
                old.mkdir(mode=0o700, exist_ok=True)
                (home / name).rename(old / f"{name}.meanwhile")
            (new / name).rename(home / name)
    home.chmod(0o700)
    sync_folder(home)
    (home / UNFINISHED).unlink()
    sync_folder(home)


def _take_back(home: Path, old: Path) -> None:
    """Let what went to `old` stand in the home again, as nothing has come yet, and forget the list.
    Raises `OSError`; the list stays then."""
    for path in old.iterdir():
        path.rename(home / path.name)
    old.rmdir()
    sync_folder(home)
    (home / UNFINISHED).unlink()
    sync_folder(home)


def _free(place: Path) -> Path:
    """That place, or one with a number where something is: another attempt, in the same second."""
    names = (place.with_name(f"{place.name}-{number}") for number in count(2))
    return next(path for path in chain((place,), names) if not os.path.lexists(path))
