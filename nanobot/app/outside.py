"""What reaches beyond the conversation: network, MCP servers, helpers, skills, scheduled jobs."""

from __future__ import annotations

import platform
import secrets
import shutil
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from nanobot.agent.helpers import Equipment, HelperLimits, Helpers
from nanobot.agent.notifier import note_for_chat
from nanobot.agent.prompt import PromptRoom
from nanobot.agent.runner import AgentRunner
from nanobot.app.base import Base, KnownChats
from nanobot.app.home import Stores
from nanobot.bus.events import NANOBOT, InboundMessage, OutboundMessage
from nanobot.bus.journal import Outgoing
from nanobot.bus.queue import MessageBus
from nanobot.clock import Clock
from nanobot.config.settings import Settings
from nanobot.config.tools import McpServerSettings
from nanobot.cron.job import JobStore
from nanobot.cron.service import CronService
from nanobot.memory.scopes import OWNER, Scopes
from nanobot.providers.counter import TokenCounter
from nanobot.providers.port import Provider, Toolset
from nanobot.security.egress import Egress
from nanobot.security.paths import Root
from nanobot.security.sandbox import Found, NetworkRelay, find_sandbox
from nanobot.skills import SkillsLoader, SkillsService
from nanobot.skills.loader import Surroundings
from nanobot.templates import render
from nanobot.tooling import Tool, ToolRegistry
from nanobot.tools.mcp import Connections, McpServer, McpServers, Programs, Registry
from nanobot.tools.shell import Processes

if TYPE_CHECKING:
    from nanobot.tools.mcp.web import Transport


HELPER_TOOLS = (
    "read_file",
    "write_file",
    "edit_file",
    "list_dir",
    "find_files",
    "grep",
    "search_memory",
    "exec",
    "web_fetch",
    "web_search",
    "read_skill",
)
"""What a helper may use: nothing that speaks, remembers or schedules."""


def build_mcp(
    settings: Settings,
    registry: Registry,
    clock: Clock,
    tell: Callable[[str, str], Awaitable[None]] | None = None,
) -> McpServers:
    """The servers that are enabled; none of them is started. `tell` is as `McpServers` takes it."""
    home = settings.home
    programs = Programs(
        home / "mcp",
        _SandboxFinder(settings),
        lambda: NetworkRelay(_egress(settings)),
        guarded=(home,),
    )
    connections = Connections(programs, partial(_way, settings))
    servers = [
        _server(name, entry) for name, entry in settings.mcp.servers.items() if entry.enabled
    ]
    path = home / "state" / "mcp.json"
    return McpServers(servers, connections.open, registry, path, clock, tell)


class NoRegistry:
    """Where no model is there to be offered anything."""

    def register(self, tool: Tool) -> None:
        """See `Registry`."""

    def withdraw(self, name: str) -> None:
        """See `Registry`."""


