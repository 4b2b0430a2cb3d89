"""Restoring a home from a backup, and checking that a home would work.

The backup is unpacked and checked in a folder within the home (so it also works if the home is a
mounted volume, which cannot be renamed). Then the entries are swapped one by one: the old ones move
into `before-restore-TIME/`, the new ones out of the folder. During the swap a file marks the home,
and no gateway starts on it (see `gateway.lock`). After a crash, the same restore starts again and
sets aside all that it finds.

`examine_home` opens and reads everything that a start needs. It writes only SQLite's side files."""

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
from nanobot.session.manager import read_conversations
from nanobot.upkeep import UNFINISHED
from nanobot.upkeep.archive import Progress, UnpackResult, unpack
from nanobot.upkeep.snapshot import BACKUPS, JOURNAL

STAGING = ".restoring-"
"""The prefix of folders that a restore unpacks into."""
_BEFORE = "before-restore"
_NEEDED = ("state/", "sessions/", "workspace/memory/", "workspace/people/", "workspace/groups/")
"""Paths that `examine_home` reads. Others may be missing."""


class HomeContents(Struct, frozen=True):
    """The content of a home. `waiting` counts messages and parts of replies in progress, `failed`
    those set aside, `versions` those of the owner's memory, `history` the consolidated entries of
    all. `troubles` lists errors."""

    conversations: int = 0
    messages: int = 0
    versions: int = 0
    history: int = 0
    jobs: int = 0
    waiting: int = 0
    failed: int = 0
    troubles: tuple[str, ...] = ()


def examine_home(home: Path, clock: Clock) -> HomeContents:
    """Open and read the content of `home`. Errors in it are reported, never raised."""
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
    conversations = list(read_conversations(home / "sessions", clock.now(), archive=True))
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
    # The staging folder is temporary, so leave it out of the messages.
    return replace(found, troubles=tuple(one.replace(f"{home}/", "") for one in troubles))


def _version(path: Path) -> int:
    """Return the number of the newest version, after reading all of it."""
    newest = read_newest(path)
    return newest.number if newest else 0


def _jobs(content: bytes | None) -> int:
    """Count the jobs. An invalid document is only reported, and set aside at a start."""
    try:
        return len(decode_jobs(content)) if content else 0
    except (InvalidDocument, RecursionError) as error:
        raise NanobotError(f"the jobs cannot be used: {error}") from error


def _history(workspace: Path, prefix: str, clock: Clock) -> int:
    if not (workspace / prefix / HISTORY).exists():
        return 0
    return len(HistoryLog(Root(workspace), clock, prefix=prefix).cursors())


class RestoreResult(Struct, frozen=True):
    """The result of a restore. `set_aside` counts unfinished work that now needs a person's
    decision. `previous` is the folder with the old home."""

    unpacked: UnpackResult
    found: HomeContents
    set_aside: int = 0
    previous: Path | None = None


def is_half(home: Path) -> bool:
    """Return True if a restore was interrupted there during the swap."""
    return (home / UNFINISHED).exists()


def is_empty(home: Path) -> bool:
    """Return True if the home has only leftovers of killed restores. Raises `StorageError`."""
    try:
        return all(path.name.startswith(STAGING) for path in home.iterdir())
    except FileNotFoundError:
        return True
    except OSError as error:
        raise StorageError.of(home, error) from error


def expect_room(home: Path, *, replace: bool) -> None:
    """Raise `NanobotError` if there is a home that may not be replaced."""
    if not (replace or is_empty(home) or is_half(home)):
        raise NanobotError(
            f"{home} is not empty",
            hint=(
                "Restore into another folder with --to, or use --replace, which moves the "
                f"current content to {home / _BEFORE}-…."
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
) -> RestoreResult:
    """Replace `home` with the content of the backup in `file`. With `replace`, the caller has
    locked the existing home, and no backup of it is running. With `resume`, unfinished work
    continues, even if it may have been finished since. Raises `NanobotError`: then the home is
    unchanged, or no gateway starts on it until a restore succeeds."""
    home = home.resolve()  # keep a link to the home
    is_new = not home.exists()
    try:
        expect_room(home, replace=replace)
        with staging_in(home, STAGING) as staging:
            unpacked = unpack(file, identity, staging, progress=progress)
            aside = 0
            if unpacked.head.live and not resume:
                aside = fail_open_work(staging / JOURNAL)
            found = examine_home(staging, clock)
            os.sync()  # store thousands of files before the old ones move
            expect_room(home, replace=replace)
            return RestoreResult(unpacked, found, aside, put_in_place(staging, home, clock.now()))
    except OSError as error:
        raise StorageError.of(error.filename or home, error) from error
    finally:
        if is_new:
            with contextlib.suppress(OSError):
                home.rmdir()  # if it is still empty


def verify(
    file: Path, identity: Path | None, clock: Clock, progress: Progress = lambda *_: None
) -> RestoreResult:
    """Check every byte of the backup in `file`, and open the files that a start needs. Raises
    `NanobotError` if it cannot be restored."""
    try:
        with tempfile.TemporaryDirectory(prefix="nanobot-verify-") as folder:
            unpacked = unpack(
                file,
                identity,
                Path(folder),
                wanted=lambda path: f"{path}/".startswith(_NEEDED),
                progress=progress,
            )
            return RestoreResult(unpacked, examine_home(Path(folder), clock))
    except OSError as error:
        raise StorageError.of(error.filename or file, error) from error


@contextlib.contextmanager
def staging_in(folder: Path, prefix: str) -> Iterator[Path]:
    """Make a folder with this prefix, and remove it afterwards unless it was renamed. Remove the
    leftovers of killed attempts first. Raises `OSError`."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for path in folder.glob(f"{prefix}*"):
        shutil.rmtree(path, ignore_errors=True)
    staging = Path(tempfile.mkdtemp(prefix=prefix, dir=folder))
    try:
        yield staging
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def put_in_place(staging: Path, home: Path, now: datetime) -> Path | None:
    """Move the content of `staging`, a folder in `home`, into the home. Return the folder with the
    previous content, or None. Backups stay. Raises `OSError`, and `NanobotError` if an entry cannot
    be moved."""
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
                "again, and then mount it again. Or restore into another folder with --to."
            ),
        ) from error
    sync_folder(previous)
    sync_folder(previous.parent)
