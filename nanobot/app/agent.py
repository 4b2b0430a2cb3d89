"""What answers messages: the tools, and what happens between the bus and the outbox."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from loguru import logger

from nanobot.agent.context import ContextBuilder, SystemPrompt
from nanobot.agent.fitting import PromptRoom
from nanobot.agent.hooks import AgentHook
from nanobot.agent.intake import Intake, Transcribe
from nanobot.agent.lobby import Lobby
from nanobot.agent.loop import AgentLoop
from nanobot.agent.mailbox import Mailbox
from nanobot.agent.messaging import Reachable, SendMessage
from nanobot.agent.responder import Responder
from nanobot.agent.runner import AgentRunner
from nanobot.agent.system_prompt import WorkspacePrompt
from nanobot.agent.turns import Turns
from nanobot.app.home import Stores
from nanobot.app.memory import Remembering
from nanobot.app.model import build_counter, secrets
from nanobot.bus.events import InboundMessage, Media, OutboundMessage
from nanobot.bus.lanes import Lanes
from nanobot.bus.queue import MessageBus
from nanobot.bus.split import split_message
from nanobot.channel import Channel
from nanobot.channel import Limits as PartLimits
from nanobot.clock import Clock
from nanobot.commands import CommandRegistry
from nanobot.config.settings import Settings
from nanobot.errors import ToolError
from nanobot.gateway.screen import Screen
from nanobot.memory.consolidation.consolidator import MemoryConsolidator
from nanobot.memory.consolidation.measuring import Limits
from nanobot.memory.index.pdf import PdfLimits, PdfUnreadable, read_pages
from nanobot.memory.index.tool import SearchMemory
from nanobot.memory.scopes import OWNER
from nanobot.memory.store.store import BOOTSTRAP, LONG_TERM
from nanobot.memory.text.unconfirmed import NOTE
from nanobot.memory.tools.documents import Documents
from nanobot.memory.tools.tools import Note, UpdateMemory
from nanobot.messages import Message
from nanobot.providers.port import Provider, Toolset
from nanobot.security.paths import Place, Root, Roots
from nanobot.security.redaction import Redactor
from nanobot.session.session import Session
from nanobot.tasks import Background
from nanobot.tooling import Caller, ToolRegistry
from nanobot.tools.changes import WorkspaceWriter
from nanobot.tools.files import EditFile, WriteFile
from nanobot.tools.reading import ListDir, ReadFile
from nanobot.tools.search import FindFiles, Grep

MAX_MESSAGE_SHARE = 4
"""A single message may take at most one part in so many of the prompt's room."""


_PDF = PdfLimits(pages=500, characters=2_000_000, seconds=30.0)
"""What a turn waits for when it reads a PDF."""


@dataclass(frozen=True, slots=True)
class Agent:
    """What answers messages, and what others need to reach in it."""

    loop: AgentLoop
    lanes: Lanes
    turns: Turns
    consolidator: MemoryConsolidator
    background: Background


def build_tools(stores: Stores, memory: Remembering, settings: Settings) -> ToolRegistry:
    """The tools, behind the one gate. Whose files and memory they reach, the caller says."""
    memory_of, roots = memory.memories.of, partial(_roots, stores, memory)
    writer = WorkspaceWriter(stores.undo, Documents(memory_of))
    registry = ToolRegistry(redactor=Redactor(secrets(settings)), overflow=stores.spill)
    registry.register_all(
        (
            ReadFile(
                roots,
                own=BOOTSTRAP | {LONG_TERM},
                received=partial(_received, stores),
                pdf_text=_pdf_text,
            ),
            WriteFile(roots, writer),
            EditFile(roots, writer),
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
        )
    )
    return registry


def build_message_tool(
    stores: Stores,
    memory: Remembering,
    bus: MessageBus,
    channels: Mapping[str, Channel],
    others: Reachable,
    clock: Clock,
) -> SendMessage:
    """The tool that says something in a chat and sends files; `others` are the other chats."""

    def limits_of(name: str) -> PartLimits:
        channel = channels.get(name)
        return channel.limits if channel else PartLimits()

    return SendMessage(
        partial(_roots, stores, memory),
        stores.media,
        limits_of,
        partial(split_for, channels),
        bus.send,
        bus.note,
        others,
        clock,
        partial(_received, stores),
    )


