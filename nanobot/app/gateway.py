"""The composition root, the one place that knows how the parts fit together, and the daemon's life:
`startup → main_loop → shutdown`.

Everything below receives plain values and ready-made collaborators; nothing below knows the
configuration. Any end is survivable: what a kill leaves behind is in the journal, and the next
start takes it up. So shutdown only has to be polite, never thorough.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import signal
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from loguru import logger

from nanobot.agent.runner import AgentHook, Hooks, TurnMetrics
from nanobot.app.base import Base, Closable, Models
from nanobot.app.commands import TypedKeys, build_operations, register_commands
from nanobot.app.memory import MemoryParts
from nanobot.app.recording import recorded
from nanobot.app.services import (
    Agent,
    Monitoring,
    Platforms,
    Upkeep,
    build_routines,
    build_schedules,
    clear_backup,
)
from nanobot.app.tools import Toolbox
from nanobot.bus.events import ApprovalAsked, ApprovalClosed
from nanobot.bus.journal import InboxEntry
from nanobot.channel import Channel, Overseeing
from nanobot.clock import Clock
from nanobot.config.settings import Settings
from nanobot.gateway.control import ControlServer
from nanobot.gateway.feed import Feed
from nanobot.gateway.lock import home_lock
from nanobot.gateway.pairing import Pairing
from nanobot.gateway.restarting import Restarting
from nanobot.providers.port import Provider
from nanobot.tasks import SWITCH_SECONDS, Routine
from nanobot.tooling import Tool

_SECOND_SIGNAL_SECONDS = 0.8
_SETTLING_SECONDS = 25.0
"""How long the end may take beside the grace that turns get."""


class Gateway:
    """Owns a home and everything that runs in it. The constructor is the composition root: it reads
    from top to bottom as the list of what a nanobot is made of.

    The keyword arguments add to it or replace parts, for embedding and for tests: `learner` is the
    model that condenses conversations and dreams (by default the one that answers), and without
    `chores` nothing happens by itself (jobs, Dream, looking after conversations that rest, and
    `routines`, which run beside everything else). Raises `NanobotError` where the home or the
    configuration cannot be used.
    """

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
        self._base = base = Base(settings, clock, channels, admit_everyone=admit_everyone)
        self._models = models = Models(base, provider, learner)
        self._memory = memory = MemoryParts(
            settings,
            base.stores,
            models.learner,
            base.clock,
            base.scopes,
            notifier=base.notifier,
            quiesce=base.processes.quiesce,
        )
        typed_keys, turn_metrics = TypedKeys(base, memory.service), TurnMetrics()
        hook = Hooks(base.screen, (turn_metrics, typed_keys, *hooks))
        self._feed = feed = Feed(hook)
        self._toolbox = toolbox = Toolbox(base, models, memory, extra_tools, self._announce)
        self._agent = agent = Agent(base, models, memory, toolbox, hook)
        self._platforms = platforms = Platforms(base, toolbox)
        if base.team is not None:
            base.team.share_questions(toolbox.approvals, platforms.dispatcher)
            base.team.share_erasures(memory.eraser, base.background)
            base.team.reread.append(toolbox.skills.loader.state.load)
        upkeep, pairing = Upkeep(base), Pairing(base.access, base.notifier.send)
        self._monitoring = monitoring = Monitoring(
            base, memory, agent, platforms, upkeep, turn_metrics
        )
        status = monitoring.status
        operations = build_operations(
            base, models, memory, toolbox, platforms, upkeep, status, pairing
        )
        restarting = Restarting(self, agent.turns)
        operations |= recorded(restarting.table(), toolbox.audit)
        for channel in base.outlets.values():
            if isinstance(channel, Overseeing):
                operations |= recorded(channel.oversee(feed), toolbox.audit)
        feed.operations = operations
        self._control = ControlServer(base.stores.state, operations, base.cli.chat)
        watching = (*monitoring.routines, upkeep.room, *build_routines(base, memory, agent))
        schedules = (*upkeep.schedules, *build_schedules(base, memory, toolbox), *routines)
        self._schedules, self._routines = schedules, (*watching, *schedules)
        self._chores = chores
        self._conversation = register_commands(base, models, memory, toolbox, agent, status, self)
        for part in (pairing, toolbox.skills, typed_keys):
            part.register(base.commands)
        self._grace = settings.agent.shutdown_grace_seconds
        self._stop: asyncio.Event | None = None
        self._event_loop: asyncio.AbstractEventLoop | None = None
        self._stop_requested = False
        self.restart_requested = False

    async def run(self, *, on_ready: Callable[[], None] | None = None, signals: bool = True) -> int:
        """Run until stopped; the exit code. Raises `HomeLocked` or `StorageError` if it cannot
        start."""
        self._stop, self._event_loop = asyncio.Event(), asyncio.get_running_loop()
        sys.setswitchinterval(SWITCH_SECONDS)
        if self._stop_requested:
            return 0
        with home_lock(self._base.stores.state):
            try:
                await self._startup(signals)
                logger.info("ready")
                self._monitoring.systemd.send("READY=1")
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
        await self._base.lanes.wait(self._grace)
        await self._base.awaited_background.wait(math.inf)

    def request_restart(self) -> None:
        """Ask for an orderly end after which the program that runs this gateway starts it again."""
        self.restart_requested = True
        self.request_stop()

    def _announce(self, session_key: str, event: ApprovalAsked | ApprovalClosed) -> None:
        """A question to the owner came, or is closed."""
        self._feed.publish(session_key, event)
        if isinstance(event, ApprovalClosed):
            if self._base.team is not None:
                self._base.team.note_closed(event)
            self._platforms.dispatcher.close_question(event)

    async def _startup(self, signals: bool) -> None:
        if signals:
            for number in (signal.SIGTERM, signal.SIGINT):
                asyncio.get_running_loop().add_signal_handler(number, self._on_signal)
        base, toolbox, platforms = self._base, self._toolbox, self._platforms
        await base.stores.journal.open()
        if base.team is not None:
            await base.team.join()
        base.access.load()
        toolbox.mcp.load()
        self._models.counter.load()
        if base.team is not None:
            await base.team.start(
                self._agent.loop,
                self._memory.memories,
                platforms.dispatcher,
                platforms.supervisor,
                toolbox.helpers.recover,
                self._conversation.stop,
                self._schedules if self._chores else (),
                base.awaited_background,
            )
        else:
            await self._take_up()
        platforms.supervisor.start(platforms.supervisor.exclusive if base.team else ())
        await self._control.start()
        base.awaited_background.start(self._agent.consolidator.recover(), name="recover memory")
        if self._chores:
            in_team = self._schedules if base.team else ()
            for routine in (one for one in self._routines if one not in in_team):
                base.awaited_background.start(routine.run_forever(), name=type(routine).__name__)
        if base.team is None:
            base.background.start(toolbox.helpers.recover(), name="recover helpers")
        self._monitoring.counted.begin()
        clear_backup(base.settings.home)
        toolbox.mcp.start()

    async def _take_up(self) -> None:
        """Go on where the process before this one stopped."""
        base, dispatcher = self._base, self._platforms.dispatcher
        journal = base.stores.journal
        base.bus.connect(self._agent.loop.accept, dispatcher.submit)
        leftovers = await journal.leftovers()
        for unfiled in leftovers.unfiled:
            await base.stores.sessions.restore(unfiled.session_key, unfiled.lines)
        journal.mark_filed([unfiled.id for unfiled in leftovers.unfiled])
        await self._memory.recover()
        dispatcher.submit(leftovers.parts)
        base.background.start(self._resume(leftovers.entries), name="resume")
        withdrawing = dispatcher.withdraw_questions(leftovers.parts)
        base.background.start(withdrawing, name="withdraw questions")

    async def _resume(self, entries: Sequence[InboxEntry]) -> None:
        if entries:
            logger.info("resuming {} unfinished messages", len(entries))
        self._base.bus.count_open(entries)
        await self._agent.loop.resume(entries)

    async def _shutdown(self) -> None:
        """Intake stops at once; turns get their grace; what is left resumes at the next start."""
        logger.info("stopping")
        base, platforms, grace = self._base, self._platforms, self._grace
        systemd, journal = self._monitoring.systemd, base.stores.journal
        systemd.send("RELOADING=1" if self.restart_requested else "STOPPING=1")
        systemd.send(f"EXTEND_TIMEOUT_USEC={round((grace + _SETTLING_SECONDS) * 1e6)}")
        if base.team is None:
            base.bus.stop_intake()
        else:  # it goes on storing what others will handle
            await base.team.hand_over(self._agent.parts.queue)
        for routine in self._routines:
            routine.stop()
        closables: tuple[Closable, ...] = (
            base.stores.sessions, self._memory, base.screen, *self._models.closables,
            platforms.web, self._monitoring.counted, *self._toolbox.closables, self._control,
        )  # fmt: skip
        async with contextlib.AsyncExitStack() as stack:  # the last first; one failing stops none
            stack.push_async_callback(journal.close)
            stack.push_async_callback(base.team.close if base.team else journal.release)
            for closable in closables:
                stack.push_async_callback(closable.close)
            if base.team is not None:
                stack.callback(base.team.membership.end_waits)
            stack.push_async_callback(base.background.drain, 0.5)
            stack.push_async_callback(base.awaited_background.drain, 0.5)
            stack.push_async_callback(platforms.dispatcher.drain, min(grace, 2.0))
            stack.push_async_callback(platforms.supervisor.stop)
            stack.push_async_callback(platforms.dispatcher.settle_questions, 1.0)
            stack.push_async_callback(base.lanes.drain, grace)

    def _on_signal(self) -> None:
        if self._stop is not None and self._stop.is_set():
            # The person means it. Everything that matters is on disk already.
            loop = asyncio.get_running_loop()
            loop.call_later(_SECOND_SIGNAL_SECONDS, os._exit, 0)
            self._base.lanes.cancel()
            return
        self.request_stop()
