"""A home out of a backup.

It is unpacked and checked in a folder of its own and becomes the home in one step (see `placing`),
so that there is never half of one. A home that holds something stays as it is, unless it is to be
replaced: then it is kept under another name.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import tempfile
from dataclasses import dataclass
from pathlib import Path

from nanobot.bus.sqlite_journal import MIGRATIONS
from nanobot.bus.sqlite_reports import set_aside
from nanobot.clock import Clock
from nanobot.errors import NanobotError, StorageError
from nanobot.upkeep.contents import Head
from nanobot.upkeep.drill import NEEDED, Found, examine
from nanobot.upkeep.packing import Progress
from nanobot.upkeep.placing import STAGING, finish, put_in_place, staging_for
from nanobot.upkeep.selection import JOURNAL
from nanobot.upkeep.unpacking import Unpacked, unpack


@dataclass(frozen=True, slots=True)
class Restored:
    """What was restored. `set_aside` counts what was under way and waits for a person's word now;
    `previous` is where the home that stood there went."""

    unpacked: Unpacked
    found: Found
    set_aside: int
    previous: Path | None


@dataclass(frozen=True, slots=True)
class Verified:
    """What a drill found in a backup."""

    unpacked: Unpacked
    found: Found


def is_empty(home: Path) -> bool:
    """Whether nothing stands there, but for what a restore that was killed has unpacked. Raises
    `StorageError`."""
    try:
        return all(path.name.startswith(STAGING) for path in home.iterdir())
    except FileNotFoundError:
        return True
    except OSError as error:
        raise StorageError.of(home, error) from error


def expect_room(home: Path, *, replace: bool) -> None:
    """Raise `NanobotError` where a home stands that is not to be replaced."""
    if not replace and not is_empty(home):
        raise NanobotError(
            f"{home} is not empty",
            hint="Restore into another folder with --to, or use --replace: what is there now is"
            " kept beside it under another name.",
        )


def restore(
    file: Path,
    home: Path,
    identity: Path | None,
    clock: Clock,
    *,
    replace: bool = False,
    resume: bool = False,
    progress: Progress = lambda *_: None,
) -> Restored:
    """Make `home` what the backup in `file` holds. With `replace` the caller owns the home that
    stands there (its lock), and no backup of it is under way. With `resume` what was under way goes
    on by itself, even where it may have been finished since. Raises `NanobotError`; the home is as
    it was then."""
    home = home.resolve()  # a link stays a link, to the new home
    try:
        finish(home)
        expect_room(home, replace=replace)
        with staging_for(home) as staging:
            unpacked = unpack(file, identity, staging, check=_expect_usable, progress=progress)
            aside = 0
            if unpacked.head.live and not resume:
                aside = _set_aside(staging / JOURNAL)
            found = examine(staging, clock)
            os.sync()  # thousands of files, which must be there when their folder gets its name
            previous = put_in_place(staging, home, clock.now())
    except OSError as error:
        raise StorageError.of(error.filename or home, error) from error
    return Restored(unpacked, found, aside, previous)


def verify(
    file: Path, identity: Path | None, clock: Clock, progress: Progress = lambda *_: None
) -> Verified:
    """Check every byte of the backup in `file`, and open what a start would. Raises `NanobotError`
    where it could not be restored."""
    try:
        with tempfile.TemporaryDirectory(prefix="nanobot-drill-") as folder:
            unpacked = unpack(
                file,
                identity,
                Path(folder),
                check=_expect_usable,
                wanted=lambda path: f"{path}/".startswith(NEEDED),
                progress=progress,
            )
            return Verified(unpacked, examine(Path(folder), clock))
    except OSError as error:
        raise StorageError.of(error.filename or file, error) from error


def _expect_usable(head: Head) -> None:
    if head.journal > len(MIGRATIONS):
        raise NanobotError(
            f"the backup was made by a newer nanobot ({head.nanobot})",
            hint="Install that version, then restore it.",
        )


def _set_aside(journal: Path) -> int:
    if not journal.exists():
        return 0
    try:
        with contextlib.closing(sqlite3.connect(journal)) as db, db:
            return set_aside(db)
    except sqlite3.Error as error:
        raise StorageError(journal, str(error)) from error
