"""The tools behind the one gate: what each works with, whose files it reaches, how the owner is
asked; and what tools reach: network, MCP servers, helpers, skills, scheduled jobs."""

from __future__ import annotations

import platform
import shutil
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

from loguru import logger
from msgspec import Struct

from nanobot.agent.helpers import Helpers, Spawn
from nanobot.agent.messaging import SendMessage
from nanobot.agent.notifier import remind
from nanobot.agent.prompt import PromptRoom
from nanobot.agent.runner import AgentRunner
from nanobot.app.base import Base, Closable, Models, Stores, secret_values
from nanobot.app.memory import Remembering
from nanobot.bus.events import Address, Button
from nanobot.bus.state import StateStore
from nanobot.clock import Clock
from nanobot.config.settings import Settings
from nanobot.config.tools import McpServerSettings
from nanobot.config.values import revealed
from nanobot.cron.job import JobStore
from nanobot.cron.service import CronService
from nanobot.cron.tool import CronTool
from nanobot.errors import NanobotError, ToolError
from nanobot.memory.documents import LONG_TERM, RULES
from nanobot.memory.scopes import OWNER, is_group
from nanobot.memory.search.library import PdfLimits, read_pages
from nanobot.memory.search.tool import SearchMemory
from nanobot.memory.tools import Documents, Note, UpdateMemory
from nanobot.security.audit import AuditLog
from nanobot.security.egress import Egress
from nanobot.security.pairing import new_code
from nanobot.security.paths import Place, Root, Roots
from nanobot.security.redaction import Redactor
from nanobot.security.sandbox import Confined
from nanobot.security.sandbox.finding import SandboxFinder
from nanobot.skills.folder import is_skill_file
from nanobot.skills.loader import SkillsLoader, Surroundings
from nanobot.skills.prompt import ReadSkill
from nanobot.skills.service import SkillsService
from nanobot.templates import render
from nanobot.tooling import OwnersPolicy, Tool, TurnContext
from nanobot.tooling.approvals import Approvals
from nanobot.tooling.registry import ToolRegistry
from nanobot.tools.files import EditFile, WorkspaceWriter, WriteFile
from nanobot.tools.mcp.connections import Connections, Programs
from nanobot.tools.mcp.servers import McpServers
from nanobot.tools.mcp.values import McpServer
from nanobot.tools.reading import ListDir, ReadFile
from nanobot.tools.search import FindFiles, Grep
from nanobot.tools.shell.tools import Exec, ExecKill, ExecRead, Limits
from nanobot.tools.web.fetch import WebFetch
from nanobot.tools.web.search import SearchSettings, WebSearch

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

_PROGRAMS = "/usr/local/bin:/usr/bin:/bin"
"""Where commands in the sandbox find programs: a person's own folders are not there."""

_PDF = PdfLimits(pages=500, characters=2_000_000, seconds=30.0)
"""What a turn waits for when it reads a PDF."""


class Toolbox(Struct, frozen=True):
    """The tools, and what others need to reach in them."""

    registry: ToolRegistry
    approvals: Approvals
    cron: CronService
    skills: Skills
    helpers: Helpers
    mcp: McpServers
    closables: tuple[Closable, ...]


class Skills(Struct, frozen=True):
    """What reads skills, and what the owner does with them."""

    loader: SkillsLoader
    service: SkillsService


class CallersFiles(Struct, frozen=True):
    """Whose files a call reaches."""

    stores: Stores
    memory: Remembering

    def roots_of(self, caller: TurnContext) -> Roots:
        """The folders of the scope that a call serves."""
        if caller.scope == OWNER:
            spill = Root(self.stores.home / "spill", writable=False, name="spill folder")
            return Roots((self.stores.workspace, spill))
        root = self.memory.memories.of(caller.scope).root
        root.create()
        return Roots((root,))

    def received(self, path: str, caller: TurnContext) -> Place | None:
        """A file that came with a message: the owner's any, otherwise one of this conversation."""
        kept = self.stores.media.place(path)
        if kept is None or caller.scope == OWNER:
            return kept
        names = {name for message in caller.heard() for name in message.media}
        return kept if kept.names[-1] in names else None

    def is_others(self, path: str, caller: TurnContext) -> bool:
        """Whether a file lies with another person or a group, whose folders are in the owner's."""
        return caller.scope == OWNER and path.startswith(("people/", "groups/"))

    async def note_changes(self, caller: TurnContext) -> None:
        """What a command without a sandbox changed in memory was the agent's doing, no person's."""
        for one in self.memory.on_disk():
            try:
                await one.store.record_hand_edits("agent")
            except NanobotError as error:
                logger.warning("{}: changes after a command are not recorded: {}", one.scope, error)


