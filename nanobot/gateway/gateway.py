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
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol

from loguru import logger

from nanobot.agent.helpers import Helpers
from nanobot.agent.loop import AgentLoop
from nanobot.agent.session_queue import Lanes
from nanobot.bus.journal import InboxEntry, Journal
from nanobot.bus.queue import MessageBus
from nanobot.clock import Clock
from nanobot.gateway.channels import Supervisor
from nanobot.gateway.control import ControlServer
from nanobot.gateway.delivery import Dispatcher, Screen
from nanobot.gateway.health import SystemdNotifier
from nanobot.gateway.lock import HomeLock
from nanobot.memory.consolidation.consolidator import MemoryConsolidator
from nanobot.session.manager import SessionManager
from nanobot.tasks import Background

_SECOND_SIGNAL_SECONDS = 0.8
_SETTLING_SECONDS = 25.0
"""How long the end may take beside the grace that turns get."""
_SETTLED_SECONDS = 2.0
"""After this time at the start, what waited to be answered is under way."""


class Closable(Protocol):
    """Something with connections to release."""

    async def close(self) -> None:
        """Release them."""
        ...


class Remembers(Protocol):
    """What keeps memory on disk."""

    async def recover(self) -> None:
        """Finish what a crash cut short."""
        ...

    async def refresh(self) -> None:
        """Make what is new ready to be searched; called each minute."""
        ...

    async def close(self) -> None:
        """Release files and connections."""
        ...


class Routine(Protocol):
    """What does something at its own times."""

    async def run_forever(self) -> None:
        """Until `stop`."""
        ...

    def stop(self) -> None:
        """Begin nothing more."""
        ...


@dataclass(frozen=True, slots=True)
class GatewayParts:
    """What a gateway starts and ends. `routines` run beside everything else, unless there are no
    `chores`; `unhurried` owns background work that a command which hosts the gateway waits for;
    `on_open` is called once the journal is open, `on_start` once everything runs; `closables` are
    closed at the end, the last first."""

    lock: HomeLock
    journal: Journal
    bus: MessageBus
    sessions: SessionManager
    loop: AgentLoop
    lanes: Lanes
    dispatcher: Dispatcher
    screen: Screen
    supervisor: Supervisor
    control: ControlServer
    closables: Sequence[Closable]
    memory: Remembers
    consolidator: MemoryConsolidator
    helpers: Helpers
    routines: Sequence[Routine]
    systemd: SystemdNotifier
    on_open: Sequence[Callable[[], object]]
    on_start: Sequence[Callable[[], None]]
    chores: bool
    background: Background
    unhurried: Background
    clock: Clock
    shutdown_grace: float


