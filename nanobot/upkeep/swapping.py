"""Letting one folder stand where another stood, so that there is one at every moment.

In one step, where the system can do that; else whoever is killed in between leaves a whole folder
under another name.
"""

from __future__ import annotations

import ctypes
import os
from errno import EINVAL, ENOSYS
from pathlib import Path

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
