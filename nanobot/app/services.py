"""The agent between the bus and the outbox, and what runs around it: platforms, routines, upkeep,
backups, and the watch over it all."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from loguru import logger

from nanobot.agent.hooks import AgentHook, Tally
from nanobot.agent.intake import Intake
from nanobot.agent.limits import SenderRate
from nanobot.agent.loop import AgentLoop
from nanobot.agent.notifier import Courier
from nanobot.agent.prompt import ContextBuilder, PromptRoom
from nanobot.agent.runner import AgentRunner
from nanobot.agent.session_queue import SessionQueue
from nanobot.agent.system_prompt import PromptSources
from nanobot.agent.turn import Turns
from nanobot.agent.turn_state import AgentParts
from nanobot.app.base import Base, Models, Stores, about, prices, secret_values
from nanobot.app.memory import Remembering
from nanobot.app.tools import Toolbox
from nanobot.bus.events import Address, Button
from nanobot.commands import CommandRegistry, Operation
from nanobot.config.settings import Settings
from nanobot.cron.heartbeat import ActiveHours, Heartbeat
from nanobot.cron.schedule import parse
from nanobot.errors import NanobotError, StorageError
from nanobot.gateway.channels import HostParts, Supervisor
from nanobot.gateway.delivery import Dispatcher
from nanobot.gateway.gateway import Routine
from nanobot.gateway.health import Concern, HealthMonitor, Notifier, Watchdog
from nanobot.gateway.status import HealthEndpoint, Live, Status
from nanobot.gateway.webserver import WebServer
from nanobot.logs import Counted
from nanobot.memory.consolidation import planning
from nanobot.memory.consolidation.consolidator import MemoryConsolidator
from nanobot.memory.documents import FACTS
from nanobot.memory.dream import DreamReport
from nanobot.memory.scopes import OWNER
from nanobot.memory.service.views import held_text, shown_of_held
from nanobot.memory.store.pending import PendingFact
from nanobot.memory.store.store import MemoryReader
from nanobot.security.redaction import Redactor
from nanobot.upkeep.contents import SNAPSHOT
from nanobot.upkeep.retention import MEDIA_NAME, Limits, Retention, Room
from nanobot.upkeep.snapshot import BackupOperations

if TYPE_CHECKING:
    from nanobot.upkeep.backups import BackupRoutine, Order

MAX_MESSAGE_SHARE = 4
"""A single message may take at most one part in so many of the prompt's room."""


@dataclass(frozen=True, slots=True)
class Agent:
    """What answers messages, and what others need to reach in it."""

    loop: AgentLoop
    turns: Turns
    consolidator: MemoryConsolidator


