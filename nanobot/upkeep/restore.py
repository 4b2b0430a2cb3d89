"""Makes a home from a backup, and checks whether a home would work.

The backup is unpacked and checked in a folder within the home (so it also works where the home is a
mounted volume, which cannot be renamed). Then the entries of the two change places, one by one:
what stood there goes into `before-restore-TIME/`, what is new comes out. Meanwhile a file marks the
home, and no gateway starts on it (see `gateway.lock`). After a crash the same restore begins again
and sets aside whatever it finds.

`examine_home` opens and reads everything that a start needs. Nothing is written but SQLite's side
files.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from errno import EBUSY
from functools import partial
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from nanobot.bus.damage import JournalInspection, inspect_journal
from nanobot.bus.journal_file import fail_open_work
from nanobot.bus.state import InvalidDocument
from nanobot.clock import Clock
from nanobot.cron.job import decode_jobs
from nanobot.errors import NanobotError, StorageError
from nanobot.io import replace_file, sync_folder
from nanobot.memory.git import read_newest, repositories
from nanobot.memory.history import HISTORY, HistoryLog
from nanobot.security.paths import Root
from nanobot.session.manager import conversations_in
from nanobot.upkeep import UNFINISHED
from nanobot.upkeep.archive import Progress, Unpacked, unpack
from nanobot.upkeep.snapshot import BACKUPS, JOURNAL

STAGING = ".restoring-"
"""How the name of a folder begins that a restore unpacks into."""
_BEFORE = "before-restore"
_NEEDED = ("state/", "sessions/", "workspace/memory/", "workspace/people/", "workspace/groups/")
"""What `examine_home` reads of a home; the rest need not be there."""


class HomeContents(Struct, frozen=True):
    """What a home holds. `waiting` messages and parts of replies are under way, `failed` ones are
    set aside; `versions` are those of the owner's memory, `history` the entries of consolidated
    conversation of all; `troubles` is what cannot be used, and why."""

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
    workspace, troubles = home / "workspace", list[str]()

    def attempt(read: Callable[[], int]) -> int:
        try:
            return read()
        except (NanobotError, OSError, ValueError) as error:
            troubles.append(str(error))
            return 0

    journal = JournalInspection(damage="it is missing")
    if (home / JOURNAL).exists():
        journal = inspect_journal(home / JOURNAL)
    if journal.damage:
        troubles.append(f"the journal cannot be used: {journal.damage}")
    conversations = list(conversations_in(home / "sessions", clock.now(), archive=True))
    troubles += [str(one.error) for one in conversations if one.error]
    places = repositories(home / "state")
    versions = {prefix: attempt(partial(_version, path)) for prefix, path in places.items()}
    others = (*workspace.glob("people/*/"), *workspace.glob("groups/*/"))
    scopes = ("", *sorted(f"{place.relative_to(workspace)}/" for place in others))
    counts = journal.counts
    found = HomeContents(
        conversations=len(conversations),
        messages=sum(one.messages for one in conversations),
        versions=versions.get("", 0),
        history=sum(attempt(partial(_history, workspace, scope, clock)) for scope in scopes),
        jobs=attempt(partial(_jobs, journal.documents.get("jobs"))),
        waiting=counts.received + counts.working + counts.outbox_pending,
        failed=counts.failed + counts.dead,
    )
    # Where it lies now means nothing later: it gets another place, or goes.
    return replace(found, troubles=tuple(one.replace(f"{home}/", "") for one in troubles))


def _version(path: Path) -> int:
    """The number of the newest version, once it is read with everything in it."""
    newest = read_newest(path)
    return newest.number if newest else 0


def _jobs(content: bytes | None) -> int:
    """Only looked at: a start sets a document aside that cannot be used."""
    try:
        return len(decode_jobs(content)) if content else 0
    except (InvalidDocument, RecursionError) as error:
        raise NanobotError(f"the jobs cannot be used: {error}") from error


def _history(workspace: Path, prefix: str, clock: Clock) -> int:
    if not (workspace / prefix / HISTORY).exists():
        return 0
    return len(HistoryLog(Root(workspace), clock, prefix=prefix).cursors())


class Restored(Struct, frozen=True):
    """What came out of a backup. `set_aside` counts what was under way and waits for a person's
    word now; `previous` is where the home that stood there went."""

    unpacked: Unpacked
    found: HomeContents
    set_aside: int = 0
    previous: Path | None = None


def is_half(home: Path) -> bool:
    """Whether a restore was cut short there while entries changed places."""
    return (home / UNFINISHED).exists()


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
    if not (replace or is_empty(home) or is_half(home)):
        raise NanobotError(
            f"{home} is not empty",
            hint=(
                "Restore into another folder with --to, or use --replace, which keeps the "
                f"current home in {home / _BEFORE}-…."
            ),
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
    it was then, or no gateway starts on it until this is done again."""
    home = home.resolve()  # a link stays a link, to the new home
    is_new = not home.exists()
    try:
        expect_room(home, replace=replace)
        with staging_in(home, STAGING) as staging:
            unpacked = unpack(file, identity, staging, progress=progress)
            aside = 0
            if unpacked.head.live and not resume:
                aside = fail_open_work(staging / JOURNAL)
            found = examine_home(staging, clock)
            os.sync()  # thousands of files, which must be there before the old ones go
            expect_room(home, replace=replace)
            return Restored(unpacked, found, aside, put_in_place(staging, home, clock.now()))
    except OSError as error:
        raise StorageError.of(error.filename or home, error) from error
    finally:
        if is_new:
            with contextlib.suppress(OSError):
                home.rmdir()  # where nothing came of it


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


