"""Backups that are made by themselves, when they are due.

The files tell when the last one was made, so that one which came due while nanobot was off, or
which failed, is made soon after. One failure is told once, until a backup succeeds again; it is
tried again each hour.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from pathlib import Path

from loguru import logger

from nanobot.clock import Clock
from nanobot.cron.alarm import Alarm
from nanobot.cron.schedule import Schedule
from nanobot.errors import NanobotError
from nanobot.upkeep.backups import (
    Made,
    Order,
    UnderWay,
    alone,
    found,
    make,
    name_for,
    prune,
)
from nanobot.upkeep.snapshot import BackupOperations

SETTLED = timedelta(minutes=2)
"""How long after a start one that was missed waits: what is in hand goes first."""
AGAIN = timedelta(hours=1)

_NOT_MADE = "the backup that was due could not be made"
_NOT_REMOVED = "older backups cannot be removed"


class BackupRoutine:
    """Makes backups of `home` in `folder` by the `schedule`, and keeps the newest `keep`.

    `tell` says something to the owner.
    """

    def __init__(
        self,
        home: Path,
        folder: Path,
        schedule: Schedule,
        keep: int,
        order: Order,
        operations: BackupOperations,
        clock: Clock,
        tell: Callable[[str], Awaitable[None]],
    ) -> None:
        self._home, self._folder, self._schedule, self._keep = home, folder, schedule, keep
        self._order, self._operations, self._clock = order, operations, clock
        self._tell = tell
        self._alarm = Alarm(clock, "backup")
        self._stopping = threading.Event()
        self._not_before = clock.now() + SETTLED
        self._started = clock.now()
        self.trouble = ""
        """What failed the last time, and why; empty where nothing did."""

    async def run_forever(self) -> None:
        """Until `stop`."""
        due, seen = await self._due(), self._clock.now()
        while not self._stopping.is_set():
            now = self._clock.now()
            if now < seen:  # it was set back, and what was due by it may be far away
                due = await self._due()
            seen = now
            if due <= now:
                await self._attempt()
                due = await self._due()
            else:
                await self._alarm.wait((due - now).total_seconds())

    def stop(self) -> None:
        """Make no more, and give up the one that is being made."""
        self._stopping.set()
        self._alarm.ring()

    async def _due(self) -> datetime:
        """When the next one is; never far past its time, whatever a clock or the folder says."""
        try:
            stored = await asyncio.to_thread(found, self._folder)
        except NanobotError:  # making one says what is wrong
            stored = []
        now = self._clock.now()
        last = min(stored[0].made_at if stored else self._started, now)
        due = self._schedule.next_after(last.astimezone(now.tzinfo)) or now + AGAIN
        return max(due, min(self._not_before, now + AGAIN))

    async def _attempt(self) -> None:
        self._not_before = self._clock.now() + AGAIN
        what = _NOT_MADE
        try:
            made = await self._make()
            self._not_before = self._clock.now()
            logger.info("backup made: {} ({:,} bytes)", made.path, made.size)
            what = _NOT_REMOVED
            await asyncio.to_thread(prune, self._folder, self._keep, made.path)
        except _Stopped:
            return
        except UnderWay:  # by a person: it may be all that is wanted
            self._not_before = self._clock.now() + SETTLED
        except NanobotError as error:
            await self._failed(what, f"{error} {error.hint}".strip())
        except Exception as error:  # noqa: BLE001 - the boundary: the next one may go well
            logger.opt(exception=error).error("{}", what)
            await self._failed(what, f"{type(error).__name__}: {error}")
        else:
            self.trouble = ""

    async def _make(self) -> Made:
        with alone(self._home):
            taken = await self._operations.take()
            target = self._folder / name_for(taken.made_at, self._order.recipient)
            return await asyncio.to_thread(
                make, self._home, taken, target, self._order, self._go_on
            )

    def _go_on(self, *_: int) -> None:
        if self._stopping.is_set():
            raise _Stopped("nanobot is stopping")

    async def _failed(self, what: str, why: str) -> None:
        is_new, self.trouble = not self.trouble.startswith(what), f"{what}: {why}"
        logger.error("{}", self.trouble)
        if not is_new:
            return
        try:
            await self._tell(f"{self.trouble[:1].upper()}{self.trouble[1:]}")
        except NanobotError as error:
            logger.warning("that could not be told: {}", error)


class _Stopped(NanobotError):
    """The gateway ends; the backup is made after the next start."""
