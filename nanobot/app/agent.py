"""What answers messages: the tools, and what happens between the bus and the outbox."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from loguru import logger

from nanobot.agent.hooks import AgentHook
from nanobot.agent.intake import Intake
from nanobot.agent.loop import AgentLoop
from nanobot.agent.prompt import ContextBuilder, PromptRoom, SystemPrompt
from nanobot.agent.runner import AgentRunner
from nanobot.agent.session_queue import Lobby, Mailbox
from nanobot.agent.system_prompt import WorkspacePrompt
from nanobot.agent.turn import Responder, Turns
from nanobot.agent.turn_state import RunningTurn
from nanobot.app.base import Base, Models, split_for
from nanobot.app.memory import Remembering
from nanobot.app.outside import Skills
from nanobot.app.tools import Toolbox
from nanobot.bus.events import InboundMessage, Media
from nanobot.channel import Channel
from nanobot.commands import CommandRegistry
from nanobot.errors import NanobotError
from nanobot.memory.consolidation.consolidator import MemoryConsolidator
from nanobot.memory.consolidation.measuring import Limits
from nanobot.memory.scopes import OWNER
from nanobot.memory.text.unconfirmed import NOTE
from nanobot.messages import Message
from nanobot.providers.port import Toolset, ToolSpec
from nanobot.session.session import Session
from nanobot.skills import SkillSections, mentioned
from nanobot.tooling import ToolRegistry

MAX_MESSAGE_SHARE = 4
"""A single message may take at most one part in so many of the prompt's room."""


_ESSENTIAL = frozenset({"note", "search_memory", "read_file", "cron"})
"""The tools that a model with a small window is offered."""


@dataclass(frozen=True, slots=True)
class Agent:
    """What answers messages, and what others need to reach in it."""

    loop: AgentLoop
    turns: Turns
    consolidator: MemoryConsolidator


def build_agent(
    base: Base,
    models: Models,
    memory: Remembering,
    toolbox: Toolbox,
    *,
    hook: AgentHook,
    commands: CommandRegistry,
    on_message: Callable[[InboundMessage], None],
) -> Agent:
    """What happens to a message between the bus and the outbox."""
    settings, stores, clock, background = base.settings, base.stores, base.clock, base.background
    journal, sessions, media = stores.journal, stores.sessions, stores.media
    tools, skills, counter = toolbox.registry, toolbox.around.skills, models.counter
    mailbox, budget = Mailbox(commands.calls_one, commands.overtakes), settings.model.prompt_tokens
    context = ContextBuilder(
        partial(_system_prompt, memory, skills, budget),
        _ToolsOnOffer(tools, memory, few=settings.model.is_small),
        clock,
        timestamps=settings.agent.timestamps,
        load_image=media.image,
        max_message_tokens=budget // MAX_MESSAGE_SHARE,
        forgotten=memory.occasions.count,
    )
    consolidator = MemoryConsolidator(
        provider=models.learner,
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
        on_put_away=partial(
            _put_away, memory, base.courier.remark if settings.memory.notices else None
        ),
        background=base.unhurried,
    )
    runner = AgentRunner(
        models.provider,
        tools,
        clock,
        max_iterations=settings.agent.max_iterations,
        max_tokens=settings.limits.tokens_per_turn,
        keep_image=media.put_base64,
        fit=PromptRoom(budget, counter.count).fit,
    )
    transcribe = models.transcriber.transcribe if models.transcriber else None
    intake = Intake(media, partial(_fetch, base.outlets), partial(_is_owner, memory), transcribe)
    split = partial(split_for, base.outlets, media)
    turns = Turns(
        journal,
        base.bus,
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
    lobby = Lobby(mailbox, base.lanes, base.screen, background, clock)
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
        unhurried=base.unhurried,
        clock=clock,
        wait_for_model_hours=settings.agent.wait_for_model_hours,
        hint=partial(_skills_meant, skills),
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
        on_message=on_message,
    )
    return Agent(loop, turns, consolidator)


@dataclass(slots=True)
class _ToolsOnOffer:
    """The tools as each conversation is offered them, encoded once as long as they stay. `few`:
    only those without which it would be no assistant, in few words."""

    tools: ToolRegistry
    memory: Remembering
    few: bool = False
    encoded: dict[bool, tuple[int, Toolset]] = field(default_factory=dict)

    def __call__(self, session: Session) -> Toolset:
        scope = self.memory.of_session(session).scope
        version, offered = self.encoded.get(scope == OWNER, (-1, Toolset((), b"")))
        if version != self.tools.version:
            specs = self.tools.specs(scope)
            if self.few:
                specs = tuple(_in_few_words(spec) for spec in specs if spec.name in _ESSENTIAL)
            offered = Toolset.of(specs)
            self.encoded[scope == OWNER] = (self.tools.version, offered)
        return offered


def _in_few_words(spec: ToolSpec) -> ToolSpec:
    return replace(spec, description=spec.description.partition(". ")[0])


def _skills_meant(skills: Skills, turn: RunningTurn) -> str:
    """The line that names the skills whose triggers stand in the person's own words."""
    said = turn.messages[0].own_words
    try:
        names = mentioned(skills.loader.in_use(turn.scope), said) if said else ()
    except NanobotError as error:
        logger.warning("skills cannot be read: {}", error)
        return ""
    return f"[skills: {', '.join(names)}]" if names else ""


def _doubtful(memory: Remembering, session: Session) -> list[Message]:
    """The notes in a session's system prompt that foreign content may have caused."""
    scopes = memory.scopes.readable(memory.of_session(session).scope)
    notes = [memory.memories.of(scope).store.unconfirmed_notes() for scope in scopes]
    return [Message("user", text, origin=NOTE) for text in notes if text]


def _system_prompt(
    memory: Remembering, skills: Skills, budget: int, session: Session
) -> SystemPrompt:
    """For a prompt of at most `budget` tokens."""
    mine = memory.of_session(session)
    described = SkillSections(skills.loader, mine.scope)
    others = [memory.memories.of(scope) for scope in memory.scopes.readable(mine.scope)[1:]]
    return WorkspacePrompt(
        mine.store,
        mine.root.path,
        rules=memory.memories.of(OWNER).store,
        shown=[other.store for other in others],
        sections=(described.active, described.summary),
        file_budget=min(4_000, budget // 8),
        memory_budget=min(16_000, budget // 4),
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
