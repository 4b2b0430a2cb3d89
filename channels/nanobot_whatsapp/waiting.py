"""Waiting no longer than a clock allows, and the error that ended a group of tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from nanobot.clock import Clock

T = TypeVar("T")


async def in_time(clock: Clock, seconds: float, work: Coroutine[Any, Any, T]) -> T:
    """What `work` gives. Raises `TimeoutError` where that takes longer; it is cancelled then."""
    try:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(work)
            alarm = group.create_task(clock.sleep(seconds))
            await asyncio.wait((task, alarm), return_when=asyncio.FIRST_COMPLETED)
            task.cancel()
            alarm.cancel()
    except BaseExceptionGroup as errors:
        raise first_of(errors) from None
    if task.cancelled():
        raise TimeoutError
    return task.result()


def first_of(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error that ended a group of tasks, for whoever waits for the group to judge."""
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
