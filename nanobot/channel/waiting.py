"""Pauses, deadlines and the errors of task groups, for adapters. Time is the host's clock."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from nanobot.clock import Clock

T = TypeVar("T")

_SHORTEST_PAUSE = 1.0


class Backoff:
    """Pauses between attempts: one second, doubled after each failure up to `longest` seconds."""

    def __init__(self, clock: Clock, longest: float = 30.0) -> None:
        self._clock, self._longest = clock, longest
        self._next = _SHORTEST_PAUSE

    def next(self, at_least: float = 0.0) -> float:
        """The pause in seconds after one more failure. `at_least`: what the platform asks for."""
        pause, self._next = self._next, min(2 * self._next, self._longest)
        return max(pause, at_least)

    async def wait(self, at_least: float = 0.0) -> None:
        """Sleep for that pause."""
        await self._clock.sleep(self.next(at_least))

    def reset(self) -> None:
        """An attempt succeeded: start with the shortest pause again."""
        self._next = _SHORTEST_PAUSE


async def within(clock: Clock, seconds: float, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, which is cancelled after `seconds` of this clock.

    Raises `TimeoutError` then, and otherwise what `work` raises.
    """
    try:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(work)
            alarm = group.create_task(clock.sleep(seconds))
            await asyncio.wait((task, alarm), return_when=asyncio.FIRST_COMPLETED)
            task.cancel()
            alarm.cancel()
    except BaseExceptionGroup as errors:
        raise first_error(errors) from None
    if task.cancelled():
        raise TimeoutError
    return task.result()


def first_error(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error that ended a task group, unwrapped from nested groups."""
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