def build_agent(
    base: Base,
    models: Models,
    memory: Remembering,
    toolbox: Toolbox,
    *,
    hook: AgentHook,
    commands: CommandRegistry,
) -> Agent:
    """What happens to a message between the bus and the outbox."""
    settings, stores, clock, background = base.settings, base.stores, base.clock, base.background
    journal, sessions, media = stores.journal, stores.sessions, stores.media
    tools, skills, counter = toolbox.registry, toolbox.skills, models.counter
    budget = settings.model.prompt_tokens
    sources = PromptSources(
        memory.memories,
        memory.scopes,
        skills.loader,
        tools,
        budget=budget,
        few_tools=settings.model.is_small,
    )
    context = ContextBuilder(
        sources.system_of,
        sources.tools_of,
        clock,
        timestamps=settings.agent.timestamps,
        load_image=media.image,
        max_message_tokens=budget // MAX_MESSAGE_SHARE,
        forgotten=memory.occasions.count,
    )
    consolidator = MemoryConsolidator(
        provider=models.learner,
        memory_of=memory.of_session,
        prompt=context,
        counter=counter,
        sessions=sessions,
        clock=clock,
        limits=planning.Limits(
            budget,
            settings.memory.window,
            settings.memory.chunk,
            settings.memory.idle_minutes,
            settings.memory.model,
        ),
        memories=memory.on_disk,
        versions=memory.versions,
        on_put_away=partial(
            _put_away, memory, base.courier.remark if settings.memory.notices else None
        ),
        background=base.unhurried,
    )
    runner = AgentRunner(
        models.provider,
        tools,
        clock,
        max_iterations=settings.agent.max_iterations,
        max_tokens=settings.limits.tokens_per_turn,
        keep_image=media.put_base64,
        fit=PromptRoom(budget, counter.count).fit,
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
        commands,
        queue=SessionQueue(commands, base.lanes, base.screen, background, clock),
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
    return Agent(AgentLoop(parts, turns), turns, consolidator)


async def _put_away(
    memory: Remembering,
    remark: Callable[[str, str], Awaitable[None]] | None,
    session_key: str,
    text: str,
) -> None:
    """There is something new for Dream, and perhaps for the person to know."""
    if memory.schedule is not None:
        memory.schedule.nudge()
    if remark is not None:
        await remark(session_key, text)


_DECISIONS = ("Accept", "Drop")


async def send_digest(courier: Courier, report: DreamReport) -> None:
    """What Dream changed, with a button that takes it back."""
    number = report.undoable
    undo = [Button("Undo", f"/dream-restore --version {number}")] if number else []
    await courier.tell(report.scope, report.digest, undo)


async def send_held(
    courier: Courier, scope: str, facts: Sequence[PendingFact], session: str
) -> None:
    """Facts that wait from now on, with buttons that decide: in the chat that they come from, those
    of Dream in the chat that the owner used last."""
    if not facts or not (session or scope == OWNER):
        return
    codes = " ".join(fact.code for fact in shown_of_held(facts))
    every = " all" if len(facts) > 1 else ""
    buttons = [Button(f"{verb}{every}", f"/memory {verb.lower()} {codes}") for verb in _DECISIONS]
    text = held_text(facts)
    try:
        if session:
            await courier.say_at(Address.of(session), text, buttons)
        else:
            await courier.tell(scope, text, buttons)
    except StorageError as error:
        logger.warning("{}: nobody was told what waits for their word: {}", scope, error)


async def send_trouble(courier: Courier, scope: str, text: str) -> None:
    """Why Dream could not work."""
    logger.warning("dream for {}: {}", scope, text)
    await courier.tell(OWNER, text)


@dataclass(frozen=True, slots=True)
class Platforms:
    """What others need to reach in it."""

    supervisor: Supervisor
    dispatcher: Dispatcher
    web: WebServer


def build_platforms(base: Base, commands: CommandRegistry) -> Platforms:
    """Put it together. `commands` are those that channels show in their menus."""
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
        commands,
        rate=SenderRate(limits.messages_per_minute, base.clock, commands.is_owner),
        redactor=Redactor(secret_values(base.settings)),
        show=base.screen.show,
        warn=base.courier.warn_of_channel,
    )
    return Platforms(Supervisor(base.outlets, parts, base.rng), dispatcher, web)


HEARTBEAT = "HEARTBEAT.md"


def build_routines(base: Base, memory: Remembering, toolbox: Toolbox) -> Sequence[Routine]:
    """What runs by itself, as far as the owner wants it to."""
    settings, cron = base.settings, toolbox.cron
    dreaming = () if memory.schedule is None else (memory.schedule,)
    jobs = (cron,) if settings.cron.enabled else ()
    every = settings.heartbeat.interval
    if every is None:
        return (*dreaming, *jobs)
    document = memory.memories.of(OWNER).store
    heartbeat = Heartbeat(
        lambda: document.read(HEARTBEAT),
        document.template_of(HEARTBEAT),
        base.known.owners_latest,
        base.bus.note,
        base.clock,
        every,
        ActiveHours(*settings.heartbeat.hours),
        busy=base.stores.journal.is_busy,
    )
    return (*dreaming, *jobs, heartbeat)


@dataclass(frozen=True, slots=True)
class Upkeep:
    """The routines, and what they have to say about the health."""

    room: Room
    retention: Retention

    @property
    def routines(self) -> tuple[Room, Retention]:
        """What runs by itself."""
        return self.room, self.retention

    def concern(self) -> Concern | None:
        """That messages wait because the disk is nearly full."""
        return Concern("failing", self.room.text, self.room.hint) if self.room.text else None


def build_upkeep(base: Base) -> Upkeep:
    """Put it together."""
    settings, clock = base.settings, base.clock
    kept = settings.retention
    limits = Limits(kept.media_days, kept.media_megabytes, kept.spill_days, kept.audit_days)
    reports = base.stores.journal.reports

    async def awaited() -> frozenset[str]:
        return await reports.mentioned(MEDIA_NAME)

    return Upkeep(
        Room(
            settings.home,
            kept.disk_reserve_megabytes,
            base.bus,
            clock,
            partial(base.courier.warn_elsewhere, ""),
        ),
        Retention(settings.home, limits, clock, awaited),
    )


_MEGABYTE = 1_000_000


