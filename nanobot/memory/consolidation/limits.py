"""Limits of consolidation: how long a turn waits for it, one run per conversation, and a circuit
breaker that leaves a model alone which keeps failing.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from loguru import logger

from nanobot.clock import Clock
from nanobot.errors import NanobotError
from nanobot.tasks import Background, is_cancelled

_FAILURES = 3


_PAUSE = 300.0
"""Seconds."""


class Breaker:
    """Open for five minutes after three failures in a row; then one failure more opens it again."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failures = 0
        self._open_until = 0.0

    @property
    def is_open(self) -> bool:
        """Whether the model should be left alone now."""
        return self._failures >= _FAILURES and self._clock.monotonic() < self._open_until

    def succeeded(self) -> None:
        """The model did what it was asked for."""
        self._failures = 0

    def failed(self) -> None:
        """It did not."""
        self._failures += 1
        if self._failures >= _FAILURES:
            self._open_until = self._clock.monotonic() + _PAUSE
            logger.warning("consolidation failed {} times; it pauses", self._failures)


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


class OneByOne:
    """Runs work in `background`, in the order in which it came for a key."""

    def __init__(self, background: Background) -> None:
        self._background = background
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def do(self, key: str, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Do `work` after whatever is being done for `key`, and wait for it.

        Who stops waiting does not stop it. Raises what it raises.
        """
        lock = self._locks.get(key)
        if lock is None:
            lock = self._locks[key] = asyncio.Lock()
        task = self._background.start(_under(lock, work), name=f"consolidate {key}")
        result = await asyncio.shield(task)
        if isinstance(result, NanobotError):
            raise result
        return result


async def _under(
    lock: asyncio.Lock, work: Callable[[], Coroutine[Any, Any, T]]
) -> T | NanobotError:
    """Do `work` while holding `lock`; what went wrong is a value, for who waits for it."""
    async with lock:
        try:
            return await work()
        except NanobotError as error:
            logger.warning("a consolidation did not get through: {}", error)
            return error
