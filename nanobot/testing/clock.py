"""A clock that a test moves: nothing really sleeps, and no result depends on a machine's speed."""

from __future__ import annotations

import asyncio
import heapq
from datetime import UTC, datetime, timedelta
from itertools import count

_TURNS = 20
"""Runs of the event loop between two wake-ups, so that a woken task can sleep again within the same
advance."""

DEFAULT_START = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)


class FakeClock:
    """Implements `nanobot.clock.Clock`.

    `start` is the initial civil time and fixes the time zone. With `auto`, a sleeping task moves
    the clock and continues at once. `slept` lists the requested seconds in order."""

    def __init__(self, start: datetime = DEFAULT_START, *, auto: bool = False) -> None:
        if start.tzinfo is None:
            raise ValueError("start must be aware")
        self._zone = start.tzinfo
        self._civil = start.astimezone(UTC)
        self._seconds = 0.0
        self._auto = auto
        self._order = count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._fell_asleep = asyncio.Event()
        self.slept: list[float] = []

    def now(self) -> datetime:
        """Return the civil time in the zone of `start`."""
        return self._civil.astimezone(self._zone)

    def monotonic(self) -> float:
        """Return seconds since the clock was made."""
        return self._seconds

    async def sleep(self, seconds: float) -> None:
        """Return once the clock has moved that far (with `auto`: move it)."""
        self.slept.append(seconds)
        due = self._seconds + max(seconds, 0.0)
        if self._auto or seconds <= 0:
            self._move_to(due)
            await asyncio.sleep(0)
            return
        wake: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (due, next(self._order), wake))
        self._fell_asleep.set()
        await wake

    @property
    def sleeping(self) -> int:
        """Number of sleeping tasks."""
        return sum(not wake.done() for _, _, wake in self._sleepers)

    async def until_sleeping(self, number: int = 1) -> None:
        """Wait until at least `number` tasks sleep, so that an advance reaches them."""
        while self.sleeping < number:
            self._fell_asleep.clear()
            await self._fell_asleep.wait()

    async def advance(self, seconds: float) -> None:
        """Move on and wake the tasks that are due, in order, each at its own time."""
        target = self._seconds + seconds
        await self._settle()
        while self._sleepers and self._sleepers[0][0] <= target:
            due, _, wake = heapq.heappop(self._sleepers)
            if wake.done():  # its sleeper was cancelled
                continue
            self._move_to(due)
            wake.set_result(None)
            await self._settle()
        self._move_to(target)

    def jump(self, seconds: float) -> None:
        """Set the civil time forward or back, as a person or a time server does. No task wakes."""
        self._civil += timedelta(seconds=seconds)

    def _move_to(self, due: float) -> None:
        passed = max(due - self._seconds, 0.0)
        self._seconds += passed
        self._civil += timedelta(seconds=passed)

    async def _settle(self) -> None:
        for _ in range(_TURNS):
            await asyncio.sleep(0)
