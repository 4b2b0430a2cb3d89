"""`/memory why`: trace a remembered line back to its sources.

The chain is: the line, the version that gave it this wording, and the earlier wordings (the most
similar line that the version removed). Behind each is a history entry with its messages, or the
notes, through the digest of their month, or the turn in which the agent wrote it, or the person's
edit. Nothing of another scope is shown: each link is checked, and a note replaces a closed one."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import date
from heapq import nlargest
from itertools import dropwhile, islice, takewhile
from operator import itemgetter

from msgspec.structs import replace

from nanobot.errors import NanobotError, UnknownSession
from nanobot.memory.analysis import languages_of
from nanobot.memory.days import read_days
from nanobot.memory.digests import DigestLine, digest_path, is_month, month_of
from nanobot.memory.documents import ALL_FACTS, FACTS, PENDING, RETIRED
from nanobot.memory.guard import fact_lines, without_list_mark
from nanobot.memory.history import HistoryEntry
from nanobot.memory.importance import without_importance
from nanobot.memory.line_changes import Operation, number_blocks, split
from nanobot.memory.provenance import (
    RETIRED_ON,
    Explanation,
    FactLine,
    HistorySource,
    NoteSource,
    Provenance,
    ProvenanceStep,
    SourceMessage,
)
from nanobot.memory.scopes import Memories, Memory, Scopes
from nanobot.memory.similarity import Request, most_similar, share, words
from nanobot.memory.store import note_path
from nanobot.memory.version import CONFIRMED, Change, Version, VersionSnapshot
from nanobot.messages import Message, attribute_message
from nanobot.session.manager import SessionManager

_MOST_LINES, _MOST_SAID, _MOST_STEPS = 3, 3, 20
_LIKE_ENOUGH, _ALIKE = 0.3, 0.6


class Explainer:
    def __init__(self, memories: Memories, sessions: SessionManager, scopes: Scopes) -> None:
        self._memories, self._sessions, self._scopes = memories, sessions, scopes

    async def why(self, text: str, scope: str, asker: str = "") -> Explanation:
        """Explain the few lines that match `text` best. `asker` as for `attribute_message`."""
        memory = self._memories.of(scope)
        await memory.store.note_hand_edits()

        def explain() -> Explanation:
            best = matching_lines(text, list(lines_of(memory)))
            best = best or matching_lines(text, list(note_lines(memory)))
            best = best or dated_lines(text, list(lines_of(memory)), memory.store.today())
            best = best[:_MOST_LINES]
            found = list[Provenance]()
            with memory.versions.acquire():
                for line in best:
                    standing = memory.recall.standing_of(line.path, line.text)
                    found.append(replace(self.provenance(memory, line, asker), standing=standing))
            memory.recall.note_use(line.text for line in best)
            return Explanation(tuple(found))

        return await asyncio.to_thread(explain)

    def provenance(self, memory: Memory, line: FactLine, asker: str = "") -> Provenance:
        """Trace one line. Blocks."""
        if month := month_of(line.path.rpartition("/")[2]):
            behind = find_digested_notes(memory, month, line)
            return Provenance(line.path, line.number, line.text, noted=behind)
        wordings = islice(self._wordings(memory, line), _MOST_STEPS)
        steps = tuple(self._trace_version(memory, *wording, asker) for wording in wordings)
        return Provenance(line.path, line.number, line.text, steps)

    def wordings(self, memory: Memory, line: FactLine) -> tuple[str, ...]:
        """Return the wordings of a line, the newest first. Blocks."""
        earlier = islice(self._wordings(memory, line), _MOST_STEPS)
        return (line.text, *(wording for _, wording, _ in earlier))

    def _wordings(self, memory: Memory, line: FactLine) -> Iterator[tuple[Version, str, str]]:
        """Yield the versions behind a line with its wordings, newest first. For a retired fact, the
        version that removed it comes with the fact, and the versions of its former file follow."""
        found = self._lineage(memory, line.path, line.text)
        if line.path != RETIRED:
            yield from ((version, wording, "") for version, wording in found)
            return
        for retired, wording in islice(list(found)[::-1], 1):  # earlier than any edit of the line
            fact = without_list_mark(re.sub(RETIRED_ON, "", wording))
            removal, path = self._find_removal(memory, fact, retired)
            yield removal, wording, fact
            former = self._lineage(memory, path, fact, until=removal.number) if path else ()
            yield from ((version, wording, "") for version, wording in former)

    def _find_removal(self, memory: Memory, fact: str, retired: Version) -> tuple[Version, str]:
        """Return the version that removed a fact when `retired` wrote it to retired.md, and the
        file. Return `retired` and "" if there is none."""
        for path in FACTS:
            every = memory.versions.lineage(memory.prefix + path)
            later = takewhile(lambda one: one.version.number >= retired.number, every)
            gone = [one.version for one in later if is_removed(fact, one)]
            if gone:
                return gone[-1], path
        return retired, ""

    def _lineage(
        self, memory: Memory, path: str, line: str, until: int = 0
    ) -> Iterator[tuple[Version, str]]:
        """Yield the versions that gave `line` this or a replaced wording. With `until`, begin at
        its removal by that version."""
        wording, removed = without_importance(line).strip(), until > 0
        every = memory.versions.lineage(memory.prefix + path)
        for snapshot in dropwhile(lambda one: one.version.number > until > 0, every):
            if not removed and f"\n{wording}\n" in f"\n{snapshot.before}":
                continue  # true for most versions, and much faster than the sets
            before, after = split_lines(snapshot.before), split_lines(snapshot.after)
            if removed:
                same = find_same_line(wording, before - after)
                removed, wording = not same, same or wording
                continue
            if wording not in after - before:
                continue
            yield snapshot.version, wording
            if snapshot.version.author == "restore":
                removed = True  # a restored line was written before its removal
                continue
            wording = find_replaced_line(snapshot, wording, before, after)
            if not wording:
                return

    def _trace_version(
        self, memory: Memory, version: Version, line: str, removed: str, asker: str
    ) -> ProvenanceStep:
        """Trace a version that wrote `line`, or that `removed` a fact."""
        replacement = find_replacement(version, removed)
        sought = next(filter(None, (replacement, removed, line)))
        change = self._find_change(memory, version, sought)
        made = find_operation(change, sought)
        cursors = (made.cursor,) if made.cursor else change.cursors
        entry = None if made.note else find_entry(memory, cursors, sought)
        step = ProvenanceStep(
            version.number,
            version.commit,
            version.when,
            version.author,
            version.summary,
            line,
            removed=bool(removed),
            replacement=replacement,
        )
        if not self._may_see(memory, entry.session if entry else change.session):
            note = "Its source is a conversation that belongs to another memory."
            return replace(step, note=note)
        step = replace(
            step,
            session=change.session if self._may_see(memory, change.session) else "",
            turn=change.turn,
            entry=entry and HistorySource.of(entry),
            messages=self._find_evidence(change, entry, sought, asker),
            noted=find_notes(memory, made.note, sought),
        )
        is_based = change.turn or version.author in {"dream", "consolidate"}
        if is_based and not any((step.entry, step.messages, step.noted)):
            return replace(step, note="Its source no longer exists.")
        return step

    def _find_change(self, memory: Memory, version: Version, line: str) -> Change:
        """Return the change that made a line pending until the person accepted it, else the
        version's."""
        if version.author == "you" and version.summary.startswith(CONFIRMED):
            for snapshot in memory.versions.lineage(memory.prefix + PENDING):
                came = split_lines(snapshot.after) - split_lines(snapshot.before)
                if find_same_line(line, (waiting.partition(": ")[2] for waiting in came)):
                    return snapshot.version.change
        return version.change

    def _find_evidence(
        self, change: Change, entry: HistoryEntry | None, line: str, asker: str
    ) -> tuple[SourceMessage, ...]:
        """Return the few messages most similar to a line, in order, from its history entry, or else
        from the turn in which the agent wrote it."""
        wanted, session = words(line), entry.session if entry else change.session
        every, found = self._find_messages(change, entry, wanted)
        best = nlargest(_MOST_SAID, found, key=lambda one: share(wanted, one.content))
        calls = {call.id: call.hint for one in every for call in one.tool_calls}
        return tuple(
            source_message(session, one, wanted, calls.get(one.tool_call_id, ""), asker)
            for one in sorted(best, key=lambda one: one.seq)
        )

    def _find_messages(
        self, change: Change, entry: HistoryEntry | None, wanted: Collection[str]
    ) -> tuple[Sequence[Message], Sequence[Message]]:
        """Return all messages there, and those about these words."""
        with suppress(UnknownSession):  # the person deleted it
            if entry and entry.last:
                every = list(self._sessions.read_window(entry.session, entry.first, entry.last))
                return every, [one for one in every if share(wanted, one.content) >= _LIKE_ENOUGH]
            if not entry and change.turn and not change.cursors:
                every = list(self._sessions.read_window(change.session))
                return every, self._read_in_turn(change, every, wanted)
        return (), ()

    def _read_in_turn(
        self, change: Change, every: Sequence[Message], wanted: Collection[str]
    ) -> list[Message]:
        """Return the person's messages of a turn, and matching results read until then, or all of
        the turn if there are none."""
        turn = [one for one in every if one.turn_id == change.turn and one.content]
        if not turn:
            return []
        # A prompt never goes back beyond `/new`.
        begun = max(self._sessions.epochs(change.session, 1, turn[0].seq - 1), default=0)

        def is_result(one: Message) -> bool:
            is_read = one.role == "tool" and begun < one.seq <= turn[-1].seq
            return is_read and share(wanted, one.content) >= _ALIKE

        said = [one for one in turn if one.role == "user"]
        said += filter(is_result, every)
        return sorted(said or turn, key=lambda one: one.seq)

    def _may_see(self, memory: Memory, session: str) -> bool:
        if not session:
            return True
        return self._scopes.of_session(session, self._sessions.metadata_of(session)) == memory.scope


