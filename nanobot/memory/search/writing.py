"""Passages into the tables and out of them, the counts of their segments kept in step.

Invariants between calls: each passage has its row in `words` under its id, and each segment
of talk has a row in `segment` with the number of its passages. Callers hold a transaction.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import islice

from nanobot.memory.search.passages import Entry, stored, well_formed
from nanobot.memory.search.tables import ASKS, ENDS_ASKING, PLACES, STREAM_BITS, TOOLS_FROM

PAUSE = timedelta(hours=1)
"""A longer silence ends a segment."""

SEGMENT_MOST = 60
"""No segment has more passages."""

_TEXTS = (("words", "rowid"), ("vector", "id"), ("passage", "id"))
_BATCH = 4_096
_PASSAGE = (
    "INSERT INTO passage (id, stream, seq, segment, moment, role, speaker, flags, origin, turn,"
    " place, original, hash, first, last) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_Row = tuple[int, int, int, int, str, str, str, int, str, str, str, str | None, int, int, int]


class Interrupted(Exception):
    """The index is being closed: what was under way is given up."""


@dataclass(slots=True)
class _Tail:
    """Where a stream ends: the last ids of talk and output, and the segment that may go on."""

    said: int
    output: int
    segment: int = 0
    moment: str = ""
    counts: Counter[int] = field(default_factory=Counter)


class Writer:
    """Changes passages. `deleted` tells that text was taken out since it was last set to False.

    Everything here raises `Interrupted` soon after `closing` has become true.
    """

    def __init__(self, db: sqlite3.Connection, closing: Callable[[], bool]) -> None:
        self._db, self._closing = db, closing
        self.deleted = False

    def check(self) -> None:
        """Raise `Interrupted` if it is time to end."""
        if self._closing():
            raise Interrupted

    def append(self, stream: int, entries: Iterable[Entry], *, apart: bool = False) -> None:
        """Add `entries` after what the stream has; `apart`: each is a segment of its own."""
        tail = self._tail(stream)
        rows = iter(entries)
        while batch := list(islice(rows, _BATCH)):
            self.check()
            self._append(stream, batch, tail, apart)
        self._count(tail.counts)

    def remove(self, ids: Sequence[int]) -> None:
        """Take passages out."""
        find = "SELECT segment FROM passage WHERE id = ?"
        rows = (self._db.execute(find, (id,)).fetchone() for id in ids if not _is_output(id))
        self._count({segment: -n for segment, n in Counter(row[0] for row in rows if row).items()})
        for table, column in _TEXTS:
            self._db.executemany(f"DELETE FROM {table} WHERE {column} = ?", ((id,) for id in ids))  # noqa: S608
        self.deleted = self.deleted or bool(ids)

    def replace(self, entries: Sequence[tuple[int, Entry]]) -> None:
        """Give passages other contents; their ids and segments stay."""
        for id, entry in entries:
            found = self._db.execute("SELECT segment FROM passage WHERE id = ?", (id,)).fetchone()
            for table, column in _TEXTS:
                self._db.execute(f"DELETE FROM {table} WHERE {column} = ?", (id,))  # noqa: S608
            text, original = stored(entry.text)
            self._db.execute("INSERT INTO words (rowid, text) VALUES (?, ?)", (id, text))
            self._db.execute(_PASSAGE, _row(id, found[0], entry, original))
        self.deleted = self.deleted or bool(entries)

    def clear(self, stream: int) -> None:
        """Take all passages of a stream out."""
        inside = (stream << STREAM_BITS, (stream << STREAM_BITS) + PLACES - 1)
        for table, column in (*_TEXTS, ("segment", "id")):
            done = self._db.execute(f"DELETE FROM {table} WHERE {column} BETWEEN ? AND ?", inside)  # noqa: S608
            self.deleted = self.deleted or done.rowcount > 0
        for table in ("speaker", "retraction"):
            self._db.execute(f"DELETE FROM {table} WHERE stream = ?", (stream,))  # noqa: S608

    def _append(self, stream: int, batch: Sequence[Entry], tail: _Tail, apart: bool) -> None:
        passages: list[_Row] = []
        words: list[tuple[int, str]] = []
        for entry in batch:
            text, original = stored(entry.text)
            if entry.role == "tool":
                tail.output += 1
                id = segment = tail.output
            else:
                tail.said += 1
                id = tail.said
                segment = self._continue(tail, id, entry, apart)
                tail.counts[segment] += 1
            passages.append(_row(id, segment, entry, original))
            words.append((id, text))
        self._db.executemany(_PASSAGE, passages)
        self._db.executemany("INSERT INTO words (rowid, text) VALUES (?, ?)", words)
        self._db.executemany(
            "INSERT OR IGNORE INTO speaker VALUES (?, ?)",
            ((stream, well_formed(name)) for name in {entry.speaker for entry in batch} if name),
        )

    def _continue(self, tail: _Tail, id: int, entry: Entry, apart: bool) -> int:
        """The segment of the next passage: the open one, or a new one after a pause."""
        full = id - tail.segment >= SEGMENT_MOST
        if not tail.segment or apart or full or _paused(tail.moment, entry.moment):
            tail.segment = id
        tail.moment = entry.moment or tail.moment
        return tail.segment

    def _tail(self, stream: int) -> _Tail:
        base = stream << STREAM_BITS
        last = self._db.execute(
            "SELECT id, segment, moment FROM passage WHERE id BETWEEN ? AND ?"
            " ORDER BY id DESC LIMIT 1",
            (base, base + TOOLS_FROM - 1),
        ).fetchone()
        (output,) = self._db.execute(
            "SELECT max(id) FROM passage WHERE id BETWEEN ? AND ?",
            (base + TOOLS_FROM, base + PLACES - 1),
        ).fetchone()
        said, segment, moment = last or (base, 0, "")
        return _Tail(said, output or base + TOOLS_FROM, segment, moment)

    def _count(self, counts: Mapping[int, int]) -> None:
        """So many more passages in each segment; those that become empty go."""
        self._db.executemany(
            "INSERT INTO segment VALUES (?, ?)"
            " ON CONFLICT (id) DO UPDATE SET passages = passages + excluded.passages",
            counts.items(),
        )
        emptied = ((segment,) for segment, n in counts.items() if n < 0)
        self._db.executemany("DELETE FROM segment WHERE id = ? AND passages <= 0", emptied)


def _is_output(id: int) -> bool:
    """Whether it is the id of a tool's output, which is in no segment of talk."""
    return id % PLACES > TOOLS_FROM


def _row(id: int, segment: int, entry: Entry, original: str | None) -> _Row:
    flags = ASKS | (entry.ends_asking and ENDS_ASKING) if entry.asks else 0
    return (
        id,
        id >> STREAM_BITS,
        entry.seq,
        segment,
        entry.moment,
        entry.role,
        well_formed(entry.speaker),
        flags,
        well_formed(entry.origin),
        well_formed(entry.turn),
        well_formed(entry.place),
        original,
        entry.hash,
        entry.first,
        entry.last,
    )


def _paused(before: str, now: str) -> bool:
    """Whether a conversation stopped between two moments. Which came first says little: a platform
    has a clock of its own, and cuts its times to seconds."""
    if not before or not now or (before[:13], before[19:]) == (now[:13], now[19:]):
        return False  # most messages come within the same hour
    one, other = datetime.fromisoformat(before), datetime.fromisoformat(now)
    if (one.tzinfo is None) != (other.tzinfo is None):
        return True
    return abs(other - one) > PAUSE
