"""`/memory why`: from a remembered line back to the words that were said.

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
from datetime import datetime
from itertools import islice
from typing import NamedTuple

from msgspec import Struct

from nanobot.errors import UnknownSession
from nanobot.memory.documents import ALL_FACTS, FACTS, PENDING, RETIRED
from nanobot.memory.gitstore import GitStore
from nanobot.memory.guard import fact_lines
from nanobot.memory.history import HistoryEntry
from nanobot.memory.lines import split
from nanobot.memory.pending import CONFIRMED
from nanobot.memory.scopes import Memories, Memory
from nanobot.memory.version import TAGS, Change, Snapshot, Version
from nanobot.memory.wording import most_similar, share, words
from nanobot.messages import Message
from nanobot.session.records import JsonValue
from nanobot.text import shortened

Messages = Callable[[str, int, int], Sequence[Message]]
"""The messages of a session from one seq to another, without retracted ones."""

_LONGEST = 240
_MOST_LINES, _MOST_SAID, _MOST_STEPS = 3, 3, 20
_LIKE_ENOUGH, _ALIKE = 0.3, 0.6
_RETIRED_ON = re.compile(r"^[-*+]\s+\d{4}-\d{2}-\d{2}:\s*")


class Line(NamedTuple):
    """A fact in a file of a scope; `path` is relative to the scope's folder, `number` from 1."""

    path: str
    number: int
    text: str


class Said(NamedTuple):
    """A message behind a line."""

    session: str
    seq: int
    who: str
    when: datetime | None
    text: str


class Step(Struct, frozen=True):
    """A version that gave the line this wording (`line`), and what it rests on: a history entry or
    a turn of a session, and messages. `note` says in a sentence what is not shown and why."""

    version: Version
    line: str
    session: str = ""
    turn: str = ""
    entry: HistoryEntry | None = None
    said: tuple[Said, ...] = ()
    note: str = ""

    def lines(self) -> Iterator[str]:
        """For people."""
        version, entry = self.version, self.entry
        what = f"{TAGS[version.author]} {version.summary}".rstrip()
        head = f"version {version.number}, {version.commit[:10]}, {version.when:%Y-%m-%d %H:%M}"
        yield f"- {what} ({head})"
        if version.author == "you":
            yield f"  - written by your own hand or word on {version.when:%Y-%m-%d}"
        if version.author == "start":
            yield "  - it stood there when nanobot began to keep versions"
        if entry:
            where = f" of {entry.session}" if entry.session else ""
            span = f", messages {entry.first} to {entry.last}" if entry.last else ""
            yield f"  - history {entry.cursor}{where}{span}: {excerpt(entry.summary)}"
        for said in self.said:
            when = f"{said.when:%Y-%m-%d %H:%M}, " if said.when else ""
            yield f"  - [{when}{said.session} #{said.seq}] {said.who}: {excerpt(said.text)}"
        if self.note:
            yield f"  - {self.note}"

    def as_json(self) -> dict[str, JsonValue]:
        """For machines."""
        version, entry = self.version, self.entry
        behind: dict[str, JsonValue] = {}
        if entry:
            behind["entry"] = {
                "cursor": entry.cursor,
                "when": entry.timestamp.isoformat(),
                "session": entry.session,
                "range": [entry.first, entry.last],
                "summary": entry.summary,
            }
        return {
            "version": version.number,
            "commit": version.commit,
            "when": version.when.isoformat(),
            "author": version.author,
            "summary": version.summary,
            "line": self.line,
            "session": self.session,
            "turn": self.turn,
            "note": self.note,
            **behind,
            "messages": [
                {**said._asdict(), "when": said.when.isoformat() if said.when else None}
                for said in self.said
            ],
        }


class Provenance(Struct, frozen=True):
    """A line of a memory file with its wordings, newest first; none where no version has it."""

    line: Line
    steps: tuple[Step, ...] = ()

    def lines(self) -> Iterator[str]:
        """For people."""
        path, number, wording = self.line
        yield f"{path}, line {number}: {excerpt(wording)}"
        if not self.steps:
            yield "- No version has this line: it was not recorded how it came here."
        for step in self.steps:
            if step.line.strip() != wording.strip():
                yield f"- before that it read: {excerpt(step.line)}"
            yield from step.lines()
            wording = step.line

    def as_json(self) -> dict[str, JsonValue]:
        """For machines."""
        path, number, text = self.line
        steps: list[JsonValue] = [step.as_json() for step in self.steps]
        return {"path": path, "line_number": number, "line": text, "steps": steps}


