"""What is known about where a remembered line comes from: the values, and how they read. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from nanobot.memory.change import TAGS, Author
from nanobot.session.records import JsonValue

_LONGEST = 240
_BY_HAND = "written by your own hand"
_FOUND = "it stood there when nanobot began to keep versions"


@dataclass(frozen=True, slots=True)
class Said:
    """A message behind a line."""

    session: str
    seq: int
    who: str
    when: datetime | None
    text: str


@dataclass(frozen=True, slots=True)
class Told:
    """A history entry behind a line; `first` and `last` are the seqs that it stands for."""

    cursor: int
    when: datetime
    session: str
    first: int
    last: int
    summary: str


@dataclass(frozen=True, slots=True)
class Step:
    """A version that gave the line this wording (`line`), and what it rests on.

    `note` says in a sentence what is not shown and why. `turn` is where the agent wrote it.
    """

    version: int
    commit: str
    when: datetime
    author: Author
    summary: str
    line: str
    session: str = ""
    turn: str = ""
    entry: Told | None = None
    said: tuple[Said, ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True)
class Origin:
    """A line of a memory file with its wordings, newest first; none where no version has it.

    `number` counts lines from 1.
    """

    path: str
    number: int
    line: str
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True, slots=True)
class Explanation:
    """The lines that answer a question about `query`; where there are none, those `near` to it."""

    query: str
    found: tuple[Origin, ...]
    near: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """For people: Markdown that reads well as it is."""
        if self.found:
            return "\n\n".join("\n".join(_origin(origin)) for origin in self.found)
        if not self.near:
            return "I remember nothing like that."
        return "\n".join(
            ["I remember nothing that says this. The nearest:", *map(_item, self.near)]
        )

    def as_json(self) -> dict[str, JsonValue]:
        """For machines."""
        return {
            "query": self.query,
            "found": [_origin_fields(origin) for origin in self.found],
            "near": list(self.near),
        }


def excerpt(text: str, length: int = _LONGEST) -> str:
    """The beginning of a text in one line."""
    line = " ".join(text[: 4 * length].split())
    return line if len(line) <= length else f"{line[: length - 1]}…"


def _item(line: str) -> str:
    return f"- {excerpt(line).lstrip('-*+ ')}"


def _origin(origin: Origin) -> list[str]:
    lines = [f"{origin.path}, line {origin.number}: {excerpt(origin.line)}"]
    if not origin.steps:
        return [*lines, "- No version has this line: it was not recorded how it came here."]
    wording = origin.line
    for step in origin.steps:
        if step.line.strip() != wording.strip():
            lines.append(f"- before that it read: {excerpt(step.line)}")
        lines += _step(step)
        wording = step.line
    return lines


def _step(step: Step) -> list[str]:
    head = f"version {step.version}, {step.commit[:10]}, {step.when:%Y-%m-%d %H:%M}"
    what = f" {step.summary}" if step.summary else ""
    lines = [f"- {TAGS[step.author]}{what} ({head})"]
    if step.author == "you":
        lines.append(f"  - {_BY_HAND} or word on {step.when:%Y-%m-%d}")
    if step.author == "start":
        lines.append(f"  - {_FOUND}")
    if step.entry:
        entry = step.entry
        where = f" of {entry.session}" if entry.session else ""
        span = f", messages {entry.first} to {entry.last}" if entry.last else ""
        lines.append(f"  - history {entry.cursor}{where}{span}: {excerpt(entry.summary)}")
    for said in step.said:
        when = f"{said.when:%Y-%m-%d %H:%M}, " if said.when else ""
        lines.append(f"  - [{when}{said.session} #{said.seq}] {said.who}: {excerpt(said.text)}")
    if step.note:
        lines.append(f"  - {step.note}")
    return lines


def _origin_fields(origin: Origin) -> dict[str, JsonValue]:
    return {
        "path": origin.path,
        "line_number": origin.number,
        "line": origin.line,
        "steps": [_step_fields(step) for step in origin.steps],
    }


def _step_fields(step: Step) -> dict[str, JsonValue]:
    fields: dict[str, JsonValue] = {
        "version": step.version,
        "commit": step.commit,
        "when": step.when.isoformat(),
        "author": step.author,
        "summary": step.summary,
        "line": step.line,
        "session": step.session,
        "turn": step.turn,
        "note": step.note,
    }
    if entry := step.entry:
        fields["entry"] = {
            "cursor": entry.cursor,
            "when": entry.when.isoformat(),
            "session": entry.session,
            "range": [entry.first, entry.last],
            "summary": entry.summary,
        }
    fields["messages"] = [
        {
            "session": said.session,
            "seq": said.seq,
            "who": said.who,
            "when": said.when.isoformat() if said.when else None,
            "text": said.text,
        }
        for said in step.said
    ]
    return fields
