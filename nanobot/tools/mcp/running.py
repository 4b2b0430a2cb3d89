"""One server: started when it is needed, started again when it broke, stopped when it rests.

Invariant: at most one program of a server runs; nobody is served before its tools were
listed; one that keeps failing is left alone for longer and longer; a call that may have happened is
never repeated.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from typing import Any

from loguru import logger

from nanobot.channel.health import within
from nanobot.clock import Clock
from nanobot.errors import NanobotError
from nanobot.tasks import Background
from nanobot.tooling import ToolResult
from nanobot.tools.mcp.session import Connections, Session
from nanobot.tools.mcp.values import Card, McpError, McpLost, McpServer

START_SECONDS = 60.0
"""A program may have to load a lot before it answers for the first time."""

IDLE_SECONDS = 600.0
LONGEST_PAUSE = 300.0
_UNKNOWN = "Whether the call did anything is not known: look before you repeat it."


class _Life:
    """From one start of the program to its end."""

    def __init__(self) -> None:
        self.ready: asyncio.Future[Session] = asyncio.get_running_loop().create_future()
        self.over = asyncio.Event()
        self.ended = asyncio.Event()
        self.lost = ""
        self.stale = False
        self.calls, self.last_used = 0, 0.0

    def was_lost(self, reason: str) -> None:
        if not self.over.is_set():  # afterwards it is no wonder
            self.lost = reason
            self.over.set()

    def may_have_changed(self) -> None:
        self.stale = True


class Running:
    """`listed` hears the server's tools whenever they are asked for."""

    def __init__(
        self,
        server: McpServer,
        connections: Connections,
        clock: Clock,
        listed: Callable[[tuple[Card, ...]], None],
    ) -> None:
        self._server, self._connections = server, connections
        self._clock, self._listed = clock, listed
        self._ours = f"the MCP server {server.name}"
        self._background = Background()
        self._life: _Life | None = None
        self._failures = 0
        self._not_before = 0.0
        self._stopped = False
        self.trouble = ""
        """What went wrong last; empty once a call has worked again."""

    @property
    def runs(self) -> bool:
        """Whether the program is there now."""
        life = self._life
        return life is not None and life.ready.done() and not life.over.is_set()

    async def ready(self) -> None:
        """Start the server if need be, and have its tools listed as they are now.

        Raises `McpError` where it cannot be started or is left alone for a while.
        """
        await self._current()

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Call a tool. Raises `McpError`, whose text says whether it may have happened."""
        life, session = await self._current()
        try:
            with self._busy(life):
                async with self._within(self._server.timeout_seconds):
                    result = await session.call(tool, arguments)
        except TimeoutError:
            life.may_have_changed()  # it may hang: see whether it is there before the next call
            seconds = f"{self._server.timeout_seconds:g}"
            raise McpError(
                f"{self._ours} has not answered within {seconds} s", hint=_UNKNOWN
            ) from None
        except McpLost as error:
            life.was_lost(str(error))
            raise McpError(str(error), hint=_UNKNOWN) from error
        except McpError:
            life.may_have_changed()  # the server may know neither the tool nor us any more
            raise
        self._failures, self.trouble = 0, ""
        return result

    async def stop(self, grace: float) -> None:
        """End the program for good, within `grace` seconds."""
        self._stopped = True
        if self._life is not None:
            self._life.over.set()
        await self._background.drain(grace)

    async def _current(self) -> tuple[_Life, Session]:
        life, session = await self._alive()
        if life.stale and not await self._listed_again(life, session):
            life.over.set()
            life, session = await self._alive()
        return life, session

    async def _alive(self) -> tuple[_Life, Session]:
        while (life := self._life) is not None and life.over.is_set():
            await life.ended.wait()
        life = life or self._begin()
        return life, await asyncio.shield(life.ready)

    def _begin(self) -> _Life:
        if self._stopped:
            raise McpError("nanobot is stopping")
        left = self._not_before - self._clock.monotonic()
        if left > 0:
            raise McpError(
                f"{self._ours} has failed {self._failures} times in a row and"
                f" is left alone for {left:.0f} s more: {self.trouble}"
            )
        self._life = life = _Life()
        self._background.start(self._live(life), name=f"mcp server {self._server.name}")
        return life

    async def _live(self, life: _Life) -> None:
        try:
            async with AsyncExitStack() as stack:
                # It outlives the turn that needed it first.
                stack.enter_context(logger.contextualize(turn=""))
                await self._start(life, stack)
                await self._until_over(life)
        except TimeoutError:
            life.was_lost("does not start: it says nothing")
        except NanobotError as error:
            life.was_lost(error.for_people())
        finally:
            self._ended(life)

    async def _start(self, life: _Life, stack: AsyncExitStack) -> None:
        opening = self._connections.open(self._server, life.was_lost, life.may_have_changed)
        async with self._within(START_SECONDS):
            session = await stack.enter_async_context(opening)
            cards = await session.cards()
        self._listed(cards)
        life.last_used = self._clock.monotonic()
        life.ready.set_result(session)

    async def _until_over(self, life: _Life) -> None:
        """Until it is to end, or nobody has called it for a while."""
        left = IDLE_SECONDS
        while left > 0 and not life.over.is_set():
            with suppress(TimeoutError):
                await within(self._clock, left, _wait(life.over))
            idle = 0.0 if life.calls else self._clock.monotonic() - life.last_used
            left = IDLE_SECONDS - idle
        life.over.set()

    async def _listed_again(self, life: _Life, session: Session) -> bool:
        life.stale = False
        try:
            async with self._within(min(START_SECONDS, self._server.timeout_seconds)):
                self._listed(await session.cards())
        except (TimeoutError, McpError) as error:
            logger.info("the MCP server {} is restarted: {}", self._server.name, error)
            return False
        return True

    def _ended(self, life: _Life) -> None:
        reason = life.lost.removeprefix(self._ours).lstrip(": ")
        if reason:
            self._failed(reason)
        if not life.ready.done():
            life.ready.set_exception(McpError(f"{self._ours}: {reason or 'was stopped'}"))
            life.ready.exception()  # looked at here, since perhaps nobody waits for it
        self._life = None
        life.ended.set()

    def _failed(self, reason: str) -> None:
        """The first failure costs nothing, the next ones longer and longer pauses."""
        self._failures += 1
        pause = min(2.0 ** (self._failures - 1), LONGEST_PAUSE) if self._failures > 1 else 0.0
        self._not_before = self._clock.monotonic() + pause
        self.trouble = reason
        logger.warning("{}: {}", self._ours, reason)

    @contextmanager
    def _busy(self, life: _Life) -> Iterator[None]:
        """While it is called, it does not rest."""
        life.calls += 1
        try:
            yield
        finally:
            life.calls -= 1
            life.last_used = self._clock.monotonic()

    @asynccontextmanager
    async def _within(self, seconds: float) -> AsyncIterator[None]:
        """Raises `TimeoutError` when it takes longer, by the clock that came in."""
        async with asyncio.timeout(None) as limit:

            async def expire() -> None:
                await self._clock.sleep(seconds)
                limit.reschedule(asyncio.get_running_loop().time())

            timer = self._background.start(expire(), name="mcp time limit")
            try:
                yield
            finally:
                timer.cancel()


async def _wait(event: asyncio.Event) -> None:
    await event.wait()