class Explanation(Struct, frozen=True):
    """The lines that answer a question about `query`; where there are none, those `near` to it."""

    query: str
    found: tuple[Provenance, ...]
    near: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """For people: Markdown that reads well as it is."""
        if self.found:
            return "\n\n".join("\n".join(one.lines()) for one in self.found)
        if not self.near:
            return "I remember nothing like that."
        return "\n".join(["I remember nothing that says this. The nearest:", *listed(self.near)])

    def as_json(self) -> dict[str, JsonValue]:
        """For machines."""
        found: list[JsonValue] = [one.as_json() for one in self.found]
        return {"query": self.query, "found": found, "near": list(self.near)}


class Explainer:
    """Answers `/memory why`. `scope_of` says to which scope a session's key belongs."""

    def __init__(
        self,
        memories: Memories,
        versions: GitStore,
        messages: Messages,
        scope_of: Callable[[str], str],
    ) -> None:
        self._memories = memories
        self._versions = versions
        self._messages = messages
        self._scope_of = scope_of

    async def why(self, text: str, scope: str) -> Explanation:
        """Where the lines that say `text` come from; the best few."""
        memory = self._memories.of(scope)
        await memory.store.record_hand_edits()

        def explained() -> Explanation:
            lines = list(lines_of(memory))
            best = matching(text, lines)[:_MOST_LINES]
            found = tuple(self.provenance(memory, line) for line in best)
            return Explanation(text, found, () if found else nearest(text, lines))

        return await asyncio.to_thread(explained)

    def provenance(self, memory: Memory, line: Line) -> Provenance:
        """Where one line comes from. Blocks."""
        wordings = islice(self._wordings(memory, line), _MOST_STEPS)
        return Provenance(line, tuple(self._step(memory, *wording) for wording in wordings))

    def _wordings(self, memory: Memory, line: Line) -> Iterator[tuple[Version, str]]:
        """The versions behind a line, newest first, with the wording of each; behind a retired one
        also those of the file that it stood in."""
        wording = ""
        for version, wording in self._lineage(memory, line.path, line.text):
            yield version, wording
        if line.path == RETIRED and wording:
            bare = _RETIRED_ON.sub("", wording)
            before = (list(self._lineage(memory, path, bare, removed=True)) for path in FACTS)
            yield from next(filter(None, before), ())

    def _lineage(
        self, memory: Memory, path: str, line: str, *, removed: bool = False
    ) -> Iterator[tuple[Version, str]]:
        """The versions that worded `line` so, or a wording that it replaced; with `removed` from
        where it was last taken out."""
        wording = line.strip()
        for snapshot in self._versions.lineage(memory.prefix + path):
            before, after = _lines(snapshot.before), _lines(snapshot.after)
            if removed:
                gone = (one for one in before - after if _bare(one) == _bare(wording))
                same = next(gone, "")
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

    def _step(self, memory: Memory, version: Version, line: str) -> Step:
        change = self._held_back(memory, version, line) or version.change
        entry, said = self._entry(memory, change, line), tuple[Said, ...]()
        if not self._may_see(memory, entry.session if entry else change.session):
            note = "It rests on a conversation that belongs to another memory."
            return Step(version, line, note=note)
        if entry and entry.last:
            messages = self._read(entry.session, entry.first, entry.last)
            said = _most_alike(entry.session, messages, line, least=_LIKE_ENOUGH)
        elif not entry and change.turn and not change.cursors:
            said = self._turn(change, line)
        is_based = change.turn or version.author in {"dream", "consolidate"}
        gone = is_based and not entry and not said
        note = "What it rests on is not kept any more." if gone else ""
        session = change.session if self._may_see(memory, change.session) else ""
        return Step(version, line, session, change.turn, entry, said, note)

    def _held_back(self, memory: Memory, version: Version, line: str) -> Change | None:
        """The change that held a line back until the person accepted it; None where none did."""
        if version.author != "you" or not version.summary.startswith(CONFIRMED):
            return None
        for snapshot in self._versions.lineage(memory.prefix + PENDING):
            came = _lines(snapshot.after) - _lines(snapshot.before)
            if any(_bare(waiting.partition(": ")[2]) == _bare(line) for waiting in came):
                return snapshot.version.change
        return None

    def _entry(self, memory: Memory, change: Change, line: str) -> HistoryEntry | None:
        """The history entry that a line rests on."""
        named = (op.cursor for op in change.operations if op.cursor and op.new.strip() == line)
        cursors = next(((cursor,) for cursor in named), change.cursors)
        entries = [entry for cursor in cursors if (entry := memory.history.get(cursor))]
        wanted = words(line)
        return max(entries, key=lambda entry: share(wanted, _text(entry)), default=None)

    def _turn(self, change: Change, line: str) -> tuple[Said, ...]:
        """What was asked in the turn that wrote a line, and what it read that says the same."""
        every = self._read(change.session, 1, sys.maxsize)
        found = [m for m in every if m.turn_id == change.turn]
        asked = [m for m in found if m.role == "user"]
        tools = (m for m in every if found and m.role == "tool" and m.seq <= found[-1].seq)
        read = [m for m in tools if share(words(line), m.content) >= _ALIKE]
        calls = {call.id: call.hint for m in every for call in m.tool_calls}
        return _most_alike(change.session, asked + read or found, line, calls=calls)

    def _read(self, session: str, first: int, last: int) -> Sequence[Message]:
        try:
            return self._messages(session, first, last)
        except UnknownSession:  # deleted by hand
            return ()

    def _may_see(self, memory: Memory, session: str) -> bool:
        return not session or self._scope_of(session) == memory.scope


