"""One process owns a home: an advisory lock on `state/gateway.lock`, with the owner's pid inside.

The kernel drops the lock with the process, however that ends, so a dead holder never blocks. The
file is never removed: a second process could otherwise lock a new file of the same name.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from nanobot.errors import HomeLocked, StorageError
from nanobot.io import locked, storage_errors
from nanobot.upkeep import UNFINISHED

LOCK_NAME = "gateway.lock"


@contextmanager
def home_lock(state_folder: Path) -> Iterator[None]:
    """Own the home while inside; programs that are run do not inherit that. Raises `HomeLocked`,
    with the pid that has it, and `StorageError`."""
    home, path = state_folder.parent, state_folder / LOCK_NAME
    refuse_half_restored(home)
    with ExitStack() as stack:
        try:
            descriptor = stack.enter_context(locked(path))
        except BlockingIOError:
            raise HomeLocked(home, _holder(path)) from None
        with suppress(OSError):  # a full disk: the lock holds without a name in it
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        try:
            yield
        finally:
            os.ftruncate(descriptor, 0)


def refuse_half_restored(home: Path) -> None:
    """Raise `StorageError` where the entries of a home have not all changed places with those of a
    backup."""
    unfinished = home / UNFINISHED
    with storage_errors(unfinished):  # a folder on the way to it is somebody else's
        is_half = unfinished.exists()
    if is_half:
        raise StorageError(
            home,
            "a restore was cut short here, and half of it is the home from before",
            hint="Give the same `nanobot restore FILE --replace` again.",
        )


def _holder(path: Path) -> int:
    """The pid in the lock file, 0 where it is not that of a living process."""
    text = path.read_bytes().strip()
    return int(text) if text.isdigit() and Path(f"/proc/{int(text)}").exists() else 0
