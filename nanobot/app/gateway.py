"""The daemon's life: `startup → main_loop → shutdown`.

Any end is survivable: what a kill leaves behind is in the journal, and the next start takes it up.
So shutdown only has to be polite, never thorough.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from loguru import logger
from msgspec import Struct

from nanobot.app.base import Base, Closable, Models, Routine
from nanobot.app.memory import Remembering
from nanobot.app.services import Agent, Platforms, Watching, clear_backup
from nanobot.app.tools import Toolbox
from nanobot.bus.journal import InboxEntry
from nanobot.gateway.control import ControlServer
from nanobot.gateway.lock import HomeLock

_SECOND_SIGNAL_SECONDS = 0.8
_SETTLING_SECONDS = 25.0
"""How long the end may take beside the grace that turns get."""


class GatewayParts(Struct, frozen=True):
    """What a gateway starts and ends. `routines` run beside everything else, unless there are no
    `chores`."""

    base: Base
    models: Models
    memory: Remembering
    toolbox: Toolbox
    agent: Agent
    platforms: Platforms
    watching: Watching
    control: ControlServer
    routines: Sequence[Routine]
    chores: bool


class Gateway:
    """Owns a home and everything that runs in it. Built by `nanobot.app`."""

    def __init__(self, parts: GatewayParts) -> None:
        self._parts, self._base = parts, parts.base
        self._lock = HomeLock(parts.base.stores.state)
        self._grace = parts.base.settings.agent.shutdown_grace_seconds
        self._stop: asyncio.Event | None = None
        self._event_loop: asyncio.AbstractEventLoop | None = None
        self._stop_requested = False
        self.restart_requested = False

    async def run(self, *, on_ready: Callable[[], None] | None = None, signals: bool = True) -> int:
        """Run until stopped; the exit code. Raises `HomeLocked` or `StorageError` if it cannot
        start."""
        self._stop, self._event_loop = asyncio.Event(), asyncio.get_running_loop()
        if self._stop_requested:
            return 0
        with self._lock:
            try:
                await self._startup(signals)
                logger.info("ready")
                self._parts.watching.systemd.send("READY=1")
                if on_ready is not None:
                    on_ready()
                await self._stop.wait()
            finally:
                await self._shutdown()
                self._event_loop = None
        return 0

    def request_stop(self) -> None:
        """Ask for an orderly end; may be called from any thread, before or while it runs."""
        self._stop_requested = True
        if self._event_loop is not None and self._stop is not None:
            self._event_loop.call_soon_threadsafe(self._stop.set)

    def finish(self) -> Future[None] | None:
        """Serve on until the turns under way have ended and memory has taken in what they gave it;
        begin nothing more by itself meanwhile. May be called from any thread; None where nothing
        runs. For who goes away after a few turns: a call of the model that is cut short is paid
        for and thrown away."""
        if self._event_loop is None:
            return None
        return asyncio.run_coroutine_threadsafe(self._finish(), self._event_loop)

    async def _finish(self) -> None:
        for routine in self._parts.routines:
            routine.stop()
        await self._base.lanes.wait(self._grace)
        await self._base.unhurried.wait(math.inf)

    def request_restart(self) -> None:
        """Ask for an orderly end after which whoever runs this gateway starts it again."""
        self.restart_requested = True
        self.request_stop()

    async def _startup(self, signals: bool) -> None:
        if signals:
            for number in (signal.SIGTERM, signal.SIGINT):
                asyncio.get_running_loop().add_signal_handler(number, self._on_signal)
        parts, base = self._parts, self._base
        journal, dispatcher = base.stores.journal, parts.platforms.dispatcher
        await journal.open()
        base.access.load()
        parts.toolbox.mcp.load()
        parts.models.load_ratio()
        base.bus.connect(parts.agent.loop.accept, dispatcher.submit)
        leftovers = await journal.leftovers()
        for unfiled in leftovers.unfiled:
            await base.stores.sessions.restore(unfiled.session_key, unfiled.lines)
        journal.filed([unfiled.id for unfiled in leftovers.unfiled])
        await parts.memory.recover()
        dispatcher.submit(leftovers.parts)
        base.background.start(self._resume(leftovers.entries), name="resume")
        parts.platforms.supervisor.start()
        await parts.control.start()
        base.unhurried.start(parts.agent.parts.consolidator.recover(), name="recover memory")
        if parts.chores:
            for routine in parts.routines:
                base.unhurried.start(routine.run_forever(), name=type(routine).__name__)
        base.background.start(parts.toolbox.helpers.recover(), name="recover helpers")
        parts.watching.counted.begin()
        clear_backup(base.settings.home)
        parts.toolbox.mcp.start()

    async def _resume(self, entries: Sequence[InboxEntry]) -> None:
        if entries:
            logger.info("messages that were under way: {}", len(entries))
        self._base.bus.adopt(entries)
        await self._parts.agent.loop.resume(entries)

    async def _shutdown(self) -> None:
        """Intake stops at once; turns get their grace; what is left resumes at the next start."""
        logger.info("stopping")
        parts, base, grace = self._parts, self._base, self._grace
        systemd, journal = parts.watching.systemd, base.stores.journal
        systemd.send("RELOADING=1" if self.restart_requested else "STOPPING=1")
        systemd.send(f"EXTEND_TIMEOUT_USEC={round((grace + _SETTLING_SECONDS) * 1e6)}")
        base.bus.stop_intake()
        for routine in parts.routines:
            routine.stop()
        closables: tuple[Closable, ...] = (
            base.stores.sessions, parts.memory, base.screen,
            *parts.models.closables, parts.platforms.web, parts.watching.counted,
            *parts.toolbox.closables, parts.toolbox.helpers, parts.control,
        )  # fmt: skip
        async with contextlib.AsyncExitStack() as stack:  # the last first; one failing stops none
            stack.push_async_callback(journal.close)
            stack.push_async_callback(journal.release)
            for closable in closables:
                stack.push_async_callback(closable.close)
            stack.push_async_callback(base.background.drain, 0.5)
            stack.push_async_callback(base.unhurried.drain, 0.5)
            stack.push_async_callback(parts.platforms.dispatcher.drain, min(grace, 2.0))
            stack.push_async_callback(parts.platforms.supervisor.stop)
            stack.push_async_callback(base.lanes.drain, grace)

    def _on_signal(self) -> None:
        if self._stop is not None and self._stop.is_set():
            # The person means it. Everything that matters is on disk already.
            loop = asyncio.get_running_loop()
            loop.call_later(_SECOND_SIGNAL_SECONDS, os._exit, 0)
            self._base.lanes.cancel()
            return
        self.request_stop()
