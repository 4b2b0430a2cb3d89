"""Backup files in a folder: naming, creation, and pruning.

A backup gets its name when it is complete and on the disk. Only its owner can read it. A failed or
killed attempt leaves a file with another name, which the next one removes.

`BackupMaker` makes scheduled backups. The time of the last one is taken from the files, so one that
was missed while nanobot was off, or that failed, is made soon after. A failure is reported once,
until a backup succeeds. It is retried every hour."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta, tzinfo
from errno import ENOSPC
from pathlib import Path
from typing import BinaryIO

from loguru import logger
from msgspec import Struct

import nanobot
from nanobot.bus.journal_file import SCHEMA
from nanobot.channel import Operation
from nanobot.cron.schedule import Schedule
from nanobot.errors import NanobotError, StorageError
from nanobot.io import hold_lock, make_folder, storage_errors, sync_folder
from nanobot.tasks import Background, Periodic
from nanobot.upkeep import SNAPSHOT
from nanobot.upkeep.archive import BackupHeader, Progress, encrypting, pack, public_key
from nanobot.upkeep.retention import has_room
from nanobot.upkeep.snapshot import (
    BACKUPS,
    WORKSPACE,
    BackupItem,
    BackupOperations,
    Snapshot,
    backup_items,
    stays_inside,
)

_NAME = re.compile(r"nanobot-(\d{8}T\d{6}Z)\.tar\.gz(\.age)?")
_STAMP = "%Y%m%dT%H%M%SZ"
_PARTIAL = ".nanobot-partial"
_LOCK = "state/backup.lock"
_MOST_TOLD = 100


class BackupUnderWay(NanobotError):
    """Another process is making a backup of this home."""

    def __init__(self) -> None:
        super().__init__(
            "a backup of this home is already running", hint="Wait until it has finished."
        )


class StoredBackup(Struct, frozen=True):
    """A backup in the folder. `made_at` is aware, `size` in bytes."""

    path: Path
    made_at: datetime
    size: int
    encrypted: bool


class NewBackup(Struct, frozen=True):
    """A new backup. `size` is the size of the file, `content` that of the packed files, in bytes.
    `left_out` lists unreadable files and links to other places, `changed` files that were written
    during the backup."""

    path: Path
    files: int
    content: int
    size: int
    left_out: tuple[str, ...]
    changed: tuple[str, ...]


class BackupOrder(Struct, frozen=True):
    """The options of a backup. Without a `recipient` it is not encrypted. `reserve` is the number
    of bytes that must stay free on the home's disk, even if nothing can be compressed."""

    media: bool = True
    recipient: str = ""
    reserve: int = 0


def list_backups(folder: Path) -> list[StoredBackup]:
    """Return the backups in a folder, newest first. A missing folder has none. Raises
    `StorageError`."""
    stored = []
    try:
        for path in folder.iterdir():
            if name := _NAME.fullmatch(path.name):
                # Skip impossible dates, dangling links, and files that are being removed.
                with contextlib.suppress(ValueError, FileNotFoundError):
                    when = datetime.strptime(name[1], _STAMP).replace(tzinfo=UTC)
                    stored.append(StoredBackup(path, when, path.stat().st_size, bool(name[2])))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StorageError.of(folder, error) from error
    return sorted(stored, key=lambda one: one.made_at, reverse=True)


def backup_data(stored: StoredBackup, zone: tzinfo | None) -> dict[str, object]:
    """Return a backup for machines, with its time in this zone."""
    return {
        "name": stored.path.name,
        "file": str(stored.path),
        "made_at": stored.made_at.astimezone(zone).isoformat(),
        "bytes": stored.size,
        "encrypted": stored.encrypted,
    }


def backup_name(moment: datetime, recipient: str) -> str:
    """Return the file name of a backup made at `moment`."""
    suffix = ".age" if recipient else ""
    return f"nanobot-{moment.astimezone(UTC):{_STAMP}}.tar.gz{suffix}"


def prune_backups(folder: Path, keep: int, newest: Path) -> list[Path]:
    """Keep `newest`, which was made just now, and the newest others, `keep` in all. Return the
    removed ones. `newest` may look older: names give the age, and a clock may have been wrong.
    Raises `StorageError`."""
    others = [stored.path for stored in list_backups(folder) if stored.path != newest]
    gone = others[keep - 1 :]
    for path in gone:
        with storage_errors(path):
            path.unlink(missing_ok=True)
    return gone


