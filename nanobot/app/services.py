"""Builds the agent between the bus and the outbox, and its surroundings: platforms, routines,
upkeep, backups, monitoring."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from loguru import logger
from msgspec import Struct

from nanobot.agent.approval_commands import ApprovalCommands
from nanobot.agent.hooks import AgentHook, TurnMetrics
from nanobot.agent.intake import Admission, Intake
from nanobot.agent.loop import AgentLoop
from nanobot.agent.prompt import ContextBuilder, ScopedSources
from nanobot.agent.runner import AgentRunner
from nanobot.agent.session_queue import SessionQueue
from nanobot.agent.titles import TitleWriter
from nanobot.agent.truncation import PromptRoom
from nanobot.agent.turn_state import AgentParts
from nanobot.app.base import Base, Models, about, expect_own
from nanobot.app.memory import MemoryParts
from nanobot.app.tools import Toolbox
from nanobot.bus.events import Address, Notice
from nanobot.channel import PathServer
from nanobot.config.settings import Settings
from nanobot.cron.heartbeat import ActiveHours, Heartbeat
from nanobot.cron.schedule import parse
from nanobot.errors import StorageError
from nanobot.gateway.channels import HostParts, SenderRateLimit, Supervisor
from nanobot.gateway.delivery import Dispatcher, without_voice
from nanobot.gateway.health import (
    HealthMonitor,
    SystemdNotifier,
    Watchdog,
    learning_concerns,
    storage_concerns,
    upkeep_concerns,
)
from nanobot.gateway.status import HealthEndpoint, RuntimeStatus, Status
from nanobot.gateway.webserver import WebServer
from nanobot.logs import LogCounter
from nanobot.memory.consolidation import MemoryConsolidator
from nanobot.memory.consolidation.planning import ConsolidationLimits, PromptGauge
from nanobot.memory.scopes import OWNER
from nanobot.tasks import Repeated, Routine
from nanobot.upkeep import SNAPSHOT
from nanobot.upkeep.retention import MEDIA_NAME, DiskReserve, Retention

if TYPE_CHECKING:
    from nanobot.upkeep.backups import BackupMaker, BackupOrder
    from nanobot.upkeep.snapshot import BackupOperations

MAX_MESSAGE_SHARE = 4
"""A single message may fill at most one in so many parts of the prompt."""


class Agent:
    """The parts that handle messages between the bus and the outbox."""

    def __init__(
        self, base: Base, models: Models, memory: MemoryParts, toolbox: Toolbox, hook: AgentHook
    ) -> None:
        settings, stores, clock = base.settings, base.stores, base.clock
        media, tools, counter = stores.media, toolbox.registry, models.counter
        chats = settings.models_for("chat", "pictures", "jobs", "heartbeat")
        budget, wanted = min(model.prompt_tokens for model in chats), settings.memory
        budgets = settings.prompt_tokens_by_name
        sources = ScopedSources(
            memory.memories,
            base.scopes,
            toolbox.skills.loader,
            tools,
            budget=budget,
            few_tools=any(model.is_small for model in chats),
        )
        context = ContextBuilder(
            sources,
            clock,
            media=media,
            max_message_tokens=budget // MAX_MESSAGE_SHARE,
        )

        async def on_consolidated(session_key: str, text: str) -> None:
            """Wake Dream, and notify the person if wanted."""
            if memory.schedule is not None:
                memory.schedule.wake()
            if wanted.notices:
                there = Address.of(session_key)
                notice = Notice(there.channel, there.chat_id, text, there.thread_id)
                base.screen.show_progress(notice)

        limits = ConsolidationLimits(
            budget,
            wanted.window,
            wanted.window // 2,
            wanted.idle_minutes,
            request_budget=settings.prompt_tokens("memory"),
            budgets=budgets,
        )
        self.consolidator = MemoryConsolidator(
            provider=models.learner,
            memories=memory.memories,
            scopes=base.scopes,
            gauge=PromptGauge(context, counter, limits),
            sessions=stores.sessions,
            clock=clock,
            on_consolidated=on_consolidated,
            background=base.awaited_background,
            on_trouble=base.notifier.warn,
        )
        runner = AgentRunner(
            models.provider,
            tools,
            clock,
            max_iterations=settings.agent.max_iterations,
            max_tokens=settings.limits.tokens_per_turn,
            media=media,
            room=PromptRoom(budget, counter, budgets),
        )
        listener = models.voice.listener
        transcribe = listener.transcribe if listener else None
        titles = TitleWriter(models.provider, stores.sessions, base.background)
        self.parts = AgentParts(
            journal=stores.journal,
            bus=base.bus,
            sessions=stores.sessions,
            scopes=base.scopes,
            clock=clock,
            background=base.background,
            awaited_background=base.awaited_background,
            screen=base.screen,
            hook=hook,
            commands=base.commands,
            lanes=base.lanes,
            queue=SessionQueue(base.commands),
            intake=Intake(media, base.outlets, base.scopes, transcribe),
            split=base.splitter,
            sources=sources,
            context=context,
            consolidator=self.consolidator,
            admission=Admission(stores.sessions, base.scopes, clock, memory.memories.holding),
            warn_of_failure=base.notifier.warn_of_failure,
            counter=counter,
            runner=runner,
            on_busy=settings.agent.on_busy,
            voice_replies=toolbox.voice_replies,
            **({"begin_title": titles.begin} if settings.use.titles else {}),
            sees_apart=bool(settings.use.pictures),
        )
        self.loop = AgentLoop(self.parts)


class Platforms:
    """The channels, their supervisor and their dispatcher."""

    def __init__(self, base: Base, toolbox: Toolbox) -> None:
        settings, journal, clock = base.settings, base.stores.journal, base.clock
        http = settings.http
        self.web = WebServer(http.host, http.port, public_hosts=http.public_hosts)
        self.dispatcher = Dispatcher(
            base.bus,
            base.outlets,
            journal,
            base.screen,
            clock,
            base.rng,
            toolbox.voice_replies.add_sound if toolbox.voice_replies else without_voice,
        )
        per_minute = settings.limits.messages_per_minute
        self.rate = SenderRateLimit(per_minute, base.commands.is_owner)
        parts = HostParts(
            base.bus,
            journal,
            base.access,
            self.web,
            settings.data_folder,
            clock,
            base.background,
            base.commands,
            rate=self.rate,
            redactor=base.redactor,
            show=base.screen.show_progress,
            warn=base.notifier.warn_of_channel,
            expect_own=partial(expect_own, base.scopes, base.stores.sessions),
            is_owners=base.scopes.is_owners,
            own_home=settings.home if base.worker else None,
        )
        self.supervisor = Supervisor(base.outlets, parts, base.rng)
        for channel in base.outlets.values():
            if isinstance(channel, PathServer):
                self.web.reserve(channel.paths)


HEARTBEAT = "HEARTBEAT.md"
_SETTLED_SECONDS = 2.0
"""Seconds after the start, when the pending messages are being answered."""
_SHARED_SECONDS = 30.0
"""Age of a list of the sessions that the index uses. A search never uses an old one."""


def build_routines(base: Base, memory: MemoryParts, agent: Agent) -> Iterator[Routine]:
    """Yield the routines for conversations and the index, which each worker of a team runs."""
    yield Repeated(base.clock, 60.0, agent.consolidator.consolidate_idle, first=60.0)
    refresh = partial(memory.index.refresh, within=_SHARED_SECONDS)
    yield Repeated(base.clock, 60.0, refresh, first=_SETTLED_SECONDS)
    if base.settings.memory.embeddings.is_on:
        yield Repeated(base.clock, 60.0, memory.index.embed, first=_SETTLED_SECONDS)


def build_schedules(base: Base, memory: MemoryParts, toolbox: Toolbox) -> Iterator[Routine]:
    """Yield the owner's schedules, which only one worker of a team runs."""
    settings = base.settings
    if memory.schedule is not None:
        yield memory.schedule
    if settings.cron.enabled:
        yield toolbox.cron
    if settings.heartbeat.interval is not None:
        yield build_heartbeat(base, memory)


