"""The tools behind the one gate: what each works with, whose files it reaches, how the owner is
asked; and what tools reach: network, MCP servers, helpers, skills, scheduled jobs."""

from __future__ import annotations

import platform
import secrets
import shutil
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from loguru import logger

from nanobot.agent.helpers import Equipment, HelperLimits, Helpers, Spawn
from nanobot.agent.messaging import SendMessage
from nanobot.agent.notifier import Courier, KnownChats, MessageSplitter, note_for_chat
from nanobot.agent.prompt import PromptRoom
from nanobot.agent.runner import AgentRunner
from nanobot.agent.session_queue import Lanes
from nanobot.app.base import Base, Models, Stores, secret_values
from nanobot.app.memory import Remembering
from nanobot.bus.events import NANOBOT, Address, Button, InboundMessage, OutboundMessage
from nanobot.bus.journal import Outgoing
from nanobot.bus.queue import MessageBus
from nanobot.clock import Clock
from nanobot.config.settings import Settings
from nanobot.config.tools import ExecSettings, McpServerSettings
from nanobot.cron.job import JobStore
from nanobot.cron.service import CronService
from nanobot.cron.tool import CronTool, Say
from nanobot.errors import NanobotError, ToolError
from nanobot.gateway.gateway import Closable
from nanobot.memory.scopes import OWNER, Scopes, is_group
from nanobot.memory.search.library import PdfLimits, PdfUnreadable, read_pages
from nanobot.memory.search.tool import SearchMemory
from nanobot.memory.store.store import BOOTSTRAP, LONG_TERM
from nanobot.memory.tools import Documents, Note, UpdateMemory
from nanobot.providers.counter import TokenCounter
from nanobot.providers.port import Provider, Toolset
from nanobot.security.access.book import new_code
from nanobot.security.audit import AuditLog
from nanobot.security.egress import Egress
from nanobot.security.paths import Place, Root, Roots
from nanobot.security.redaction import Redactor
from nanobot.security.sandbox import Confined, SandboxFinder
from nanobot.skills import ReadSkill, SkillsLoader, SkillsService, is_skill_file
from nanobot.skills import loader as skills_loader
from nanobot.templates import render
from nanobot.tooling import Caller, OwnersPolicy, Tool, ToolRegistry
from nanobot.tooling.approvals import Approvals
from nanobot.tools.files import EditFile, WorkspaceWriter, WriteFile
from nanobot.tools.mcp import Connections, McpServer, McpServers, Programs
from nanobot.tools.reading import ListDir, ReadFile
from nanobot.tools.search import FindFiles, Grep
from nanobot.tools.shell import Exec, ExecKill, ExecRead, Limits, Processes, Shell
from nanobot.tools.web import SearchSettings, WebFetch, WebSearch

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
    registry: ToolRegistry,
    clock: Clock,
    tell: Callable[[str, str], Awaitable[None]] | None = None,
) -> McpServers:
    """The servers that are enabled; none of them is started. `tell` is as `McpServers` takes it."""
    home, web, wanted = settings.home, settings.tools.web, settings.tools.exec.sandbox
    # That the owner lets the shell run without a sandbox does not say that other people's programs
    # may as well: the entry of a server says so for itself.
    finder = SandboxFinder("auto" if wanted == "none" else wanted, home)

    def transport(server: McpServer) -> Transport:
        # To the address that the owner wrote, even one of this machine; for this server alone.
        own = (server.named_address,) if server.named_address else ()
        return build_egress(settings, (*web.allow_hosts, *own)).transport()

    programs = Programs(home / "mcp", finder, build_egress(settings, web.allow_hosts))
    connections = Connections(programs, transport)
    servers = [
        _server(name, entry) for name, entry in settings.mcp.servers.items() if entry.enabled
    ]
    path = home / "state" / "mcp.json"
    return McpServers(servers, connections, registry, path, clock, tell)


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
        here=skills_loader.Surroundings(
            which=partial(shutil.which, path=path),
            environ=lambda: settings.tools.exec.environment,
        ),
        unwanted=settings.skills.disabled,
    )
    return Skills(loader, SkillsService(loader, clock))


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


_PDF = PdfLimits(pages=500, characters=2_000_000, seconds=30.0)
"""What a turn waits for when it reads a PDF."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the tools reach beyond files: commands and their way out, the web, jobs, skills."""

    egress: Egress
    search_egress: Egress
    public_egress: Egress
    sandbox: SandboxFinder
    processes: Processes
    cron: CronService
    skills: Skills