class Gateway:
    """Owns a home and everything that runs in it. Built by `nanobot.app`."""

    def __init__(self, parts: GatewayParts) -> None:
        self._parts = parts
        self._stop: asyncio.Event | None = None
        self._event_loop: asyncio.AbstractEventLoop | None = None
        self._stop_requested = False
        self._housekeeping: list[asyncio.Task[None]] = []
        self.restart_requested = False

    async def run(self, *, on_ready: Callable[[], None] | None = None, signals: bool = True) -> int:
        """Run until stopped; the exit code. Raises `HomeLocked` or `StorageError` if it cannot
        start."""
        self._stop, self._event_loop = asyncio.Event(), asyncio.get_running_loop()
        if self._stop_requested:
            return 0
        with self._parts.lock:
            try:
                await self._startup(signals)
                logger.info("ready")
                self._parts.systemd.send("READY=1")
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
        await self._parts.lanes.wait(self._parts.shutdown_grace)
        await self._parts.unhurried.wait(math.inf)

    def request_restart(self) -> None:
        """Ask for an orderly end after which whoever runs this gateway starts it again."""
        self.restart_requested = True
        self.request_stop()

    async def _startup(self, signals: bool) -> None:
        if signals:
            for number in (signal.SIGTERM, signal.SIGINT):
                asyncio.get_running_loop().add_signal_handler(number, self._on_signal)
        parts = self._parts
        await parts.journal.open()
        for load in parts.on_open:
            load()
        parts.bus.connect(parts.loop.accept, parts.dispatcher.submit)
        leftovers = await parts.journal.leftovers()
        for unfiled in leftovers.unfiled:
            await parts.sessions.restore(unfiled.session_key, unfiled.lines)
        parts.journal.filed([unfiled.id for unfiled in leftovers.unfiled])
        await parts.memory.recover()
        parts.dispatcher.submit(leftovers.parts)
        parts.background.start(self._resume(leftovers.entries), name="resume")
        parts.supervisor.start()
        await parts.control.start()
        parts.unhurried.start(parts.consolidator.recover(), name="recover memory")
        if parts.chores:
            idle = each_minute(parts.consolidator.idle, parts.clock, first=60.0)
            refresh = each_minute(parts.memory.refresh, parts.clock, first=_SETTLED_SECONDS)
            self._housekeeping = [
                parts.background.start(idle, name="house"),
                parts.background.start(refresh, name="index"),
            ]
            for routine in parts.routines:
                parts.unhurried.start(routine.run_forever(), name=type(routine).__name__)
        parts.background.start(parts.helpers.recover(), name="recover helpers")
        for begin in parts.on_start:
            begin()

    async def _resume(self, entries: Sequence[InboxEntry]) -> None:
        if entries:
            logger.info("messages that were under way: {}", len(entries))
        self._parts.bus.adopt(entries)
        await self._parts.loop.resume(entries)

    async def _shutdown(self) -> None:
        """Intake stops at once; turns get their grace; what is left resumes at the next start."""
        logger.info("stopping")
        parts, grace = self._parts, self._parts.shutdown_grace
        parts.systemd.send("RELOADING=1" if self.restart_requested else "STOPPING=1")
        parts.systemd.send(f"EXTEND_TIMEOUT_USEC={round((grace + _SETTLING_SECONDS) * 1e6)}")
        parts.bus.stop_intake()
        for task in self._housekeeping:
            task.cancel()
        for routine in parts.routines:
            routine.stop()
        async with contextlib.AsyncExitStack() as stack:  # the last first; one failing stops none
            stack.push_async_callback(parts.journal.close)
            stack.push_async_callback(parts.journal.release)
            stack.push_async_callback(parts.sessions.close)
            stack.push_async_callback(parts.memory.close)
            stack.push_async_callback(parts.screen.close)
            for closable in parts.closables:
                stack.push_async_callback(closable.close)
            stack.push_async_callback(parts.helpers.close)
            stack.push_async_callback(parts.control.close)
            stack.push_async_callback(parts.background.drain, 0.5)
            stack.push_async_callback(parts.unhurried.drain, 0.5)
            stack.push_async_callback(parts.dispatcher.drain, min(grace, 2.0))
            stack.push_async_callback(parts.supervisor.stop)
            stack.push_async_callback(parts.lanes.drain, grace)

    def _on_signal(self) -> None:
        if self._stop is not None and self._stop.is_set():
            # The person means it. Everything that matters is on disk already.
            loop = asyncio.get_running_loop()
            loop.call_later(_SECOND_SIGNAL_SECONDS, os._exit, 0)
            self._parts.lanes.cancel()
            return
        self.request_stop()


async def each_minute(
    work: Callable[[], Awaitable[None]], clock: Clock, first: float = 60.0
) -> None:
    """Do `work` after `first` seconds and each minute, whatever goes wrong. Never ends."""
    await clock.sleep(first)
    while True:
        try:
            await work()
        except Exception as error:  # noqa: BLE001 - the boundary: the next minute is another try
            logger.opt(exception=error).warning("housekeeping failed: {}", error)
        await clock.sleep(60.0)
