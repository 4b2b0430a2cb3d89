"""A home for the tests of consolidation: real files, real sessions, a model with a script."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nanobot.memory.consolidation import MemoryConsolidator
from nanobot.memory.consolidation.planning import ConsolidationLimits, PromptGauge
from nanobot.memory.documents import LONG_TERM, install_template, load_template
from nanobot.memory.history import HistoryEntry
from nanobot.memory.scopes import OWNER, Memories, Memory, Scopes
from nanobot.messages import Message, ToolCall
from nanobot.providers.counter import TokenCounter
from nanobot.providers.port import MESSAGE_OVERHEAD, Prompt, Provider, Reply, estimate_tokens
from nanobot.security.paths import Root
from nanobot.session.manager import SessionManager
from nanobot.session.session import Session
from nanobot.tasks import Background
from nanobot.testing.clock import FakeClock
from nanobot.testing.model import Author, Line, calls

KEY = "telegram:1"
FIXED = 500
WORDS = "This is a sentence about the garden, the weather and the plans for next week. "


def tokens_of(message: Message) -> int:
    """Estimate the tokens of a message in a prompt, including its calls."""
    texts = [message.content, *(call.name + call.arguments for call in message.tool_calls)]
    return sum(MESSAGE_OVERHEAD + estimate_tokens(text) for text in texts)


class PlainPromptSize:
    """The size of a prompt with a system prompt of `FIXED` tokens and the session's history."""

    def tokens(self, session: Session, coming: Sequence[Message] = ()) -> int:
        history = [*session.get_history(0), *coming]
        return FIXED + sum(map(tokens_of, history))

    def count_fixed_tokens(self, session: Session) -> int:
        return FIXED

    def cost(self, session: Session, message: Message) -> int:
        return tokens_of(message)

    def text(self, session: Session, coming: Sequence[Message] = ()) -> str:
        return "".join(message.content for message in (*session.messages, *coming))


class OneMemory(Memories):
    """Memories with only the memory of a home."""

    def __init__(self, home: Home, *rest: Any) -> None:
        super().__init__(*rest)
        self._home = home

    def of(self, scope: str) -> Memory:
        return self._home.memory


@dataclass
class Home:
    """One process on a home. `again` is the next process on the same files."""

    folder: Path
    model: Provider
    limits: ConsolidationLimits = field(default_factory=lambda: ConsolidationLimits(budget=3_000))
    clock: FakeClock = field(default_factory=FakeClock)
    notices: list[tuple[str, str]] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        workspace = self.folder / "workspace"
        install_template(workspace)
        template = load_template()
        state = self.folder / "state"
        files = (Root(workspace), state, self.clock, template)
        self.memories = Memories(*files)
        self.memories.recover()
        self.memory = self.alter_memory(self.memories.of(OWNER))
        self.sessions = self.session_manager()
        self.size = PlainPromptSize()
        self.background = Background()
        self.consolidator = MemoryConsolidator(
            provider=self.model,
            memories=OneMemory(self, *files),
            scopes=Scopes(lambda _, __: True),
            gauge=PromptGauge(self.size, TokenCounter(), self.limits),
            sessions=self.sessions,
            clock=self.clock,
            on_consolidated=self._add_notice,
            background=self.background,
            on_trouble=self._add_trouble,
        )

    def alter_memory(self, memory: Memory) -> Memory:
        """Return the memory to use. Tests override this to wrap it."""
        return memory

    def session_manager(self) -> SessionManager:
        return SessionManager(self.folder / "sessions", self.clock, live_limit=20)

    async def _add_notice(self, key: str, text: str) -> None:
        self.notices.append((key, text))

    async def _add_trouble(self, text: str, name: str) -> None:
        self.troubles.append(text)

    async def close(self) -> None:
        await self.background.drain(1)
        await self.sessions.close()

    def again(self, model: Provider) -> Home:
        return Home(self.folder, model, self.limits, self.clock)

    async def talk(self, *said: str, key: str = KEY, origin: str = "", words: int = 0) -> Session:
        """Add finished turns: the person's texts, each with an answer."""
        session = await self.sessions.get_or_create(key)
        for text in said:
            turn = f"t{session.next_seq}"
            padding = (WORDS * (words // 14 + 1))[: words * 6]
            asked = Message("user", f"{text} {padding}".strip(), turn_id=turn, origin=origin)
            session.add_message(asked)
            session.add_message(Message("assistant", f"I see: {text}", turn_id=turn))
            await self.sessions.save(session)
            self.clock.jump(60)
        return session

    async def add(self, *messages: Message, key: str = KEY) -> Session:
        session = await self.sessions.get_or_create(key)
        for message in messages:
            session.add_message(message)
        await self.sessions.save(session)
        return session

    @property
    def entries(self) -> list[HistoryEntry]:
        return self.memory.history.entries()

    @property
    def long_term(self) -> str:
        return (self.folder / "workspace" / LONG_TERM).read_text(encoding="utf-8")

    def write_long_term(self, text: str) -> None:
        (self.folder / "workspace" / LONG_TERM).write_text(text, encoding="utf-8")

    def nowhere(self, session: Session) -> list[int]:
        """Return the messages that are neither in the prompt nor behind an entry, or behind two."""
        shown = {m.seq for m in session.get_history(0)}
        own = [entry for entry in self.entries if entry.session == session.key]
        everything = self.sessions.read_window(session.key)
        return [
            message.seq
            for message in everything
            if (message.seq in shown) + sum(e.first <= message.seq <= e.last for e in own) != 1
        ]


def saves(
    entry: str = "They talked.", update: str = "", *facts: str, quotes: Sequence[str] = ()
) -> Reply:
    return calls(
        "save_memory",
        history_entry=entry,
        memory_update=update,
        key_facts=list(facts),
        quotes=list(quotes),
    )


def learns(*lines: str, quotes: Sequence[str] = ()) -> Author:
    """Save the memory of the request, with these lines at the end."""

    def author(prompt: Prompt) -> Line:
        told = f"They spoke of {', '.join(lines)}."
        return saves(told, with_lines(prompt, *lines), quotes=quotes)

    return author


def with_lines(prompt: Prompt, *lines: str) -> str:
    """Return the memory in a request, with lines under its last heading."""
    shown = memory_in(prompt)
    base = "# Memory\n\n## Facts" if shown == "(empty)" else shown
    return "\n".join([base, *(f"- {line}" for line in lines)])


def memory_in(prompt: Prompt) -> str:
    text = prompt.messages[-1].text
    after = text.partition("## Current Long-term Memory\n")[2]
    return after.partition("\n\n## Conversation to Process")[0]


def conversation_in(prompt: Prompt) -> str:
    return prompt.messages[-1].text.partition("## Conversation to Process\n")[2]


def tool_turn(turn: str, results: int, size: int) -> list[Message]:
    """Return a turn of many calls with large results."""
    messages = [Message("user", "look everywhere", turn_id=turn)]
    for number in range(results):
        call = ToolCall(f"{turn}-{number}", "read_file", "{}")
        messages += [
            Message("assistant", "", tool_calls=(call,), turn_id=turn),
            Message("tool", WORDS * (size // len(WORDS)), tool_call_id=call.id, turn_id=turn),
        ]
    return [*messages, Message("assistant", "found it", turn_id=turn, tools_used=("read_file",))]
