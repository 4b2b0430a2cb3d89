"""The tools behind the one gate: what each works with, whose files it reaches, how the owner is
asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from loguru import logger

from nanobot.agent.helpers import Helpers, Spawn
from nanobot.agent.messaging import Reachable, SendMessage
from nanobot.agent.notifier import Courier, MessageSplitter
from nanobot.agent.session_queue import Lanes
from nanobot.app.base import Base, Models
from nanobot.app.home import Stores
from nanobot.app.memory import Remembering
from nanobot.app.model import secrets
from nanobot.app.outside import (
    JobChats,
    Skills,
    build_cron,
    build_egress,
    build_helpers,
    build_mcp,
    build_skills,
)
from nanobot.bus.events import Address, Button
from nanobot.bus.queue import MessageBus
from nanobot.clock import Clock
from nanobot.config.settings import Settings
from nanobot.config.tools import ExecSettings
from nanobot.cron.service import CronService
from nanobot.cron.tool import CronTool, Say
from nanobot.errors import NanobotError, ToolError
from nanobot.gateway.gateway import Closable
from nanobot.memory.index.pdf import PdfLimits, PdfUnreadable, read_pages
from nanobot.memory.index.tool import SearchMemory
from nanobot.memory.scopes import OWNER, Scopes, is_group
from nanobot.memory.store.store import BOOTSTRAP, LONG_TERM
from nanobot.memory.tools.documents import Documents
from nanobot.memory.tools.tools import Note, UpdateMemory
from nanobot.security.access.rules import new_code
from nanobot.security.audit import AuditLog
from nanobot.security.egress import Egress
from nanobot.security.paths import Place, Root, Roots
from nanobot.security.redaction import Redactor
from nanobot.security.sandbox import Confined, Found, NetworkRelay, find_sandbox
from nanobot.skills import ReadSkill, is_skill_file
from nanobot.tooling import Caller, OwnersPolicy, Tool, ToolRegistry
from nanobot.tooling.approvals import Approvals
from nanobot.tooling.policy import AuditedCalls
from nanobot.tools.files import EditFile, WorkspaceWriter, WriteFile
from nanobot.tools.mcp import McpServers
from nanobot.tools.reading import ListDir, ReadFile
from nanobot.tools.search import FindFiles, Grep
from nanobot.tools.shell import Exec, ExecKill, ExecRead, Limits, Processes, Shell
from nanobot.tools.web import SearchSettings, WebFetch, WebSearch

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


class SandboxFinder:
    """Finds the sandbox when it is first needed, and again as long as there is none."""

    def __init__(self, wanted: ExecSettings, home: Path) -> None:
        self._wanted, self._home = wanted, home
        self._found: Found | None = None

    async def __call__(self) -> Found:
        """What there is."""
        if self._found is None or self._found.sandbox is None:
            self._found = await find_sandbox(self._wanted.sandbox, private=(self._home,))
        return self._found


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
    others: Reachable,
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
        relay=lambda: NetworkRelay(around.egress),
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
    redactor = Redactor(secrets(settings))
    return ToolRegistry(
        policy=OwnersPolicy(settings.tools.approval.by_kind()),
        approver=approvals,
        audit=AuditedCalls(AuditLog(stores.home / "logs" / "audit.jsonl", redactor, clock)),
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
    job_chats: JobChats

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
        sandbox=SandboxFinder(settings.tools.exec, settings.home),
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
    return Toolbox(tools, approvals, around, helpers, mcp, JobChats(base.known, base.scopes))