@contextlib.contextmanager
def staging_in(folder: Path, prefix: str) -> Iterator[Path]:
    """Make a folder there whose name begins so, and remove it afterwards if it was not renamed.
    What killed attempts left is removed first. Raises `OSError`."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for path in folder.glob(f"{prefix}*"):
        shutil.rmtree(path, ignore_errors=True)
    staging = Path(tempfile.mkdtemp(prefix=prefix, dir=folder))
    try:
        yield staging
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def put_in_place(staging: Path, home: Path, now: datetime) -> Path | None:
    """Let what is in `staging`, a folder in `home`, be the home; where what stood there went, None
    where nothing did. Backups stay. Raises `OSError`, and `NanobotError` where something cannot be
    moved."""
    name = f"{_BEFORE}-{now.astimezone(UTC):%Y%m%dT%H%M%SZ}"
    previous, number = home / name, 1
    while os.path.lexists(previous):
        number += 1
        previous = home / f"{name}-{number}"
    replace_file(home / UNFINISHED, b"`nanobot restore` was cut short here.\n")
    kept = (STAGING, _BEFORE, UNFINISHED)
    existing = [p for p in home.iterdir() if p.name != BACKUPS and not p.name.startswith(kept)]
    if existing:
        _set_aside(existing, previous)
    for path in staging.iterdir():
        path.rename(home / path.name)
    home.chmod(0o700)
    sync_folder(home)
    (home / UNFINISHED).unlink()
    sync_folder(home)
    return previous if existing else None


def _set_aside(existing: Sequence[Path], previous: Path) -> None:
    """Move the entries of a home, all or none."""
    previous.mkdir(mode=0o700)
    try:
        for path in existing:
            path.rename(previous / path.name)
    except OSError as error:
        for path in previous.iterdir():
            path.rename(previous.parent / path.name)
        previous.rmdir()
        (previous.parent / UNFINISHED).unlink()
        if error.errno != EBUSY:
            raise
        raise NanobotError(
            f"{error.filename} is a mount point, which restore can't move",
            hint=(
                "Unmount it (in a container, remove it from the volumes), run the same command "
                "again, and mount it afterwards. Or restore into another folder with --to."
            ),
        ) from error
    sync_folder(previous)
    sync_folder(previous.parent)
