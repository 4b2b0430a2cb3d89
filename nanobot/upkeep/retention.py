"""Keeps room on the disk, so that the journal can be written whatever fills the rest.

Below the reserve nothing new is taken in: messages wait at their platforms, a terminal is told so.
The owner hears of it, and of its end. What began goes on, and so do jobs: the reserve is for them.

What is not kept for ever: media, long tool results, the audit log, as far as the owner says.

What always holds: only files go that nanobot itself has named, never one that was used in the last
day or that a message refers to which is not answered or not sent yet, and never conversations,
memory, or what was set aside because it is damaged. What is gone is missed by nobody: a picture is
left out of the prompt, a tool says that the file is not there.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Awaitable, Callable, Container, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from errno import ENOTSUP
from functools import partial
from pathlib import Path
from typing import Protocol

from loguru import logger

from nanobot.clock import Clock
from nanobot.errors import NanobotError, StorageError
from nanobot.security import audit
from nanobot.security.paths import Place, Root

LOOK_SECONDS = 20.0
"""Between two looks at the disk."""

_MEGABYTE = 1_000_000
_BACK = 110
"""There is room again at so many percent of the reserve, lest one file open and close it."""

Tell = Callable[[str, str], Awaitable[None]]
"""Says a text to the owner; the same name is said once. Raises `NanobotError`."""


class Intake(Protocol):
    """Where messages come in."""

    def hold_intake(self, why: StorageError) -> None:
        """Take nothing in until `resume_intake`."""
        ...

    def resume_intake(self) -> None:
        """Take in again."""
        ...


def free_bytes(folder: Path) -> int:
    """What is free for us where `folder` lies. Raises `OSError`, also where that is not told: some
    file systems say that they have no room at all, for files nor for what is in them."""
    disk = os.statvfs(folder)
    if not disk.f_blocks:
        raise OSError(ENOTSUP, os.strerror(ENOTSUP), str(folder))
    return disk.f_bavail * disk.f_frsize


def has_room(folder: Path, needed: int) -> bool:
    """Whether so many bytes are free where `folder` lies. Where that is not told they are taken to
    be: a disk that is full after all says so itself."""
    try:
        return free_bytes(folder) >= needed
    except OSError:
        return True


class Room:
    """Watches the disk that holds `home`. `free` gives the free bytes there."""

    def __init__(
        self,
        home: Path,
        reserve_megabytes: int,
        intake: Intake,
        clock: Clock,
        tell: Tell,
        free: Callable[[Path], int] = free_bytes,
    ) -> None:
        self._home, self._reserve = home, reserve_megabytes * _MEGABYTE
        self._intake, self._clock = intake, clock
        self._tell, self._free = tell, free
        self._running: asyncio.Task[None] | None = None
        self._untold = False
        self.text = ""
        """What is wrong, for people; empty where there is room. It is logged with the health."""

    @property
    def low(self) -> bool:
        """Whether intake waits for room."""
        return bool(self.text)

    @property
    def hint(self) -> str:
        """What to do about it."""
        return f"Free some space on the disk that holds {self._home}; it goes on by itself then."

    async def run_forever(self) -> None:
        """Look again and again, until `stop`."""
        self._running = asyncio.current_task()
        while True:
            try:
                await self.look()
            except Exception as error:  # noqa: BLE001 - the boundary: who holds must look again
                logger.opt(exception=error).warning("looking at the disk failed: {}", error)
            await self._clock.sleep(LOOK_SECONDS)

    def stop(self) -> None:
        """Look no more."""
        if self._running is not None:
            self._running.cancel()

    async def look(self) -> None:
        """Look once, and do what follows from it."""
        try:
            free = self._free(self._home)
        except OSError as error:  # nobody knows: all stays as it is
            if not self._untold:
                logger.warning("the free disk cannot be told: {}", error.strerror or error)
            self._untold = True
            return
        self._untold = False
        if free < self._reserve:
            await self._is_low(free)
        elif self.low and free * 100 >= self._reserve * _BACK:
            await self._is_back(free)

    async def _is_low(self, free: int) -> None:
        was_low = self.low
        self.text = (
            f"the disk is nearly full ({_shown(free)} left, {_shown(self._reserve)} are kept"
            " free): nothing new is taken in"
        )
        if was_low:
            return
        self._intake.hold_intake(StorageError(self._home, self.text, hint=self.hint))
        said = (
            f"My disk is nearly full: {_shown(free)} are left. New messages wait where they are"
            f" until there is room again. {self.hint}"
        )
        await self._say(said, "low")

    async def _is_back(self, free: int) -> None:
        self.text = ""
        self._intake.resume_intake()
        logger.info("there is room on the disk again: {}", _shown(free))
        await self._say(f"There is room on my disk again ({_shown(free)}); I go on.", "back")

    async def _say(self, text: str, what: str) -> None:
        """Tell the owner, once an hour at most: a process may begin anew again and again."""
        try:
            await self._tell(text, f"disk-{what}-{self._clock.now():%y%m%d-%H}")
        except NanobotError as error:
            logger.warning("the owner was not told of the disk: {}", error)


def _shown(count: int) -> str:
    return f"{count / _MEGABYTE:,.0f} MB"


MEDIA_NAME = re.compile(r"[0-9a-f]{32}\.[a-z0-9]{1,8}")
"""What a file in `media/` is called."""

_SPILL_NAME = re.compile(r"[A-Za-z0-9_-]{0,40}-[0-9a-f]{16}\.txt")
_SETTLED_SECONDS = 600.0
_DAY = 86_400.0


@dataclass(frozen=True, slots=True)
class Limits:
    """How long and how much; 0: no limit."""

    media_days: int = 0
    media_megabytes: int = 0
    spill_days: int = 0
    audit_days: int = 0


@dataclass(frozen=True, slots=True)
class KeptFile:
    """A file; `used` is when it was last used, in seconds since the epoch."""

    name: str
    size: int
    used: float


@dataclass(frozen=True, slots=True)
class Swept:
    """How much went: files and bytes of `media/` and `spill/`, files of the audit log."""

    media: int = 0
    media_bytes: int = 0
    spill: int = 0
    spill_bytes: int = 0
    audit: int = 0

    def __str__(self) -> str:
        parts = (
            f"{self.media} files of media/ ({self.media_bytes / _MEGABYTE:,.1f} MB)",
            f"{self.spill} of spill/ ({self.spill_bytes / _MEGABYTE:,.1f} MB)",
            f"{self.audit} of the audit log",
        )
        counts = (self.media, self.spill, self.audit)
        return ", ".join(part for part, n in zip(parts, counts, strict=True) if n) or "nothing"


def surplus(
    files: Iterable[KeptFile],
    now: float,
    *,
    days: int,
    megabytes: int = 0,
    spare: Container[str] = (),
) -> list[KeptFile]:
    """Which of these have to go, those used longest ago first."""
    by_age = sorted(files, key=lambda file: file.used)
    total, going = sum(file.size for file in by_age), []
    for file in by_age:
        too_old = days > 0 and file.used < now - days * _DAY
        too_much = megabytes > 0 and total > megabytes * _MEGABYTE
        may_go = file.used < now - _DAY and file.name not in spare
        if may_go and (too_old or too_much):
            going.append(file)
            total -= file.size
    return going


Choose = Callable[[Sequence[KeptFile]], list[KeptFile]]


class Retention:
    """Applies the limits to a home. `awaited` gives the names of media that messages refer to which
    are not answered or not sent yet."""

    def __init__(
        self,
        home: Path,
        limits: Limits,
        clock: Clock,
        awaited: Callable[[], Awaitable[Container[str]]],
    ) -> None:
        self._home, self._limits, self._clock = home, limits, clock
        self._awaited = awaited
        self._running: asyncio.Task[None] | None = None

    async def run_forever(self) -> None:
        """Once a while after the start, then each day, until `stop`."""
        self._running = asyncio.current_task()
        await self._clock.sleep(_SETTLED_SECONDS)
        while True:
            try:
                await self.sweep()
            except Exception as error:  # noqa: BLE001 - the boundary: tomorrow is another day
                logger.opt(exception=error).warning("retention was cut short: {}", error)
            await self._clock.sleep(_DAY)

    def stop(self) -> None:
        """Begin nothing more. What is under way stops between two files."""
        if self._running is not None:
            self._running.cancel()

    async def sweep(self) -> Swept:
        """Remove what has to go. Raises `StorageError`."""
        awaited = await self._awaited()
        swept = await asyncio.to_thread(self._sweep, awaited)
        if swept != Swept():
            logger.info("retention removed {}", swept)
        return swept

    def _sweep(self, awaited: Container[str]) -> Swept:
        limits, now = self._limits, self._clock.now()
        of_media = partial(
            surplus,
            now=now.timestamp(),
            days=limits.media_days,
            megabytes=limits.media_megabytes,
            spare=awaited,
        )
        of_spill = partial(surplus, now=now.timestamp(), days=limits.spill_days)
        media = _thin_out(Root(self._home / "media", name="media folder"), MEDIA_NAME, of_media)
        spill = _thin_out(Root(self._home / "spill", name="spill folder"), _SPILL_NAME, of_spill)
        ended = 0
        if limits.audit_days:
            log = self._home / "logs" / audit.FILE
            ended = _expire(log, now - timedelta(days=limits.audit_days))
        return Swept(len(media), _bytes(media), len(spill), _bytes(spill), ended)


def _thin_out(folder: Root, ours: re.Pattern[str], choose: Choose) -> list[KeptFile]:
    """Remove from a folder what is chosen among the files that are called so; what is gone."""
    if not folder.path.is_dir():
        return []
    files = [
        KeptFile(entry.name, entry.size, entry.mtime_ns / 1e9)
        for entry in folder.place(".").entries()
        if entry.kind == "file" and ours.fullmatch(entry.name)
    ]
    return [file for file in choose(files) if _remove(folder.place(file.name), file)]


def _remove(place: Place, file: KeptFile) -> bool:
    """Remove a file, unless it has been used meanwhile; one that refuses keeps no other."""
    try:
        entry = place.stat()
        if entry is None or entry.mtime_ns / 1e9 != file.used:
            return False
        place.remove()
    except NanobotError as error:
        logger.warning("{} is kept: {}", file.name, error)
        return False
    return True


def _expire(log: Path, horizon: datetime) -> int:
    try:
        return audit.expire(log, horizon)
    except OSError as error:
        raise StorageError.of(log, error) from error


def _bytes(files: Sequence[KeptFile]) -> int:
    return sum(file.size for file in files)