def build_agent(
    settings: Settings,
    stores: Stores,
    memory: Remembering,
    tools: ToolRegistry,
    provider: Provider,
    learner: Provider,
    *,
    bus: MessageBus,
    channels: Mapping[str, Channel],
    screen: Screen,
    hook: AgentHook,
    commands: CommandRegistry,
    clock: Clock,
    remark: Callable[[str, str], Awaitable[None]],
    transcribe: Transcribe | None = None,
) -> Agent:
    """What happens to a message between the bus and the outbox. `remark` shows a line in a chat,
    `transcribe` listens to voice messages."""
    journal, sessions, media = stores.journal, stores.sessions, stores.media
    mailbox, background = Mailbox(), Background()
    lanes = Lanes(settings.agent.max_concurrent_turns)
    budget = settings.model.prompt_tokens
    counter = build_counter(settings.model, stores.state, background)
    context = ContextBuilder(
        partial(_system_prompt, memory),
        Toolset.of(tools.specs()),
        clock,
        timestamps=settings.agent.timestamps,
        load_image=media.image,
        max_message_tokens=budget // MAX_MESSAGE_SHARE,
    )
    consolidator = MemoryConsolidator(
        provider=learner,
        memory_of=memory.of_session,
        prompt=context,
        counter=counter,
        sessions=sessions,
        clock=clock,
        limits=Limits(
            budget,
            settings.memory.window,
            settings.memory.chunk,
            settings.memory.idle_minutes,
            settings.memory.model,
        ),
        memories=memory.on_disk,
        versions=memory.versions,
        on_put_away=partial(_put_away, memory, remark if settings.memory.notices else None),
        background=background,
    )
    runner = AgentRunner(
        provider,
        tools,
        clock,
        max_iterations=settings.agent.max_iterations,
        keep_image=media.put_base64,
        fit=PromptRoom(budget, counter.count).fit,
    )
    intake = Intake(media, partial(_fetch, channels), partial(_is_owner, memory), transcribe)
    split = partial(split_for, channels)
    turns = Turns(
        journal,
        bus,
        sessions,
        mailbox,
        intake,
        clock,
        background,
        hook,
        split,
        memory.scopes,
        doubtful=partial(_doubtful, memory),
    )
    lobby = Lobby(mailbox, lanes, screen, background, clock)
    responder = Responder(
        context=context,
        consolidator=consolidator,
        counter=counter,
        runner=runner,
        turns=turns,
        lobby=lobby,
        journal=journal,
        hook=hook,
        background=background,
        clock=clock,
        wait_for_model_hours=settings.agent.wait_for_model_hours,
    )
    loop = AgentLoop(
        sessions=sessions,
        responder=responder,
        turns=turns,
        lobby=lobby,
        commands=commands,
        journal=journal,
        background=background,
        clock=clock,
        on_busy=settings.agent.on_busy,
    )
    return Agent(loop, lanes, turns, consolidator, background)


def split_for(
    channels: Mapping[str, Channel], message: OutboundMessage
) -> tuple[OutboundMessage, ...]:
    """A message in parts that its channel can send; none where there is nothing to say."""
    channel = channels.get(message.channel)
    limits = channel.limits if channel else PartLimits()
    if not message.content and not message.media and not limits.closing:
        return ()
    try:
        return split_message(message, limits)
    except Exception as error:  # noqa: BLE001 - the boundary: an adapter that cannot judge a text
        logger.opt(exception=error).error("{} could not judge a text", message.channel)
        return split_message(message, replace(limits, fits=None))


def _roots(stores: Stores, memory: Remembering, caller: Caller) -> Roots:
    """The folders of the scope that a call serves."""
    if caller.scope == OWNER:
        spill = Root(stores.home / "spill", writable=False, name="spill folder")
        return Roots((stores.workspace, spill))
    root = memory.memories.of(caller.scope).root
    root.create()
    return Roots((root,))


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


def _doubtful(memory: Remembering, session: Session) -> list[Message]:
    """The notes in a session's system prompt that foreign content may have caused."""
    scopes = memory.scopes.readable(memory.of_session(session).scope)
    notes = [memory.memories.of(scope).store.unconfirmed_notes() for scope in scopes]
    return [Message("user", text, origin=NOTE) for text in notes if text]


def _system_prompt(memory: Remembering, session: Session) -> SystemPrompt:
    mine = memory.of_session(session)
    others = [memory.memories.of(scope) for scope in memory.scopes.readable(mine.scope)[1:]]
    return WorkspacePrompt(
        mine.store,
        mine.root.path,
        rules=memory.memories.of(OWNER).store,
        shown=[other.store for other in others],
    )


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


def _is_owner(memory: Remembering, inbound: InboundMessage) -> bool:
    return memory.scopes.is_owner(inbound.channel, inbound.sender_id)


async def _fetch(channels: Mapping[str, Channel], name: str, media: Media, limit: int) -> bytes:
    return await channels[name].fetch(media, limit)
