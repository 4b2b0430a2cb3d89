"""What is known about where a remembered line comes from: the values, and how they read. Pure.

Why something is remembered: from a line back to the words that were said.

The chain is: the line, the version that gave it this wording, the wordings before (the most similar
line that the version removed), and behind each the history entry and the messages that it stands
for; or the turn in which the agent wrote it; or the person's own hand. Nothing of another scope is
ever shown: each link is checked, and a link that may not be followed is named as such.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from nanobot.errors import UnknownSession
from nanobot.memory.history.log import HistoryEntry
from nanobot.memory.scopes import Memories, Memory
from nanobot.memory.store.guard import fact_lines
from nanobot.memory.store.pending import CONFIRMED
from nanobot.memory.store.store import PENDING
from nanobot.memory.text.layout import split
from nanobot.memory.text.lines import most_similar
from nanobot.memory.text.wording import share, words
from nanobot.memory.versions.gitstore import GitStore
from nanobot.memory.versions.version import TAGS, Author, Change, Snapshot, Version
from nanobot.messages import Message
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


RETIRED = "memory/retired.md"
PATHS = ("memory/MEMORY.md", "USER.md", "SOUL.md", RETIRED)
"""The files of facts in a scope's folder."""

Messages = Callable[[str, int, int], Sequence[Message]]
"""The messages of a session from one seq to another, without retracted ones."""

_MOST_LINES = 3
_MOST_SAID = 3
_MOST_STEPS = 20
_LIKE_ENOUGH = 0.3
_ALIKE = 0.6
_END = sys.maxsize
_NO_CALLS: Mapping[str, str] = {}
_RETIRED_ON = re.compile(r"^[-*+]\s+\d{4}-\d{2}-\d{2}:\s*")


@dataclass(frozen=True, slots=True)
class Line:
    """A fact in a file of a scope; `path` is relative to the scope's folder, `number` from 1."""

    path: str
    number: int
    text: str


