"""One process owns a home: an advisory lock on `state/gateway.lock`, with the owner's pid inside.

The kernel drops the lock with the process, however that ends, so a dead holder never blocks. The
file is never removed: a second process could otherwise lock a new file of the same name.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from nanobot.errors import HomeLocked, NanobotError, StorageError
from nanobot.io import OWNED, locked, storage_errors
from nanobot.upkeep import UNFINISHED

LOCK_NAME = "gateway.lock"
JOURNAL = "journal.db"
TO_TEAM, FROM_TEAM, MOVED = "to-team", "from-team", "journal.db.moved-to-team"
"""In `state`: what begins the names of folders by `nanobot team init` and `leave` while they are at
work, and the journal from before the team."""


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
        OWNED.add(home)
        try:
            yield
        finally:
            OWNED.discard(home)
            with suppress(OSError):  # a read-only disk
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


def refuse_half_moved(state: Path, *, in_team: bool) -> None:
    """Raise `NanobotError` where what is in flight is elsewhere than it would be looked for."""
    for name, command in ((TO_TEAM, "init"), (FROM_TEAM, "leave")):
        if next(state.glob(f"{name}-*"), None):
            raise NanobotError(
                f"`nanobot team {command}` was cut short in {state.parent}",
                hint=f"Give it again: `nanobot team {command}` goes on where it was.",
            )
    has_journal = (state / JOURNAL).exists()
    if in_team and has_journal:
        raise NanobotError(
            f"{state.parent} has messages, jobs and pairings of its own, from before the team",
            hint="`nanobot team init` brings them into the team. To go on without it, take `team`"
            " out of config.yaml.",
        )
    if not in_team and not has_journal and (state / MOVED).exists():
        raise NanobotError(
            f"what {state.parent} had is in a team's database and folder",
            hint="With `team` in config.yaml, `nanobot team leave` brings it back. To begin anew,"
            f" remove {state / MOVED}.",
        )


def _holder(path: Path) -> int:
    """The pid in the lock file, 0 where it is not that of a living process."""
    text = path.read_bytes().strip()
    return int(text) if text.isdigit() and Path(f"/proc/{int(text)}").exists() else 0
