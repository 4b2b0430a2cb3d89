"""The composition root: the one place that knows how the parts fit together.

Everything below receives plain values and ready-made collaborators; nothing below knows the
configuration. `build_gateway` reads from top to bottom as the list of what a nanobot is made of.
"""

from __future__ import annotations

import secrets as randomness
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from loguru import logger

import nanobot
from nanobot.agent.commands import ConversationCommands
from nanobot.agent.courier import Courier
from nanobot.agent.hooks import AgentHook, CompositeHook
from nanobot.agent.progress import ProgressHook
from nanobot.app.agent import build_agent, build_tools, split_for
from nanobot.app.home import Stores, build_stores
from nanobot.app.memory import build_memory
from nanobot.app.model import build_provider, model_name
from nanobot.bus.events import Button
from nanobot.bus.outbox import Outbox
from nanobot.bus.queue import MessageBus
from nanobot.bus.usage import JournalUsage
from nanobot.channel import Channel
from nanobot.clock import Clock, SystemClock
from nanobot.commands import CommandCall, CommandRegistry
from nanobot.config.settings import Settings
from nanobot.errors import ConfigError
from nanobot.gateway.control import ControlServer
from nanobot.gateway.dispatcher import Dispatcher
from nanobot.gateway.gateway import Gateway
from nanobot.gateway.host import Host
from nanobot.gateway.lock import HomeLock
from nanobot.gateway.operations import About, Operations, Running
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

if TYPE_CHECKING:
    from nanobot_cli import CliChannel


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

    cli = _cli_channel(clock)
    outlets = {c.name: c for c in (cli, *channels, *_enabled_channels(settings))}
    everyone = tuple(outlets) if admit_everyone else (cli.name,)
    screen = Screen(outlets)
    bus = MessageBus(stores.journal)
    outbox = Outbox(stores.journal.database)
    dispatcher = Dispatcher(outlets, outbox, screen, clock, rng)
    courier = Courier(
        bus,
        screen,
        partial(split_for, outlets),
        stores.sessions.list_sessions,
        lambda key: memory.scopes.of_session(key, stores.sessions.metadata_of(key)),
        [name for name in outlets if name != cli.name],  # a terminal is there only while it asks
        clock,
    )
    used = JournalUsage(stores.journal.database)
    learner = _metered(learner or provider, used, clock)
    memory = build_memory(
        settings,
        stores,
        learner,
        clock,
        owners=_owners(settings, everyone),
        on_digest=partial(_send_digest, courier),
        on_trouble=partial(_send_trouble, courier),
    )
    tools = build_tools(stores, memory, settings)
    tools.register_all(extra_tools)

    hook = CompositeHook((ProgressHook(screen), *hooks))
    commands = CommandRegistry(
        is_owner=lambda message: memory.scopes.is_owner(message.channel, message.sender_id)
    )
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
    )

    hosts = {name: _host(name, settings, bus, stores, name in everyone) for name in outlets}
    supervisor = Supervisor(outlets, hosts, clock, rng)
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
                "commands": partial(_command_list, commands),
            },
            cli.chat,
        ),
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
    return gateway


def about(settings: Settings) -> About:
    """What does not change while this nanobot runs."""
    return About(
        nanobot.__version__, str(settings.home), settings.model.provider, model_name(settings.model)
    )


def _cli_channel(clock: Clock) -> CliChannel:
    from nanobot_cli import CliChannel

    return CliChannel(clock)


def _enabled_channels(settings: Settings) -> Iterator[Channel]:
    """The configured channels, found by entry point; only those enabled are imported."""
    wanted = {name for name, channel in settings.channels.items() if channel.enabled}
    if not wanted:
        return
    from importlib.metadata import entry_points

    found = {point.name: point for point in entry_points(group="nanobot.channels")}
    for name in sorted(wanted):
        if name not in found:
            raise ConfigError(
                "no installed package provides this channel",
                key=f"channels.{name}",
                hint=f"Install the package that does, or set channels.{name}.enabled to false.",
            )
        yield found[name].load()(settings.channels[name].options)


def _metered(provider: Provider, used: JournalUsage, clock: Clock) -> Provider:
    def record(usage: Usage) -> None:
        used.learned(clock.now().date(), usage.prompt, usage.cached, usage.completion)

    return MeteredProvider(provider, record)


def _owners(settings: Settings, everyone: Sequence[str]) -> Mapping[str, Collection[str]]:
    """The owner's ids by channel; on other channels in `everyone` whoever writes is the owner."""
    return {**dict.fromkeys(everyone, ("*",)), **settings.owner}


async def _send_digest(courier: Courier, report: DreamReport) -> None:
    names = ["Undo"] if len(report.undoable) == 1 else [f"Undo {n}" for n in report.undoable]
    commands = [f"/dream-restore --version {n}" for n in report.undoable]
    undo = [Button(name, command) for name, command in zip(names, commands, strict=True)]
    await courier.tell(report.scope, report.digest, undo)


async def _send_trouble(courier: Courier, scope: str, text: str) -> None:
    logger.warning("dream for {}: {}", scope, text)
    await courier.tell(OWNER, text)


def _host(name: str, settings: Settings, bus: MessageBus, stores: Stores, everyone: bool) -> Host:
    configured = settings.channels.get(name)
    return Host(
        name,
        bus,
        stores.journal,
        settings.home / "state" / "channels" / name,
        allow_from=configured.allow_from if configured else (),
        everyone=everyone,
    )


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
            f"Turns running: {status['turns_running']}; waiting: {queue['received']};"
            f" failed: {queue['failed']}; replies to deliver: {queue['outbox_pending']}",
        )
    )
