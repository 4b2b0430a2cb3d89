"""Waiting for a time or for a call, whichever comes first."""

from __future__ import annotations

import asyncio

from nanobot.clock import Clock
from nanobot.tasks import Background

LONGEST_WAIT = 60.0
"""Seconds until the clock is looked at again: it may have been set meanwhile."""


class Alarm:
    """Wakes one waiter. A call that nobody waits for makes the next wait return at once."""

    def __init__(self, clock: Clock, name: str) -> None:
        self._clock, self._name = clock, name
        self._rung = asyncio.Event()

    def ring(self) -> None:
        """Wake the waiter."""
        self._rung.set()

    async def wait(self, seconds: float) -> None:
        """Return after so many seconds, `LONGEST_WAIT` at most, or when called."""
        sleeping = Background()
        sleeping.start(self._sleep(min(seconds, LONGEST_WAIT)), name=self._name)
        try:
            await self._rung.wait()
        finally:
            self._rung.clear()
            sleeping.cancel()
            await sleeping.drain(0.0)

    async def _sleep(self, seconds: float) -> None:
        await self._clock.sleep(seconds)
        self._rung.set()