def build_tools(
    registry: ToolRegistry,
    stores: Stores,
    memory: Remembering,
    settings: Settings,
    around: Surroundings,
    clock: Clock,
    say: Say,
) -> None:
    """Offer the tools on `registry`. Whose files and memory they reach, the caller says; `say` says
    something in a chat."""
    memory_of, roots = memory.memories.of, partial(roots_of, stores, memory)
    writer = WorkspaceWriter(stores.undo, Documents(memory_of), around.processes)
    registry.register_all(
        (
            ReadFile(
                roots,
                own=BOOTSTRAP | {LONG_TERM},
                received=partial(_received, stores),
                pdf_text=_pdf_text,
            ),
            WriteFile(roots, writer, is_skill_file, _is_others),
            EditFile(roots, writer, is_skill_file, _is_others),
            ListDir(roots),
            FindFiles(roots),
            Grep(roots),
            SearchMemory(
                memory.index,
                memory.scopes.readable,
                lambda scope: memory_of(scope).store.retired(),
            ),
            Note(memory_of, stores.undo),
            UpdateMemory(memory_of, stores.undo),
            ReadSkill(around.skills.loader),
        )
    )
    if settings.cron.enabled:
        registry.register(CronTool(around.cron, clock, say))
    if settings.tools.exec.enabled:
        _offer_shell(registry, stores, memory, settings, around, clock)
    if settings.tools.web.enabled:
        _offer_web(registry, settings, around)


def build_message_tool(
    stores: Stores,
    memory: Remembering,
    bus: MessageBus,
    splitter: MessageSplitter,
    others: KnownChats,
    clock: Clock,
) -> SendMessage:
    """The tool that says something in a chat and sends files; `others` are the other chats."""

    return SendMessage(
        partial(roots_of, stores, memory),
        stores.media,
        splitter.limits_of,
        splitter,
        bus.send,
        bus.note,
        others,
        clock,
        partial(_received, stores),
    )


def roots_of(stores: Stores, memory: Remembering, caller: Caller) -> Roots:
    """The folders of the scope that a call serves."""
    if caller.scope == OWNER:
        spill = Root(stores.home / "spill", writable=False, name="spill folder")
        return Roots((stores.workspace, spill))
    root = memory.memories.of(caller.scope).root
    root.create()
    return Roots((root,))


def _offer_shell(
    registry: ToolRegistry,
    stores: Stores,
    memory: Remembering,
    settings: Settings,
    around: Surroundings,
    clock: Clock,
) -> None:
    wanted = settings.tools.exec
    shell = Shell(
        around.sandbox,
        partial(_confined, stores, memory, wanted, around.processes),
        limits=Limits(wanted.timeout_seconds, wanted.max_timeout_seconds, wanted.network),
        egress=around.egress,
        after_unconfined=partial(_take_note, memory),
    )
    registry.register_all(
        (
            Exec(shell, around.processes, clock),
            ExecRead(around.processes, clock),
            ExecKill(around.processes),
        )
    )


def _confined(
    stores: Stores,
    memory: Remembering,
    wanted: ExecSettings,
    processes: Processes,
    caller: Caller,
    network: bool,
) -> Confined:
    """What a caller's command may touch: their scope's folder, of which what decides future
    behaviour cannot be changed."""
    kept = (*sorted(BOOTSTRAP), "memory/", "skills/")
    mine = caller.scope == OWNER  # folders and keys of the owner's are nobody else's
    if mine:
        kept += ("people/", "groups/")
    return Confined(
        workspace=roots_of(stores, memory, caller).roots[0].path,
        read_only=kept,
        hide_git=not wanted.allow_git,
        extra_read_only=tuple(map(Path, wanted.paths)) if mine else (),
        network="relay" if network else "none",
        environment=wanted.variables if mine else {},
        memory_megabytes=wanted.memory_megabytes,
        processes=wanted.processes,
        ledger=processes.ledger,
    )


async def _take_note(memory: Remembering, caller: Caller) -> None:
    """What a command without a sandbox changed in memory was the agent's doing, no person's."""
    for one in memory.on_disk():
        try:
            await one.store.record_hand_edits("agent")
        except NanobotError as error:
            logger.warning("{}: changes after a command are not recorded: {}", one.scope, error)