class _SandboxFinder:
    """Finds the sandbox when it is first needed, and again as long as there is none.

    That the owner lets the shell run without one does not say that other people's programs may as
    well: the entry of a server says so for itself.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._found: Found | None = None

    async def __call__(self) -> Found:
        if self._found is None or self._found.sandbox is None:
            wanted = self._settings.tools.exec.sandbox
            self._found = await find_sandbox(
                "auto" if wanted == "none" else wanted, private=(self._settings.home,)
            )
        return self._found


def _egress(settings: Settings, *own: str) -> Egress:
    web = settings.tools.web
    return Egress(allow_hosts=(*web.allow_hosts, *own), proxy=web.proxy.get_secret_value())


def _way(settings: Settings, server: McpServer) -> Transport:
    """To the address that the owner wrote, even one of this machine; for this server alone."""
    own = (server.named_address,) if server.named_address else ()
    return _egress(settings, *own).transport()


def _server(name: str, entry: McpServerSettings) -> McpServer:
    return McpServer(
        name,
        command=entry.command,
        args=entry.args,
        env=entry.variables,
        paths=tuple(map(Path, entry.paths)),
        writable=tuple(map(Path, entry.writable)),
        network=entry.network,
        sandbox=entry.sandbox,
        url=entry.url,
        headers=entry.revealed_headers,
        tools=entry.tools,
        people=entry.people,
        trust_read_only=entry.trust_read_only,
        timeout_seconds=entry.timeout_seconds,
    )


def build_egress(
    settings: Settings, allow_hosts: Iterable[str] = (), domains: Iterable[str] = ()
) -> Egress:
    """A way into the network, with exceptions of the owner's from what is public; where there are
    `domains`, to these alone."""
    proxy = settings.tools.web.proxy.get_secret_value()
    return Egress(allow_hosts=allow_hosts, domains=domains, proxy=proxy)


def build_helpers(
    settings: Settings,
    stores: Stores,
    tools: ToolRegistry,
    provider: Provider,
    counter: TokenCounter,
    processes: Processes,
    bus: MessageBus,
    clock: Clock,
) -> Helpers:
    """Helper agents, with some of `tools`."""
    wanted = settings.tools.helpers
    room = PromptRoom(settings.model.prompt_tokens, counter.count)

    def equip(scope: str) -> Equipment:
        few = tools.only(HELPER_TOOLS)
        runner = AgentRunner(
            provider,
            few,
            clock,
            max_iterations=wanted.max_iterations,
            max_tokens=settings.limits.tokens_per_turn,
            fit=room.fit,
        )
        text = render(
            "helper.md",
            workspace=str(stores.workspace.path),
            system=platform.system(),
            python=platform.python_version(),
        )
        return Equipment(runner, Toolset.of(few.specs(scope)), text.strip())

    return Helpers(
        equip=equip,
        journal=stores.journal,
        publish=bus.note,
        tidy=processes.stop,
        clock=clock,
        new_id=partial(secrets.token_hex, 3),
        limits=HelperLimits(wanted.max_concurrent, wanted.timeout_minutes),
    )


_PROGRAMS = "/usr/local/bin:/usr/bin:/bin"
"""Where commands in the sandbox find programs: a person's own folders are not there."""


@dataclass(frozen=True, slots=True)
class Skills:
    """What reads skills, and what the owner does with them."""

    loader: SkillsLoader
    service: SkillsService


def build_skills(settings: Settings, workspace: Root, clock: Clock) -> Skills:
    """The skills in `workspace` and those that are built in."""
    path = _PROGRAMS if settings.tools.exec.sandbox != "none" else None
    loader = SkillsLoader(
        workspace,
        settings.home / "state" / "skills.json",
        here=Surroundings(
            which=partial(shutil.which, path=path),
            environ=lambda: settings.tools.exec.environment,
        ),
        unwanted=settings.skills.disabled,
    )
    return Skills(loader, SkillsService(loader, clock))


@dataclass(frozen=True, slots=True)
class JobChats:
    """The chats that a job can speak in, and whose they are."""

    known: KnownChats
    scopes: Scopes

    def addresses(self) -> list[str]:
        """Those that something can be sent to at any time, the one used last first. Blocks."""
        return [address for address, _ in self.known.chats()]

    def scope_of(self, address: str) -> str:
        """Whose chat it is. Blocks."""
        return self.scopes.of_session(address, self.known.metadata_of(address))

    def owners_latest(self) -> str:
        """The chat that the owner used last and may still be reached in; empty where there is none.
        Blocks."""
        owners = (one for one in self.addresses() if self.scope_of(one) == OWNER)
        return next((one for one in owners if self.known.may_reach(one)), "")


async def remind(
    send: Callable[[str, Outgoing], Awaitable[object]],
    keep: Callable[[InboundMessage], Awaitable[object]],
    split: Callable[[OutboundMessage], tuple[OutboundMessage, ...]],
    message: InboundMessage,
) -> None:
    """Send a reminder to its chat, and let the conversation there know of it. Done again, it
    changes nothing: both go by the event's id. Raises `StorageError`."""
    text, there = message.content, message.address
    told = OutboundMessage(there.channel, there.chat_id, text, thread_id=there.thread_id)
    await send(message.event_id, Outgoing("reply", split(told)))
    origins = () if message.origin == NANOBOT else (message.origin,)
    await keep(note_for_chat(message, text, origins, message.timestamp))


def build_cron(base: Base) -> CronService:
    """The scheduled jobs; their runs are messages on the bus."""
    return CronService(
        JobStore(base.stores.state / "jobs.json"),
        base.bus.note,
        base.clock,
        remind=partial(
            remind,
            base.bus.send,
            base.bus.note,
            base.splitter,
        ),
        busy=base.stores.journal.is_busy,
        may_reach=base.known.may_reach,
    )
