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
from typing import Protocol

from loguru import logger

from nanobot.agent.loop import AgentLoop
from nanobot.agent.session_queue import Lanes
from nanobot.bus.journal import Journal, Leftovers
from nanobot.bus.queue import MessageBus
from nanobot.clock import Clock
from nanobot.gateway.control import ControlServer
from nanobot.gateway.dispatcher import Dispatcher
from nanobot.gateway.health import Notifier
from nanobot.gateway.host import Screen
from nanobot.gateway.lock import HomeLock
from nanobot.gateway.supervisor import Supervisor
from nanobot.session.manager import SessionManager
from nanobot.tasks import Background

_SECOND_SIGNAL_SECONDS = 0.8
_MINUTE = 60.0
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


class Consolidates(Protocol):
    """What takes conversations into memory."""

    async def recover(self) -> None:
        """Take up what an earlier process left."""
        ...

    async def idle(self) -> None:
        """Look after what rests; called each minute."""
        ...


class Admits(Protocol):
    """What knows who may talk."""

    def load(self) -> str:
        """Read what is kept, now that the home is ours."""
        ...


class Helps(Protocol):
    """What works on tasks beside the conversations."""

    async def recover(self) -> None:
        """Say what an earlier process lost."""
        ...

    async def close(self) -> None:
        """End what is under way."""
        ...


class Routine(Protocol):
    """What does something at its own times."""

    async def run_forever(self) -> None:
        """Until `stop`."""
        ...

    def stop(self) -> None:
        """Begin nothing more."""
        ...


class Gateway:
    """Owns a home and everything that runs in it. Built by `nanobot.app`."""

    def __init__(
        self,
        *,
        lock: HomeLock,
        journal: Journal,
        bus: MessageBus,
        sessions: SessionManager,
        loop: AgentLoop,
        lanes: Lanes,
        dispatcher: Dispatcher,
        screen: Screen,
        supervisor: Supervisor,
        control: ControlServer,
        access: Admits,
        closables: Sequence[Closable],
        memory: Remembers,
        consolidator: Consolidates,
        helpers: Helps,
        routines: Sequence[Routine],
        notifier: Notifier,
        on_start: Sequence[Callable[[], None]],
        chores: bool,
        provider: Closable,
        background: Background,
        unhurried: Background,
        clock: Clock,
        shutdown_grace: float,
    ) -> None:
        self._lock, self._journal, self._bus, self._sessions = lock, journal, bus, sessions
        self._loop, self._lanes, self._dispatcher = loop, lanes, dispatcher
        self._screen, self._supervisor, self._provider = screen, supervisor, provider
        self._control, self._clock = control, clock
        self._background, self._unhurried = background, unhurried
        self._access, self._closables = access, closables
        self._memory, self._consolidator = memory, consolidator
        self._helpers, self._routines, self._chores = helpers, routines, chores
        self._notifier, self._on_start = notifier, on_start
        self._grace = shutdown_grace
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
        with self._lock:
            try:
                await self._startup(signals)
                logger.info("ready")
                self._notifier.ready()
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
        for routine in self._routines:
            routine.stop()
        await self._lanes.wait(self._grace)
        await self._unhurried.wait(math.inf)

    def request_restart(self) -> None:
        """The same, and note that whoever runs this gateway should start it again."""
        self.restart_requested = True
        self.request_stop()

    async def _startup(self, signals: bool) -> None:
        if signals:
            for number in (signal.SIGTERM, signal.SIGINT):
                asyncio.get_running_loop().add_signal_handler(number, self._on_signal)
        self._access.load()
        await self._journal.open()
        self._bus.connect(self._loop.accept, self._dispatcher.submit)
        leftovers = await self._journal.leftovers()
        for unfiled in leftovers.unfiled:
            await self._sessions.restore(unfiled.session_key, unfiled.lines)
        self._journal.filed([unfiled.id for unfiled in leftovers.unfiled])
        await self._memory.recover()
        self._dispatcher.submit(leftovers.parts)
        self._background.start(self._resume(leftovers), name="resume")
        self._supervisor.start()
        await self._control.start()
        self._unhurried.start(self._consolidator.recover(), name="recover memory")
        if self._chores:
            self._housekeeping = [
                self._background.start(keep_house(self._consolidator, self._clock), name="house"),
                self._background.start(keep_searchable(self._memory, self._clock), name="index"),
            ]
            for routine in self._routines:
                self._unhurried.start(routine.run_forever(), name=type(routine).__name__)
        self._background.start(self._helpers.recover(), name="recover helpers")
        for begin in self._on_start:
            begin()

    async def _resume(self, leftovers: Leftovers) -> None:
        if leftovers.entries:
            logger.info("messages that were under way: {}", len(leftovers.entries))
        self._bus.adopt(leftovers.entries)
        await self._loop.resume(leftovers.entries)

    async def _shutdown(self) -> None:
        """Intake stops at once; turns get their grace; what is left resumes at the next start."""
        logger.info("stopping")
        (self._notifier.restarting if self.restart_requested else self._notifier.stopping)()
        self._notifier.extend(self._grace + _SETTLING_SECONDS)
        self._bus.stop_intake()
        for task in self._housekeeping:
            task.cancel()
        for routine in self._routines:
            routine.stop()
        async with contextlib.AsyncExitStack() as stack:  # the last first; one failing stops none
            stack.push_async_callback(self._provider.close)
            stack.push_async_callback(self._journal.close)
            stack.push_async_callback(self._journal.release)
            stack.push_async_callback(self._sessions.close)
            stack.push_async_callback(self._memory.close)
            stack.push_async_callback(self._screen.close)
            for closable in self._closables:
                stack.push_async_callback(closable.close)
            stack.push_async_callback(self._helpers.close)
            stack.push_async_callback(self._control.close)
            stack.push_async_callback(self._background.drain, 0.5)
            stack.push_async_callback(self._unhurried.drain, 0.5)
            stack.push_async_callback(self._dispatcher.drain, min(self._grace, 2.0))
            stack.push_async_callback(self._supervisor.stop)
            stack.push_async_callback(self._lanes.drain, self._grace)

    def _on_signal(self) -> None:
        if self._stop is not None and self._stop.is_set():
            # The person means it. Everything that matters is on disk already.
            loop = asyncio.get_running_loop()
            loop.call_later(_SECOND_SIGNAL_SECONDS, os._exit, 0)
            self._lanes.cancel()
            return
        self.request_stop()


async def keep_house(consolidator: Consolidates, clock: Clock) -> None:
    """Each minute: look after what rests, whatever went wrong the time before. Never ends."""
    while True:
        await clock.sleep(_MINUTE)
        try:
            await consolidator.idle()
        except Exception as error:  # noqa: BLE001 - the boundary: the next minute is another try
            logger.opt(exception=error).warning("looking after what rests failed: {}", error)


async def keep_searchable(memory: Remembers, clock: Clock) -> None:
    """Soon after the start and each minute: so that no search has to wait for much. Never ends.

    Apart from `keep_house`, because a first time may take minutes.
    """
    await clock.sleep(_SETTLED_SECONDS)
    while True:
        try:
            await memory.refresh()
        except Exception as error:  # noqa: BLE001 - the boundary: the next minute is another try
            logger.opt(exception=error).warning("refreshing the search index failed: {}", error)
        await clock.sleep(_MINUTE)