def find_same_line(wanted: str, lines: Iterable[str]) -> str:
    """Return the line that equals `wanted` except for its list mark, or ""."""
    bare = without_list_mark(wanted)
    return next((line for line in lines if without_list_mark(line) == bare), "")


def lines_of(memory: Memory) -> Iterator[FactLine]:
    """Yield every fact in the long-term files of a scope."""
    for path in ALL_FACTS:
        text = memory.store.read(path)
        facts = set(fact_lines(text))
        for number, line in enumerate(split(text), 1):
            if line.strip() in facts:
                yield FactLine(path, number, line.rstrip())


def note_lines(memory: Memory) -> Iterator[FactLine]:
    """Yield the entries of all daily notes with all their lines, and the lines of all digests."""
    store = memory.store
    for path in (*map(note_path, store.note_days()), *map(digest_path, store.digest_months())):
        yield from entries_in(memory, path)


def entries_in(memory: Memory, path: str) -> Iterator[FactLine]:
    """Yield the entries of one file, each with all its lines."""
    for number, block in number_blocks(memory.store.read(path)):
        yield FactLine(path, number, block)


def is_removed(fact: str, snapshot: VersionSnapshot) -> bool:
    """Return True if a version removed a fact, given without its list mark."""
    if fact not in snapshot.before:
        return False
    gone = split_lines(snapshot.before) - split_lines(snapshot.after)
    return bool(find_same_line(fact, gone))


