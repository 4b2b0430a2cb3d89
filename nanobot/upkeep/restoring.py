"""Makes a home from a backup, and checks whether a home would work.

The backup is unpacked and checked in a folder of its own, which then becomes the home in one step
(see `swap`). A home that is not empty is left as it is unless it is to be replaced: then it is kept
under another name.

`examine_home` opens and reads everything that a start needs. Nothing is written but SQLite's side
files.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from nanobot.bus.journal_file import FORMAT, JournalFound, inspect_journal, set_aside
from nanobot.bus.state import UnfitDocument
from nanobot.clock import Clock
from nanobot.cron.job import decoded
from nanobot.errors import NanobotError, StorageError
from nanobot.memory.history.log import HISTORY, HistoryLog
from nanobot.memory.versions.git import Repository
from nanobot.memory.versions.gitstore import read_newest
from nanobot.security.paths import Root
from nanobot.session.checking import conversations_in
from nanobot.upkeep.contents import JOURNAL
from nanobot.upkeep.packing import Progress
from nanobot.upkeep.swap import STAGING, finish, put_in_place, staging_for
from nanobot.upkeep.unpacking import Unpacked, unpack

_NEEDED = ("state/", "sessions/", "workspace/memory/", "workspace/people/", "workspace/groups/")
"""What `examine_home` reads of a home; the rest need not be there."""


@dataclass(frozen=True, slots=True)
class HomeContents:
    """What a home holds. `waiting` messages and parts of replies are under way, `failed` ones are
    set aside; `history` are its entries of consolidated conversation; `troubles` is what cannot be
    used, and why."""

    conversations: int = 0
    messages: int = 0
    versions: int = 0
    history: int = 0
    jobs: int = 0
    waiting: int = 0
    failed: int = 0
    troubles: tuple[str, ...] = ()


def examine_home(home: Path, clock: Clock) -> HomeContents:
    """Open and read what is in `home`; never raises for what is wrong with it."""
    troubles: list[str] = []

    def tried(read: Callable[..., int], *given: object) -> int:
        try:
            return read(*given)
        except (NanobotError, OSError, ValueError) as error:
            troubles.append(str(error))
            return 0

    journal = JournalFound(damage="there is none")
    if (home / JOURNAL).exists():
        journal = inspect_journal(home / JOURNAL, clock)
    if journal.damage:
        troubles.append(f"the journal cannot be used: {journal.damage}")
    if journal.version > FORMAT:
        troubles.append(f"the journal is of a newer nanobot (format {journal.version})")
    jobs, counts = journal.documents.get("jobs"), journal.counts
    workspace, now = home / "workspace", clock.now()
    conversations = list(conversations_in(home / "sessions", now, archive=True))
    troubles += [str(one.error) for one in conversations if one.error]
    people, groups = workspace.glob("people/*/"), workspace.glob("groups/*/")
    others = sorted(f"{path.relative_to(workspace)}/" for path in (*people, *groups))
    found = HomeContents(
        conversations=len(conversations),
        messages=sum(one.messages for one in conversations),
        versions=tried(_versions, home / "state" / "memory.git"),
        history=sum(tried(_history, workspace, scope, clock) for scope in ("", *others)),
        jobs=tried(_jobs, jobs) if jobs else 0,
        waiting=counts.received + counts.working + counts.outbox_pending,
        failed=counts.failed + counts.dead,
    )
    # Where it lies now is nobody's business: it gets another place, or goes.
    return replace(found, troubles=tuple(one.replace(f"{home}/", "") for one in troubles))


def _versions(path: Path) -> int:
    """The versions of memory, once the newest is read with everything in it."""
    repository = Repository(path)
    try:
        newest = read_newest(repository)
        return sum(1 for _ in repository.chain(newest[0].id)) if newest else 0
    finally:
        repository.close()


def _jobs(content: bytes) -> int:
    """Only looked at: who starts with a document that cannot be used sets it aside."""
    try:
        jobs = decoded(content)
    except (UnfitDocument, RecursionError) as error:
        raise NanobotError(f"the jobs cannot be used: {error}") from error
    if jobs.problems:
        raise NanobotError(f"entries of the jobs cannot be used: {'; '.join(jobs.problems)}")
    return len(jobs.jobs)


def _history(workspace: Path, prefix: str, clock: Clock) -> int:
    if not (workspace / prefix / HISTORY).exists():
        return 0
    return HistoryLog(Root(workspace), clock, prefix=prefix).count()


@dataclass(frozen=True, slots=True)
class Restored:
    """What came out of a backup. `set_aside` counts what was under way and waits for a person's
    word now; `previous` is where the home that stood there went."""

    unpacked: Unpacked
    found: HomeContents
    set_aside: int = 0
    previous: Path | None = None


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
            unpacked = unpack(file, identity, staging, progress=progress)
            aside = 0
            if unpacked.head.live and not resume:
                aside = set_aside(staging / JOURNAL)
            found = examine_home(staging, clock)
            os.sync()  # thousands of files, which must be there when their folder gets its name
            previous = put_in_place(staging, home, clock.now())
    except OSError as error:
        raise StorageError.of(error.filename or home, error) from error
    return Restored(unpacked, found, aside, previous)


def verify(
    file: Path, identity: Path | None, clock: Clock, progress: Progress = lambda *_: None
) -> Restored:
    """Check every byte of the backup in `file`, and open what a start would. Raises `NanobotError`
    where it could not be restored."""
    try:
        with tempfile.TemporaryDirectory(prefix="nanobot-verify-") as folder:
            unpacked = unpack(
                file,
                identity,
                Path(folder),
                wanted=lambda path: f"{path}/".startswith(_NEEDED),
                progress=progress,
            )
            return Restored(unpacked, examine_home(Path(folder), clock))
    except OSError as error:
        raise StorageError.of(error.filename or file, error) from error