def build_heartbeat(base: Base, memory: MemoryParts) -> Heartbeat:
    """Return the heartbeat. If it is off, it can only be shown."""
    document, wanted = memory.memories.of(OWNER).store, base.settings.heartbeat
    return Heartbeat(
        partial(document.read, HEARTBEAT),
        document.template_of(HEARTBEAT),
        base.known_chats.owners_latest,
        base.bus.publish_internal,
        base.clock,
        wanted.interval,
        ActiveHours(*wanted.hours),
        base.stores.journal.is_busy,
    )


class Upkeep:
    """Long-term care of a home: disk reserve, retention, and backups if scheduled."""

    def __init__(self, base: Base) -> None:
        settings, clock, home = base.settings, base.clock, base.settings.home
        kept, journal, self._base = settings.retention, base.stores.journal, base
        reserve = kept.disk_reserve_megabytes
        self.room = DiskReserve(settings.data_folder, reserve, base.bus, clock, base.notifier.warn)
        retention = Retention(
            home,
            settings.data_folder,
            clock,
            partial(journal.find_mentions, MEDIA_NAME),
            media_days=kept.media_days,
            media_megabytes=kept.media_megabytes,
            audit_days=kept.audit_days,
        )
        wanted = settings.backup.schedule and not settings.team.shared
        self.backups = self.backup_maker if wanted else None
        backups = (self.backups,) if self.backups else ()
        self.schedules: tuple[Routine, ...] = (retention, *backups)

    @cached_property
    def snapshots(self) -> BackupOperations:
        """Shared snapshots of the home while it is in use."""
        from nanobot.upkeep.snapshot import BackupOperations

        base = self._base
        return BackupOperations(base.settings.home, base.stores.journal, base.clock, live=True)

    @cached_property
    def backup_maker(self) -> BackupMaker:
        """Makes backups on schedule and on request."""
        from nanobot.upkeep.backups import BackupMaker

        base, wanted = self._base, self._base.settings.backup
        return BackupMaker(
            base.settings.home,
            wanted.place(base.settings.home),
            order_of(base.settings),
            self.snapshots,
            base.background,
            parse(wanted.schedule) if wanted.schedule else None,
            wanted.keep,
            base.notifier.warn,
        )


