"""The agent between the bus and the outbox, and what runs around it: platforms, routines, upkeep,
backups, and the watch over it all."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from loguru import logger
from msgspec import Struct

from nanobot.agent.intake import Intake
from nanobot.agent.loop import AgentLoop
from nanobot.agent.prompt import ContextBuilder, PromptRoom, ScopedSources
from nanobot.agent.runner import AgentHook, AgentRunner, Chronicle
from nanobot.agent.session_queue import SessionQueue
from nanobot.agent.turn import Turns
from nanobot.agent.turn_state import AgentParts
from nanobot.app.base import Base, Models, Routine, about, prices, secret_values
from nanobot.app.memory import Remembering
from nanobot.app.tools import Toolbox
from nanobot.config.settings import Settings
from nanobot.cron.heartbeat import ActiveHours, Heartbeat
from nanobot.cron.schedule import parse
from nanobot.errors import StorageError
from nanobot.gateway.channels import HostParts, SenderRate, Supervisor
from nanobot.gateway.delivery import Dispatcher
from nanobot.gateway.health import (
    HealthMonitor,
    SystemdNotifier,
    Watchdog,
    storage_concerns,
    upkeep_concerns,
)
from nanobot.gateway.status import HealthEndpoint, Live, Status
from nanobot.gateway.webserver import WebServer
from nanobot.logs import Counted
from nanobot.memory.consolidation import MemoryConsolidator
from nanobot.memory.consolidation.planning import Limits as MemoryLimits
from nanobot.memory.consolidation.planning import PromptGauge
from nanobot.memory.scopes import OWNER
from nanobot.memory.store import MemoryStore
from nanobot.security.redaction import Redactor
from nanobot.tasks import Repeated
from nanobot.upkeep.contents import SNAPSHOT
from nanobot.upkeep.retention import MEDIA_NAME, DiskReserve, Limits, Retention
from nanobot.upkeep.snapshot import BackupOperations

if TYPE_CHECKING:
    from nanobot.upkeep.backups import BackupOrder, BackupRoutine

MAX_MESSAGE_SHARE = 4
"""A single message may take at most one part in so many of the prompt's room."""


class Agent(Struct, frozen=True):
    """What answers messages, and what others need to reach in it."""

    loop: AgentLoop
    turns: Turns
    parts: AgentParts


def build_agent(
    base: Base,
    models: Models,
    memory: Remembering,
    toolbox: Toolbox,
    hook: AgentHook,
) -> Agent:
    """What happens to a message between the bus and the outbox."""
    settings, stores, clock, background = base.settings, base.stores, base.clock, base.background
    journal, sessions, media = stores.journal, stores.sessions, stores.media
    tools, skills, counter = toolbox.registry, toolbox.skills, models.counter
    budget = settings.model.prompt_tokens
    sources = ScopedSources(
        memory.memories,
        memory.scopes,
        skills.loader,
        tools,
        budget=budget,
        few_tools=settings.model.is_small,
    )
    context = ContextBuilder(
        sources,
        clock,
        timestamps=settings.agent.timestamps,
        load_image=media.image,
        max_message_tokens=budget // MAX_MESSAGE_SHARE,
    )

    async def on_put_away(session_key: str, text: str) -> None:
        """There is something new for Dream, and perhaps for the person to know."""
        if memory.schedule is not None:
            memory.schedule.nudge()
        if settings.memory.notices:
            await base.notifier.remark(session_key, text)

    kept = settings.memory
    limits = MemoryLimits(budget, kept.window, kept.chunk, kept.idle_minutes, kept.model)
    consolidator = MemoryConsolidator(
        provider=models.learner,
        memory_of=memory.of_session,
        memories=memory.on_disk,
        gauge=PromptGauge(context, counter, limits),
        sessions=sessions,
        clock=clock,
        on_put_away=on_put_away,
        background=base.unhurried,
    )
    runner = AgentRunner(
        models.provider,
        tools,
        clock,
        max_iterations=settings.agent.max_iterations,
        max_tokens=settings.limits.tokens_per_turn,
        keep_image=media.put_base64,
        room=PromptRoom(budget, counter),
    )
    transcribe = models.transcriber.transcribe if models.transcriber else None
    parts = AgentParts(
        journal,
        base.bus,
        sessions,
        memory.scopes,
        clock,
        background,
        base.unhurried,
        hook,
        base.commands,
        queue=SessionQueue(base.commands, base.lanes, base.screen, background, clock),
        intake=Intake(media, base.outlets, memory.scopes, transcribe),
        split=base.splitter,
        sources=sources,
        context=context,
        consolidator=consolidator,
        counter=counter,
        runner=runner,
        on_busy=settings.agent.on_busy,
        wait_for_model_hours=settings.agent.wait_for_model_hours,
    )
    turns = Turns(parts)
    return Agent(AgentLoop(parts, turns), turns, parts)


class Platforms(Struct, frozen=True):
    """What others need to reach in it."""

    supervisor: Supervisor
    dispatcher: Dispatcher
    web: WebServer


def build_platforms(base: Base) -> Platforms:
    """Put it together."""
    dispatcher = Dispatcher(base.outlets, base.stores.journal, base.screen, base.clock, base.rng)
    http, limits = base.settings.http, base.settings.limits
    web = WebServer(http.host, http.port, public_hosts=http.public_hosts)
    parts = HostParts(
        base.bus,
        base.stores.journal,
        base.access,
        web,
        base.settings.home,
        base.clock,
        base.background,
        base.commands,
        rate=SenderRate(limits.messages_per_minute, base.clock, base.commands.is_owner),
        redactor=Redactor(secret_values(base.settings)),
        show=base.screen.show,
        warn=base.notifier.warn_of_channel,
    )
    return Platforms(Supervisor(base.outlets, parts, base.rng), dispatcher, web)


