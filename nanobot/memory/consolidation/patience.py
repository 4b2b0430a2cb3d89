"""How long somebody who waits for a consolidation lets the model think about it.

Work in the background has all the time that a slow model needs. Once somebody waits, a turn that
needs room, what runs for that session has only so much left: their own work, and what runs before
it. So a model that stalls delays a turn once, by a bounded time.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from nanobot.clock import Clock
from nanobot.tasks import Background, is_cancelled

T = TypeVar("T")

SECONDS = 30.0
"""How long a turn waits for the model to make room, in all."""


class Patience:
    """Ends calls of the model, of which there is one at a time for a key."""

    def __init__(self, clock: Clock, background: Background) -> None:
        self._clock, self._background = clock, background
        self._deadlines: defaultdict[str, list[float]] = defaultdict(list)
        self._running: dict[str, asyncio.Task[Any]] = {}

    @contextmanager
    def limited(self, key: str) -> Iterator[None]:
        """Meanwhile the calls for `key` have `SECONDS` in all; the one that runs is among them."""
        deadline = self._clock.monotonic() + SECONDS
        self._deadlines[key].append(deadline)
        timer = self._background.start(self._end_later(key), name=f"patience {key}")
        try:
            yield
        finally:
            timer.cancel()
            self._deadlines[key].remove(deadline)
            if not self._deadlines[key]:
                del self._deadlines[key]

    def is_over(self, key: str) -> bool:
        """Whether the time of somebody who still waits is over."""
        now = self._clock.monotonic()
        return any(deadline <= now for deadline in self._deadlines.get(key, ()))

    async def allow(self, key: str, call: Coroutine[Any, Any, T]) -> T:
        """What comes of `call`. Raises `TimeoutError` where it was ended, besides what it
        raises."""
        task = self._running[key] = self._background.start(call, name=f"ask for {key}")
        try:
            result: T = await task
        except asyncio.CancelledError:
            if is_cancelled():
                raise
            raise TimeoutError from None
        finally:
            del self._running[key]
        return result

    async def _end_later(self, key: str) -> None:
        await self._clock.sleep(SECONDS)
        if (task := self._running.get(key)) is not None:
            task.cancel()
