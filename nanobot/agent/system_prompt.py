"""The parts of the system prompt, most stable first: identity, bootstrap files, memory, skills.

An untouched template file takes no room, and a file that grew beyond its budget is cut at a line
with a note that says where the rest is.

Beside it the small header in front of each of the person's messages: `[today, Sat 2026-11-21 14:03
+01:00, telegram:123]`; older ones read `[yesterday, …]`, `[3 days ago, …]`. It is a pure function
of what is stored and of today's date, so it changes at most once a day and the provider's prompt
cache holds until then. Days are differences of civil dates in the offset of the message's receipt,
which is stored with it.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from pathlib import Path
from typing import Literal, Protocol

from loguru import logger

from nanobot.errors import NanobotError
from nanobot.memory.documents import BOOTSTRAP, LONG_TERM, PERSONAL
from nanobot.memory.scopes import OWNER, Memories, Scopes
from nanobot.memory.text.layout import split
from nanobot.memory.text.wording import NOTE
from nanobot.messages import Message
from nanobot.providers.port import Toolset
from nanobot.session.session import Session
from nanobot.skills.loader import SkillsLoader
from nanobot.skills.prompt import SkillSections, mentioned
from nanobot.templates import render
from nanobot.tokens import estimate_tokens
from nanobot.tooling.registry import ToolRegistry


@dataclass(frozen=True, slots=True)
class Part:
    """One part of the system prompt. `source` is the file it came from, empty for built-in text."""

    text: str
    source: str = ""


Timestamps = Literal["relative", "absolute", "off"]

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_LATE_MINUTES = 5
"""From then on it matters to an answer that the question waited."""
_NOTICE_LINES = 8
_NOTICE_CHARACTERS = 160


def header(stamp: datetime | None, session_key: str, today: date, style: Timestamps) -> str:
    """The header line, empty when headers are off or the time is unknown."""
    if style == "off" or stamp is None:
        return ""
    written = stamp.isoformat(" ", "minutes")
    moment = f"{_DAYS[stamp.weekday()]} {written[:16]} {written[16:]}"
    if style == "absolute":
        return f"[{moment}, {session_key}]"
    return f"[{_day_label((today - stamp.date()).days)}, {moment}, {session_key}]"


def late_notice(stamp: datetime, now: datetime) -> str:
    """`[late: sent 3 h 5 min before this answer]` for what waited, else empty."""
    minutes = int((now - stamp).total_seconds() // 60)
    if minutes < _LATE_MINUTES:
        return ""
    days, rest = divmod(minutes, 24 * 60)
    parts = zip((days, *divmod(rest, 60)), ("days", "h", "min"), strict=True)
    words = " ".join([f"{number} {unit}" for number, unit in parts if number][:2])
    return f"[late: sent {words} before this answer]"


def memory_notice(before: str, after: str) -> str:
    """`[memory changed: added "…"; removed "…"]`: what differs between two texts, in one line.

    Empty when no line was added or removed. Long changes are cut, with a pointer to the file.
    """
    old, new = _lines(before), _lines(after)
    known, left = set(old), set(new)
    changes = [f'added "{_short(line)}"' for line in new if line not in known]
    changes += [f'removed "{_short(line)}"' for line in old if line not in left]
    if not changes:
        return ""
    if len(changes) > _NOTICE_LINES:
        more = len(changes) - _NOTICE_LINES
        changes = [*changes[:_NOTICE_LINES], f"and {more} more, see memory/MEMORY.md"]
    return f"[memory changed: {'; '.join(changes)}]"


def _day_label(days: int) -> str:
    if days <= 0:
        return "today"
    return "yesterday" if days == 1 else f"{days} days ago"


def _lines(text: str) -> Sequence[str]:
    lines = (line.strip().removeprefix("- ").strip() for line in split(text))
    return [line for line in lines if line and not line.startswith("#")]


def _short(line: str) -> str:
    text = line.replace('"', "'")
    return text if len(text) <= _NOTICE_CHARACTERS else f"{text[: _NOTICE_CHARACTERS - 1]}…"


"""Those that belong to a scope and grow as the agent learns, so that a change within an epoch is
announced. The others are the agent's own rules, the same for everyone."""

_CUT = "[cut here to save room: read_file {path} start_line={line} shows the rest]"
_MEMORY_CUT = (
    "[cut here to save room: read_file memory/MEMORY.md and today's notes beside it for the rest]"
)


class Memory(Protocol):
    """What the prompt needs of the memory store."""

    def read(self, path: str) -> str:
        """A long-term file's text, empty where there is none."""
        ...

    def is_untouched(self, path: str) -> bool:
        """Whether it says nothing beyond its template."""
        ...

    def get_memory_context(self) -> str:
        """The `# Memory` block."""
        ...

    def joined(self, paths: Sequence[str]) -> str:
        """MEMORY.md, today's notes and these files as one text, the same object for everybody as
        long as nothing changes."""
        ...


