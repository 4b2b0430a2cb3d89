"""Builds the tools with their gate: their folders, the approval by the owner, and their targets,
such as the network, MCP servers, subagents, skills and scheduled jobs."""

from __future__ import annotations

import platform
import secrets
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from loguru import logger

from nanobot.agent.approval_commands import ApprovalCommands
from nanobot.agent.helpers import Helpers, Spawn
from nanobot.agent.message_tool import SendMessage
from nanobot.agent.notifier import remind
from nanobot.agent.runner import AgentRunner
from nanobot.agent.truncation import PromptRoom
from nanobot.agent.voice_replies import VoiceReplies, VoiceTool
from nanobot.app.base import Base, Closable, Models, secret_values
from nanobot.app.memory import MemoryParts
from nanobot.app.voice import sandbox_of_programs
from nanobot.bus.events import Address, Button
from nanobot.clock import Clock
from nanobot.config.load import load_settings
from nanobot.config.settings import Settings
from nanobot.config.tools import McpServerSettings
from nanobot.config.values import plain_values
from nanobot.cron.job import JobStore
from nanobot.cron.service import CronService
from nanobot.cron.tool import CronTool, ModelCronTool
from nanobot.errors import NanobotError, ToolError
from nanobot.memory.documents import LONG_TERM, RULES
from nanobot.memory.scopes import OWNER
from nanobot.memory.search.library import PdfLimits, read_pages
from nanobot.memory.search.tool import MOST_CHARACTERS, SearchMemory
from nanobot.memory.tools import Documents, Marks, Note, UpdateMemory
from nanobot.programs import find
from nanobot.security.audit import AuditLog
from nanobot.security.egress import Egress
from nanobot.security.pairing import new_code
from nanobot.security.paths import Place, Root, Roots
from nanobot.security.sandbox import Confinement, SandboxFinder
from nanobot.skills.loader import SkillEnvironment, SkillsLoader
from nanobot.skills.prompt import ReadSkill
from nanobot.skills.service import SkillsService
from nanobot.templates import render
from nanobot.tooling import OwnersPolicy, Tool, TurnContext
from nanobot.tooling.approvals import Announce, Approvals, StandingApprovals, no_announcement
from nanobot.tooling.registry import ToolRegistry
from nanobot.tools.files import EditFile, WorkspaceWriter, WriteFile
from nanobot.tools.mcp.connections import Connections
from nanobot.tools.mcp.server import ServerRunner
from nanobot.tools.mcp.servers import McpServers
from nanobot.tools.mcp.values import McpServer, ToolDescription
from nanobot.tools.read_tools import FindFiles, Grep, ListDir, ReadFile
from nanobot.tools.shell.tools import Exec, ExecKill, ExecLimits, ExecRead
from nanobot.tools.web.fetch import WebFetch
from nanobot.tools.web.search import SearchSettings, WebSearch

HELPER_ITERATIONS = 20
"""Steps of a subagent, which has one task and no continuing conversation."""

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
"""Tools of a subagent, which can't send messages, remember or schedule."""

_PROGRAMS = "/usr/local/bin:/usr/bin:/bin"
"""PATH of commands in the sandbox, without a person's own folders."""

_TRIAL_GRACE = 2.0
"""Seconds for a server to end after a trial."""

_PDF = PdfLimits(pages=500, characters=2_000_000, seconds=30.0)
"""Limits of a turn that reads a PDF."""


