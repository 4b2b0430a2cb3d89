"""The composition root and the daemon's life: `startup → main_loop → shutdown`.

All other parts receive plain values and ready-made collaborators, and never the configuration. A
kill loses nothing: the journal has all unfinished work, and the next start resumes it. So a
shutdown need not be thorough."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING

from loguru import logger

from nanobot.agent.hooks import AgentHook, Hooks, TurnMetrics
from nanobot.app.base import Base, Closable, Models
from nanobot.app.commands import TypedKeys, register_commands
from nanobot.app.memory import MemoryParts
from nanobot.app.operations import Feed, build_operations, record_calls
from nanobot.app.services import (
    Agent,
    Monitoring,
    Parts,
    Platforms,
    Upkeep,
    build_routines,
    build_schedules,
    clear_backup,
)
from nanobot.app.tools import Toolbox
from nanobot.bus.events import ApprovalAsked, ApprovalClosed
from nanobot.bus.sqlite_journal import SqliteJournal
from nanobot.channel import Channel, Overseer
from nanobot.clock import Clock
from nanobot.config.settings import Settings
from nanobot.errors import DatabaseDamaged, HomeMoved, NanobotError, StorageError
from nanobot.gateway import STOP_MARGIN
from nanobot.gateway.control import ControlServer
from nanobot.gateway.lock import Leaving, home_lock
from nanobot.gateway.pairing import Pairing
from nanobot.io import raise_descriptor_limit
from nanobot.providers.port import Provider
from nanobot.tasks import SWITCH_SECONDS, Background, Routine, end_at_once
from nanobot.text import pluralize
from nanobot.tooling import Tool

if TYPE_CHECKING:
    from nanobot.app.team import Team

_SECOND_SIGNAL_SECONDS = 0.8
_SEND_SECONDS = 1.0
"""Least seconds for a running send, even without grace, because an interrupted one would be
repeated."""
_CLOSING_SECONDS = 6.0
"""Seconds for parts to close after the grace, before the journal is closed."""


class Gateway:
    """Owner of a home and everything that runs in it. The constructor is the composition root, and
    reads from top to bottom as the list of a nanobot's parts.

    The keyword arguments add or replace parts, for embedding and for tests. `learner` is the model
    that consolidates and dreams (default: the answering model). Without `chores`, nothing starts by
    itself (jobs, Dream, care of idle conversations, and the additional `routines`). Raises
    `NanobotError` if the home or the configuration is unusable."""

    def __init__(
        self,
        settings: Settings,
        *,
        clock: Clock | None = None,
        provider: Provider | None = None,
        learner: Provider | None = None,
        channels: Sequence[Channel] = (),
        hooks: Sequence[AgentHook] = (),
        extra_tools: Sequence[Tool] = (),
        routines: Sequence[Routine] = (),
        admit_everyone: bool = False,
        chores: bool = True,
    ) -> None:
        base = Base(settings, clock, channels, admit_everyone=admit_everyone)
        models = Models(base, provider, learner)
        memory = MemoryParts(base, models.learner, notifies=True)
        typed_keys, turn_metrics = TypedKeys(base, memory.service), TurnMetrics()
        self._feed = feed = Feed()
        hook = Hooks(base.screen, (turn_metrics, typed_keys, feed, *hooks))
        toolbox = Toolbox(base, models, memory, extra_tools, self._announce)
        agent = Agent(base, models, memory, toolbox, hook)
        platforms = Platforms(base, toolbox)
        upkeep, pairing = Upkeep(base), Pairing(base.access, base.notifier.send)
        monitoring = Monitoring(
            base, memory, agent, platforms, upkeep, turn_metrics, toolbox.approval_commands
        )
        self._parts = parts = Parts(
            base, models, memory, toolbox, agent, platforms, upkeep, monitoring
        )
        operations = {**build_operations(parts, pairing), "restart": self._restart}
        for channel in base.outlets.values():
            if isinstance(channel, Overseer):
                operations |= channel.oversee(feed)
        feed.operations = operations = record_calls(operations, toolbox.audit)
        self._control = ControlServer(base.stores.state, operations, base.cli.chat)
        watching = (*monitoring.routines, upkeep.room, *build_routines(base, memory, agent))
        schedules = (*upkeep.schedules, *build_schedules(base, memory, toolbox), *routines)
        self._routines = (*watching, *schedules)
        own = watching if base.worker else self._routines  # one worker runs a team's
        self._own_routines = own if chores else ()
        conversation = register_commands(parts, self.request_restart)
        self._team: Team | None = None
        if base.worker:
            from nanobot.app.team import Team

            self._team = Team(parts, conversation, schedules if chores else ())
        for part in (pairing, toolbox.skills, typed_keys):
            part.register(base.commands)
        self._readers = Background()
        self._grace = settings.agent.shutdown_grace_seconds
        self._stop: asyncio.Event | None = None
        self._event_loop: asyncio.AbstractEventLoop | None = None
        self.stop_requested = False
        self._on_stop: Callable[[], None] | None = None
        self.restart_requested = False

    async def run(
        self,
        *,
        on_ready: Callable[[], None] | None = None,
        on_stop: Callable[[], None] | None = None,
        signals: bool = True,
    ) -> int:
        """Run until stopped and return the exit code. `on_stop` is called when the stop begins, or
        when a signal requests it during the start. Raises `HomeLocked` or `StorageError` if it
        can't start."""
        self._on_stop = on_stop
        stop = self._stop = asyncio.Event()
        self._event_loop = asyncio.get_running_loop()
        sys.setswitchinterval(SWITCH_SECONDS)
        raise_descriptor_limit()
        if self.stop_requested:
            return 0
        with home_lock(self._parts.base.stores.state) as lock:
            try:
                try:
                    await self._startup(signals)
                    logger.info("ready")
                    self._parts.monitoring.systemd.send("READY=1")
                    if on_ready is not None:
                        on_ready()
                    await stop.wait()
                finally:
                    self._note_stop()
                    stopping: Leaving = "stopping" if signals else "ending"
                    lock.mark("starting" if self.restart_requested else stopping)
                    await self._shutdown()
                    self._event_loop = None
            except DatabaseDamaged:
                if not self.restart_requested:  # otherwise the next start rebuilds it
                    raise
        return 0

    @property
    def stop_seconds(self) -> float:
        """The longest duration of a stop. Threads still running then end with the process."""
        return self._grace + STOP_MARGIN

    def request_stop(self) -> None:
        """Request an orderly stop. May be called from any thread, before or during the run."""
        self.stop_requested = True
        if self._event_loop is not None and self._stop is not None:
            self._event_loop.call_soon_threadsafe(self._stop.set)

    def finish(self) -> Future[None] | None:
        """Finish the running turns and their memory work, and start nothing new. May be called from
        any thread. Returns None if nothing runs. For commands that run a few turns: an interrupted
        call of the model is paid for and lost."""
        if self._event_loop is None:
            return None
        return asyncio.run_coroutine_threadsafe(self._finish(), self._event_loop)

    async def _finish(self) -> None:
        for routine in self._routines:
            routine.stop()
        await self._parts.base.lanes.wait(self._grace)
        await self._parts.base.awaited_background.wait(math.inf)

    def request_restart(self) -> None:
        """Request an orderly stop, after which the program that runs this gateway starts it
        again."""
        self.restart_requested = True
        self.request_stop()

    async def _restart(self, arguments: Mapping[str, object]) -> dict[str, object]:
        """Operation `restart`, after `seconds` if given. Raises `NanobotError` with the number of
        running turns, unless `sure` is true."""
        running = len(self._parts.agent.loop.turns.running)
        if arguments.get("sure") is not True:
            hint = (
                "Turns that can't finish in time continue after the restart. To confirm, set "
                "`sure: true`."
            )
            message = f"a restart can interrupt {pluralize(running, 'running turn')}"
            raise NanobotError(message, hint=hint)
        seconds = arguments.get("seconds")
        delay = seconds if isinstance(seconds, float) else 0.0
        asyncio.get_running_loop().call_later(delay, self.request_restart)
        return {"restarting": True, "turns_running": running}

    def _announce(self, session_key: str, event: ApprovalAsked | ApprovalClosed) -> None:
        """Announce a new or a closed question to the owner."""
        self._feed.publish(session_key, event)
        if isinstance(event, ApprovalClosed):
            if self._team is not None:
                self._team.note_closed(event)
            self._parts.platforms.dispatcher.close_question(event)

    async def _startup(self, signals: bool) -> None:
        if signals:
            for number in (signal.SIGTERM, signal.SIGINT):
                asyncio.get_running_loop().add_signal_handler(number, self._on_signal)
        parts, base, team = self._parts, self._parts.base, self._team
        toolbox, supervisor = parts.toolbox, parts.platforms.supervisor
        journal = base.stores.journal
        if isinstance(journal, SqliteJournal):
            journal.watch(self._on_journal_failure)
        await journal.open()
        if team is not None:
            await team.join()
        base.access.load()
        toolbox.mcp.load()
        parts.models.dialects.load()
        if team is not None:
            await team.start()
        else:
            await self._take_up()
        self._readers.start(parts.agent.loop.run(), name="inbox")
        self._readers.start(parts.platforms.dispatcher.run(), name="outbox")
        supervisor.start(supervisor.exclusive if team else ())
        await self._control.start()
        base.awaited_background.start(parts.agent.consolidator.recover(), name="recover memory")
        for routine in self._own_routines:
            base.awaited_background.start(routine.run_forever(), name=type(routine).__name__)
        if team is None:
            base.background.start(toolbox.helpers.recover(), name="recover helpers")
        parts.monitoring.counted.begin()
        if isinstance(journal, SqliteJournal):
            base.background.start(self._report_damage(journal), name="report damage")
        clear_backup(base.settings.home)
        toolbox.mcp.start()

    async def _report_damage(self, journal: SqliteJournal) -> None:
        """Report the losses found at the start to the owner, once, and check the rest of a large
        journal."""
        for name, text, hint in journal.damages():
            await self._parts.base.notifier.warn(f"⚠️ {text} {hint}", name)
        await journal.check()

    def _on_journal_failure(self, error: StorageError) -> None:
        """Handle a journal that can't store any more. Called in the thread that noticed it. The
        next start rebuilds a damaged journal. If the home was moved, even a shutdown would create
        folders in its place, so this process ends at once."""
        if isinstance(error, HomeMoved):
            self._parts.monitoring.systemd.send(f"STATUS=failing: {error}")
            sys.stderr.write(f"error: {error.for_people()}\n")
            end_at_once(f"{error}. {error.hint}", error.exit_code)
        if not self.restart_requested:
            logger.critical("{}. Restarting to rebuild it.", error)
        self.request_restart()

    async def _take_up(self) -> None:
        """Resume the work of the previous process."""
        base, loop = self._parts.base, self._parts.agent.loop
        dispatcher = self._parts.platforms.dispatcher
        journal = base.stores.journal
        leftovers = await journal.leftovers()
        for unfiled in leftovers.unfiled:
            await base.stores.sessions.restore(unfiled.session_key, unfiled.lines)
        journal.mark_filed([unfiled.id for unfiled in leftovers.unfiled])
        await self._parts.memory.recover()
        dispatcher.withdraw_questions(await journal.open_questions())
        dispatcher.resume(leftovers.parts)
        if leftovers.entries:
            logger.info("resuming {} unfinished messages", len(leftovers.entries))
            base.bus.count_open(leftovers.entries)
            self._feed.resume(entry.message for entry in leftovers.entries)
        base.background.start(loop.resume(leftovers.entries), name="resume")

    async def _shutdown(self) -> None:
        """Stop the intake at once and begin no pending turn or send. Running ones get their grace,
        and the next start resumes the rest."""
        logger.info("stopping")
        parts, base, team, grace = self._parts, self._parts.base, self._team, self._grace
        platforms, monitoring, journal = parts.platforms, parts.monitoring, base.stores.journal
        systemd, dispatcher = monitoring.systemd, parts.platforms.dispatcher
        grace_ends = asyncio.get_running_loop().time() + grace
        systemd.send("RELOADING=1" if self.restart_requested else "STOPPING=1")
        systemd.send(f"EXTEND_TIMEOUT_USEC={round(self.stop_seconds * 1e6)}")
        await self._control.begin_stop()
        dispatcher.begin_stop(grace)
        for routine in self._routines:
            routine.stop()
        base.bus.end_waits()
        if team is None:
            base.bus.stop_intake()
            base.bus.unread_entries()
            parts.agent.parts.queue.drop_waiting()
        else:  # keep storing messages for other workers
            await team.worker.hand_over()
        closables: tuple[Closable, ...] = (
            base.stores.sessions, parts.memory, base.screen, *parts.models.closables,
            platforms.web, monitoring.counted, *parts.toolbox.closables, self._control,
        )  # fmt: skip

        def close_later(close: Callable[..., Awaitable[None]], *seconds: float) -> None:
            stack.push_async_callback(_close, close, seconds, grace_ends + _CLOSING_SECONDS)

        async with contextlib.AsyncExitStack() as stack:  # closes in reverse order, despite errors
            stack.push_async_callback(journal.close)
            stack.push_async_callback(team.close if team else journal.release)
            for closable in closables:
                close_later(closable.close)
            if team is not None:
                stack.callback(team.membership.end_waits)
            close_later(base.background.drain, 0.5)
            close_later(base.awaited_background.drain, 0.5)
            close_later(platforms.supervisor.stop)
            close_later(self._readers.drain, 0.0)
            await base.lanes.drain(grace)
            await dispatcher.settle_questions(1.0)
            left = grace_ends - asyncio.get_running_loop().time()
            await dispatcher.drain(max(_SEND_SECONDS, left))
            await self._control.drain(max(0.0, grace_ends - asyncio.get_running_loop().time()))

    def _note_stop(self) -> None:
        on_stop, self._on_stop = self._on_stop, None
        if on_stop is not None:
            on_stop()

    def _on_signal(self) -> None:
        if self._stop is not None and self._stop.is_set():
            # A second signal: stop fast. All important data is on disk already.
            loop = asyncio.get_running_loop()
            loop.call_later(_SECOND_SIGNAL_SECONDS, os._exit, 0)
            self._parts.base.lanes.cancel()
            return
        self._note_stop()
        self.request_stop()


async def _close(
    close: Callable[..., Awaitable[None]], seconds: tuple[float, ...], until: float
) -> None:
    """Close a part, waiting no longer than `until`. Its threads continue."""
    try:
        async with asyncio.timeout_at(until):
            await close(*seconds)
    except TimeoutError:
        logger.warning("shutdown no longer waits for {}", close.__qualname__)
