"""Lock of a home: one process owns it by an advisory lock on `state/gateway.lock`, which holds its
pid.

An owner that is leaving adds a state, and a new process waits: `ending` (nothing follows),
`stopping` (a service may restart) or `starting` (the same pid takes the lock in a moment, and the
home is reserved for it). The kernel drops the lock when the process ends, so a dead holder never
blocks."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from nanobot.errors import HomeLocked, NanobotError, StorageError
from nanobot.io import OWNED, hold_lock, storage_errors
from nanobot.upkeep import UNFINISHED

LOCK_NAME = "gateway.lock"
JOURNAL = "journal.db"
TO_TEAM, FROM_TEAM, MOVED = "to-team", "from-team", "journal.db.moved-to-team"
"""In `state`: name prefixes of the folders that `nanobot team init` and `leave` use while they run,
and the journal from before the team."""


Leaving = Literal["", "ending", "stopping", "starting"]
_START_SECONDS = 30.0
"""Seconds that a home is reserved for the process that restarts."""


class HomeLock:
    """The lock, for its holder."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.leaving: Leaving = ""

    def mark(self, leaving: Leaving) -> None:
        """Write the owner's pid and leaving state to the file."""
        self.leaving = leaving
        said = f"{os.getpid()} {leaving}".strip().encode() + b"\n"
        with suppress(OSError):  # a full disk: the lock works without a pid
            # Before the cut, so that a reader always finds a pid.
            os.pwrite(self._descriptor, said, 0)
            os.ftruncate(self._descriptor, len(said))

    def clear(self) -> None:
        """Remove the owner, unless it takes the lock again in a moment."""
        with suppress(OSError):  # a read-only disk
            if self.leaving == "starting":
                os.utime(self._descriptor)
            else:
                os.ftruncate(self._descriptor, 0)


@contextmanager
def home_lock(state_folder: Path, leaving: Leaving = "") -> Iterator[HomeLock]:
    """Own the home while inside. Child processes don't inherit the lock. Raise `HomeLocked` with
    the owner's pid, and `StorageError`."""
    home, path = state_folder.parent, state_folder / LOCK_NAME
    refuse_half_restored(home)
    with ExitStack() as stack:
        try:
            descriptor = stack.enter_context(hold_lock(path))
        except BlockingIOError:
            raise HomeLocked(home, *_holder(path)) from None
        pid, left = _holder(path)
        age = datetime.now(UTC).timestamp() - os.fstat(descriptor).st_mtime
        if left == "starting" and pid not in (0, os.getpid()) and age < _START_SECONDS:
            raise HomeLocked(home, pid, left)
        lock = HomeLock(descriptor)
        lock.mark(leaving)
        OWNED.add(home)
        try:
            yield lock
        finally:
            OWNED.discard(home)
            lock.clear()


def refuse_half_restored(home: Path) -> None:
    """Raise `StorageError` if a restore has replaced only some entries of the home."""
    unfinished = home / UNFINISHED
    with storage_errors(unfinished):  # a parent folder may belong to another user
        is_half = unfinished.exists()
    if is_half:
        raise StorageError(
            home,
            "a restore was interrupted, so this home is incomplete",
            hint="Run the same `nanobot restore FILE --replace` command again.",
        )


def refuse_half_moved(state: Path, *, in_team: bool) -> None:
    """Raise `NanobotError` if the pending messages are not where this home looks for them."""
    for name, command in ((TO_TEAM, "init"), (FROM_TEAM, "leave")):
        if next(state.glob(f"{name}-*"), None):
            raise NanobotError(
                f"`nanobot team {command}` was interrupted in {state.parent}",
                hint=f"Run `nanobot team {command}` again to continue.",
            )
    has_journal = (state / JOURNAL).exists()
    if in_team and has_journal:
        raise NanobotError(
            f"{state.parent} still has messages, jobs, and pairings from before the team",
            hint=(
                "`nanobot team init` moves them into the team. To run without the team, remove "
                "`team` from config.yaml."
            ),
        )
    if not in_team and not has_journal and (state / MOVED).exists():
        raise NanobotError(
            f"the data from {state.parent} is in a team's database and folder",
            hint=(
                "To move it back, set `team` in config.yaml and run `nanobot team leave`. To "
                f"start empty, remove {state / MOVED}."
            ),
        )


def _holder(path: Path) -> tuple[int, str]:
    """Return the pid in the lock file, 0 if that process is dead, and its leaving state."""
    pid, _, leaving = path.read_text("utf-8", "replace").strip().partition(" ")
    return int(pid) if pid.isdecimal() and Path(f"/proc/{pid}").exists() else 0, leaving