def clear_backup(home: Path) -> None:
    """Remove the leftovers of a killed backup: they are further links to files that may be
    erased."""
    if not (home / SNAPSHOT).exists():
        return
    from nanobot.upkeep.backups import BackupUnderWay, exclusive_backup

    try:
        with exclusive_backup(home):
            logger.info("removed the leftovers of an interrupted backup")
    except BackupUnderWay:
        return
    except StorageError as error:
        logger.warning("could not remove the leftovers of a backup: {}", error)


def order_of(settings: Settings) -> BackupOrder:
    from nanobot.upkeep.backups import BackupOrder

    return BackupOrder(
        media=settings.backup.media,
        recipient=settings.backup.recipient,
        reserve=settings.retention.disk_reserve_megabytes * 1_000_000,
    )


class Monitoring:
    """Monitoring of all parts. `status` answers queries. `routines` run in the background."""

    def __init__(
        self,
        base: Base,
        memory: MemoryParts,
        agent: Agent,
        platforms: Platforms,
        upkeep: Upkeep,
        turn_metrics: TurnMetrics,
        approval_commands: ApprovalCommands,
    ) -> None:
        settings, stores, clock = base.settings, base.stores, base.clock
        journal, learning = stores.journal, (agent.consolidator.problem, memory.dream.problem)
        others = (
            partial(upkeep_concerns, upkeep.room, upkeep.backups),
            partial(storage_concerns, journal, stores.state, stores.sessions, memory.memories),
            partial(learning_concerns, learning),
        )
        states = platforms.supervisor.states
        monitor = HealthMonitor(states, journal, clock, base.background, others)
        self.counted = LogCounter()
        turns = agent.loop.turns
        live = RuntimeStatus(
            clock.monotonic(),
            lambda: len(turns.running),
            monitor,
            turn_metrics,
            self.counted,
            approval_commands.pending,
            settings.context_windows,
        )
        self.status = Status(about(settings), journal, stores.sessions, clock, live)
        self.systemd = SystemdNotifier(os.environ)
        self.routines: list[Routine] = [Watchdog(monitor, self.systemd, clock)]
        if (health := settings.health).enabled:
            web = WebServer(health.host, health.port, section="health", public_hosts=None)
            token = health.token.get_secret_value()
            self.routines.append(HealthEndpoint(web, monitor, self.status, token))


class Parts(Struct, frozen=True):
    """The parts of a nanobot."""

    base: Base
    models: Models
    memory: MemoryParts
    toolbox: Toolbox
    agent: Agent
    platforms: Platforms
    upkeep: Upkeep
    monitoring: Monitoring
