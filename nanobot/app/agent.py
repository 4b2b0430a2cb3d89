"""What answers messages: the tools, and what happens between the bus and the outbox."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial

from nanobot.agent.context import ContextBuilder, SystemPrompt
from nanobot.agent.fitting import PromptRoom
from nanobot.agent.hooks import AgentHook
from nanobot.agent.intake import Intake
from nanobot.agent.lobby import Lobby
from nanobot.agent.loop import AgentLoop
from nanobot.agent.mailbox import Mailbox
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
from nanobot.clock import Clock
from nanobot.commands import CommandRegistry
from nanobot.config.settings import Settings
from nanobot.gateway.screen import Screen
from nanobot.memory.consolidation.consolidator import MemoryConsolidator
from nanobot.memory.consolidation.measuring import Limits
from nanobot.memory.index.tool import SearchMemory
from nanobot.memory.scopes import OWNER
from nanobot.memory.store.store import BOOTSTRAP, LONG_TERM
from nanobot.memory.text.unconfirmed import NOTE
from nanobot.memory.tools.documents import Documents
from nanobot.memory.tools.tools import Note, UpdateMemory
from nanobot.messages import Message
from nanobot.providers.port import Provider, Toolset
from nanobot.security.paths import Root, Roots
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
    spill = Root(settings.home / "spill", writable=False, name="spill folder")
    memory_of = memory.memories.of

    def roots(caller: Caller) -> Roots:
        if caller.scope == OWNER:
            return Roots((stores.workspace, spill))
        root = memory_of(caller.scope).root
        root.create()
        return Roots((root,))

    writer = WorkspaceWriter(stores.undo, Documents(memory_of))
    registry = ToolRegistry(redactor=Redactor(secrets(settings)), overflow=stores.spill)
    registry.register_all(
        (
            ReadFile(roots, own=BOOTSTRAP | {LONG_TERM}),
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
) -> Agent:
    """What happens to a message between the bus and the outbox. `remark` shows a line in a chat."""
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
    intake = Intake(media, partial(_fetch, channels), partial(_is_owner, memory))
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
    """A message in parts that its channel can send."""
    channel = channels.get(message.channel)
    return split_message(message, channel.limits.text if channel else 0)


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