@contextlib.contextmanager
def exclusive_backup(home: Path) -> Iterator[None]:
    """Lock out other backups of `home` while inside, and remove the snapshot afterwards. Raises
    `BackupUnderWay` and `StorageError`."""
    try:
        with hold_lock(home / _LOCK):
            try:
                yield
            finally:
                shutil.rmtree(home / SNAPSHOT, ignore_errors=True)
    except BlockingIOError:
        raise BackupUnderWay from None


def make_backup(
    home: Path, taken: Snapshot, target: Path, order: BackupOrder, progress: Progress
) -> NewBackup:
    """Pack the snapshot in `home`, and all files that are not in it, into `target`.

    Call this only within `exclusive_backup`. Raises `NanobotError`, also if `target` exists, and
    then leaves no new file."""
    if order.recipient:
        public_key(order.recipient)
    _expect_apart(home, target)
    if target.exists():
        raise NanobotError(f"{target} already exists", hint="Choose another name.")
    try:
        items, left_out = _collect_items(home, taken, order)
        head = BackupHeader(
            nanobot=nanobot.__version__,
            journal=SCHEMA.version,
            made_at=taken.made_at,
            live=taken.live,
            media=order.media,
            files=sum(item.kind == "file" for item in items),
            size=sum(item.size for item in items),
            left_out=tuple(left_out[:_MOST_TOLD]),
        )
        make_folder(target.parent)
        if order.reserve:
            _expect_room(home, target, head.size + order.reserve)
        with _atomic_target(target) as file, encrypting(file, order.recipient) as out:
            files, changed = pack(out, home, head, items, progress)
        size = target.stat().st_size
    except OSError as error:
        raise StorageError.of(error.filename or target, error) from error
    return NewBackup(target, files, head.size, size, tuple(left_out), tuple(changed))


def _collect_items(
    home: Path, taken: Snapshot, order: BackupOrder
) -> tuple[list[BackupItem], list[str]]:
    left_out: list[str] = []
    found = [*taken.items, *backup_items(home, left_out, together=False, media=order.media)]
    items = [one for one in found if one.kind != "link" or stays_inside(one.path, one.target)]
    left_out += sorted({item.path for item in found} - {item.path for item in items})
    return items, left_out


def _expect_apart(home: Path, target: Path) -> None:
    """Raise `NanobotError` if the agent could read the backup, with all secrets, or the next backup
    would contain it. Links are resolved."""
    folder, whole = target.parent.resolve(), home.resolve()
    hint = "Choose a folder elsewhere, ideally on another disk."
    if folder.is_relative_to((home / WORKSPACE).resolve()):
        raise NanobotError(f"{folder} is in the workspace, which the agent can read", hint=hint)
    if folder.is_relative_to(whole) and not folder.is_relative_to(whole / BACKUPS):
        raise NanobotError(f"{folder} is inside the home that is backed up", hint=hint)


def _expect_room(home: Path, target: Path, needed: int) -> None:
    """Raise `OSError` if the target is on the home's disk and would fill it."""
    same_disk = target.parent.stat().st_dev == home.stat().st_dev
    if same_disk and not has_room(home, needed):
        raise OSError(ENOSPC, os.strerror(ENOSPC))


@contextlib.contextmanager
def _atomic_target(target: Path) -> Iterator[BinaryIO]:
    """Yield a new file, which becomes `target` on success. Remove the leftovers of killed attempts
    first."""
    for path in target.parent.glob(f".*{_PARTIAL}"):
        path.unlink(missing_ok=True)
    partial = target.with_name(f".{target.name}{_PARTIAL}")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as out:
            yield out
            out.flush()
            os.fsync(descriptor)
        partial.rename(target)
    finally:
        partial.unlink(missing_ok=True)
    sync_folder(target.parent)


SETTLED = timedelta(minutes=2)
"""Delay of a missed backup after a start, so that pending work goes first."""
AGAIN = timedelta(hours=1)
_LOOK_SECONDS = 60.0


