"""Waiting in a fake server until something is so, without asking again and again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

PATIENCE = 10.0
"""Seconds of real time after which a wait of a test's fails, so that a broken test ends."""


class Changes:
    """Lets many wait until something is so; whoever changes something tells them."""

    def __init__(self) -> None:
        self._waiting: list[asyncio.Future[None]] = []

    def tell(self) -> None:
        """Everybody who waits looks again."""
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            if not one.done():
                one.set_result(None)

    async def until(self, ready: Callable[[], T]) -> T:
        """The value of `ready()` once it is true."""
        while not (value := ready()):
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            await turn
        return value

    async def within(
        self, patience: float | None, ready: Callable[[], T], told: Callable[[], str]
    ) -> T:
        """The same, but raises `TimeoutError` with what `told` says after `patience` seconds of
        real time (None: never)."""
        try:
            async with asyncio.timeout(patience):
                return await self.until(ready)
        except TimeoutError:
            raise TimeoutError(f"still waiting; {told()}") from None
