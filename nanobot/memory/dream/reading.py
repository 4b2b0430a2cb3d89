"""What of a scope Dream has not read: history entries past the cursor, and notes of past days.

Blocks: files are read, and the raw messages behind each entry. Forgotten messages and entries are
as if they were not there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import TypeVar

from nanobot.memory.dream.entries import Entry, Evidence, of_history, of_note
from nanobot.memory.dream.state import ScopeState
from nanobot.memory.forgetting.forgotten import Forgotten
from nanobot.memory.scopes import Memory
from nanobot.memory.store.notes import day_of, note_path
from nanobot.messages import Message

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
