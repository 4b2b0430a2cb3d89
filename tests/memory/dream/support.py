"""A scope with real files, conversations behind its history, and a model that a test scripts."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from nanobot.memory.dream import Dream, DreamLimits, DreamReport
from nanobot.memory.history import HistoryEntry
from nanobot.memory.scopes import OWNER, Memories, Memory
from nanobot.messages import Message
from nanobot.providers.port import Prompt, Provider, Reply
from nanobot.security.paths import Root
from nanobot.testing import FakeClock, ScriptedModel, says
from tests.doubles.state import MemoryState

START = datetime(2026, 3, 10, 18, 0, tzinfo=UTC)
LONG_TERM = "memory/MEMORY.md"


def finds(**lists: Any) -> Reply:
    """Return an answer of phase 1."""
    return says(json.dumps({"memory_updates": [], **lists}))


def edits(*wanted: dict[str, str]) -> Reply:
    """Return an answer of phase 2."""
    return says(json.dumps({"edits": list(wanted)}))


def is_phase(prompt: Prompt, number: int) -> bool:
    """Return True if `prompt` is for that phase."""
    return prompt.messages[0].text.startswith(f"# Dream, phase {number}: ")


def page(text: str) -> Message:
    """Return untrusted content from a tool."""
    return Message("tool", text, origin="tool:web_fetch", tool_call_id="call_1", name="web_fetch")


class World:
    """One workspace. `talk` and `remembers` give it something to dream about."""

    def __init__(self, folder: Path, clock: FakeClock) -> None:
        self.clock = clock
        self.workspace = folder / "workspace"
        self.state = MemoryState()
        self.workspace.mkdir(exist_ok=True)
        self.conversations: dict[str, list[Message]] = {}
        self.memories = Memories(Root(self.workspace), folder / "state", clock)
        self.memories.recover()
        self.told: list[DreamReport] = []
        self.troubles: list[str] = []

    def memory(self, scope: str = OWNER) -> Memory:
        return self.memories.of(scope)

    def write(self, path: str, text: str) -> None:
        file = self.workspace / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def read(self, path: str) -> str:
        file = self.workspace / path
        return file.read_text() if file.exists() else ""

    def talk(self, *messages: Message | str, session: str = "telegram:1") -> tuple[int, int]:
        """Add messages (a text is the person's own words) to a session and return their range."""
        conversation = self.conversations.setdefault(session, [])
        first = len(conversation) + 1
        for said in messages:
            message = Message("user", said) if isinstance(said, str) else said
            seq = len(conversation) + 1
            conversation.append(
                Message(
                    message.role,
                    message.content,
                    self.clock.now(),
                    seq,
                    origin=message.origin,
                    name=message.name,
                    tool_call_id=message.tool_call_id,
                    kept=message.kept,
                )
            )
        return first, len(conversation)

    def remembers(
        self,
        summary: str,
        *messages: Message | str,
        facts: Iterable[str] = (),
        scope: str = OWNER,
        session: str = "telegram:1",
        **fields: Any,
    ) -> HistoryEntry:
        """Add a history entry with the messages behind it (by default its summary, as said)."""
        first, last = self.talk(*(messages or (summary,)), session=session)
        entry = HistoryEntry(
            0, self.clock.now(), "consolidation", session, first, last, summary, tuple(facts)
        )
        return self.memory(scope).history.append(_with(entry, fields))

    def read_messages(self, session: str, first: int, last: int, before: int) -> list[Message]:
        return self.conversations.get(session, [])[max(0, first - 1 - before) : last]

    def dream(
        self,
        *script: Any,
        author: Callable[[Prompt], Any] | None = None,
        provider: Provider | None = None,
        hold: Callable[[], Awaitable[object]] | None = None,
        **limits: Any,
    ) -> tuple[Dream, ScriptedModel]:
        model = ScriptedModel(*script, author=author, hold=hold)
        dream = Dream(
            provider=provider or model,
            memories=self.memories,
            clock=self.clock,
            read_messages=self.read_messages,
            limits=DreamLimits(**limits),
            state=self.state,
            on_digest=self._hear,
            on_failures=self._complain,
        )
        return dream, model

    async def dreams(self, *script: Any, scope: str = OWNER, **how: Any) -> DreamReport:
        """Run Dream once with this script, which must be used up."""
        dream, model = self.dream(*script, **how)
        self.state.is_far = True
        try:
            report = await dream.run(scope)
        finally:
            self.state.is_far = False
        assert model.remaining == 0
        return report

    def restart(self) -> World:
        """Return the same files for another process."""
        again = World(self.workspace.parent, self.clock)
        again.conversations, again.state = self.conversations, self.state
        return again

    async def _hear(self, report: DreamReport) -> None:
        self.told.append(report)

    async def _complain(self, text: str) -> None:
        self.troubles.append(text)


def _with(entry: HistoryEntry, fields: dict[str, Any]) -> HistoryEntry:
    from msgspec.structs import replace

    return replace(entry, **fields)
