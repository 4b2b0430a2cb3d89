"""The tools by which the agent writes down what happened today, and what lasts.

Whose memory is written comes from the caller. Once foreign text is in the prompt, a note says what
may have caused it, and a fact waits for the person's word. A line that the person wrote is not
concerned: the model names it, and code copies it whole.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal, Protocol

from pydantic import Field

from nanobot.errors import CallRefused
from nanobot.memory.grounds.quoting import quotation
from nanobot.memory.store.pending import Pending
from nanobot.memory.store.store import LONG_TERM, MemoryStore
from nanobot.memory.tools.documents import by_agent
from nanobot.memory.tools.edits import Edits, Wish, planned, report_of, summary_of
from nanobot.tooling import Arguments, Caller, ToolResult

_LINES = 40
_PATHS = {"MEMORY.md": LONG_TERM}
_QUOTABLE = frozenset({"MEMORY.md", "USER.md"})
"""Files of facts: what the others say is done from then on, and one wish is no rule."""


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
    text: str = Field(default="", description="What to remember about today.", max_length=8_000)
    quote: str = Field(default="", description="Instead: first words of a line the person wrote.")


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
        text, origins = arguments.text, caller.origins()
        if arguments.quote:
            text = quotation(arguments.quote, caller.heard(), memory.store.today())
            origins = ()
        keep = partial(self.undo.before_change, caller.turn_id)
        path = await memory.store.append_today(text, before=keep, origins=origins)
        mark = ", marked as unconfirmed: foreign content may have caused it" if origins else ""
        return ToolResult(f"noted in {path}{mark}", changed=(memory.prefix + path,), trusted=True)


class Rewording(Arguments):
    old: str = Field(description="The line as it stands in the file.", max_length=2_000)
    new: str = Field(description="The line that replaces it.", max_length=2_000)


class UpdateMemoryArguments(Arguments):
    file: Literal["MEMORY.md", "USER.md", "SOUL.md", "AGENTS.md", "TOOLS.md", "HEARTBEAT.md"] = (
        Field(
            default="MEMORY.md",
            description="MEMORY.md: facts and decisions. USER.md: the person. SOUL.md: manner.",
        )
    )
    quote: list[str] = Field(
        default=[],
        description="First words of lines that the person wrote; each is added whole.",
        max_length=_LINES,
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
        "Change what is remembered for good, line by line. After pages, files or other people's "
        "words were read, use `quote`: all else waits until the person accepts it."
    )
    arguments: type[UpdateMemoryArguments] = UpdateMemoryArguments
    effects: bool = True
    parallel: bool = False

    async def __call__(self, arguments: UpdateMemoryArguments, caller: Caller) -> ToolResult:
        memory = self.memory_of(caller.scope)
        path = _PATHS.get(arguments.file, arguments.file)
        text, origins = memory.store.read(path), caller.origins()
        edits = planned(
            arguments.file, text, self._wish(arguments, memory, caller), tainted=bool(origins)
        )
        changed = await self._make(memory, path, edits, caller)
        if edits.held:
            change = by_agent(caller, "held back")
            held = await memory.pending.hold(edits.held, path, origins, change)
            await memory.pending.tell(held, caller.address.key)
        return ToolResult(report_of(arguments.file, edits), changed=changed, trusted=True)

    def _wish(self, arguments: UpdateMemoryArguments, memory: ScopeMemory, caller: Caller) -> Wish:
        reword = [(rewording.old, rewording.new) for rewording in arguments.replace]
        if not (arguments.add or arguments.quote or arguments.remove or reword):
            raise CallRefused("nothing to change", hint="Give quote, add, remove or replace.")
        if arguments.quote and arguments.file not in _QUOTABLE and caller.origins():
            raise CallRefused(
                f"what is said once does not become a rule in {arguments.file} by itself",
                hint="Quote it into MEMORY.md or USER.md, or use `add`, which the person accepts.",
            )
        heard, today = tuple(caller.heard()), memory.store.today()
        quoted = [quotation(words, heard, today) for words in arguments.quote]
        return Wish(arguments.add, arguments.section, arguments.remove, reword, quoted)

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
