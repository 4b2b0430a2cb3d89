"""The composition root: the one place that knows how the parts fit together.

Everything below receives plain values and ready-made collaborators; nothing below knows the
configuration. `build_gateway` reads from top to bottom as the list of what a nanobot is made of.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from loguru import logger

import nanobot
from nanobot.agent.commands import ConversationCommands
from nanobot.agent.context import ContextBuilder
from nanobot.agent.hooks import AgentHook, CompositeHook
from nanobot.agent.intake import Intake
from nanobot.agent.lobby import Lobby
from nanobot.agent.loop import AgentLoop, Policy
from nanobot.agent.mailbox import Mailbox
from nanobot.agent.media import MediaStore
from nanobot.agent.progress import ProgressHook
from nanobot.agent.runner import AgentRunner
from nanobot.agent.system_prompt import WorkspacePrompt
from nanobot.agent.turns import Turns
from nanobot.agent.window import PromptWindow
from nanobot.bus.events import Media, OutboundMessage
from nanobot.bus.journal import Journal
from nanobot.bus.lanes import Lanes
from nanobot.bus.outbox import Outbox
from nanobot.bus.queue import MessageBus
from nanobot.bus.split import split_message
from nanobot.channel import Channel
from nanobot.clock import Clock, SystemClock
from nanobot.commands import CommandCall, CommandRegistry
from nanobot.config.settings import ModelSettings, Settings
from nanobot.errors import ConfigError, NanobotError, StorageError
from nanobot.gateway.control import ControlServer
from nanobot.gateway.dispatcher import Dispatcher
from nanobot.gateway.gateway import Gateway
from nanobot.gateway.host import Host
from nanobot.gateway.lock import HomeLock
from nanobot.gateway.operations import About, Operations, Running
from nanobot.gateway.screen import Screen
from nanobot.gateway.supervisor import Supervisor
from nanobot.memory.store import MemoryStore
from nanobot.memory.template import install_template, load_template, template_folder
from nanobot.memory.tools import Note
from nanobot.providers.port import Provider, Toolset
from nanobot.security.paths import Root, Roots
from nanobot.security.redaction import Redactor
from nanobot.session.manager import SessionManager
from nanobot.tasks import Background
from nanobot.tooling import Tool, ToolRegistry
from nanobot.tools.changes import WorkspaceWriter
from nanobot.tools.files import EditFile, WriteFile
from nanobot.tools.reading import ListDir, ReadFile
from nanobot.tools.search import FindFiles, Grep
from nanobot.tools.spill import SpillFolder
from nanobot.tools.undo import UndoLog

if TYPE_CHECKING:
    from pydantic import SecretStr

    from nanobot_cli import CliChannel

GATHER_SECONDS = 0.02
"""How long a turn's lines wait for those of others; the journal has them meanwhile."""
MAX_MESSAGE_SHARE = 4
"""A single message may take at most one part in so many of the prompt's room."""


@dataclass(frozen=True, slots=True)
class Stores:
    """Everything that keeps something on disk."""

    journal: Journal
    sessions: SessionManager
    media: MediaStore
    workspace: Root
    spill: SpillFolder
    memory: MemoryStore
    undo: UndoLog


@dataclass(frozen=True, slots=True)
class Agent:
    """What answers messages, and what others need to reach in it."""

    loop: AgentLoop
    lanes: Lanes
    turns: Turns
    background: Background


def build_gateway(
    settings: Settings,
    *,
    clock: Clock | None = None,
    provider: Provider | None = None,
    channels: Sequence[Channel] = (),
    hooks: Sequence[AgentHook] = (),
    extra_tools: Sequence[Tool] = (),
    admit_everyone: bool = False,
) -> Gateway:
    """Put a nanobot together for `settings`.

    The keyword arguments add to it or replace parts, for embedding and for tests. Raises
    `NanobotError` where the home or the configuration cannot be used.
    """
    state = settings.home / "state"
    clock = clock or SystemClock(settings.agent.timezone)
    rng = Random()  # noqa: S311 - spreads retries, guards nothing
    stores = build_stores(settings.home, clock)
    tools = build_tools(stores, settings)
    tools.register_all(extra_tools)
    provider = provider or build_provider(settings.model, clock, rng)

    cli = _cli_channel(clock)
    outlets = {c.name: c for c in (cli, *channels, *_enabled_channels(settings))}
    screen = Screen(outlets)
    bus = MessageBus(stores.journal)
    outbox = Outbox(stores.journal.database)
    dispatcher = Dispatcher(outlets, outbox, screen, clock, rng)
    hook = CompositeHook((ProgressHook(screen), *hooks))
    everyone = outlets if admit_everyone else (cli.name,)
    commands = CommandRegistry(is_owner=lambda message: message.channel in everyone)
    agent = build_agent(
        settings, stores, tools, provider, bus, outlets, screen, hook, commands, clock
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
            {**operations.table(), "commands": partial(_command_list, commands)},
            cli.chat,
        ),
        provider=provider,
        background=agent.background,
        shutdown_grace=settings.agent.shutdown_grace_seconds,
    )
    ConversationCommands(
        stopper=agent.loop,
        undo=stores.undo,
        status=partial(_status_text, operations, model_name(settings.model)),
        restart=gateway.request_restart,
        default_model=model_name(settings.model),
        can_switch=settings.model.provider != "offline" or provider is not None,
        clock=clock,
    ).register(commands)
    return gateway


