"""How an adapter handles faults: it reports each problem once, and waits for its connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Generic, TypeVar

from loguru import logger

from nanobot.channel import ChannelHost

T = TypeVar("T")

_PARTING_SECONDS = 1.0
"""Grace for sends in progress when the channel stops. An interrupted part would be sent again."""


class HealthReporter:
    """Reports the problems of a channel to `nanobot status` and the log.

    Several problems can exist at a time, each under a `cause` such as "connection", "token" or
    "disk". `nanobot status` shows all of them. A reported problem is not repeated."""

    def __init__(self, channel: str, host: ChannelHost) -> None:
        self._channel, self._host = channel, host
        self._problems: dict[str, str] = {}
        self._reported = ""

    @property
    def problems(self) -> str:
        """All current problems in one line, or empty."""
        return "; ".join(self._problems.values())

    def report(self, cause: str, text: str) -> None:
        """Set the problem with this cause to `text`."""
        self._problems[cause] = text
        self._publish()

    def resolve(self, cause: str) -> None:
        """Remove the problem with this cause, if any."""
        if self._problems.pop(cause, None) is not None:
            self._publish()

    def _publish(self) -> None:
        if self.problems == self._reported:
            return
        self._reported = self.problems
        if self._reported:
            logger.warning("{}: {}", self._channel, self._reported)
        else:
            logger.info("{}: works again", self._channel)
        self._host.report_problem(self._reported)


class ConnectionSlot(Generic[T]):
    """Holds a transport's connection, which comes and goes while the channel runs. Senders wait for
    it, and its removal waits for them."""

    def __init__(self) -> None:
        self.current: T | None = None
        """The connection, if there is one."""
        self._filled = asyncio.Event()
        self._users = 0  # current users, which `clear` waits for
        self._released = asyncio.Event()

    async def wait(self) -> T:
        """Wait for the connection and return it."""
        while self.current is None:
            await self._filled.wait()
        return self.current

    @asynccontextmanager
    async def use(self) -> AsyncIterator[T]:
        """Wait for the connection and yield it. `clear` waits for the end of the block."""
        current = await self.wait()
        self._users += 1
        try:
            yield current
        finally:
            self._users -= 1
            self._released.set()

    def fill(self, connection: T) -> None:
        self.current = connection
        self._filled.set()

    async def clear(self) -> None:
        """Remove the connection. Returns once it is unused, or after `_PARTING_SECONDS`."""
        self.current = None
        self._filled.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(_PARTING_SECONDS):
                while self._users:
                    self._released.clear()
                    await self._released.wait()