def build_toolbox(
    base: Base, models: Models, memory: Remembering, extra_tools: Sequence[Tool]
) -> Toolbox:
    """All tools behind the one gate."""
    settings, clock, state = base.settings, base.clock, base.stores.journal.state
    approvals = Approvals(partial(_ask, base), base.lanes.pausing, clock, new_code)
    redactor = Redactor(secret_values(settings))
    audit = AuditLog(settings.home / "logs" / "audit.jsonl", redactor, clock)
    tools = ToolRegistry(
        policy=OwnersPolicy(settings.tools.approval.by_kind()),
        ask=approvals.ask,
        audit=audit,
        redactor=redactor,
        overflow=base.stores.spill,
    )
    files = CallersFiles(base.stores, memory)
    skills = build_skills(settings, base.stores.workspace, state, clock)
    cron = CronService(
        JobStore(state),
        base.bus.note,
        clock,
        remind=partial(remind, base.bus, base.splitter),
        busy=base.stores.journal.is_busy,
        may_reach=base.known.may_reach,
    )
    web = settings.tools.web
    egress = build_egress(settings, web.allow_hosts, web.domains)
    egresses = (
        egress,
        build_egress(settings, web.reachable),
        build_egress(settings, domains=web.domains),
    )
    _offer_files(tools, base, memory, files)
    tools.register(ReadSkill(skills.loader))
    if settings.cron.enabled:
        tools.register(CronTool(cron, clock, base.notifier.say))
    if settings.tools.exec.enabled:
        _offer_shell(tools, base, files, egress)
    if web.enabled:
        _offer_web(tools, settings, *egresses)
    tools.register(
        SendMessage(
            files.roots_of,
            base.stores.media,
            base.splitter,
            base.bus,
            base.known,
            clock,
            files.received,
        )
    )
    helpers = build_helpers(base, models, tools)
    tools.register(Spawn(helpers))
    mcp = build_mcp(settings, tools, state, clock, base.notifier.warn)
    tools.register_all(extra_tools)
    closables = (*egresses, mcp, base.processes)
    return Toolbox(tools, approvals, cron, skills, helpers, mcp, closables)


def _offer_files(
    registry: ToolRegistry, base: Base, memory: Remembering, files: CallersFiles
) -> None:
    memory_of, undo, roots = memory.memories.of, base.stores.undo, files.roots_of
    writer = WorkspaceWriter(
        roots, undo, Documents(memory_of), base.processes, is_skill_file, files.is_others
    )
    own = RULES | {LONG_TERM}
    registry.register_all(
        (
            ReadFile(roots, own=own, received=files.received, pdf_text=_pdf_text),
            WriteFile(writer),
            EditFile(writer),
            ListDir(roots),
            FindFiles(roots),
            Grep(roots),
            SearchMemory(
                memory.index,
                memory.scopes.readable,
                lambda scope: memory_of(scope).store.retired(),
            ),
            Note(memory_of, undo.before_change),
            UpdateMemory(memory_of, undo.before_change),
        )
    )


def _offer_shell(registry: ToolRegistry, base: Base, files: CallersFiles, egress: Egress) -> None:
    wanted, processes = base.settings.tools.exec, base.processes
    run = Exec(
        SandboxFinder(wanted.sandbox, base.settings.home),
        partial(_confined, base, files),
        processes,
        base.clock,
        egress,
        Limits(wanted.timeout_seconds, wanted.max_timeout_seconds, wanted.network),
        files.note_changes,
    )
    registry.register_all((run, ExecRead(processes, base.clock), ExecKill(processes)))


def _confined(base: Base, files: CallersFiles, caller: TurnContext, network: bool) -> Confined:
    """What a caller's command may touch: their scope's folder, of which what decides future
    behaviour cannot be changed."""
    wanted = base.settings.tools.exec
    kept = (*sorted(RULES), "memory/", "skills/")
    mine = caller.scope == OWNER  # folders and keys of the owner's are nobody else's
    if mine:
        kept += ("people/", "groups/")
    return Confined(
        workspace=files.roots_of(caller).roots[0].path,
        read_only=kept,
        hide_git=not wanted.allow_git,
        extra_read_only=tuple(map(Path, wanted.paths)) if mine else (),
        network="relay" if network else "none",
        environment=revealed(wanted.environment) if mine else {},
        memory_megabytes=wanted.memory_megabytes,
        processes=wanted.processes,
        ledger=base.processes.ledger,
    )


