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
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Literal, Protocol

from loguru import logger

from nanobot.errors import NanobotError
from nanobot.memory.store.store import LONG_TERM
from nanobot.memory.text.layout import split
from nanobot.templates import render
from nanobot.tokens import estimate_tokens


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


BOOTSTRAP = ("AGENTS.md", "SOUL.md", "USER.md", "TOOLS.md")
PERSONAL = ("USER.md", "SOUL.md")
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
