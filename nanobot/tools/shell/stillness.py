"""Times in which nothing runs for a scope: what runs is ended, what is to run waits."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager


class Stillness:
    """Who runs, and who needs that nobody does."""

    def __init__(self) -> None:
        self._running: defaultdict[str, list[Callable[[], None]]] = defaultdict(list)
        self._still: Counter[str] = Counter()
        self._changed = asyncio.Event()

    @asynccontextmanager
    async def running(self, scope: str, end: Callable[[], None]) -> AsyncIterator[None]:
        """Run, once nobody needs stillness; `end` is called where somebody comes to need it."""
        while self._still[scope]:
            await self._changed.wait()
        self._running[scope].append(end)
        try:
            yield
        finally:
            self._running[scope].remove(end)
            self._tell()

    @asynccontextmanager
    async def still(self, scope: str) -> AsyncIterator[None]:
        """Begins when everything that ran for `scope` is over, and lets nothing new begin."""
        self._still[scope] += 1
        try:
            for end in self._running[scope]:
                end()
            while self._running[scope]:
                await self._changed.wait()
            yield
        finally:
            self._still[scope] -= 1
            self._tell()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
