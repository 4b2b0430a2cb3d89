"""A reserve of free space on the disk, and the removal of files past their retention.

`DiskReserve`: below the reserve, intake stops, so that the journal can still be written. Messages
wait at their platforms, and a terminal gets an error. The owner is notified when this begins and
ends. Running turns and jobs continue: the reserve is for them.

`Retention` removes media, long tool results and old audit logs as configured. Invariant: it removes
only files that nanobot named itself. It never removes a file that was used in the last day or that
an unanswered message or unsent reply refers to, and never conversations, memory, or files set aside
as damaged. A removed file is not an error later: a picture is left out of the prompt, a tool
reports that the file is gone. `nanobot.upkeep.backups` removes old backups."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Awaitable, Callable, Container, Iterable
from datetime import timedelta
from errno import ENOTSUP
from pathlib import Path

from loguru import logger

from nanobot.bus.queue import MessageBus
from nanobot.clock import Clock
from nanobot.errors import NanobotError, StorageError
from nanobot.io import storage_errors
from nanobot.security import audit
from nanobot.security.paths import FolderEntry, Root
from nanobot.tasks import Periodic

LOOK_SECONDS = 20.0
"""Seconds between two checks of the disk."""

MEDIA_NAME = re.compile(r"[0-9a-f]{32}\.[a-z0-9]{1,8}")
"""The file names in `media/`."""

SPILL_NAME = re.compile(r"[A-Za-z0-9_-]{0,40}-[0-9a-f]{16}\.txt")
"""The file names in `spill/`."""
_MEGABYTE, _SPILL_DAYS = 1_000_000, 30
_BACK = 110  # intake resumes at this percentage of the reserve, so that one file does not toggle it
_SETTLED_SECONDS, _DAY = 600.0, 86_400.0


def free_bytes(folder: Path) -> int:
    """Return the bytes available to us on the disk of `folder`. Raises `OSError`, also if the file
    system does not report them: some report that they have no space at all."""
    disk = os.statvfs(folder)
    if not disk.f_blocks:
        raise OSError(ENOTSUP, os.strerror(ENOTSUP), str(folder))
    return disk.f_bavail * disk.f_frsize


def has_room(folder: Path, needed: int) -> bool:
    """Return True if so many bytes are free on the disk of `folder`, or if that is unknown: a full
    disk raises an error anyway."""
    try:
        return free_bytes(folder) >= needed
    except OSError:
        return True


class DiskReserve(Periodic):
    """A monitor of the disk of `home`. `free` returns its free bytes. `tell` sends a text to the
    owner, once per name."""

    def __init__(
        self,
        home: Path,
        reserve_megabytes: int,
        intake: MessageBus,
        clock: Clock,
        tell: Callable[[str, str], Awaitable[None]],
        free: Callable[[Path], int] = free_bytes,
    ) -> None:
        super().__init__(clock, LOOK_SECONDS)
        self._home, self._reserve = home, reserve_megabytes * _MEGABYTE
        self._intake, self._tell, self._free = intake, tell, free
        self.text = ""
        """The problem, for people, empty if there is enough space. It is logged with the health."""
        self.hint = (
            f"Free some space on the disk that contains {home}. nanobot then resumes automatically."
        )

    async def run_once(self) -> None:
        try:
            free = self._free(self._home)
        except OSError:  # unknown: change nothing
            return
        was_low = bool(self.text)
        left, kept = f"{free / _MEGABYTE:,.0f} MB", f"{self._reserve / _MEGABYTE:,.0f} MB"
        if free < self._reserve:
            self.text = (
                f"the disk is nearly full ({left} left, {kept} reserved), so nanobot accepts no "
                "new messages"
            )
            if not was_low:
                self._intake.hold_intake(StorageError(self._home, self.text, hint=self.hint))
                await self._notify_owner(
                    "low",
                    f"My disk is nearly full ({left} left). New messages stay on the chat "
                    f"platforms until there is space again. {self.hint}",
                )
        elif was_low and free * 100 >= self._reserve * _BACK:
            self.text = ""
            self._intake.hold_intake(None)
            logger.info("the disk has space again: {}", left)
            await self._notify_owner(
                "back", f"My disk has space again ({left} left), so I accept messages again."
            )

    async def _notify_owner(self, what: str, text: str) -> None:
        """Notify the owner, at most once an hour: the process may restart again and again."""
        try:
            await self._tell(text, f"disk-{what}-{self._clock.now():%y%m%d-%H}")
        except NanobotError as error:
            logger.warning("can't warn the owner about the disk: {}", error)


def surplus(
    files: Iterable[FolderEntry],
    now: float,
    *,
    days: int,
    megabytes: int = 0,
    spare: Container[str] = (),
) -> list[FolderEntry]:
    """Return the files to remove at `now` (in seconds since 1970), least recently used first."""
    by_age = sorted(files, key=lambda file: file.mtime_ns)
    total, going = sum(file.size for file in by_age), []
    for file in by_age:
        age = now - file.mtime_ns / 1e9
        too_old = days > 0 and age > days * _DAY
        too_much = megabytes > 0 and total > megabytes * _MEGABYTE
        if age > _DAY and file.name not in spare and (too_old or too_much):
            going.append(file)
            total -= file.size
    return going


class Retention(Periodic):
    """The limits of a home. Its media and spilled results are in `shared`, and a limit of 0 is
    none. `awaited` returns the names of media in unanswered or unsent messages."""

    def __init__(
        self,
        home: Path,
        shared: Path,
        clock: Clock,
        awaited: Callable[[], Awaitable[Container[str]]],
        *,
        media_days: int = 0,
        media_megabytes: int = 0,
        audit_days: int = 0,
    ) -> None:
        super().__init__(clock, _DAY, _SETTLED_SECONDS)
        self._home, self._shared, self._awaited = home, shared, awaited
        self._media_days, self._media_megabytes = media_days, media_megabytes
        self._audit_days = audit_days

    async def run_once(self) -> None:
        """Remove expired files. Raises `StorageError`, and is retried a day later."""
        gone = await asyncio.to_thread(self._sweep, await self._awaited())
        if any(gone.values()):
            logger.info("retention removed {}", gone)

    def _sweep(self, awaited: Container[str]) -> dict[str, int]:
        """Return the number of removed files of each kind."""
        log, ended = self._home / "logs" / audit.FILE, 0
        media = self._prune_folder(
            "media", MEDIA_NAME, self._media_days, self._media_megabytes, awaited
        )
        spill = self._prune_folder("spill", SPILL_NAME, _SPILL_DAYS, 0, ())
        if self._audit_days:
            with storage_errors(log):
                ended = audit.expire(log, self._clock.now() - timedelta(days=self._audit_days))
        return {"media": media, "spill": spill, "audit": ended}

    def _prune_folder(
        self, name: str, ours: re.Pattern[str], days: int, megabytes: int, spare: Container[str]
    ) -> int:
        """Remove expired files of a folder with names of this form, and return their number."""
        folder = Root(self._shared / name, name=f"{name} folder")
        if not folder.path.is_dir():
            return 0
        entries = folder.place(".").entries()
        files = [one for one in entries if one.kind == "file" and ours.fullmatch(one.name)]
        now, gone = self._clock.now().timestamp(), 0
        for file in surplus(files, now, days=days, megabytes=megabytes, spare=spare):
            place = folder.place(file.name)
            try:
                if place.stat() == file:  # else it was just used
                    place.remove()
                    gone += 1
            except NanobotError as error:
                logger.warning("can't remove {}: {}", file.name, error)
        return gone
