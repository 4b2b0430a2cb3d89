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
"""Grace for what is being sent when the channel stops: cut off, it would be sent again."""


class HealthReporter:
    """Keeps `nanobot status` and the log informed of what keeps a channel from working.

    Several problems can exist at a time, each under a `cause` such as "connection", "token" or
    "disk"; `nanobot status` shows all of them. What is reported already is not repeated.
    """

    def __init__(self, channel: str, host: ChannelHost) -> None:
        self._channel, self._host = channel, host
        self._problems: dict[str, str] = {}
        self._reported = ""

    @property
    def problems(self) -> str:
        """All current problems in one line; empty if there are none."""
        return "; ".join(self._problems.values())

    def report(self, cause: str, text: str) -> None:
        """A problem exists, or is now described by `text`."""
        self._problems[cause] = text
        self._publish()

    def resolve(self, cause: str) -> None:
        """The problem with this cause, if there was one, is over."""
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
    """Holds the connection that a transport sends through, which comes and goes while the channel
    runs. Senders wait for it, and its removal waits for them."""

    def __init__(self) -> None:
        self.current: T | None = None
        """The connection, if there is one."""
        self._filled = asyncio.Event()
        self._users = 0
        self._released = asyncio.Event()

    async def wait(self) -> T:
        """The connection, once there is one."""
        while self.current is None:
            await self._filled.wait()
        return self.current

    @asynccontextmanager
    async def used(self) -> AsyncIterator[T]:
        """The connection, once there is one, for something that `clear` waits for."""
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
        """The connection is gone. Returns when nobody uses it, or after `_PARTING_SECONDS`."""
        self.current = None
        self._filled.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(_PARTING_SECONDS):
                while self._users:
                    self._released.clear()
                    await self._released.wait()
