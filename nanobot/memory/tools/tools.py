"""The tools by which the agent writes down what happened today, and what lasts.

Whose memory is written comes from the caller. Once foreign text is in the prompt, a note says what
may have caused it, and a fact that the person did not state waits for their word.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal, Protocol

from pydantic import Field

from nanobot.errors import ToolError
from nanobot.memory.grounds.grounds import Grounds, origins_of
from nanobot.memory.store.pending import Pending
from nanobot.memory.store.store import LONG_TERM, MemoryStore
from nanobot.memory.tools.documents import by_agent
from nanobot.memory.tools.edits import Edits, Wish, planned, report_of, summary_of
from nanobot.tooling import Arguments, Caller, ToolResult

_LINES = 40
_PATHS = {"MEMORY.md": LONG_TERM}


class ChangeLog(Protocol):
    """Keeps what stood in a file before a turn changes it."""

    def before_change(
        self, turn_id: str, path: str, previous: bytes | None, new: bytes
    ) -> None: ...


class ScopeMemory(Protocol):
    """What the tools need of one scope's memory."""

    @property
    def prefix(self) -> str: ...
    @property
    def store(self) -> MemoryStore: ...
    @property
    def pending(self) -> Pending: ...


class NoteArguments(Arguments):
    text: str = Field(description="What to remember about today.", max_length=8_000)


@dataclass(frozen=True, slots=True)
class Note:
    """Adds to today's notes."""

    memory_of: Callable[[str], ScopeMemory]
    undo: ChangeLog
    name: str = "note"
    description: str = (
        "Write something into today's notes (memory/YYYY-MM-DD.md). Lasting facts belong in "
        "memory/MEMORY.md instead: update_memory writes there."
    )
    arguments: type[NoteArguments] = NoteArguments
    effects: bool = True
    parallel: bool = False

    async def __call__(self, arguments: NoteArguments, caller: Caller) -> ToolResult:
        memory = self.memory_of(caller.scope)
        heard = tuple(caller.heard())
        grounds = await asyncio.to_thread(Grounds.of, heard)
        own = all(map(grounds.supports, arguments.text.splitlines()))
        keep = partial(self.undo.before_change, caller.turn_id)
        path = await memory.store.append_today(
            arguments.text, before=keep, origins=() if own else origins_of(heard)
        )
        mark = "" if own else ", marked as unconfirmed: foreign content may have caused it"
        return ToolResult(f"noted in {path}{mark}", changed=(memory.prefix + path,), trusted=True)


class Rewording(Arguments):
    old: str = Field(description="The line as it stands in the file.", max_length=2_000)
    new: str = Field(description="The line that replaces it.", max_length=2_000)


class UpdateMemoryArguments(Arguments):
    file: Literal["MEMORY.md", "USER.md", "SOUL.md"] = Field(
        default="MEMORY.md",
        description="MEMORY.md: facts and decisions. USER.md: the person. SOUL.md: your manner.",
    )
    add: list[str] = Field(
        default=[], description="New lines, one fact each, with dates resolved.", max_length=_LINES
    )
    section: str = Field(
        default="",
        description="The heading that new lines go under, such as '## Preferences'.",
        max_length=200,
    )
    remove: list[str] = Field(
        default=[],
        description="Lines that no longer hold; they move to memory/retired.md.",
        max_length=_LINES,
    )
    replace: list[Rewording] = Field(default=[], description="Lines to reword.", max_length=_LINES)


@dataclass(frozen=True, slots=True)
class UpdateMemory:
    """Adds, retires and rewords lines of the long-term files."""

    memory_of: Callable[[str], ScopeMemory]
    undo: ChangeLog
    name: str = "update_memory"
    description: str = (
        "Change what is remembered for good, line by line. Facts that rest on web pages, files or "
        "other people's messages wait until the person confirms them."
    )
    arguments: type[UpdateMemoryArguments] = UpdateMemoryArguments
    effects: bool = True
    parallel: bool = False

    async def __call__(self, arguments: UpdateMemoryArguments, caller: Caller) -> ToolResult:
        memory = self.memory_of(caller.scope)
        path = _PATHS.get(arguments.file, arguments.file)
        heard = tuple(caller.heard())
        grounds = await asyncio.to_thread(Grounds.of, heard)
        text = memory.store.read(path)
        edits = planned(arguments.file, text, _wish(arguments), grounds)
        changed = await self._make(memory, path, edits, caller)
        numbers: list[int] = []
        if edits.held:
            change = by_agent(caller, "held back")
            await memory.pending.hold(edits.held, path, origins_of(heard), change)
            lines = {step.new for step in edits.held}
            waiting = await memory.pending.pending()
            numbers = [fact.number for fact in waiting if fact.line in lines]
        return ToolResult(
            report_of(arguments.file, edits, numbers),
            is_error=not (edits.operations or edits.held) and bool(edits.refused),
            changed=changed,
            trusted=True,
        )

    async def _make(
        self, memory: ScopeMemory, path: str, edits: Edits, caller: Caller
    ) -> tuple[str, ...]:
        if not edits.operations:
            return ()
        await memory.store.apply(
            path,
            edits.operations,
            by_agent(caller, summary_of(path, edits)),
            retired=edits.retired,
            before=partial(self.undo.before_change, caller.turn_id),
        )
        return (memory.prefix + path,)


def _wish(arguments: UpdateMemoryArguments) -> Wish:
    reword = [(rewording.old, rewording.new) for rewording in arguments.replace]
    if not (arguments.add or arguments.remove or reword):
        raise ToolError("nothing to change", hint="Give add, remove or replace.")
    return Wish(arguments.add, arguments.section, arguments.remove, reword)