def find_replacement(version: Version, fact: str) -> str:
    """Return the line that replaced a fact in a version, or ""."""
    made = (op for op in version.change.operations if op.rewords)
    found = (op.new for op in made if without_list_mark(op.old) == fact)
    return without_importance(next(found, ""))


def find_operation(change: Change, line: str) -> Operation:
    """Return the operation that made or removed this line, if it names its source, else an empty
    one."""
    lines = (((op.new or op.old), op) for op in change.operations)
    made = (op for changed, op in lines if without_list_mark(changed) == without_list_mark(line))
    return next((op for op in made if op.cursor or op.note), Operation())


def find_entry(memory: Memory, cursors: Iterable[int], line: str) -> HistoryEntry | None:
    """Return the history entry that is most similar to a line."""
    entries, wanted = filter(None, map(memory.history.get, cursors)), words(line)

    def alike(entry: HistoryEntry) -> float:
        texts = (entry.summary, *entry.key_facts, *(op.new for op in entry.operations))
        return share(wanted, "\n".join(texts))

    return max(entries, key=alike, default=None)


def find_notes(memory: Memory, key: str, line: str) -> NoteSource | None:
    """Return the notes of a day, or of the month of a digest, behind a line."""
    if not key:
        return None
    is_digest, lines = is_month(key), entries_in(memory, f"memory/{key}.md")
    best = select_alike(words(line), lines, 1 if is_digest else _MOST_SAID)
    behind = find_digested_notes(memory, key, best[0]) if is_digest and best else ()
    return NoteSource(key, (*best, *behind))


