"""Keeps room on the disk, so that the journal can be written whatever fills the rest.

Below the reserve nothing new is taken in: messages wait at their platforms, a terminal is told so.
The owner hears of it, and of its end. What began goes on, and so do jobs: the reserve is for them.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from errno import ENOTSUP
from pathlib import Path
from typing import Protocol

from loguru import logger

from nanobot.clock import Clock
from nanobot.errors import NanobotError, StorageError

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
