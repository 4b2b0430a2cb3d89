"""The composition root: the one place that knows how the parts fit together.

Everything below receives plain values and ready-made collaborators; nothing below knows the
configuration. `build_gateway` reads from top to bottom as the list of what a nanobot is made of.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import partial

from loguru import logger

import nanobot
from nanobot.agent.courier import Courier
from nanobot.agent.hooks import AgentHook, CompositeHook
from nanobot.agent.limits import SenderRate
from nanobot.agent.progress import ProgressHook
from nanobot.app.agent import Agent, build_agent
from nanobot.app.base import Base, build_base, build_models
from nanobot.app.channels import build_web, menu_of
from nanobot.app.commands import register_commands
from nanobot.app.memory import Remembering, build_memory
from nanobot.app.model import build_transcriber, model_name
from nanobot.app.routines import build_routines
from nanobot.app.toolbox import Toolbox, build_toolbox
from nanobot.bus.events import Button
from nanobot.bus.outbox import Outbox
from nanobot.channel import Channel, ChannelHost
from nanobot.clock import Clock
from nanobot.commands import CommandRegistry
from nanobot.config.settings import Settings
from nanobot.cron.operations import CronOperations
from nanobot.gateway.control import ControlServer, Operation
from nanobot.gateway.dispatcher import Dispatcher
from nanobot.gateway.gateway import Gateway, Routine
from nanobot.gateway.host import Host, HostParts
from nanobot.gateway.lending import ChannelOperations
from nanobot.gateway.lock import HomeLock
from nanobot.gateway.operations import About, Operations, Running
from nanobot.gateway.pairing import Pairing, PairingOperations
from nanobot.gateway.supervisor import Supervisor
from nanobot.memory.dream import DreamReport
from nanobot.memory.scopes import OWNER
from nanobot.memory.service.operations import MemoryOperations
from nanobot.providers.port import Provider
from nanobot.skills import SkillsOperations
from nanobot.tooling import Tool
from nanobot.tools.mcp import McpOperations


def build_gateway(
    settings: Settings,
    *,
    clock: Clock | None = None,
    provider: Provider | None = None,
    learner: Provider | None = None,
    channels: Sequence[Channel] = (),
    hooks: Sequence[AgentHook] = (),
    extra_tools: Sequence[Tool] = (),
    admit_everyone: bool = False,
    chores: bool = True,
) -> Gateway:
    """Put a nanobot together for `settings`.

    The keyword arguments add to it or replace parts, for embedding and for tests: `learner` is the
    model that condenses conversations and dreams (by default the one that answers), and without
    `chores` nothing happens by itself (jobs, Dream, looking after conversations that rest). Raises
    `NanobotError` where the home or the configuration cannot be used.
    """
    base = build_base(settings, clock, channels, admit_everyone=admit_everyone)
    models = build_models(base, provider, learner)
    memory = build_memory(
        settings,
        base.stores,
        models.learner,
        base.clock,
        access=base.access,
        on_digest=partial(_send_digest, base.courier),
        on_trouble=partial(_send_trouble, base.courier),
        quiet=base.processes.none_of,
    )
    toolbox = build_toolbox(base, models, memory, extra_tools)
    commands = CommandRegistry(
        is_owner=lambda message: base.scopes.is_owner(message.channel, message.sender_id)
    )
    transcriber = build_transcriber(settings.model.transcription, base.clock, base.rng)
    agent = build_agent(
        base,
        models,
        memory,
        toolbox,
        hook=CompositeHook((ProgressHook(base.screen), *hooks)),
        commands=commands,
        transcribe=transcriber.transcribe if transcriber else None,
    )

    outbox = Outbox(base.stores.journal.database)
    dispatcher = Dispatcher(base.outlets, outbox, base.screen, base.clock, base.rng)
    hosts: dict[str, ChannelHost] = {}
    supervisor = Supervisor(
        base.outlets, hosts, base.clock, base.rng, on_off=partial(_tell_of_channel, base)
    )
    web = build_web(settings)
    parts = HostParts(
        base.bus,
        base.stores.journal,
        base.access,
        web,
        settings.home,
        base.clock,
        base.background,
        menu=partial(menu_of, commands),
        report=supervisor.report,
        connected=supervisor.connected,
        rate=SenderRate(settings.limits.messages_per_minute, base.clock, commands.is_owner),
    )
    hosts.update((name, Host(name, parts)) for name in base.outlets)
    pairing = Pairing(base.access, base.courier.say)
    operations = _operations(base, agent, supervisor, dispatcher)
    table: dict[str, Operation] = {
        **operations.table(),
        **MemoryOperations(memory.service).table(),
        **PairingOperations(pairing).table(),
        **SkillsOperations(toolbox.around.skills.service).table(),
        **CronOperations(toolbox.around.cron, toolbox.job_chats, base.clock).table(),
        **McpOperations(toolbox.mcp).table(),
        **ChannelOperations((), supervisor, base.background, base.clock).table(),
        "commands": partial(_command_list, commands),
    }
    state = settings.home / "state"
    gateway = Gateway(
        lock=HomeLock(state),
        journal=base.stores.journal,
        bus=base.bus,
        sessions=base.stores.sessions,
        loop=agent.loop,
        lanes=base.lanes,
        dispatcher=dispatcher,
        screen=base.screen,
        supervisor=supervisor,
        control=ControlServer(state, table, base.cli.chat),
        access=base.access,
        closables=(web, *toolbox.closables, *((transcriber,) if transcriber else ())),
        memory=memory,
        consolidator=agent.consolidator,
        helpers=toolbox.helpers,
        routines=_routines(base, memory, toolbox),
        on_start=toolbox.mcp.start,
        chores=chores,
        provider=models.provider,
        background=base.background,
        clock=base.clock,
        shutdown_grace=settings.agent.shutdown_grace_seconds,
    )
    register_commands(
        commands,
        base,
        models,
        memory,
        toolbox,
        agent,
        gateway=gateway,
        operations=operations,
        pairing=pairing,
    )
    return gateway


def about(settings: Settings) -> About:
    """What does not change while this nanobot runs."""
    return About(
        nanobot.__version__, str(settings.home), settings.model.provider, model_name(settings.model)
    )


def _operations(
    base: Base, agent: Agent, supervisor: Supervisor, dispatcher: Dispatcher
) -> Operations:
    born = base.clock.monotonic()
    live = Running(
        uptime=lambda: base.clock.monotonic() - born,
        turns=lambda: agent.turns.count,
        channels=lambda: list(supervisor.states.values()),
        resume=base.bus.deliver,
        resend=dispatcher.submit,
    )
    stores = base.stores
    return Operations(about(base.settings), stores.journal.database, stores.sessions, live)


def _routines(base: Base, memory: Remembering, toolbox: Toolbox) -> Sequence[Routine]:
    """What happens by itself."""
    around = toolbox.around
    jobs = build_routines(
        base.settings,
        base.stores,
        memory,
        around.cron,
        toolbox.job_chats,
        base.bus.note,
        base.clock,
    )
    return jobs if memory.schedule is None else (memory.schedule, *jobs)


def _tell_of_channel(base: Base, channel: str, detail: str) -> None:
    """Tell the owner, once a day for the same reason, that a channel stays off."""
    text = f"The channel {channel} is off: {detail}"
    reason = hashlib.sha256(detail.encode()).hexdigest()[:8]
    name = f"off-{channel}-{base.clock.now():%y%m%d}-{reason}"
    telling = base.courier.warn_elsewhere(channel, text, name)
    base.background.start(telling, name="a channel is off")


async def _send_digest(courier: Courier, report: DreamReport) -> None:
    names = ["Undo"] if len(report.undoable) == 1 else [f"Undo {n}" for n in report.undoable]
    commands = [f"/dream-restore --version {n}" for n in report.undoable]
    undo = [Button(name, command) for name, command in zip(names, commands, strict=True)]
    await courier.tell(report.scope, report.digest, undo)


async def _send_trouble(courier: Courier, scope: str, text: str) -> None:
    logger.warning("dream for {}: {}", scope, text)
    await courier.tell(OWNER, text)


async def _command_list(commands: CommandRegistry, _: Mapping[str, object]) -> list[dict[str, str]]:
    return [{"name": command.name, "summary": command.summary} for command in commands]
