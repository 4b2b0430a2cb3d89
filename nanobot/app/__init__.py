"""The composition root: the one place that knows how the parts fit together.

Everything below receives plain values and ready-made collaborators; nothing below knows the
configuration. `build_gateway` reads from top to bottom as the list of what a nanobot is made of.
"""

from __future__ import annotations

import secrets as randomness
from collections.abc import Mapping, Sequence
from functools import partial
from random import Random

from loguru import logger

import nanobot
from nanobot.agent.commands import ConversationCommands
from nanobot.agent.courier import Courier
from nanobot.agent.hooks import AgentHook, CompositeHook
from nanobot.agent.progress import ProgressHook
from nanobot.app.agent import build_agent, build_message_tool, build_tools, split_for
from nanobot.app.channels import (
    KnownChats,
    build_access,
    build_web,
    cli_channel,
    enabled_channels,
    menu_of,
)
from nanobot.app.home import build_stores
from nanobot.app.memory import build_memory
from nanobot.app.model import build_provider, build_transcriber, model_name
from nanobot.bus.events import Button
from nanobot.bus.outbox import Outbox
from nanobot.bus.queue import MessageBus
from nanobot.bus.usage import JournalUsage
from nanobot.channel import Channel, ChannelHost
from nanobot.clock import Clock, SystemClock
from nanobot.commands import CommandCall, CommandRegistry
from nanobot.config.settings import Settings
from nanobot.gateway.control import ControlServer
from nanobot.gateway.dispatcher import Dispatcher
from nanobot.gateway.gateway import Gateway
from nanobot.gateway.host import Host, HostParts
from nanobot.gateway.lock import HomeLock
from nanobot.gateway.operations import About, Operations, Running
from nanobot.gateway.pairing import PairCommand, Pairing, PairingOperations
from nanobot.gateway.screen import Screen
from nanobot.gateway.supervisor import Supervisor
from nanobot.memory.dream import DreamReport
from nanobot.memory.scopes import OWNER
from nanobot.memory.service.commands import MemoryCommands
from nanobot.memory.service.continuing import ContinueCommand
from nanobot.memory.service.operations import MemoryOperations
from nanobot.providers.metering import MeteredProvider
from nanobot.providers.port import Provider, Usage
from nanobot.tooling import Tool


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
    `chores` nothing happens by itself (Dream, looking after conversations that rest). Raises
    `NanobotError` where the home or the configuration cannot be used.
    """
    state = settings.home / "state"
    clock = clock or SystemClock(settings.agent.timezone)
    rng = Random()  # noqa: S311 - spreads retries, guards nothing
    stores = build_stores(settings.home, clock)
    can_switch = settings.model.provider != "offline" or provider is not None
    provider = provider or build_provider(settings.model, clock, rng)

    cli = cli_channel(clock)
    outlets = {c.name: c for c in (cli, *channels, *enabled_channels(settings))}
    access = build_access(settings, clock, tuple(outlets) if admit_everyone else (cli.name,))
    web = build_web(settings)
    screen = Screen(outlets)
    bus = MessageBus(stores.journal)
    outbox = Outbox(stores.journal.database)
    dispatcher = Dispatcher(outlets, outbox, screen, clock, rng)
    speaking_up = [name for name in outlets if name != cli.name]  # a terminal has to ask
    courier = Courier(
        bus,
        screen,
        partial(split_for, outlets),
        stores.sessions.list_sessions,
        lambda key: memory.scopes.of_session(key, stores.sessions.metadata_of(key)),
        speaking_up,
        partial(randomness.token_hex, 8),
    )
    used = JournalUsage(stores.journal.database)
    learner = _metered(learner or provider, used, clock)
    memory = build_memory(
        settings,
        stores,
        learner,
        clock,
        access=access,
        on_digest=partial(_send_digest, courier),
        on_trouble=partial(_send_trouble, courier),
    )
    tools = build_tools(stores, memory, settings)
    tools.register(
        build_message_tool(
            stores,
            memory,
            bus,
            outlets,
            KnownChats(
                stores.sessions.list_sessions, stores.sessions.metadata_of, access, speaking_up
            ),
            clock,
        )
    )
    tools.register_all(extra_tools)

    hook = CompositeHook((ProgressHook(screen), *hooks))
    commands = CommandRegistry(
        is_owner=lambda message: memory.scopes.is_owner(message.channel, message.sender_id)
    )
    transcriber = build_transcriber(settings.model.transcription, clock, rng)
    agent = build_agent(
        settings,
        stores,
        memory,
        tools,
        provider,
        learner,
        bus=bus,
        channels=outlets,
        screen=screen,
        hook=hook,
        commands=commands,
        clock=clock,
        remark=courier.remark,
        transcribe=transcriber.transcribe if transcriber else None,
    )

    hosts: dict[str, ChannelHost] = {}
    supervisor = Supervisor(outlets, hosts, clock, rng)
    parts = HostParts(
        bus,
        stores.journal,
        access,
        web,
        settings.home,
        clock,
        agent.background,
        menu=partial(menu_of, commands),
        report=supervisor.report,
    )
    hosts.update((name, Host(name, parts)) for name in outlets)
    pairing = Pairing(access, courier.say)
    born = clock.monotonic()
    live = Running(
        uptime=lambda: clock.monotonic() - born,
        turns=lambda: agent.turns.count,
        channels=lambda: list(supervisor.states.values()),
        resume=bus.deliver,
        resend=dispatcher.submit,
    )
    operations = Operations(about(settings), stores.journal.database, stores.sessions, live)
    gateway = Gateway(
        lock=HomeLock(state),
        journal=stores.journal,
        bus=bus,
        sessions=stores.sessions,
        loop=agent.loop,
        lanes=agent.lanes,
        dispatcher=dispatcher,
        screen=screen,
        supervisor=supervisor,
        control=ControlServer(
            state,
            {
                **operations.table(),
                **MemoryOperations(memory.service).table(),
                **PairingOperations(pairing).table(),
                "commands": partial(_command_list, commands),
            },
            cli.chat,
        ),
        access=access,
        closables=(web,) if transcriber is None else (web, transcriber),
        memory=memory,
        consolidator=agent.consolidator,
        dreams=memory.schedule,
        chores=chores,
        provider=provider,
        background=agent.background,
        clock=clock,
        shutdown_grace=settings.agent.shutdown_grace_seconds,
    )
    ConversationCommands(
        stopper=agent.loop,
        undo=stores.undo,
        status=partial(_status_text, operations, model_name(settings.model)),
        restart=gateway.request_restart,
        default_model=model_name(settings.model),
        can_switch=can_switch,
        seal=agent.consolidator.seal,
        background=agent.background,
        clock=clock,
    ).register(commands)
    MemoryCommands(
        service=memory.service,
        compactor=agent.consolidator,
        continuing=ContinueCommand(stores.sessions, memory.scopes),
        scopes=memory.scopes,
        usage=used,
        clock=clock,
        new_code=lambda: f"{randomness.randbelow(10_000):04}",
    ).register(commands)
    PairCommand(pairing).register(commands)
    return gateway


def about(settings: Settings) -> About:
    """What does not change while this nanobot runs."""
    return About(
        nanobot.__version__, str(settings.home), settings.model.provider, model_name(settings.model)
    )


def _metered(provider: Provider, used: JournalUsage, clock: Clock) -> Provider:
    def record(usage: Usage) -> None:
        used.learned(clock.now().date(), usage.prompt, usage.cached, usage.completion)

    return MeteredProvider(provider, record)


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


async def _status_text(operations: Operations, default_model: str, call: CommandCall) -> str:
    status = await operations.status({})
    session = call.session
    model = session.metadata.get("model") or default_model
    queue = status["queue"]
    assert isinstance(queue, dict)
    return "\n".join(
        (
            f"nanobot {status['version']}, up {status['uptime_seconds']} s, model {model}",
            f"This conversation: {len(session.messages)} messages in view ({session.key})",
            # Less this command itself.
            f"Turns running: {status['turns_running']}; waiting: {queue['received'] - 1};"
            f" failed: {queue['failed']}; replies to deliver: {queue['outbox_pending']}",
        )
    )
