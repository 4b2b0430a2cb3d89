"""Waiting for something, but not for ever."""

from __future__ import annotations

import asyncio
from typing import Any

from nanobot.clock import Clock
from nanobot.tasks import Background


async def first_of(
    clock: Clock, seconds: float | None, *tasks: asyncio.Future[Any]
) -> asyncio.Future[Any] | None:
    """The first of `tasks` that is done, None where `seconds` pass before (None: without end).

    Cancelling it cancels none of them.
    """
    timer = Background()
    waited = set(tasks)
    if seconds is not None:
        waited.add(timer.start(clock.sleep(seconds), name="a time limit"))
    try:
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
    finally:
        timer.cancel()
        await timer.drain(0)
    return next((task for task in tasks if task.done()), None)