class Explainer:
    """Answers `/memory why`. `scope_of` says to which scope a session's key belongs."""

    def __init__(
        self,
        memories: Memories,
        versions: GitStore | None,
        messages: Messages,
        scope_of: Callable[[str], str],
    ) -> None:
        self._memories = memories
        self._versions = versions
        self._messages = messages
        self._scope_of = scope_of

    async def why(self, text: str, scope: str) -> Explanation:
        """Where the lines that say `text` come from; the best few."""
        if self._versions is not None:
            await self._memories.of(scope).store.record_hand_edits()
        return await asyncio.to_thread(self.explain, text, scope)

    def explain(self, text: str, scope: str) -> Explanation:
        """The same, blocking and without looking for hand edits first."""
        memory = self._memories.of(scope)
        lines = list(lines_of(memory))
        best = matching(text, lines)
        if not best:
            return Explanation(text, (), nearest(text, lines))
        return Explanation(text, tuple(self.origin(memory, line) for line in best[:_MOST_LINES]))

    def origin(self, memory: Memory, line: Line) -> Origin:
        """Where one line comes from. Blocks."""
        steps: list[Step] = []
        for version, wording, path in self._wordings(memory, line):
            steps.append(self._step(memory, version, wording, path))
            if len(steps) == _MOST_STEPS:
                break
        return Origin(line.path, line.number, line.text, tuple(steps))

    def _wordings(self, memory: Memory, line: Line) -> Iterator[tuple[Version, str, str]]:
        """The versions behind a line, newest first, with the wording and the file of each."""
        if self._versions is None:
            return
        first: Version | None = None
        wording = line.text
        for version, wording in self._lineage(memory, line.path, line.text):
            yield version, wording, line.path
            first = version
        if line.path != RETIRED or first is None:
            return
        retired = _RETIRED_ON.sub("", wording)
        for path in PATHS[:-1]:
            before = list(self._lineage(memory, path, retired, removed=True))
            if before:
                yield from ((version, wording, path) for version, wording in before)
                return

    def _lineage(
        self, memory: Memory, path: str, line: str, *, removed: bool = False
    ) -> Iterator[tuple[Version, str]]:
        """The versions that worded `line` so, or a wording that it replaced; with `removed` from
        where it was last taken out."""
        assert self._versions is not None
        wording = _plain(line)
        for snapshot in self._versions.lineage(memory.prefix + path):
            before, after = _lines(snapshot.before), _lines(snapshot.after)
            if removed:
                gone = [one for one in before if one not in after]
                same = next((one for one in gone if _bare(one) == _bare(wording)), "")
                removed, wording = not same, same or wording
                continue
            if wording not in after or wording in before:
                continue
            yield snapshot.version, wording
            previous = _previous(snapshot, wording, before, after)
            # What an undoing brought back was written before it was taken out.
            removed = not previous and snapshot.version.author == "restore"
            if not previous and not removed:
                return
            wording = previous or wording

    def _step(self, memory: Memory, version: Version, line: str, path: str) -> Step:
        change = self._held(memory, version, line) or version.change
        entry, note = self._entry(memory, change, line)
        said: tuple[Said, ...] = ()
        if entry is not None:
            said = self._said(entry.session, entry.first, entry.last, line)
        elif change.turn and not change.cursors:
            said, note = self._turn(memory, change, line)
        if entry is None and not said and not note and version.author in {"dream", "consolidate"}:
            note = "The history entry behind it is not known any more."
        return Step(
            version=version.number,
            commit=version.commit,
            when=version.when,
            author=version.author,
            summary=version.summary,
            line=line,
            session=change.session if self._may_see(memory, change.session) else "",
            turn=change.turn,
            entry=None if entry is None else _told(entry),
            said=said,
            note=note,
        )

    def _held(self, memory: Memory, version: Version, line: str) -> Change | None:
        """The change that held a line back until the person accepted it; None where none did."""
        accepted = version.author == "you" and version.summary.startswith(CONFIRMED)
        if self._versions is None or not accepted:
            return None
        for snapshot in self._versions.lineage(memory.prefix + PENDING):
            came = _lines(snapshot.after) - _lines(snapshot.before)
            if any(_bare(waiting.partition(": ")[2]) == _bare(line) for waiting in came):
                return snapshot.version.change
        return None

    def _entry(self, memory: Memory, change: Change, line: str) -> tuple[HistoryEntry | None, str]:
        """The history entry that a line rests on, or why it is not shown."""
        cursors = _cursors(change, line)
        entries = [entry for cursor in cursors if (entry := memory.history.get(cursor))]
        wanted = words(line)
        for entry in sorted(entries, key=lambda entry: -share(wanted, _text(entry))):
            if not self._may_see(memory, entry.session):
                return None, "It rests on a conversation that belongs to another memory."
            return entry, ""
        return None, ""

    def _turn(self, memory: Memory, change: Change, line: str) -> tuple[tuple[Said, ...], str]:
        if not self._may_see(memory, change.session):
            return (), "It was written in a conversation that belongs to another memory."
        every = self._read(change.session, 1, _END)
        found = [m for m in every if m.turn_id == change.turn]
        if not found:
            return (), "The turn that wrote it is not kept any more."
        asked = [m for m in found if m.role == "user"]
        tools = (m for m in every if m.role == "tool" and m.seq <= found[-1].seq)
        read = [m for m in tools if share(words(line), m.content) >= _ALIKE]
        calls = {call.id: call.hint for m in every for call in m.tool_calls}
        return _likest(change.session, asked + read or found, line, least=0.0, calls=calls), ""

    def _said(self, session: str, first: int, last: int, line: str) -> tuple[Said, ...]:
        if not last:
            return ()
        return _likest(session, self._read(session, first, last), line, least=_LIKE_ENOUGH)

    def _read(self, session: str, first: int, last: int) -> Sequence[Message]:
        try:
            return self._messages(session, first, last)
        except UnknownSession:  # deleted by hand
            return ()

    def _may_see(self, memory: Memory, session: str) -> bool:
        return not session or self._scope_of(session) == memory.scope