def _offer_web(registry: ToolRegistry, settings: Settings, around: Surroundings) -> None:
    wanted, search = settings.tools.web, settings.tools.web.search
    searching = SearchSettings(search.provider, search.api_key.get_secret_value(), search.base_url)
    fetch = WebFetch(
        around.egress,
        _pdf_text,
        seconds=wanted.timeout_seconds,
        megabytes=wanted.fetch_megabytes,
        for_others=around.public_egress,
    )
    registry.register_all((fetch, WebSearch(around.search_egress, searching)))


def _is_others(path: str, caller: Caller) -> bool:
    """Whether a file lies with another person or a group, whose folders are in the owner's."""
    return caller.scope == OWNER and path.startswith(("people/", "groups/"))


def _received(stores: Stores, path: str, caller: Caller) -> Place | None:
    """A file that came with a message: the owner's any, otherwise one of this conversation."""
    kept = stores.media.place(path)
    if kept is None or caller.scope == OWNER:
        return kept
    names = {name for message in caller.heard() for name in message.media}
    return kept if kept.names[-1] in names else None


def _pdf_text(content: bytes) -> str:
    """The text of a PDF, page by page. Raises `ToolError`."""
    try:
        pages = read_pages(content, _PDF)
    except PdfUnreadable as error:
        raise ToolError(f"this PDF cannot be read: {error}") from error
    return "\n".join(f"[page {number}]\n{text}" for number, text in pages) or "[no text in it]"


def build_approvals(scopes: Scopes, courier: Courier, lanes: Lanes, clock: Clock) -> Approvals:
    """What asks the owner, in their own chat."""
    return Approvals(partial(_ask, scopes, courier), lanes.pausing, clock, new_code)


def build_gate(
    settings: Settings, stores: Stores, approvals: Approvals, clock: Clock
) -> ToolRegistry:
    """The one gate, with no tools yet."""
    redactor = Redactor(secret_values(settings))
    return ToolRegistry(
        policy=OwnersPolicy(settings.tools.approval.by_kind()),
        approver=approvals,
        audit=AuditLog(stores.home / "logs" / "audit.jsonl", redactor, clock),
        redactor=redactor,
        overflow=stores.spill,
    )


async def _ask(
    scopes: Scopes,
    courier: Courier,
    caller: Caller,
    code: str,
    text: str,
    buttons: Sequence[Button],
) -> Address | None:
    """Where the owner is in the conversation and nobody else is, there; else in their own chat, and
    whoever waits here is told so."""
    theirs = caller.scope == OWNER or scopes.is_owner(caller.channel, caller.sender_id)
    here = caller.address
    place = await courier.ask(
        here if theirs and not is_group(caller.scope) else None, text, buttons
    )
    if place is None:
        return None
    if place != here:
        caller.show("Waiting for the owner to allow this.\n")
    return place


@dataclass(frozen=True, slots=True)
class Toolbox:
    """The tools, and what others need to reach in them."""

    registry: ToolRegistry
    approvals: Approvals
    around: Surroundings
    helpers: Helpers
    mcp: McpServers

    @property
    def closables(self) -> tuple[Closable, ...]:
        """What holds connections or processes."""
        around = self.around
        return (
            around.egress,
            around.search_egress,
            around.public_egress,
            self.mcp,
            around.processes,
        )


def build_toolbox(
    base: Base, models: Models, memory: Remembering, extra_tools: Sequence[Tool]
) -> Toolbox:
    """All tools behind the one gate."""
    settings, stores, clock, bus = base.settings, base.stores, base.clock, base.bus
    web = settings.tools.web
    around = Surroundings(
        egress=build_egress(settings, web.allow_hosts, web.domains),
        search_egress=build_egress(settings, web.reachable),
        public_egress=build_egress(settings, domains=web.domains),
        sandbox=SandboxFinder(settings.tools.exec.sandbox, settings.home),
        processes=base.processes,
        cron=build_cron(base),
        skills=build_skills(settings, stores.workspace, clock),
    )
    approvals = build_approvals(base.scopes, base.courier, base.lanes, clock)
    tools = build_gate(settings, stores, approvals, clock)
    build_tools(tools, stores, memory, settings, around, clock, base.courier.say_at)
    tools.register(build_message_tool(stores, memory, bus, base.splitter, base.known, clock))
    helpers = build_helpers(
        settings, stores, tools, models.provider, models.counter, around.processes, bus, clock
    )
    tools.register(Spawn(helpers))
    mcp = build_mcp(settings, tools, clock, partial(base.courier.warn_elsewhere, ""))
    mcp.load()
    tools.register_all(extra_tools)
    return Toolbox(tools, approvals, around, helpers, mcp)
