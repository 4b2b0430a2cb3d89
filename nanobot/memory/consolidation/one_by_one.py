"""Work on a session one at a time, as tasks that survive whoever waits for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from loguru import logger

from nanobot.errors import NanobotError
from nanobot.tasks import Background

T = TypeVar("T")


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
