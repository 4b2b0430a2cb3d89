"""One process owns a home: an advisory lock on `state/gateway.lock`, with the owner's pid inside.

The kernel drops the lock with the process, however that ends, so a dead holder never blocks. The
file is never removed: a second process could otherwise lock a new file of the same name.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from types import TracebackType

from nanobot.errors import HomeLocked, StorageError
from nanobot.io import locked, storage_errors
from nanobot.upkeep.contents import UNFINISHED

LOCK_NAME = "gateway.lock"

_PID_PATIENCE = 0.5
"""Seconds to wait for a holder that has the lock and has not yet written its pid."""


class HomeLock:
    """The right to write a home. Programs that are run do not inherit it."""

    def __init__(self, state_folder: Path) -> None:
        self._folder = state_folder
        self._path = state_folder / LOCK_NAME
        self._lock = contextlib.ExitStack()
        self._descriptor = -1

    @property
    def held(self) -> bool:
        """Whether this object owns the home now."""
        return self._descriptor >= 0

    def exists(self) -> bool:
        """Whether anyone has ever owned this home. Raises `StorageError`."""
        return _exists(self._path)

    def acquire(self) -> None:
        """Take the lock at once, or raise `HomeLocked` with the pid that has it."""
        if self.held:
            return
        expect_whole(self._folder.parent)
        try:
            descriptor = self._lock.enter_context(locked(self._path))
        except BlockingIOError:
            raise HomeLocked(self._folder.parent, _holder(self._path)) from None
        with contextlib.suppress(OSError):  # a full disk: the lock holds without a name in it
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        self._descriptor = descriptor

    def release(self) -> None:
        """Give the lock back; does nothing when it is not held."""
        if not self.held:
            return
        descriptor, self._descriptor = self._descriptor, -1
        with self._lock:
            os.ftruncate(descriptor, 0)

    def __enter__(self) -> HomeLock:
        self.acquire()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()


def expect_whole(home: Path) -> None:
    """Raise `StorageError` where the entries of a home have not all changed places with those of a
    backup."""
    if _exists(home / UNFINISHED):
        raise StorageError(
            home,
            "a restore was cut short here, and half of it is the home from before",
            hint="Give the same `nanobot restore FILE --replace` again.",
        )


def _exists(path: Path) -> bool:
    with storage_errors(path):  # a folder on the way to it is somebody else's
        return path.exists()


def _holder(path: Path) -> int:
    """The pid in the lock file, 0 if none of a living process appears in it in time."""
    deadline = time.monotonic() + _PID_PATIENCE
    while True:
        text = path.read_bytes().strip()
        if text.isdigit() and Path(f"/proc/{int(text)}").exists():
            return int(text)
        if time.monotonic() >= deadline:
            return 0
        time.sleep(0.01)
