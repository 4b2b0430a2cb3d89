"""Phase 1, extract: what of a scope was not read yet, how the model is shown it, and what it found.

What is unread are history entries past the cursor, and notes of past days. What an entry says was
written by a model that may have repeated a web page, so an entry carries what is known of the raw
messages behind it: where foreign text among them came from, and what the person said themselves,
which can be quoted. Where raw messages are gone (deleted, forgotten) there is nothing left to learn
from. Reading blocks; forgotten messages and entries are as if they were not there.

The model sees the files with the age of each line, and the entries numbered from 0. Nothing that
comes back is trusted to have the right shape: what cannot be read is left out, and an answer
without any of the known keys is no answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, tzinfo
from typing import Literal, TypeVar

from nanobot.memory.documents import LONG_TERM, PERSONAL
from nanobot.memory.dream.state import ScopeState
from nanobot.memory.forgetting.forgotten import Forgotten
from nanobot.memory.history.log import HistoryEntry
from nanobot.memory.scopes import Memory
from nanobot.memory.store.guard import bare
from nanobot.memory.store.notes import day_of, note_path
from nanobot.memory.taint import is_foreign, origins_of
from nanobot.memory.text.layout import split
from nanobot.memory.text.wording import NOTE, is_unconfirmed
from nanobot.messages import Message
from nanobot.providers.endpoint import items, mapping, string
from nanobot.providers.tokens import estimate_tokens

Evidence = Callable[[str, int, int], list[Message]]
"""The messages of a session from one seq to another, both included, without retracted ones.
Blocks."""

LOOKBACK = 100
"""Messages before an entry's own that may have been in the prompt as well: what a page told the
model there, it can say again here without the page."""

_OWN = frozenset({"", "nanobot"})
_TITLE = re.compile(r"^\[\d{4}-\d\d-\d\d[ T]\d\d:\d\d\]\s*")
_UNCONFIRMED = re.compile(r"\(from [^\n]*?, unconfirmed\) ")
_LONGEST_LINE, _LONGEST_ENTRY = 1_000, 16_000
"""Characters."""
_OWN_LINES = 60
"""Lines of the person's that are shown with an entry that foreign content touched."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a batch.

    `key` names it in what is remembered about runs; `cursor` is that of the history, 0 for notes.
    `said_at` is the time of what is newest in it. `said` are the messages in which the person can
    be quoted, `origins` where foreign content in it came from, empty where there is none.
    """

    key: str
    cursor: int
    said_at: datetime
    title: str
    lines: tuple[str, ...]
    said: tuple[Message, ...] = ()
    origins: tuple[str, ...] = ()

    @property
    def is_tainted(self) -> bool:
        """Whether anything in it came from elsewhere than the person and the agent."""
        return bool(self.origins)

    @property
    def text(self) -> str:
        """What it says, without its title."""
        return "\n".join(self.lines)

    def shown(self, number: int) -> str:
        """The entry as the model reads it; only its first line begins at the margin."""
        marks = f" (from {', '.join(self.origins)})" if self.origins else ""
        first, *rest = self.lines or ("",)
        head = f"[{number}] {self.title}{marks}: {first}".rstrip()
        return "\n".join([head, *(f"  {line}" for line in rest)])

    @property
    def size(self) -> int:
        """About how many tokens it takes."""
        return estimate_tokens(self.shown(0))


def of_history(entry: HistoryEntry, evidence: Evidence) -> Entry | None:
    """A history entry with what it rests on; None where nothing of that is left."""
    behind: list[Message] = []
    if entry.session and entry.last:
        behind = evidence(entry.session, max(1, entry.first - LOOKBACK), entry.last)
    messages = [one for one in behind if one.seq >= entry.first]
    if entry.session and entry.last and not messages:
        return None
    lines = _raw(messages) if entry.type == "raw" and messages else _told(entry)
    claimed = tuple(origin for origin in entry.origin if origin not in _OWN)
    if not claimed and not messages and entry.type != "import":
        return None
    origins = claimed or origins_of(behind)
    if origins and entry.type != "raw":
        lines = _fitted([*lines, *_own_lines(messages)])
    stamp = f"[{entry.timestamp:%Y-%m-%d %H:%M}] {entry.session}".rstrip()
    raw = " (raw)" if entry.type == "raw" else ""
    return Entry(
        key=str(entry.cursor),
        cursor=entry.cursor,
        said_at=_newest(messages, entry.timestamp),
        title=stamp + raw,
        lines=lines,
        said=tuple(messages),
        origins=origins,
    )


def of_note(day: date, text: str, zone: tzinfo | None) -> Entry | None:
    """A day's notes, dated from its beginning; None where nothing stands there.

    Notes that are marked as unconfirmed are untrusted.
    """
    lines = [line for line in split(text) if line.strip() and not line.startswith("# ")]
    if not lines:
        return None
    said, origin = [], ""
    for line in lines:
        if not line.startswith(" "):  # what is indented belongs to the note above
            origin = NOTE if is_unconfirmed(line) else ""
        said.append(_said(_UNCONFIRMED.sub("", line, count=1), origin))
    return Entry(
        key=day.isoformat(),
        cursor=0,
        said_at=datetime.combine(day, time(), zone),
        title=f"[{day.isoformat()}] note",
        lines=("", *_fitted(lines)),
        said=tuple(one for one in said if not one.origin),
        origins=origins_of(said),
    )


def _told(entry: HistoryEntry) -> tuple[str, ...]:
    summary = _TITLE.sub("", entry.summary.strip())
    facts = [f"- {fact}" for fact in entry.key_facts]
    return _fitted([*summary.splitlines(), *facts])


def _own_lines(messages: Iterable[Message]) -> list[str]:
    """What the person wrote themselves, to be quoted from."""
    said = (line for message in messages for line in message.own_words.splitlines())
    lines = [f"> {line}" for line in said if line.strip()]
    return ["Lines of the person's own:", *lines[-_OWN_LINES:]] if lines else []


def _raw(messages: Iterable[Message]) -> tuple[str, ...]:
    lines = []
    for message in messages:
        if message.content.strip():
            origin = f" (from {message.origin})" if is_foreign(message) else ""
            content = " ".join(message.content.split())
            lines.append(f"{message.role.upper()}{origin}: {content}")
    return _fitted(["", *lines])


def _fitted(lines: Iterable[str]) -> tuple[str, ...]:
    """`lines` shortened so that one entry cannot fill a prompt; search still finds the rest."""
    fitted: list[str] = []
    left = _LONGEST_ENTRY
    for line in lines:
        cut = line if len(line) <= _LONGEST_LINE else f"{line[:_LONGEST_LINE]} …"
        left -= len(cut)
        if left < 0:
            return (*fitted, "…")
        fitted.append(cut)
    return tuple(fitted)


def _newest(messages: Iterable[Message], otherwise: datetime) -> datetime:
    times = [message.timestamp for message in messages if message.timestamp is not None]
    return max(times, default=otherwise)


def _said(text: str, origin: str) -> Message:
    return Message("user", text, origin=origin)


PERSON, MANNER = PERSONAL


AGE_MARK = "  ← "
_MARK = re.compile(r"\s*←\s*\d+\s*d\s*$")
_TRAILING_COMMA = re.compile(r",(?=\s*[}\]])")
_LONGEST_FACT = 500
"""Characters; a fact is a sentence."""

Kind = Literal["add", "replace", "obsolete"]
_KINDS: Mapping[str, tuple[Kind, str]] = {
    "user_updates": ("add", PERSON),
    "memory_updates": ("add", LONG_TERM),
    "soul_updates": ("add", MANNER),
    "contradictions": ("replace", ""),
    "obsolete": ("obsolete", ""),
}


@dataclass(frozen=True, slots=True)
class Item:
    """Something the model found.

    `text` is the new fact, for an obsolete one the line that goes; `replaces` the line that a
    contradicting fact takes the place of. `path` is empty where that line decides. `entry` is the
    number the model gave, None where it gave none that exists. `quote` are words of a line of the
    person's that says it.
    """

    kind: Kind
    text: str
    path: str = ""
    replaces: str = ""
    entry: int | None = None
    quote: str = ""


@dataclass(frozen=True, slots=True)
class Extraction:
    """What phase 1 found, and the numbers of the entries it read through."""

    items: tuple[Item, ...] = ()
    processed: frozenset[int] = frozenset()


def question(
    files: Mapping[str, str], ages: Mapping[str, Mapping[str, int]], entries: Sequence[Entry]
) -> str:
    """The message that shows `files` (text by path) with `ages` (days by line), and the batch."""
    parts = ["## Current files"]
    for path, text in files.items():
        parts.append(f"### {path}\n\n{aged(text, ages.get(path, {})) or '(empty)'}")
    parts.append("## New entries")
    parts += [entry.shown(number) for number, entry in enumerate(entries)]
    return "\n\n".join(parts)


def aged(text: str, ages: Mapping[str, int]) -> str:
    """`text` with the age in days behind each line that has one."""
    lines = []
    for line in text.strip().splitlines():
        days = ages.get(line, ages.get(line.strip()))
        lines.append(line if days is None else f"{line}{AGE_MARK}{days} d")
    return "\n".join(lines)


def parse(answer: str, count: int) -> Extraction | None:
    """What the model found in `count` entries; None where its answer is none."""
    found = json_object(answer, {*_KINDS, "processed_entries"})
    if found is None:
        return None
    collected = [item for key in _KINDS for item in _items(key, found.get(key), count)]
    return Extraction(tuple(collected), _processed(found, count))


def json_object(answer: str, keys: set[str]) -> Mapping[str, object] | None:
    """The first JSON object in `answer` that has one of `keys`, whatever stands around it."""
    for text in (answer, _TRAILING_COMMA.sub("", answer)):
        for candidate in _objects(text):
            if keys & candidate.keys():
                return candidate
    return None


def bare_line(text: str) -> str:
    """`text` as one line without an age mark, of bounded length."""
    return _MARK.sub("", " ".join(text.split()))[:_LONGEST_FACT].rstrip()


def _objects(text: str) -> Iterator[Mapping[str, object]]:
    decoder = json.JSONDecoder()
    start = text.find("{")
    while start >= 0:
        try:
            value, end = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            end = start + 1
        else:
            if found := mapping(value):
                yield found
        start = text.find("{", end)


def _items(key: str, value: object, count: int) -> Iterator[Item]:
    kind, path = _KINDS[key]
    for raw in items(value) if isinstance(value, list) else [value]:
        fields = {"text": raw} if isinstance(raw, str) else mapping(raw)
        quote = bare_line(string(fields.get("quote")))
        text = bare_line(string(fields.get("text"))) or quote
        if bare(text).strip("#-*_ "):
            replaces = bare_line(string(fields.get("replaces")) or string(fields.get("old")))
            yield Item(kind, text, path, replaces, _number(fields.get("entry"), count), quote)


def _processed(found: Mapping[str, object], count: int) -> frozenset[int]:
    listed = found.get("processed_entries")
    if not isinstance(listed, list):
        # Not said: an answer to a question about all of them is about all of them.
        return frozenset(range(count))
    numbers = (_number(value, count) for value in listed)
    return frozenset(number for number in numbers if number is not None)


def _number(value: object, count: int) -> int | None:
    if isinstance(value, str) and value.strip().isdecimal():
        value = int(value.strip()[:9])
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value < count else None


Unread = int | date
"""What is there to read: the cursor of a history entry, or the day of a note."""

_Kind = TypeVar("_Kind", int, date)

_BATCH_TOKENS = 16_000
"""Of entries in one question, so that the context window of a small model holds them."""


@dataclass(frozen=True, slots=True)
class Batch:
    """What is read together. `empty` are the keys of entries that have nothing to learn from."""

    entries: tuple[Entry, ...] = ()
    empty: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Position:
    """How far reading has come: all before is done, and the keys in `done` beyond it."""

    cursor: int
    note: str
    done: frozenset[str]


class Reader:
    """Reads one scope. `today` is the day whose notes are not yet complete."""

    def __init__(self, memory: Memory, evidence: Evidence, now: datetime) -> None:
        self._memory = memory
        self._evidence = evidence
        self._now = now
        self.forgotten = Forgotten(memory.root)

    def waiting(self, state: ScopeState) -> list[Unread]:
        """What is unread, in the order in which it is read; nothing of it is opened."""
        return [one for one in self._beyond(state.note) if _key(one) not in state.done]

    def batch(self, state: ScopeState, most: int) -> Batch:
        """The next entries to read, at most `most`; both fields empty where nothing is left."""
        entries: list[Entry] = []
        empty: set[str] = set()
        size = 0
        for one in self.waiting(state):
            entry = self._opened(one)
            if entry is None:
                empty.add(_key(one))
                continue
            size += entry.size
            if entries and (size > _BATCH_TOKENS or len(entries) >= most):
                break
            entries.append(entry)
        return Batch(tuple(entries), frozenset(empty))

    def position(self, state: ScopeState, done: frozenset[str]) -> Position:
        """Where reading stands once `done` is read: the end of what is done without a gap."""
        cursor, note = self._memory.history.dream_cursor(), state.note
        beyond = self._beyond(state.note)
        for read in _prefix([one for one in beyond if isinstance(one, int)], done):
            cursor = max(cursor, read)
        for day in _prefix([one for one in beyond if not isinstance(one, int)], done):
            note = day.isoformat()
        left = {_key(one) for one in self._beyond(note, cursor)}
        return Position(cursor, note, done & left)

    def _beyond(self, note: str, cursor: int = 0) -> list[Unread]:
        after = max(cursor, self._memory.history.dream_cursor())
        return [*self._memory.history.cursors(after), *self._days(note)]

    def _days(self, note: str) -> list[date]:
        folder = self._memory.root.place("memory")
        if folder.stat() is None:
            return []
        names = [entry.name for entry in folder.entries() if entry.kind == "file"]
        today = self._now.date().isoformat()
        days = (day_of(name) for name in sorted(names))
        return [day for day in days if day is not None and note < day.isoformat() < today]

    def _opened(self, one: Unread) -> Entry | None:
        if isinstance(one, int):
            entry = self._memory.history.get(one)
            # A digest retells entries that were read.
            if entry is None or entry.type == "digest" or self.forgotten.hides_entry(one):
                return None
            return of_history(entry, self._unforgotten)
        return of_note(one, self._memory.store.read(note_path(one)), self._now.tzinfo)

    def _unforgotten(self, session: str, first: int, last: int) -> list[Message]:
        messages = self._evidence(session, first, last)
        return [one for one in messages if not self.forgotten.hides_message(session, one)]


def _key(one: Unread) -> str:
    return str(one) if isinstance(one, int) else one.isoformat()


def _prefix(ones: Sequence[_Kind], done: frozenset[str]) -> list[_Kind]:
    found = []
    for one in ones:
        if _key(one) not in done:
            break
        found.append(one)
    return found
