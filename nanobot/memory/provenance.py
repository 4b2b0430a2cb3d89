"""The sources of a remembered line, and their text for people. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime

from msgspec import Struct

from nanobot.memory.digests import is_month, month_of
from nanobot.memory.guard import without_list_mark
from nanobot.memory.history import HistoryEntry
from nanobot.memory.importance import without_importance
from nanobot.memory.store import day_of
from nanobot.memory.version import TAGS, Author
from nanobot.text import shorten

_LONGEST = 240
_WRITTEN_BY: Mapping[Author, str] = {
    "you": "{} by you or at your request on {:%Y-%m-%d}",
    "start": "in the file since the first version",
}
RETIRED_ON = r"^[-*+]\s+\d{4}-\d{2}-\d{2}:\s*"
"""Beginning of a line of retired.md, in front of the fact."""


class FactLine(Struct, frozen=True, rename={"number": "line_number", "text": "line"}):
    """A fact in a scope's file: the `path` in the scope's folder, and the line's `number` from
    1."""

    path: str
    number: int
    text: str


class NoteSource(Struct, frozen=True):
    """The notes of a day or month behind a line. For a digest's line, also the notes of the days
    that it names."""

    key: str
    found: tuple[FactLine, ...]

    def lines(self) -> Iterator[str]:
        how = "promoted from the digest" if is_month(self.key) else "learned from the notes"
        yield f"  - {how} of {self.key}"
        yield from map(render_note, self.found)


class SourceMessage(Struct, frozen=True):
    """A message behind a line. `kept` if it is marked to keep."""

    session: str
    seq: int
    who: str
    when: datetime | None
    text: str
    kept: bool = False


class HistorySource(Struct, frozen=True):
    """A history entry behind a line. `range` has its first and last message, 0 for none."""

    cursor: int
    when: datetime
    session: str
    range: tuple[int, int]
    summary: str

    @classmethod
    def of(cls, entry: HistoryEntry) -> HistorySource:
        span = (entry.first, entry.last)
        return cls(entry.cursor, entry.timestamp, entry.session, span, entry.summary)

    @property
    def line(self) -> str:
        where = f" of {self.session}" if self.session else ""
        first, last = self.range
        span = f", messages {first} to {last}" if last else ""
        return f"  - history {self.cursor}{where}{span}: {excerpt(self.summary)}"


class ProvenanceStep(Struct, frozen=True):
    """A version that gave the line this wording (`line`), and its sources: a history entry or a
    turn of a session, and messages. `note` explains what is not shown. If it `removed` the line,
    the sources are those of the removal, and `replacement` is the new line, if there is one."""

    version: int
    commit: str
    when: datetime
    author: Author
    summary: str
    line: str
    session: str = ""
    turn: str = ""
    note: str = ""
    removed: bool = False
    replacement: str = ""
    entry: HistorySource | None = None
    messages: tuple[SourceMessage, ...] = ()
    noted: NoteSource | None = None

    def lines(self) -> Iterator[str]:
        head = f"version {self.version}, {self.commit[:10]}, {self.when:%Y-%m-%d %H:%M}"
        yield f"- {f'{TAGS[self.author]} {self.summary}'.rstrip()} ({head})"
        if self.replacement:
            yield f"  - replaced by: {excerpt(without_list_mark(self.replacement))}"
        if by := _WRITTEN_BY.get(self.author):
            done = ("written", "retired")[self.removed]
            yield f"  - {by.format(done, self.when)}"
        if self.entry:
            yield self.entry.line
        if self.noted:
            yield from self.noted.lines()
        for said in self.messages:
            when = f"{said.when:%Y-%m-%d %H:%M}, " if said.when else ""
            kept = " (marked to keep)" if said.kept else ""
            yield f"  - [{when}{said.session} #{said.seq}] {said.who}{kept}: {excerpt(said.text)}"
        if self.note:
            yield f"  - {self.note}"


class Provenance(FactLine, frozen=True):
    """A line with its wordings, newest first, or none if no version has it. Notes and digests have
    no versions: `noted` are the notes behind a digest. `standing` shows whether a fact is in the
    prompt, and why."""

    steps: tuple[ProvenanceStep, ...] = ()
    noted: tuple[FactLine, ...] = ()
    standing: str = ""

    def lines(self) -> Iterator[str]:
        """Render for people."""
        wording = without_importance(self.text)
        yield f"{self.path}, line {self.number}: {excerpt(wording)}"
        yield from (f"- {self.standing}",) if self.standing else ()
        name = self.path.rpartition("/")[2]
        if month_of(name):
            yield "- from a digest that Dream wrote from notes (you can edit it)"
        elif day_of(name):
            yield f"- noted on {day_of(name)}"
        elif not self.steps:
            yield "- Source unknown: no version contains this line."
        for step in self.steps:
            if step.line.strip() != wording.strip():
                yield f"- earlier wording: {excerpt(step.line)}"
            yield from step.lines()
            wording = re.sub(RETIRED_ON, "- ", step.line) if step.removed else step.line
        yield from map(render_note, self.noted)


class Explanation(Struct, frozen=True):
    """The lines that answer a question."""

    found: tuple[Provenance, ...]

    @property
    def text(self) -> str:
        """Markdown for people that is also readable as plain text."""
        if not self.found:
            return "I remember nothing about this. To search all messages, send `/memory search`."
        return "\n\n".join("\n".join(one.lines()) for one in self.found)


def excerpt(text: str) -> str:
    return shorten(text, _LONGEST)


def render_note(line: FactLine) -> str:
    return f"  - {line.path}, line {line.number}: {excerpt(line.text)}"
