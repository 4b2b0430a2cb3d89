"""What is not kept for ever: media, long tool results, the audit log, as far as the owner says.

What always holds: only files go that nanobot itself has named, never one that was used in the last
day or that a message refers to which is not answered or not sent yet, and never conversations,
memory, or what was set aside because it is damaged. What is gone is missed by nobody: a picture is
left out of the prompt, a tool says that the file is not there.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Container, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

from loguru import logger

from nanobot.clock import Clock
from nanobot.errors import NanobotError, StorageError
from nanobot.security import audit
from nanobot.security.paths import Place, Root

MEDIA_NAME = re.compile(r"[0-9a-f]{32}\.[a-z0-9]{1,8}")
"""What a file in `media/` is called."""

_SPILL_NAME = re.compile(r"[A-Za-z0-9_-]{0,40}-[0-9a-f]{16}\.txt")
_SETTLED_SECONDS = 600.0
_DAY = 86_400.0
_MEGABYTE = 1_000_000


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
