"""One process owns a home: an advisory lock on `state/gateway.lock`, with the owner's pid inside.

The kernel drops the lock with the process, however that ends, so a dead holder never blocks. The
file is never removed: a second process could otherwise lock a new file of the same name.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from pathlib import Path
from types import TracebackType

from nanobot.errors import HomeLocked, StorageError
from nanobot.upkeep.contents import UNFINISHED

LOCK_NAME = "gateway.lock"

_PID_PATIENCE = 0.5
"""Seconds to wait for a holder that has the lock and has not yet written its pid."""


class HomeLock:
    """The right to write a home. Programs that are run do not inherit it."""

    def __init__(self, state_folder: Path) -> None:
        self._folder = state_folder
        self._path = state_folder / LOCK_NAME
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
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(
                self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
            )
        except OSError as error:
            raise StorageError.of(self._path, error) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with contextlib.suppress(OSError):  # a full disk: the lock holds without a name in it
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        except BlockingIOError:
            pid = _holder(descriptor)
            os.close(descriptor)
            raise HomeLocked(self._folder.parent, pid) from None
        except OSError as error:
            os.close(descriptor)
            raise StorageError.of(self._path, error) from error
        self._descriptor = descriptor

    def release(self) -> None:
        """Give the lock back; does nothing when it is not held."""
        if not self.held:
            return
        descriptor, self._descriptor = self._descriptor, -1
        try:
            os.ftruncate(descriptor, 0)
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # at once, though a child may be mid-exec
        finally:
            os.close(descriptor)

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
    try:
        return path.exists()
    except OSError as error:  # a folder on the way to it is somebody else's
        raise StorageError.of(path, error) from error


def _holder(descriptor: int) -> int:
    """The pid in the lock file, 0 if none of a living process appears in it in time."""
    deadline = time.monotonic() + _PID_PATIENCE
    while True:
        text = os.pread(descriptor, 32, 0).strip()
        if text.isdigit() and _alive(pid := int(text)):
            return pid
        if time.monotonic() >= deadline:
            return 0
        time.sleep(0.01)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True