class BackupMaker(Periodic):
    """The maker of backups of `home` in `folder` with the options `order`: on request, and by the
    `schedule`, with the newest `keep` kept. `operations` take the snapshots, `tell` sends a text to
    the owner."""

    def __init__(
        self,
        home: Path,
        folder: Path,
        order: BackupOrder,
        operations: BackupOperations,
        background: Background,
        schedule: Schedule | None,
        keep: int,
        tell: Callable[[str], Awaitable[None]],
    ) -> None:
        super().__init__(operations.clock, _LOOK_SECONDS)
        self._home, self._folder, self._order = home, folder, order
        self._operations, self._background = operations, background
        self._schedule, self._keep, self._tell = schedule, keep, tell
        self._asked: asyncio.Task[None] | None = None
        self._asked_problem = ""
        self._stopping = threading.Event()
        self._started = self._clock.now()
        self._not_before = self._started + SETTLED
        self.problem = ""
        """The error of the last scheduled backup, empty if it succeeded."""

    def table(self) -> Mapping[str, Operation]:
        return {"backup.list": self._list, "backup.make": self._begin}

    async def _list(self, _: Mapping[str, object]) -> dict[str, object]:
        """Return the backups in the folder, newest first. `making`: a requested one is being made.
        `problem`: the error of the last requested one."""
        stored = await asyncio.to_thread(list_backups, self._folder)
        zone = self._clock.now().tzinfo
        return {
            "folder": str(self._folder),
            "backups": [backup_data(one, zone) for one in stored],
            "making": self._is_making,
            "problem": self._asked_problem,
        }

    async def _begin(self, _: Mapping[str, object]) -> dict[str, object]:
        """Start a backup in the background, unless one is being made."""
        begun = not self._is_making
        if begun:
            self._asked_problem = ""
            self._asked = self._background.start(self._make_asked(), name="backup")
        return {"begun": begun}

    @property
    def _is_making(self) -> bool:
        return self._asked is not None and not self._asked.done()

    async def _make_asked(self) -> None:
        try:
            await self._make(lambda *_: None)
        except NanobotError as error:
            self._asked_problem = f"{error} {error.hint}".strip()
            logger.error("the requested backup failed: {}", self._asked_problem)

    async def _make(self, progress: Progress) -> NewBackup:
        with exclusive_backup(self._home):
            taken = await self._operations.take()
            target = self._folder / backup_name(taken.made_at, self._order.recipient)
            made = await asyncio.to_thread(
                make_backup, self._home, taken, target, self._order, progress
            )
        logger.info("backup made: {} ({:,} bytes)", made.path, made.size)
        return made

    async def run_once(self) -> None:
        now = self._clock.now()
        self._started = min(self._started, now)  # the clock may have been set back
        self._not_before = min(self._not_before, now + AGAIN)
        if not self._schedule or now < self._not_before:
            return
        due = self._schedule.next_after(await self._last(now))
        if due is None or due > now:
            return
        try:
            made = await self._make(self._go_on)
            await asyncio.to_thread(prune_backups, self._folder, self._keep, made.path)
            self.problem = ""
        except BackupUnderWay:  # a person's backup may be enough
            self._not_before = self._clock.now() + SETTLED
        except NanobotError as error:
            self._not_before = self._clock.now() + AGAIN
            is_new = not self.problem
            why = f"{error}. {error.hint}" if error.hint else error
            self.problem = f"the scheduled backup failed: {why}"
            logger.error("{}", self.problem)
            if is_new:
                await self._tell(f"{self.problem[:1].upper()}{self.problem[1:]}")

    def stop(self) -> None:
        """Stop, and cancel the backup that is being made."""
        self._stopping.set()
        super().stop()

    async def _last(self, now: datetime) -> datetime:
        """Return the time of the newest backup, or of the start. Backups with a future time are
        ignored, because a clock was wrong."""
        try:
            stored = await asyncio.to_thread(list_backups, self._folder)
        except NanobotError:  # making one reports the error
            stored = []
        made = (one.made_at for one in stored if one.made_at <= now)
        return next(made, self._started).astimezone(now.tzinfo)

    def _go_on(self, _more: int, _total: int) -> None:
        if self._stopping.is_set():
            raise NanobotError("nanobot is stopping")