class WorkspacePrompt:
    """The system prompt for one scope: its `memory` and no other.

    `rules` is where the agent's own files are, that of the owner; `shown` are further memories
    whose owner lets this scope see them. `sections` give further parts (skills); `file_budget` is
    in tokens per file, `memory_budget` for each memory block."""

    def __init__(
        self,
        memory: Memory,
        workspace: Path,
        *,
        rules: Memory | None = None,
        shown: Sequence[Memory] = (),
        sections: Sequence[Callable[[], str]] = (),
        file_budget: int = 4_000,
        memory_budget: int = 16_000,
    ) -> None:
        self._memory, self._rules = memory, rules or memory
        self._shown = shown
        self._sections = sections
        self._file_budget, self._memory_budget = file_budget, memory_budget
        self._workspace = workspace

    def parts(self) -> Sequence[Part]:
        """See `SystemPrompt`."""
        parts = [Part(self._identity())]
        for name in BOOTSTRAP:
            text = self._bootstrap(name)
            if text:
                parts.append(Part(f"## {name}\n\n{text}", name))
        for source in (*self._shown, self._memory):
            if memory := source.get_memory_context():
                block = cut_at_line(memory, self._memory_budget, _MEMORY_CUT)
                parts.append(Part(block, LONG_TERM))
        parts += [Part(text) for section in self._sections if (text := section())]
        return parts

    def memory_text(self) -> str | None:
        """See `SystemPrompt`."""
        try:
            return self._memory.joined(PERSONAL)
        except NanobotError as error:
            logger.warning("memory cannot be read: {}", error)
            return None

    def _identity(self) -> str:
        return render(
            "identity.md",
            system=platform.system(),
            architecture=platform.machine(),
            python=platform.python_version(),
            workspace=str(self._workspace),
        ).strip()

    def _bootstrap(self, name: str) -> str:
        try:
            memory = self._memory if name in PERSONAL else self._rules
            if memory.is_untouched(name):
                return ""
            return cut_at_line(memory.read(name).strip(), self._file_budget, _CUT, name)
        except NanobotError as error:
            logger.warning("{} cannot be read: {}", name, error)
            return ""


def cut_at_line(text: str, budget: int, note: str, path: str = "") -> str:
    """`text`, or as many of its first lines as fit `budget` tokens and a note where the rest is.

    `note` may name the `{path}` and the first `{line}` that is left out.
    """
    if estimate_tokens(text) <= budget:
        return text
    kept: list[str] = []
    room = budget
    for line in text.splitlines():
        room -= estimate_tokens(line) + 1
        if room < 0:
            break
        kept.append(line)
    return "\n".join([*kept, note.format(path=path, line=len(kept) + 1)])


_ESSENTIAL = frozenset({"note", "search_memory", "read_file", "cron"})
"""The tools that a model with a small window is offered."""


class PromptSources:
    """What the prompt of a conversation is made of: the memory, tools and skills of its scope.

    `budget` is the room for a prompt in tokens. With `few_tools` only the essential ones are
    offered, in few words, as a small window needs it.
    """

    def __init__(
        self,
        memories: Memories,
        scopes: Scopes,
        skills: SkillsLoader,
        tools: ToolRegistry,
        *,
        budget: int,
        few_tools: bool = False,
    ) -> None:
        self._memories, self._scopes, self._skills = memories, scopes, skills
        self._tools, self._few, self._budget = tools, few_tools, budget
        self._encoded: dict[bool, tuple[int, Toolset]] = {}

    def system_of(self, session: Session) -> WorkspacePrompt:
        """The system prompt of a session."""
        mine = self._memories.of(self._scope_of(session))
        described = SkillSections(self._skills, mine.scope)
        others = [self._memories.of(scope) for scope in self._scopes.readable(mine.scope)[1:]]
        return WorkspacePrompt(
            mine.store,
            mine.root.path,
            rules=self._memories.of(OWNER).store,
            shown=[other.store for other in others],
            sections=(described.active, described.summary),
            file_budget=min(4_000, self._budget // 8),
            memory_budget=min(16_000, self._budget // 4),
        )

    def tools_of(self, session: Session) -> Toolset:
        """The tools as a session is offered them, encoded once as long as they stay."""
        scope = self._scope_of(session)
        version, offered = self._encoded.get(scope == OWNER, (-1, Toolset((), b"")))
        if version != self._tools.version:
            specs = self._tools.specs(scope)
            if self._few:
                few = (spec for spec in specs if spec.name in _ESSENTIAL)
                specs = tuple(
                    replace(spec, description=spec.description.partition(". ")[0]) for spec in few
                )
            offered = Toolset.of(specs)
            self._encoded[scope == OWNER] = (self._tools.version, offered)
        return offered

    def unconfirmed(self, scope: str) -> list[Message]:
        """The notes in the system prompt of a scope that foreign content may have caused."""
        stores = (self._memories.of(one).store for one in self._scopes.readable(scope))
        notes = (store.unconfirmed_notes() for store in stores)
        return [Message("user", text, origin=NOTE) for text in notes if text]

    def skills_mentioned(self, scope: str, said: str) -> str:
        """The line that names the skills whose triggers are in the person's own words."""
        try:
            names = mentioned(self._skills.in_use(scope), said) if said else ()
        except NanobotError as error:
            logger.warning("skills cannot be read: {}", error)
            return ""
        return f"[skills: {', '.join(names)}]" if names else ""

    def _scope_of(self, session: Session) -> str:
        return self._scopes.of_session(session.key, session.metadata)