def lines_of(memory: Memory) -> Iterator[Line]:
    """Every fact in the long-term files of a scope."""
    for path in PATHS:
        text = memory.store.read(path)
        facts = set(fact_lines(text))
        for number, line in enumerate(split(text), 1):
            if line.strip() in facts:
                yield Line(path, number, line.rstrip())


def matching(text: str, lines: Sequence[Line]) -> list[Line]:
    """The lines that hold every word of `text`, or else some form of each; the closest first."""
    wanted = words(text)
    if not wanted:
        return [line for line in lines if text.strip() and _plain(text) in line.text]
    found = [line for line in lines if wanted <= words(line.text)]
    found = found or [line for line in lines if share(wanted, line.text) == 1.0]
    return sorted(found, key=lambda line: (len(words(line.text) - wanted), line.path == RETIRED))


def nearest(text: str, lines: Sequence[Line], most: int = 3) -> tuple[str, ...]:
    """The lines that hold the most of the words of `text`, for a miss."""
    wanted = words(text)
    rated = [(share(wanted, line.text), line.text) for line in lines]
    rated = sorted((pair for pair in rated if pair[0] > 0), key=lambda pair: -pair[0])
    return tuple(line for _, line in rated[:most])


def said_in(session: str, message: Message, about: Collection[str] = (), call: str = "") -> Said:
    """A message of a session, for people; of a tool's output the line that says most of `about`,
    where that is given. `call` says what the tool was asked."""
    text = message.content
    if about and message.role == "tool":
        text = max(text.splitlines() or [""], key=lambda line: share(about, line))
    return Said(session, message.seq, _who(message, call), message.timestamp, text)


def _previous(snapshot: Snapshot, wording: str, before: set[str], after: set[str]) -> str:
    """What the version replaced by `wording`; empty where the line was new."""
    for operation in snapshot.version.change.operations:
        if _plain(operation.new) == wording and _plain(operation.old) in before:
            return _plain(operation.old)
    return most_similar(wording, sorted(before - after))


def _cursors(change: Change, line: str) -> tuple[int, ...]:
    for operation in change.operations:
        if operation.cursor and _plain(operation.new) == line:
            return (operation.cursor,)
    return change.cursors


def _likest(
    session: str,
    messages: Sequence[Message],
    line: str,
    *,
    least: float,
    calls: Mapping[str, str] = _NO_CALLS,
) -> tuple[Said, ...]:
    """The few messages that share most words with a line, in their order."""
    wanted = words(line)
    rated = [(share(wanted, message.content), message) for message in messages if message.content]
    rated = [pair for pair in rated if pair[0] >= least]
    best = sorted(rated, key=lambda pair: (-pair[0], pair[1].seq))[:_MOST_SAID]
    ordered = [message for _, message in sorted(best, key=lambda pair: pair[1].seq)]
    return tuple(said_in(session, m, wanted, calls.get(m.tool_call_id, "")) for m in ordered)


def _who(message: Message, call: str) -> str:
    if message.origin.startswith("person:"):
        return message.origin.removeprefix("person:")
    if message.role == "tool":
        return f"tool {call or message.name}".strip()
    return {"user": "you", "assistant": "nanobot"}[message.role]


def _told(entry: HistoryEntry) -> Told:
    return Told(
        entry.cursor, entry.timestamp, entry.session, entry.first, entry.last, entry.summary
    )


def _text(entry: HistoryEntry) -> str:
    return "\n".join([entry.summary, *entry.key_facts, *(op.new for op in entry.operations)])


def _lines(text: str) -> set[str]:
    return {line for raw in split(text) if (line := raw.strip())}


def _plain(line: str) -> str:
    return line.strip()


def _bare(line: str) -> str:
    return line.strip().lstrip("-*+ ")
