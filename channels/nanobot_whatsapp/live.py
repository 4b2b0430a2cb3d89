"""What a transport sends through: there while it runs, gone and made anew in between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Generic, TypeVar

PARTING_SECONDS = 1.0
"""What is being sent when the channel stops gets that long: cut off, it would be sent again."""

T = TypeVar("T")


class Live(Generic[T]):
    """Whoever wants to send waits for it, and whoever takes it away waits for them."""

    def __init__(self) -> None:
        self._now: T | None = None
        self._begun = asyncio.Event()
        self._users = 0
        self._left = asyncio.Event()

    @property
    def now(self) -> T | None:
        """It, while it is there."""
        return self._now

    async def got(self) -> T:
        """It, once it is there."""
        while self._now is None:
            await self._begun.wait()
        return self._now

    @asynccontextmanager
    async def used(self) -> AsyncIterator[T]:
        """It, once it is there, to send something that `end` waits for."""
        now = await self.got()
        self._users += 1
        try:
            yield now
        finally:
            self._users -= 1
            self._left.set()

    def begin(self, now: T) -> None:
        """It is there."""
        self._now = now
        self._begun.set()

    async def end(self) -> None:
        """Nobody gets it any more. Returns when nobody uses it, or after `PARTING_SECONDS`."""
        self._now = None
        self._begun.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(PARTING_SECONDS):
                while self._users:
                    self._left.clear()
                    await self._left.wait()