HEARTBEAT = "HEARTBEAT.md"
_SETTLED_SECONDS = 2.0
"""After this time at the start, what waited to be answered is under way."""


def build_routines(
    base: Base, memory: Remembering, toolbox: Toolbox, agent: Agent
) -> Sequence[Routine]:
    """What runs by itself, as far as the owner wants it to."""
    settings, cron = base.settings, toolbox.cron
    dreaming = () if memory.schedule is None else (memory.schedule,)
    jobs = (cron,) if settings.cron.enabled else ()
    every = settings.heartbeat.interval
    house = (
        Repeated(base.clock, 60.0, agent.parts.consolidator.idle, first=60.0),
        Repeated(base.clock, 60.0, memory.refresh, first=_SETTLED_SECONDS),
    )
    if every is None:
        return (*house, *dreaming, *jobs)
    document = memory.memories.of(OWNER).store
    heartbeat = Heartbeat(
        lambda: document.read(HEARTBEAT),
        document.template_of(HEARTBEAT),
        base.known.owners_latest,
        base.bus.note,
        base.clock,
        every,
        ActiveHours(*settings.heartbeat.hours),
        base.stores.journal.is_busy,
    )
    return (*house, *dreaming, *jobs, heartbeat)


class Upkeep(Struct, frozen=True):
    """What keeps a home for years. There are backups by themselves where a schedule is set."""

    room: DiskReserve
    retention: Retention
    operations: BackupOperations
    backups: BackupRoutine | None

    @property
    def routines(self) -> tuple[Routine, ...]:
        """What runs by itself."""
        return (self.room, self.retention, *((self.backups,) if self.backups else ()))


def build_upkeep(base: Base) -> Upkeep:
    """Room on the disk, what is not kept for ever, backups."""
    settings, clock, home = base.settings, base.clock, base.settings.home
    kept, journal = settings.retention, base.stores.journal
    limits = Limits(kept.media_days, kept.media_megabytes, kept.spill_days, kept.audit_days)
    tell = base.notifier.warn
    room = DiskReserve(home, kept.disk_reserve_megabytes, base.bus, clock, tell)
    retention = Retention(home, limits, clock, partial(journal.mentioned, MEDIA_NAME))
    operations = BackupOperations(home, base.stores.journal, clock, live=True)
    if not settings.backup.schedule:
        return Upkeep(room, retention, operations, None)
    from nanobot.upkeep.backups import BackupRoutine, backup_folder

    routine = BackupRoutine(
        home,
        backup_folder(home, settings.backup.folder),
        parse(settings.backup.schedule),
        settings.backup.keep,
        order_of(settings),
        operations,
        clock,
        base.notifier.warn,
    )
    return Upkeep(room, retention, operations, routine)


def clear_backup(home: Path) -> None:
    """Clear what a backup left that was killed: second names of what may be erased."""
    if not (home / SNAPSHOT).exists():
        return
    from nanobot.upkeep.backups import BackupUnderWay, exclusive_backup

    try:
        with exclusive_backup(home):
            logger.info("what a backup that was cut short left is cleared")
    except BackupUnderWay:
        return
    except StorageError as error:
        logger.warning("what a backup left cannot be cleared: {}", error)


def order_of(settings: Settings) -> BackupOrder:
    """What the configuration wants of a backup."""
    from nanobot.upkeep.backups import BackupOrder

    return BackupOrder(
        media=settings.backup.media,
        recipient=settings.backup.recipient,
        reserve=settings.retention.disk_reserve_megabytes * 1_000_000,
    )


class Watching(Struct, frozen=True):
    """`status` answers whoever asks; the routines run beside everything else."""

    systemd: SystemdNotifier
    status: Status
    counted: Counted
    routines: tuple[Watchdog | HealthEndpoint, ...]


def build_watching(
    base: Base,
    turns: Turns,
    supervisor: Supervisor,
    upkeep: Upkeep,
    memory: MemoryStore,
    chronicle: Chronicle,
) -> Watching:
    """What watches over it all. `memory` is the owner's."""
    settings, stores, clock = base.settings, base.stores, base.clock
    storage = partial(storage_concerns, stores.journal, stores.sessions, memory)
    others = (partial(upkeep_concerns, upkeep.room, upkeep.backups), storage)
    monitor = HealthMonitor(supervisor.states, stores.journal, clock, base.background, others)
    counted = Counted()
    live = Live(clock.monotonic(), lambda: len(turns.running), monitor, chronicle, counted)
    status = Status(about(settings), stores.journal, stores.sessions, prices(settings), clock, live)
    systemd = SystemdNotifier(os.environ)
    watchdog = Watchdog(monitor, systemd, clock)
    health = settings.health
    if not health.enabled:
        return Watching(systemd, status, counted, (watchdog,))
    web = WebServer(health.host, health.port, section="health", public_hosts=None)
    token = health.token.get_secret_value()
    endpoint = HealthEndpoint(web, monitor, status, metrics=health.metrics, token=token)
    return Watching(systemd, status, counted, (watchdog, endpoint))
