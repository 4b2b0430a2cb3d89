"""Replaces a home by a folder that was made beside it.

The two are exchanged in one step where the system can do that, so that a crash leaves one or the
other. A home that cannot be renamed (a mounted volume, or its parent is not writable) has its
entries exchanged one by one, under a plan: no gateway starts on a home with such a plan, and
`finish` completes or undoes it.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from errno import EBUSY, EINVAL, ENOSYS
from itertools import chain, count
from pathlib import Path

from nanobot.errors import NanobotError
from nanobot.io import replace_file, sync_folder
from nanobot.upkeep.contents import BACKUPS, UNFINISHED

_AT_FDCWD, _EXCHANGE = -100, 2

STAGING = ".restoring-"
"""How the name of a folder in a home begins that a restore unpacks into."""
_BEFORE = "before-restore"


def swap_folders(new: Path, home: Path, previous: Path) -> None:
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
    exchange = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if exchange is not None:
        names = os.fsencode(one), os.fsencode(other)
        if not exchange(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _EXCHANGE):
            return
        if (code := ctypes.get_errno()) not in (EINVAL, ENOSYS):
            raise OSError(code, os.strerror(code), str(other))
    aside = one.with_name(f".{one.name}.aside")
    other.rename(aside)
    try:
        one.rename(other)
    except BaseException:
        aside.rename(other)
        raise
    aside.rename(one)


@contextlib.contextmanager
def staging_for(home: Path) -> Iterator[Path]:
    """A new folder beside the home, or in it where that cannot be. What an attempt that was killed
    has left is cleared. Raises `OSError`."""
    try:
        if home.is_mount():
            raise PermissionError
        home.parent.mkdir(parents=True, exist_ok=True)
        folder = _staging(home.parent, f".{home.name}{STAGING}")
    except OSError:
        home.mkdir(mode=0o700, exist_ok=True)
        folder = _staging(home, STAGING)
    with _locked(folder):
        try:
            yield folder
        finally:
            if not (home / UNFINISHED).exists():
                shutil.rmtree(folder, ignore_errors=True)


def _staging(folder: Path, prefix: str) -> Path:
    """A new folder there; abandoned ones of earlier attempts are removed first."""
    for path in folder.iterdir():
        if path.name.startswith(prefix):
            with contextlib.suppress(OSError), _locked(path):
                shutil.rmtree(path, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=prefix, dir=folder))


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Raises `OSError` if another process holds the lock, or it is a link."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(folder, flags)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def put_in_place(staging: Path, home: Path, now: datetime) -> Path | None:
    """Let `staging` be the home; where the one before went, None where nothing was in it. Backups
    stay in the home. Raises `OSError`, and `NanobotError` where something in the home cannot be
    moved; the home is as it was then, or `finish` takes it on."""
    stamp = f"{now.astimezone(UTC):%Y%m%dT%H%M%SZ}"
    if staging.parent == home:
        return _exchange_entries(staging, home, _free(home / f"{_BEFORE}-{stamp}"))
    if not home.exists() or not any(home.iterdir()):
        staging.rename(home)  # over an empty one, too
        sync_folder(home.parent)
        return None
    previous = _free(home.with_name(f"{home.name}.{_BEFORE}-{stamp}"))
    swap_folders(staging, home, previous)
    sync_folder(home.parent)
    # If that fails they stay with the old home, whose place is shown.
    with contextlib.suppress(OSError):
        (previous / BACKUPS).rename(home / BACKUPS)
    return previous


def _free(place: Path) -> Path:
    """That place, or one with a number where something is: another attempt, in the same second."""
    names = (place.with_name(f"{place.name}-{number}") for number in count(2))
    return next(path for path in chain((place,), names) if not os.path.lexists(path))


def finish(home: Path) -> None:
    """End what was cut short, if so: where all that stood in the home is aside, what is new comes;
    else what went comes back. May be done again from anywhere. Raises `OSError`."""
    if not (home / UNFINISHED).exists():
        return
    with _locked(home):
        plan = json.loads((home / UNFINISHED).read_bytes())
        coming = home / (plan["staging"] if plan["all_aside"] else plan["previous"])
        if coming.is_dir():
            for path in coming.iterdir():
                path.rename(home / path.name)
            coming.rmdir()
        home.chmod(0o700)
        sync_folder(home)
        (home / UNFINISHED).unlink()
        sync_folder(home)


def _exchange_entries(staging: Path, home: Path, previous: Path) -> Path | None:
    ours = (STAGING, _BEFORE, UNFINISHED)
    plan = {"staging": staging.name, "previous": previous.name}
    _write_plan(home, {**plan, "all_aside": False})
    entries = (path for path in home.iterdir() if path.name != BACKUPS)
    standing = [path for path in entries if not path.name.startswith(ours)]
    try:
        if standing:
            previous.mkdir(mode=0o700)
            for path in standing:
                path.rename(previous / path.name)
            sync_folder(previous)
            sync_folder(home)
    except OSError as error:
        finish(home)
        if error.errno != EBUSY:
            raise
        raise NanobotError(
            f"{error.filename} is a mount point, which a restore cannot move",
            hint="Unmount that (in a container: leave it out of the volumes), give the same command"
            " again, and mount it afterwards. Or restore into another folder with --to.",
        ) from error
    _write_plan(home, {**plan, "all_aside": True})
    finish(home)
    return previous if standing else None


def _write_plan(home: Path, plan: Mapping[str, object]) -> None:
    replace_file(home / UNFINISHED, json.dumps(plan).encode())