def find_digested_notes(memory: Memory, month: str, line: FactLine) -> tuple[FactLine, ...]:
    """Return the notes most similar to a digest's line, on the days that it names."""
    digested = DigestLine.of(line.text, month)
    wanted, found = words(digested.text), list[FactLine]()
    for day in digested.days:
        found += select_alike(wanted, entries_in(memory, note_path(day)), 1)
    return tuple(found)


def select_alike(wanted: Collection[str], lines: Iterable[FactLine], most: int) -> list[FactLine]:
    """Return the lines most similar to `wanted`, in their order."""
    scored = [(share(wanted, line.text), line) for line in lines]
    best = nlargest(most, (one for one in scored if one[0] >= _LIKE_ENOUGH), key=itemgetter(0))
    return sorted((line for _, line in best), key=lambda line: line.number)


def matching_lines(text: str, lines: Sequence[FactLine]) -> list[FactLine]:
    """Return the lines with every word of `text`, or relatives of them; the closest first."""
    request = Request.of(text, languages_of(line.text for line in lines))
    if not request.groups:
        return [line for line in lines if text.strip() and text.strip() in line.text]
    return closest_lines(request, lines)[1]


def dated_lines(text: str, lines: Sequence[FactLine], today: date) -> list[FactLine]:
    """Return the lines with a day that `text` names, in any form ("3.5." for "3 May") and of any
    year, and with its other words."""
    languages = languages_of(line.text for line in lines)
    asked = read_days(text, today, languages)
    days = {(span.first.month, span.first.day) for span in asked.spans if not span.is_long()}
    dated = [
        line
        for line in lines
        if any(
            (span.first.month, span.first.day) in days and not span.is_long()
            for span in (read_days(line.text, today, languages).spans if days else ())
        )
    ]
    request = Request.of(asked.rest, languages)
    return closest_lines(request, dated)[1] if request.groups else dated


def closest_lines(request: Request, lines: Iterable[FactLine]) -> tuple[int, list[FactLine]]:
    """Return the `Request.closeness` of the closest lines, and the lines, those with few other
    words first."""
    found = [(close, line) for line in lines if (close := request.closeness(line.text))]
    best = max((close for close, _ in found), default=0)
    closest = [line for close, line in found if close == best]
    return best, sorted(closest, key=lambda line: (len(words(line.text)), line.path == RETIRED))


def only_match(text: str, lines: Sequence[FactLine]) -> FactLine:
    """Return the line with exactly this text, or the one with its words and the fewest others.
    Raise `NanobotError` for none or several."""
    exact = [line for line in lines if line.text.strip() == text.strip()]
    found = exact if len(exact) == 1 else matching_lines(text, lines)
    if not found:
        raise NanobotError("no fact matches", hint="To list the facts, send `/memory`.")
    counts = [len(words(without_importance(line.text))) for line in found]
    closest = [line for line, count in zip(found, counts, strict=True) if count == min(counts)]
    if len(closest) > 1:
        shown = "\n".join(without_importance(line.text) for line in closest[:_MOST_LINES])
        raise NanobotError(f"several facts match:\n{shown}", hint="Use more words from the fact.")
    return closest[0]


def source_message(
    session: str, message: Message, about: Collection[str] = (), call: str = "", asker: str = ""
) -> SourceMessage:
    """Render a message, or of a tool's output the line most similar to `about`. `call` is the
    tool's question. `asker` as for `attribute_message`."""
    who, text = attribute_message(
        message.role, message.name, message.content, message.origin, asker
    )
    if message.role == "tool":
        who = f"tool {call or message.name}".strip()
        if about:
            text = max(text.splitlines() or [""], key=lambda line: share(about, line))
    return SourceMessage(session, message.seq, who, message.timestamp, text, message.kept)


def find_replaced_line(
    snapshot: VersionSnapshot, wording: str, before: set[str], after: set[str]
) -> str:
    """Return the line that the version replaced by `wording`, or "" for a new one."""
    for operation in snapshot.version.change.operations:
        old, new = (without_importance(line).strip() for line in (operation.old, operation.new))
        if new == wording and old in before:
            return old
    return most_similar(wording, sorted(before - after))


def split_lines(text: str) -> set[str]:
    return {line for raw in split(without_importance(text)) if (line := raw.strip())}