@dataclass(frozen=True, slots=True)
class Backups:
    """The operations, and the routine where a schedule is set."""

    home: Path
    operations: BackupOperations
    routine: BackupRoutine | None

    @property
    def routines(self) -> tuple[BackupRoutine, ...]:
        """What runs by itself."""
        return (self.routine,) if self.routine else ()

    def begin(self) -> None:
        """Clear what a process that was killed has left: second names of what may be erased."""
        if not (self.home / SNAPSHOT).exists():
            return
        from nanobot.upkeep.backups import UnderWay, alone

        try:
            with alone(self.home):
                logger.info("what a backup that was cut short left is cleared")
        except UnderWay:
            return
        except StorageError as error:
            logger.warning("what a backup left cannot be cleared: {}", error)

    def table(self) -> Mapping[str, Operation]:
        """The operations by name."""
        return self.operations.table()

    def concern(self) -> Concern | None:
        """That the backup which was due could not be made, or older ones not be removed."""
        trouble = self.routine.trouble if self.routine else ""
        if not trouble:
            return None
        return Concern(
            "degraded",
            trouble,
            "It is tried again by itself; `nanobot backup` makes one at once.",
        )


def build_backups(base: Base) -> Backups:
    """Put it together."""
    settings, clock, home = base.settings, base.clock, base.settings.home
    operations = BackupOperations(home, base.stores.journal.database, clock, live=True)
    if not settings.backup.schedule:
        return Backups(home, operations, None)
    from nanobot.upkeep.backups import BackupRoutine, folder_of

    routine = BackupRoutine(
        home,
        folder_of(home, settings.backup.folder),
        parse(settings.backup.schedule),
        settings.backup.keep,
        order_of(settings),
        operations,
        clock,
        base.courier.warn,
    )
    return Backups(home, operations, routine)


def order_of(settings: Settings) -> Order:
    """What the configuration wants of a backup."""
    from nanobot.upkeep.backups import Order

    return Order(
        media=settings.backup.media,
        recipient=settings.backup.recipient,
        reserve=settings.retention.disk_reserve_megabytes * _MEGABYTE,
    )


@dataclass(frozen=True, slots=True)
class Watching:
    """`status` answers whoever asks; the routines run beside everything else."""

    notifier: Notifier
    status: Status
    routines: tuple[Watchdog | HealthEndpoint, ...]


def dead_threads(stores: Stores) -> Concern | None:
    """A thread that ended by a fault: only a new process has it again, and finds everything in the
    journal."""
    if stores.journal.has_died:
        what = "the journal"
    elif stores.sessions.has_died:
        what = "conversations"
    else:
        return None
    text = f"the thread that writes {what} has died"
    return Concern("failing", text, "Restart nanobot; `nanobot logs` says why.", stuck=True)


def unreadable_conversations(stores: Stores) -> Concern | None:
    """Conversations whose files cannot be read: messages in them wait."""
    errors = stores.sessions.unreadable
    if not errors:
        return None
    key, error = next(iter(errors.items()))
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return Concern("degraded", f"conversation {key} cannot be read{more}: {error}", error.hint)


def damaged_memory(memory: MemoryReader) -> Concern | None:
    """A file of long-term memory that a power loss or a broken disk left unreadable."""
    for path in FACTS:
        try:
            is_damaged = "\0" in memory.read(path)
        except (NanobotError, OSError) as error:
            return Concern("degraded", f"{path} cannot be read: {error}", "`nanobot doctor`")
        if is_damaged:
            hint = "`nanobot memory restore --list` shows its versions, and takes one back."
            return Concern("degraded", f"{path} is damaged: it holds zero bytes", hint)
    return None


def build_watching(
    base: Base,
    agent: Agent,
    supervisor: Supervisor,
    tally: Tally,
    counted: Counted,
    memory: MemoryReader,
    others: Sequence[Callable[[], Concern | None]],
) -> Watching:
    """Put it together. `others` tell of what else is wrong; `memory` is the owner's."""
    monitor = HealthMonitor(
        supervisor.states,
        base.stores.journal,
        base.clock,
        base.background,
        (
            *others,
            partial(dead_threads, base.stores),
            partial(unreadable_conversations, base.stores),
            partial(damaged_memory, memory),
        ),
    )
    live = Live(
        born=base.clock.monotonic(),
        turns_running=lambda: agent.turns.count,
        monitor=monitor,
        tally=tally,
        counted=counted,
    )
    settings, stores = base.settings, base.stores
    status = Status(
        about(settings),
        stores.journal.reports,
        stores.sessions,
        prices(settings),
        base.clock,
        live,
    )
    notifier = Notifier(os.environ)
    watchdog = Watchdog(monitor, notifier, base.clock)
    health = settings.health
    if not health.enabled:
        return Watching(notifier, status, (watchdog,))
    web = WebServer(health.host, health.port, section="health", public_hosts=None)
    token = health.token.get_secret_value()
    endpoint = HealthEndpoint(web, monitor, status, metrics=health.metrics, token=token)
    return Watching(notifier, status, (watchdog, endpoint))