def excerpt(text: str) -> str:
    """The beginning of a text in one line."""
    return shortened(text, _LONGEST)


def listed(lines: Sequence[str]) -> list[str]:
    """The beginnings of lines as items of a list."""
    return [f"- {excerpt(line).lstrip('-*+ ')}" for line in lines]


def lines_of(memory: Memory) -> Iterator[Line]:
    """Every fact in the long-term files of a scope."""
    for path in ALL_FACTS:
        text = memory.store.read(path)
        facts = set(fact_lines(text))
        for number, line in enumerate(split(text), 1):
            if line.strip() in facts:
                yield Line(path, number, line.rstrip())


def matching(text: str, lines: Sequence[Line]) -> list[Line]:
    """The lines that hold every word of `text`, or else some form of each; the closest first."""
    wanted = words(text)
    if not wanted:
        return [line for line in lines if text.strip() and text.strip() in line.text]
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
    text, who = message.content, {"user": "you", "assistant": "nanobot"}.get(message.role, "")
    if message.role == "tool":
        who = f"tool {call or message.name}".strip()
        if about:
            text = max(text.splitlines() or [""], key=lambda line: share(about, line))
    if message.origin.startswith("person:"):
        who = message.origin.removeprefix("person:")
    return Said(session, message.seq, who, message.timestamp, text)


def _most_alike(
    session: str,
    messages: Sequence[Message],
    line: str,
    *,
    least: float = 0.0,
    calls: Mapping[str, str] | None = None,
) -> tuple[Said, ...]:
    """The few messages that share most words with a line, in their order."""
    wanted = words(line)
    rated = [(share(wanted, message.content), message) for message in messages if message.content]
    rated = [pair for pair in rated if pair[0] >= least]
    best = sorted(rated, key=lambda pair: (-pair[0], pair[1].seq))[:_MOST_SAID]
    ordered = sorted((message for _, message in best), key=lambda message: message.seq)
    return tuple(
        said_in(session, m, wanted, (calls or {}).get(m.tool_call_id, "")) for m in ordered
    )


def _previous(snapshot: Snapshot, wording: str, before: set[str], after: set[str]) -> str:
    """What the version replaced by `wording`; empty where the line was new."""
    for operation in snapshot.version.change.operations:
        if operation.new.strip() == wording and operation.old.strip() in before:
            return operation.old.strip()
    return most_similar(wording, sorted(before - after))


def _text(entry: HistoryEntry) -> str:
    return "\n".join([entry.summary, *entry.key_facts, *(op.new for op in entry.operations)])


def _lines(text: str) -> set[str]:
    return {line for raw in split(text) if (line := raw.strip())}


def _bare(line: str) -> str:
    return line.strip().lstrip("-*+ ")