def build_stores(home: Path, clock: Clock) -> Stores:
    """The home's folders and what lives in them. Raises `StorageError`."""
    make_home(home)
    workspace = Root(home / "workspace")
    template = template_folder()
    install_template(template, workspace.path)
    return Stores(
        journal=Journal(home / "state" / "journal.db", clock),
        sessions=SessionManager(
            home / "sessions", clock, on_trouble=_log_trouble, gather_seconds=GATHER_SECONDS
        ),
        media=MediaStore(home / "media"),
        workspace=workspace,
        spill=SpillFolder(home / "spill"),
        memory=MemoryStore(workspace, clock, load_template(template)),
        undo=UndoLog(home / "state" / "undo", workspace),
    )


def build_tools(stores: Stores, settings: Settings) -> ToolRegistry:
    """The tools, behind the one gate."""
    spill = Root(settings.home / "spill", writable=False, name="spill folder")
    roots = Roots((stores.workspace, spill))
    writer = WorkspaceWriter(stores.undo, stores.memory)
    registry = ToolRegistry(redactor=Redactor(secrets(settings)), overflow=stores.spill)
    registry.register_all(
        (
            ReadFile(roots),
            WriteFile(roots, writer),
            EditFile(roots, writer),
            ListDir(roots),
            FindFiles(roots),
            Grep(roots),
            Note(stores.memory, stores.undo),
        )
    )
    return registry


def build_agent(
    settings: Settings,
    stores: Stores,
    tools: ToolRegistry,
    provider: Provider,
    bus: MessageBus,
    channels: Mapping[str, Channel],
    screen: Screen,
    hook: AgentHook,
    commands: CommandRegistry,
    clock: Clock,
) -> Agent:
    """What happens to a message between the bus and the outbox."""
    journal, sessions, media = stores.journal, stores.sessions, stores.media
    mailbox, background = Mailbox(), Background()
    lanes = Lanes(settings.agent.max_concurrent_turns)
    context = ContextBuilder(
        WorkspacePrompt(stores.memory, stores.workspace.path),
        Toolset.of(tools.specs()),
        clock,
        timestamps=settings.agent.timestamps,
        load_image=media.image,
        max_message_tokens=settings.model.prompt_tokens // MAX_MESSAGE_SHARE,
    )
    runner = AgentRunner(
        provider,
        tools,
        clock,
        max_iterations=settings.agent.max_iterations,
        keep_image=media.put_base64,
    )
    intake = Intake(media, partial(_fetch, channels))
    split = partial(_split, channels)
    turns = Turns(journal, bus, sessions, mailbox, intake, clock, background, hook, split)
    loop = AgentLoop(
        sessions=sessions,
        context=context,
        consolidator=PromptWindow(context, budget=settings.model.prompt_tokens),
        runner=runner,
        turns=turns,
        lobby=Lobby(mailbox, lanes, screen, background, clock),
        commands=commands,
        journal=journal,
        hook=hook,
        background=background,
        clock=clock,
        policy=Policy(settings.agent.on_busy, settings.agent.wait_for_model_hours),
    )
    return Agent(loop, lanes, turns, background)


def build_provider(model: ModelSettings, clock: Clock, rng: Random) -> Provider:
    """The configured model with retries, and its fallbacks behind a circuit breaker."""
    if model.provider == "offline":
        from nanobot.providers.offline.model import OfflineModel

        return OfflineModel()
    from nanobot.providers.fallback import FallbackProvider, NamedProvider
    from nanobot.providers.openai import OpenAIProvider
    from nanobot.providers.retry import RetryingProvider, RetryPolicy

    def adapter(name: str, base_url: str, api_key: SecretStr) -> NamedProvider:
        provider = OpenAIProvider(
            model=name,
            base_url=base_url,
            api_key=api_key.get_secret_value(),
            max_tokens=model.max_completion_tokens,
            stall_seconds=model.timeout_seconds,
            clock=clock,
        )
        return NamedProvider(name, provider)

    chain = [adapter(model.name, model.base_url, model.api_key)]
    chain += [adapter(other.name, other.base_url, other.api_key) for other in model.fallbacks]
    asked = FallbackProvider(chain, clock) if len(chain) > 1 else chain[0].provider
    return RetryingProvider(asked, RetryPolicy(deadline=model.retry_seconds), clock, rng)


def make_home(home: Path) -> None:
    """Make the home and its folders, readable by their owner only. Raises `StorageError`."""
    for folder in (home, home / "state", home / "sessions", home / "media", home / "logs"):
        Root(folder, name="home").create()
    try:
        home.chmod(0o700)  # it may have been made by hand
    except OSError as error:
        raise StorageError.of(home, error) from error


def model_name(model: ModelSettings) -> str:
    """The main model's name for people."""
    return model.name or model.provider


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


def about(settings: Settings) -> About:
    """What does not change while this nanobot runs."""
    return About(
        nanobot.__version__, str(settings.home), settings.model.provider, model_name(settings.model)
    )


def secrets(settings: Settings) -> Iterator[str]:
    """Every secret value in the settings, for redaction."""
    yield settings.model.api_key.get_secret_value()
    for other in settings.model.fallbacks:
        yield other.api_key.get_secret_value()


async def _fetch(channels: Mapping[str, Channel], name: str, media: Media, limit: int) -> bytes:
    return await channels[name].fetch(media, limit)


def _split(
    channels: Mapping[str, Channel], message: OutboundMessage
) -> tuple[OutboundMessage, ...]:
    channel = channels.get(message.channel)
    return split_message(message, channel.limits.text if channel else 0)


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


def _log_trouble(error: NanobotError) -> None:
    logger.error("{} {}", error, error.hint)