class Toolbox:
    """All tools behind the gate, and their parts that others need."""

    def __init__(
        self,
        base: Base,
        models: Models,
        memory: MemoryParts,
        extra_tools: Sequence[Tool],
        announce: Announce = no_announcement,
    ) -> None:
        settings, stores, clock = base.settings, base.stores, base.clock
        wanted, state = settings.tools, stores.journal.state
        self._base, self._memory = base, memory
        self.audit = AuditLog(settings.home / "logs" / "audit.jsonl", base.redactor, clock)
        standing = StandingApprovals(state, self.audit, clock, partial(secrets.token_hex, 4))
        self.approvals = approvals = Approvals(
            self._ask_owner, base.lanes.pausing, clock, new_code, announce, standing
        )
        self.approval_commands = ApprovalCommands(approvals, standing)
        self.registry = tools = ToolRegistry(
            policy=OwnersPolicy(wanted.approval.by_kind()),
            ask=approvals.ask,
            audit=self.audit,
            redactor=base.redactor,
            spill=stores.spill,
            folders=(settings.home, settings.data_folder, stores.workspace.path),
        )
        path = _PROGRAMS if wanted.exec.sandbox != "none" else None
        here = SkillEnvironment(partial(find, path=path), wanted.exec.environment)
        loader = SkillsLoader(
            stores.workspace, state, here=here, turned_off=settings.skills.disabled
        )
        self.skills = SkillsService(loader, clock)
        self.cron = CronService(
            JobStore(state),
            base.bus.publish_internal,
            clock,
            remind=partial(remind, base.bus, base.splitter),
            busy=stores.journal.is_busy,
            is_wanted=base.known_chats.is_wanted_in,
            models=tuple(settings.models),
        )
        self._egress = build_egress(settings, wanted.web.allow_hosts, wanted.web.domains)
        self._searching = build_egress(settings, wanted.web.reachable)
        self._public = build_egress(settings, domains=wanted.web.domains)
        self.voice_replies: VoiceReplies | None = None
        if (speech := models.voice.speech) is not None:
            when = settings.model.speech.when
            self.voice_replies = VoiceReplies(speech, stores.media, base.splitter, when)
            self.voice_replies.register(base.commands)
        tools.register_all(self._build_tools(loader))
        self.helpers = _build_helpers(base, models, tools, memory)
        tools.register(Spawn(self.helpers))
        self.mcp = _build_mcp(base, tools)
        tools.register_all(extra_tools)
        self.closables: tuple[Closable, ...] = (
            self._egress,
            self._searching,
            self._public,
            self.mcp,
            base.processes,
            self.helpers,
        )

    def _build_tools(self, loader: SkillsLoader) -> list[Tool]:
        """Return the tools that the settings allow, in the order of the prompt."""
        settings = self._base.settings
        return [
            *self._file_tools(),
            ReadSkill(loader),
            *(self._job_tools() if settings.cron.enabled else ()),
            *(self._shell_tools() if settings.tools.exec.enabled else ()),
            *(self._web_tools() if settings.tools.web.enabled else ()),
            *self._chat_tools(),
        ]

    async def _ask_owner(
        self, caller: TurnContext, code: str, text: str, buttons: Sequence[Button]
    ) -> Address | None:
        """Call `Notifier.ask`. The turn is not blamed if the process ends before the answer."""
        await self._base.stores.journal.mark_owner_asked(caller.turn_id)
        return await self._base.notifier.ask(caller, code, text, buttons)

    def roots_of(self, caller: TurnContext) -> Roots:
        """Return the folders of the caller's scope."""
        if caller.scope == OWNER:
            spill = Root(self._base.stores.shared / "spill", writable=False, name="spill folder")
            return Roots((self._base.stores.workspace, spill))
        root = self._memory.memories.of(caller.scope).root
        root.create()
        return Roots((root,))

    def find_received(self, path: str, caller: TurnContext) -> Place | None:
        """Return a file that came with a message: any for the owner, otherwise one of this
        conversation."""
        kept = self._base.stores.media.place(path)
        if kept is None or caller.scope == OWNER:
            return kept
        names = {one.file for message in caller.messages_read() for one in message.media}
        return kept if kept.names[-1] in names else None

    def is_others(self, path: str, caller: TurnContext) -> bool:
        """Return True if a file belongs to another person or a group, whose folders are in the
        owner's."""
        return caller.scope == OWNER and path.startswith(("people/", "groups/"))

    async def note_changes(self, caller: TurnContext) -> None:
        """Record memory changes by a command without a sandbox as the agent's, not a person's."""
        for one in self._memory.memories.list_held():
            try:
                await one.store.record_hand_edits("agent")
            except NanobotError as error:
                logger.warning(
                    "{}: changes made by a command were not recorded: {}", one.scope, error
                )

    def confine(self, caller: TurnContext) -> Confinement:
        """Return the sandbox rules for a caller's command: the scope's folder, with read-only files
        that control future behaviour."""
        wanted, ledger = self._base.settings.tools.exec, self._base.processes.ledger
        kept = (*sorted(RULES), "memory/", "skills/")
        mine = caller.scope == OWNER  # others get no folders and keys of the owner
        if mine:
            kept += ("people/", "groups/")
        return Confinement(
            workspace=self.roots_of(caller).roots[0].path,
            read_only=kept,
            hide_git=not (wanted.allow_git and mine),
            strict=not mine,
            extra_read_only=tuple(map(Path, wanted.paths)) if mine else (),
            environment=plain_values(wanted.environment) if mine else {},
            memory_megabytes=wanted.memory_megabytes,
            ledger=ledger,
        )

    def _file_tools(self) -> tuple[Tool, ...]:
        base, memory, roots = self._base, self._memory, self.roots_of
        window = base.settings.model.context_window
        memories, undo, received = memory.memories, base.stores.undo, self.find_received
        writer = WorkspaceWriter(roots, undo, Documents(memories), base.processes, self.is_others)
        return (
            ReadFile(roots, own=RULES | {LONG_TERM}, received=received, pdf_text=_pdf_text),
            WriteFile(writer),
            EditFile(writer),
            ListDir(roots),
            FindFiles(roots),
            Grep(roots),
            SearchMemory(
                memory.index,
                base.scopes.readable,
                lambda scope, facts: memories.of(scope).recall.note_use(facts),
                characters=min(MOST_CHARACTERS, window // 3),
            ),
            Note(memories, undo.before_change, Marks(base.stores.sessions, base.stores.journal)),
            UpdateMemory(memories, undo.before_change),
        )

    def _job_tools(self) -> tuple[Tool, ...]:
        base, notifier = self._base, self._base.notifier
        kind = ModelCronTool if base.settings.models else CronTool
        return (kind(self.cron, base.clock, notifier.send, notifier.place_of),)

    def _web_tools(self) -> tuple[Tool, ...]:
        search = self._base.settings.tools.web.search
        found = SearchSettings(search.provider, search.api_key.get_secret_value(), search.base_url)
        fetch = WebFetch(self._egress, _pdf_text, for_others=self._public)
        return (fetch, WebSearch(self._searching, found))

    def _chat_tools(self) -> tuple[Tool, ...]:
        base = self._base
        send = SendMessage(
            self.roots_of,
            base.stores.media,
            base.splitter,
            base.bus,
            base.known_chats,
            base.clock,
            self.find_received,
        )
        return (send, VoiceTool(self.voice_replies)) if self.voice_replies else (send,)

    def _shell_tools(self) -> tuple[Tool, ...]:
        base, wanted = self._base, self._base.settings.tools.exec
        run = Exec(
            SandboxFinder(wanted.sandbox, *base.settings.folders),
            self.confine,
            base.processes,
            base.clock,
            self._egress,
            ExecLimits(network=wanted.network),
            self.note_changes,
        )
        return (run, ExecRead(base.processes, base.clock), ExecKill(base.processes))


def _pdf_text(content: bytes) -> str:
    """Return the text of a PDF, page by page. Raises `ToolError`."""
    try:
        pages = read_pages(content, _PDF)
    except ToolError as error:
        raise ToolError(f"this PDF cannot be read: {error}", hint=error.hint) from error
    return "\n".join(f"[page {number}]\n{text}" for number, text in pages) or "[no text in it]"


def _build_helpers(base: Base, models: Models, tools: ToolRegistry, memory: MemoryParts) -> Helpers:
    """Return the subagents, with some of `tools`."""
    settings = base.settings
    runner = AgentRunner(
        models.provider,
        tools.only(HELPER_TOOLS),
        base.clock,
        max_iterations=HELPER_ITERATIONS,
        max_tokens=settings.limits.tokens_per_turn,
        room=PromptRoom(settings.prompt_tokens("helpers"), models.counter),
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
        holding=memory.memories.holding,
    )


def _build_mcp(base: Base, registry: ToolRegistry) -> McpServers:
    """Return the enabled servers, without starting them."""

    def server_of(settings: Settings, name: str) -> McpServer | None:
        entry = settings.mcp.servers.get(name)
        return _server(name, entry) if entry and entry.enabled else None

    def load_added(name: str) -> McpServer | None:
        """Return a server from the current config.yaml. Raises `NanobotError` if that is
        invalid."""
        settings = load_settings(base.settings.home)
        if found := server_of(settings, name):
            base.redactor.add(secret_values(settings))
        return found

    servers = [server_of(base.settings, name) for name in base.settings.mcp.servers]
    return McpServers(
        [one for one in servers if one],
        _mcp_connections(base.settings),
        registry,
        base.stores.journal.state,
        base.clock,
        base.notifier.warn,
        load_added,
        (base.stores.workspace.path,),
    )


def _mcp_connections(settings: Settings) -> Connections:
    egress = build_egress(settings, settings.tools.web.allow_hosts)
    return Connections(settings.home / "mcp", sandbox_of_programs(settings), egress)


async def try_server(settings: Settings, name: str, clock: Clock) -> Sequence[str]:
    """Start an MCP server of `settings`, which may be unsaved, end it again, and return its tools'
    names. Raises `NanobotError`."""
    found: list[ToolDescription] = []
    server = _server(name, settings.mcp.servers[name])
    runner = ServerRunner(server, _mcp_connections(settings), clock, found.extend)
    try:
        await runner.ready()
    finally:
        await runner.stop(_TRIAL_GRACE)
        with suppress(OSError):  # the server may have put files there
            (settings.home / "mcp" / name).rmdir()
    return [one.name for one in found]


def _server(name: str, entry: McpServerSettings) -> McpServer:
    return McpServer(
        name,
        command=entry.command,
        args=entry.args,
        env=plain_values(entry.env),
        paths=tuple(map(Path, entry.paths)),
        writable=tuple(map(Path, entry.writable)),
        network=entry.network,
        sandbox=entry.sandbox,
        url=entry.url,
        headers=plain_values(entry.headers),
        tools=entry.tools,
        people=entry.people,
        trust_read_only=entry.trust_read_only,
        timeout_seconds=entry.timeout_seconds,
    )


def build_egress(
    settings: Settings, allow_hosts: Iterable[str] = (), domains: Iterable[str] = ()
) -> Egress:
    """Return an access to the public network, with the owner's exceptions, and only to `domains` if
    given."""
    proxy = settings.tools.web.proxy.get_secret_value()
    return Egress(allow_hosts=allow_hosts, domains=domains, proxy=proxy)
