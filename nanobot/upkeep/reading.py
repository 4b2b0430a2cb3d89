"""Opening what is in a home, the way that its path says and no other.

In the workspace programs of the agent are at work meanwhile. So no link is followed below the
home's own entries, whatever takes a folder's place between a look and the next, and nothing that is
not a plain file is waited for.
"""

from __future__ import annotations

import os
import stat
from errno import ELOOP, ENOTDIR, ENXIO
from pathlib import Path
from typing import BinaryIO

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
