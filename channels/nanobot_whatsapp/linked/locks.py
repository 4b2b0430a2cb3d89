"""Two locks in the folder: who runs a helper there, and which helper still lives.

`daemon.lock` is held by the process that runs the helper, and by nobody after it. `helper.lock` is
handed to the helper: it is held as long as a helper lives, whatever became of the daemon that
started it. So a held `helper.lock` under a free `daemon.lock` is an orphan.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
from collections.abc import Iterator
from pathlib import Path

from loguru import logger

from nanobot.clock import Clock
from nanobot_whatsapp.linked.hearing import HelperFailed
from nanobot_whatsapp.linked.listening import SOCKET_NAME

LEAVE_SECONDS = 3.0
"""How long an orphan gets to leave by itself, and how long one that was killed to be gone."""

_DAEMON = "daemon.lock"
_HELPER = "helper.lock"
_POLL_SECONDS = 0.1


class HelperLock:
    """`helper.lock`, held by whoever has this descriptor or one inherited from it."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def fileno(self) -> int:
        """The descriptor, for the helper to inherit."""
        return self._descriptor

    def note(self, pid: int) -> None:
        """Write down which process the helper is."""
        _write(self._descriptor, pid)

    def close(self) -> None:
        """Give up our part of it; again is nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


@contextlib.contextmanager
def daemon_lock(folder: Path) -> Iterator[None]:
    """Be the one who runs a helper in `folder`. Raises `HelperFailed` where somebody else does, and
    `OSError`."""
    descriptor = _opened(folder / _DAEMON)
    try:
        if not _locked(descriptor):
            raise HelperFailed(
                f"another nanobot (pid {_read(descriptor) or 'unknown'}) uses WhatsApp from here",
                hint="Stop it first.",
            )
        _write(descriptor, os.getpid())
        yield
    finally:
        os.close(descriptor)


async def helper_lock(folder: Path, clock: Clock) -> HelperLock:
    """The lock for a new helper, once no other lives; one that does not leave is killed.

    Raises `HelperFailed` where it cannot be had, and `OSError`.
    """
    descriptor = _opened(folder / _HELPER)
    try:
        if await _patiently(descriptor, clock) or await _forced(descriptor, folder, clock):
            return HelperLock(descriptor)
    except BaseException:
        os.close(descriptor)
        raise
    pid = _read(descriptor)
    os.close(descriptor)
    raise HelperFailed(
        f"an old WhatsApp helper (pid {pid or 'unknown'}) still runs",
        hint=f"End it; it holds {folder / _HELPER}.",
    )


async def _forced(descriptor: int, folder: Path, clock: Clock) -> bool:
    """Kill the helper that holds the lock; whether that gave it to us."""
    orphan = _read(descriptor)
    if not _is_helper(orphan, folder):
        return False
    logger.warning("whatsapp: an old helper (pid {}) does not leave; killing it", orphan)
    with contextlib.suppress(ProcessLookupError):
        os.kill(orphan, signal.SIGKILL)
    return await _patiently(descriptor, clock)


async def _patiently(descriptor: int, clock: Clock) -> bool:
    for _ in range(round(LEAVE_SECONDS / _POLL_SECONDS)):
        if _locked(descriptor):
            return True
        await clock.sleep(_POLL_SECONDS)
    return _locked(descriptor)


def _is_helper(pid: int, folder: Path) -> bool:
    """Whether this is a helper that was started for `folder`: ids are used again."""
    if pid <= 1:
        return False
    process = Path(f"/proc/{pid}")
    try:
        words = (process / "cmdline").read_bytes().split(b"\0")
        return SOCKET_NAME.encode() in words and (process / "cwd").samefile(folder)
    except OSError:
        return False


def _opened(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read(descriptor: int) -> int:
    text = os.pread(descriptor, 32, 0).strip()
    return int(text) if text.isdigit() else 0


def _write(descriptor: int, pid: int) -> None:
    """For people and for `_is_helper`: the lock holds without it, so a full disk is no reason."""
    with contextlib.suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, b"%d\n" % pid, 0)