def _offer_web(
    registry: ToolRegistry, settings: Settings, egress: Egress, searching: Egress, public: Egress
) -> None:
    wanted, search = settings.tools.web, settings.tools.web.search
    fetch = WebFetch(
        egress,
        _pdf_text,
        seconds=wanted.timeout_seconds,
        megabytes=wanted.fetch_megabytes,
        for_others=public,
    )
    key = search.api_key.get_secret_value()
    provider = SearchSettings(search.provider, key, search.base_url)
    registry.register_all((fetch, WebSearch(searching, provider)))


def _pdf_text(content: bytes) -> str:
    """The text of a PDF, page by page. Raises `ToolError`."""
    try:
        pages = read_pages(content, _PDF)
    except ToolError as error:
        raise ToolError(f"this PDF cannot be read: {error}") from error
    return "\n".join(f"[page {number}]\n{text}" for number, text in pages) or "[no text in it]"


async def _ask(
    base: Base, caller: TurnContext, code: str, text: str, buttons: Sequence[Button]
) -> Address | None:
    """Where the owner is in the conversation and nobody else is, there; else in their own chat, and
    whoever waits here is told so."""
    theirs = caller.scope == OWNER or base.scopes.is_owner(caller.channel, caller.sender_id)
    here = caller.address
    if theirs and not is_group(caller.scope):
        await base.notifier.say(here, text, buttons)
        return here
    place = await base.notifier.tell(OWNER, text, buttons)
    if place is not None and place != here:
        caller.show("Waiting for the owner to allow this.\n")
    return place


def build_helpers(base: Base, models: Models, tools: ToolRegistry) -> Helpers:
    """Helper agents, with some of `tools`."""
    settings, clock = base.settings, base.clock
    wanted = settings.tools.helpers
    runner = AgentRunner(
        models.provider,
        tools.only(HELPER_TOOLS),
        clock,
        max_iterations=wanted.max_iterations,
        max_tokens=settings.limits.tokens_per_turn,
        room=PromptRoom(settings.model.prompt_tokens, models.counter),
    )
    instructions = render(
        "helper.md",
        workspace=str(base.stores.workspace.path),
        system=platform.system(),
        python=platform.python_version(),
    )
    return Helpers(
        runner=runner,
        instructions=instructions.strip(),
        journal=base.stores.journal,
        bus=base.bus,
        processes=base.processes,
        clock=clock,
        at_once=wanted.max_concurrent,
        minutes=wanted.timeout_minutes,
    )


def build_skills(settings: Settings, workspace: Root, store: StateStore, clock: Clock) -> Skills:
    """The skills in `workspace` and those that are built in."""
    path = _PROGRAMS if settings.tools.exec.sandbox != "none" else None
    loader = SkillsLoader(
        workspace,
        store,
        here=Surroundings(partial(shutil.which, path=path), settings.tools.exec.environment),
        unwanted=settings.skills.disabled,
    )
    return Skills(loader, SkillsService(loader, clock))


def build_mcp(
    settings: Settings,
    registry: ToolRegistry,
    store: StateStore,
    clock: Clock,
    tell: Callable[[str, str], Awaitable[None]] | None = None,
) -> McpServers:
    """The servers that are enabled; none of them is started. `tell` is as `McpServers` takes it."""
    home, web, wanted = settings.home, settings.tools.web, settings.tools.exec.sandbox
    # That the owner lets the shell run without a sandbox does not say that other people's programs
    # may as well: the entry of a server says so for itself.
    finder = SandboxFinder("auto" if wanted == "none" else wanted, home)

    def way(server: McpServer) -> Egress:
        # To the address that the owner wrote, even one of this machine; for this server alone.
        own = (server.named_address,) if server.named_address else ()
        return build_egress(settings, (*web.allow_hosts, *own))

    programs = Programs(home / "mcp", finder, build_egress(settings, web.allow_hosts))
    connections = Connections(programs, way)
    servers = [
        _server(name, entry) for name, entry in settings.mcp.servers.items() if entry.enabled
    ]
    return McpServers(servers, connections, registry, store, clock, tell)


def _server(name: str, entry: McpServerSettings) -> McpServer:
    return McpServer(
        name,
        command=entry.command,
        args=entry.args,
        env=revealed(entry.env),
        paths=tuple(map(Path, entry.paths)),
        writable=tuple(map(Path, entry.writable)),
        network=entry.network,
        sandbox=entry.sandbox,
        url=entry.url,
        headers=revealed(entry.headers),
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
