"""What answers messages: the tools, and what happens between the bus and the outbox."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from nanobot.agent.hooks import AgentHook
from nanobot.agent.intake import Intake
from nanobot.agent.loop import AgentLoop
from nanobot.agent.prompt import ContextBuilder, PromptRoom
from nanobot.agent.runner import AgentRunner
from nanobot.agent.session_queue import Lobby, Mailbox
from nanobot.agent.system_prompt import PromptSources
from nanobot.agent.turn import AgentParts, Responder, Turns
from nanobot.app.base import Base, Models
from nanobot.app.memory import Remembering
from nanobot.app.tools import Toolbox
from nanobot.commands import CommandRegistry
from nanobot.memory.consolidation.consolidator import MemoryConsolidator
from nanobot.memory.consolidation.measuring import Limits

MAX_MESSAGE_SHARE = 4
"""A single message may take at most one part in so many of the prompt's room."""


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
) -> Agent:
    """What happens to a message between the bus and the outbox."""
    settings, stores, clock, background = base.settings, base.stores, base.clock, base.background
    journal, sessions, media = stores.journal, stores.sessions, stores.media
    tools, skills, counter = toolbox.registry, toolbox.around.skills, models.counter
    mailbox, budget = Mailbox(commands.calls_one, commands.overtakes), settings.model.prompt_tokens
    sources = PromptSources(
        memory.memories,
        memory.scopes,
        skills.loader,
        tools,
        budget=budget,
        few_tools=settings.model.is_small,
    )
    context = ContextBuilder(
        sources.system_of,
        sources.tools_of,
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
    intake = Intake(media, base.outlets, memory.scopes, transcribe)
    parts = AgentParts(
        journal, base.bus, sessions, mailbox, clock, background, base.unhurried, hook
    )
    turns = Turns(parts, intake, base.splitter, memory.scopes, sources)
    lobby = Lobby(mailbox, base.lanes, base.screen, background, clock)
    responder = Responder(
        parts,
        turns,
        lobby,
        context=context,
        consolidator=consolidator,
        counter=counter,
        runner=runner,
        sources=sources,
        wait_for_model_hours=settings.agent.wait_for_model_hours,
    )
    loop = AgentLoop(parts, responder, turns, lobby, commands, settings.agent.on_busy)
    return Agent(loop, turns, consolidator)


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
