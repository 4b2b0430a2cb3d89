"""One process owns a home: an advisory lock on `state/gateway.lock`, with the owner's pid inside.

An owner that is on its way out says so behind its pid, and who comes then waits: `ending` (nothing
follows), `stopping` (a service may be started again) or `starting` (the same pid takes the lock in
a moment, and until then it is left to it). The kernel drops the lock with the process, however that
ends, so a dead holder never blocks. The file is never removed: a second process could otherwise
lock a new file of the same name.
"""

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
"""In `state`: what begins the names of folders by `nanobot team init` and `leave` while they are at
work, and the journal from before the team."""


Leaving = Literal["", "ending", "stopping", "starting"]
_START_SECONDS = 30.0
"""How long a home is left to the process that starts there."""


class HomeLock:
    """The lock, for the process that has it."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.leaving: Leaving = ""

    def mark(self, leaving: Leaving) -> None:
        """Say in the file who owns the home, and how that one is on its way out."""
        self.leaving = leaving
        said = f"{os.getpid()} {leaving}".strip().encode() + b"\n"
        with suppress(OSError):  # a full disk: the lock holds without a name in it
            os.pwrite(self._descriptor, said, 0)
            os.ftruncate(self._descriptor, len(said))

    def clear(self) -> None:
        """The owner is gone, unless it takes the lock in a moment."""
        with suppress(OSError):  # a read-only disk
            if self.leaving == "starting":
                os.utime(self._descriptor)
            else:
                os.ftruncate(self._descriptor, 0)


@contextmanager
def home_lock(state_folder: Path, leaving: Leaving = "") -> Iterator[HomeLock]:
    """Own the home while inside; programs that are run do not inherit that. Raises `HomeLocked`,
    with the pid that has it, and `StorageError`."""
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
    """Raise `StorageError` where the entries of a home have not all changed places with those of a
    backup."""
    unfinished = home / UNFINISHED
    with storage_errors(unfinished):  # a folder on the way to it is somebody else's
        is_half = unfinished.exists()
    if is_half:
        raise StorageError(
            home,
            "a restore was interrupted, so this home is incomplete",
            hint="Run the same `nanobot restore FILE --replace` again.",
        )


def refuse_half_moved(state: Path, *, in_team: bool) -> None:
    """Raise `NanobotError` where what is in flight is elsewhere than it would be looked for."""
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
                "`nanobot team init` brings them into the team. To run without the team, remove "
                "`team` from config.yaml."
            ),
        )
    if not in_team and not has_journal and (state / MOVED).exists():
        raise NanobotError(
            f"the data of {state.parent} is in a team's database and folder",
            hint=(
                "To bring it back, set `team` in config.yaml and run `nanobot team leave`. To "
                f"start empty, remove {state / MOVED}."
            ),
        )


def _holder(path: Path) -> tuple[int, str]:
    """The pid in the lock file, 0 if no such process lives, and how that one is leaving."""
    pid, _, leaving = path.read_text("utf-8", "replace").strip().partition(" ")
    return int(pid) if pid.isdecimal() and Path(f"/proc/{pid}").exists() else 0, leaving
