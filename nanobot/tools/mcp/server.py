"""Lifecycle of one MCP server: a call starts it, also after it crashed, and it stops when idle.

Invariant: at most one program of a server runs. No call is served before its tools were listed.
Repeated failures lead to longer pauses. A call that may have run is never repeated."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from loguru import logger

from nanobot.clock import Clock, pause_after, with_timeout
from nanobot.errors import NanobotError
from nanobot.tasks import TURN, Background
from nanobot.tooling import ToolResult
from nanobot.tools.mcp.connections import Connections, McpSession
from nanobot.tools.mcp.values import McpError, McpLost, McpServer, ToolDescription

START_SECONDS = 60.0
"""A program may have to load a lot before its first answer."""

IDLE_SECONDS = 600.0
LONGEST_PAUSE = 300.0
_UNKNOWN = "The call may have had an effect. Check before you repeat it."


class _Run:
    """One run of the program, from start to end."""

    def __init__(self) -> None:
        self.ready: asyncio.Future[McpSession] = asyncio.get_running_loop().create_future()
        self.task: asyncio.Task[None]
        self.over = asyncio.Event()
        self.ended = asyncio.Event()
        self.lost = ""
        self.stale = False
        self.calls, self.last_used = 0, 0.0

    def was_lost(self, reason: str) -> None:
        if not self.over.is_set():  # expected after the end
            self.lost = reason
            self.over.set()

    def may_have_changed(self) -> None:
        self.stale = True


class ServerRunner:
    """Runs one server. `listed` receives its tools after each listing."""

    def __init__(
        self,
        server: McpServer,
        connections: Connections,
        clock: Clock,
        listed: Callable[[tuple[ToolDescription, ...]], None],
    ) -> None:
        self._server, self._connections = server, connections
        self._clock, self._listed = clock, listed
        self._ours = f"the MCP server {server.name}"
        self._background = Background()
        self._life: _Run | None = None
        self._failures = 0
        self._not_before = 0.0
        self._stopped = False
        self.problem = ""
        """The last failure; empty after a successful call."""

    @property
    def runs(self) -> bool:
        life = self._life
        return life is not None and life.ready.done() and not life.over.is_set()

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Call a tool. Raise `McpError`, whose text notes if the call may have run."""
        life, session = await self.ready()
        seconds = self._server.timeout_seconds
        life.calls += 1  # not idle during a call
        try:
            result = await with_timeout(self._clock, seconds, session.call(tool, arguments))
        except TimeoutError:
            life.may_have_changed()  # it may hang, so check it before the next call
            text = f"{self._ours} did not answer within {seconds:g} seconds"
            raise McpError(text, hint=_UNKNOWN) from None
        except McpLost as error:
            life.was_lost(str(error))
            raise McpError(str(error), hint=_UNKNOWN) from error
        except McpError:
            life.may_have_changed()  # the tool or the session may be gone
            raise
        finally:
            life.calls -= 1
            life.last_used = self._clock.monotonic()
        self._failures, self.problem = 0, ""
        return result

    async def stop(self, grace: float) -> None:
        self._stopped = True
        if self._life is not None:
            self._life.over.set()
        await self._background.drain(grace)

    async def ready(self) -> tuple[_Run, McpSession]:
        """Start the server if necessary, and refresh its tool list.

        Raise `McpError` if it cannot start or pauses after failures."""
        life, session = await self._ensure_alive()
        if not life.stale:
            return life, session
        life.stale = False  # before listing, so that a new change counts
        try:
            seconds = min(START_SECONDS, self._server.timeout_seconds)
            self._listed(await with_timeout(self._clock, seconds, session.list_tools()))
        except (TimeoutError, McpError) as error:
            logger.info("restarting the MCP server {}: {}", self._server.name, error)
            life.over.set()
            return await self._ensure_alive()
        return life, session

    async def _ensure_alive(self) -> tuple[_Run, McpSession]:
        while (life := self._life) is not None and life.over.is_set():
            await life.ended.wait()
        if life is None:
            if self._stopped:
                raise McpError("nanobot is stopping")
            left = self._not_before - self._clock.monotonic()
            if left > 0:
                raise McpError(
                    f"{self._ours} has failed {self._failures} times in a row ({self.problem}). "
                    f"The next attempt is in {left:.0f} seconds"
                )
            self._life = life = _Run()
            name = f"mcp server {self._server.name}"
            life.task = self._background.start(self._run(life), name=name)
        try:
            return life, await with_timeout(self._clock, START_SECONDS, asyncio.shield(life.ready))
        except TimeoutError:
            life.was_lost("did not start in time")
            life.task.cancel()
            await life.ended.wait()
            raise McpError(f"{self._ours}: {life.lost}") from None

    async def _run(self, life: _Run) -> None:
        try:
            opening = self._connections.open(self._server, life.was_lost, life.may_have_changed)
            # It outlives the turn that started it.
            TURN.set("")
            async with opening as session:
                self._listed(await session.list_tools())
                life.last_used = self._clock.monotonic()
                life.ready.set_result(session)
                left = IDLE_SECONDS
                while left > 0 and not life.over.is_set():
                    with suppress(TimeoutError):
                        await with_timeout(self._clock, left, life.over.wait())
                    idle = 0.0 if life.calls else self._clock.monotonic() - life.last_used
                    left = IDLE_SECONDS - idle
                life.over.set()
        except NanobotError as error:
            life.was_lost(error.for_people())
        finally:
            self._note_end(life)

    def _note_end(self, life: _Run) -> None:
        """Set the pause: none after the first failure, then longer and longer."""
        reason = life.lost = life.lost.removeprefix(self._ours).lstrip(": ")
        if reason:
            self._failures += 1
            pause = pause_after(self._failures, 1.0, LONGEST_PAUSE) if self._failures > 1 else 0.0
            self._not_before = self._clock.monotonic() + pause  # earlier calls fail at once
            self.problem = reason
            logger.warning("{}: {}", self._ours, reason)
        if not life.ready.done():
            life.ready.set_exception(McpError(f"{self._ours}: {reason or 'was stopped'}"))
            life.ready.exception()  # retrieved here, in case nothing awaits it
        self._life = None
        life.ended.set()
