"""HTTP connections that are kept for the next request: each is in use by one request at a time.

httpx has a pool of its own, which looks at every connection for each request (a system call for
each idle one) and closes idle ones while many are in use. With dozens of chats that costs more than
all the rest of a request, and new handshakes besides. So each connection is a client of its own
here, and the one used last is used first.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import httpx

from nanobot_telegram.failures import MaybeSent

_MOST_KEPT = 100
"""How many connections without a request are kept."""


class Connections:
    """`new` makes a client; one that was not used for `idle` seconds is closed when others are.
    Nothing waits for a free connection, so that no stuck one can starve the others."""

    def __init__(self, new: Callable[[], httpx.AsyncClient], idle: float) -> None:
        self._new, self._keep_for = new, idle
        self._idle: deque[tuple[httpx.AsyncClient, float]] = deque()
        self._busy: set[asyncio.Timeout] = set()
        self._is_cut = False

    @asynccontextmanager
    async def one(self) -> AsyncIterator[httpx.AsyncClient]:
        """A client for one request. Raises `MaybeSent` when it is cut meanwhile."""
        client = self._idle.pop()[0] if self._idle else self._new()
        try:
            async with asyncio.timeout(None) as use:
                self._busy.add(use)
                try:
                    yield client
                finally:
                    self._busy.remove(use)
        except TimeoutError:
            if use.expired():
                raise MaybeSent("the connection was given up") from None
            raise
        finally:
            await self._give_back(client)

    async def cut(self) -> None:
        """End all, for good. Requests are stopped whatever they are at (a client closes only what
        is connected already), and each closes its own client at once."""
        self._is_cut = True
        now = asyncio.get_running_loop().time()
        for use in self._busy:
            use.reschedule(now)
        while self._idle:
            await self._idle.pop()[0].aclose()

    async def _give_back(self, client: httpx.AsyncClient) -> None:
        if self._is_cut:
            await client.aclose()
            return
        now = asyncio.get_running_loop().time()
        self._idle.append((client, now))
        while len(self._idle) > _MOST_KEPT or self._idle[0][1] < now - self._keep_for:
            oldest, _ = self._idle.popleft()
            await oldest.aclose()
