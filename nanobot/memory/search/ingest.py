"""Bringing the index up to date with the files.

What changed goes in within one transaction (a document of the library in one of its own), so that a
search sees all of a conversation's move to the archive or nothing of it. A file that cannot be read
is reported once and does not hide the others.

A session whose live file only grew is read on from where reading ended; that it only grew is known
by its inode and by what stands before that place. In any other case (moved to the archive, saved by
an editor, erased, cut, retracted) all of a stream is compared with the index by a hash of each
line: what is equal from the start on stays, wherever it now stands, and the rest is indexed again.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from datetime import datetime, timedelta
from itertools import islice
from typing import NamedTuple
from zlib import crc32

from loguru import logger

from nanobot.clock import Clock
from nanobot.errors import NanobotError
from nanobot.io import FileState
from nanobot.memory.history.entries import MOST
from nanobot.memory.search.database import PLACES, STREAM_BITS, TOOLS_FROM, transaction
from nanobot.memory.search.question import prepared
from nanobot.memory.search.reading import (
    Entry,
    Listing,
    Name,
    Reader,
    SessionReader,
    SourceFile,
    line_hash,
    retractions_in,
    well_formed,
)
from nanobot.memory.search.values import Sources
from nanobot.session.loading import whole_size
from nanobot.session.records import Retraction

PAUSE = timedelta(hours=1)
"""A longer silence ends a segment."""

SEGMENT_MOST = 60
"""No segment has more passages."""

_BATCH = 4_096
_MARK = 4_096
_PASSAGE = (
    "INSERT INTO passage (id, stream, seq, segment, moment, role, speaker, asks, origin, turn,"
    " place, original, hash, first, last) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
Streams = Mapping[Name, Sequence[SourceFile]]


class Interrupted(Exception):
    """The index is being closed: what was under way is given up."""


class _FileMoved(Exception):
    """A file is no longer the one that was listed; the next refresh sees the new one."""


class Ingest:
    """Brings the index at `db` up to date with the files.

    Raises `Interrupted` soon after `closing` has become true.
    """

    def __init__(
        self, db: sqlite3.Connection, sources: Sources, clock: Clock, closing: Callable[[], bool]
    ) -> None:
        self._db, self._closing = db, closing
        self._listing, self._reader = Listing(sources), Reader(sources, clock.now().tzinfo)
        self._reported: set[Name] = set()
        self._taken: Streams | None = None

    def refresh(self) -> None:
        """Take in what changed. Raises `sqlite3.Error`, StorageError."""
        streams = self._listing.streams()
        if streams == self._taken:
            return
        self._taken = None
        known = self._known()
        changed = [name for name in streams if known.get(name) != _states(streams[name])]
        failed = set[Name]()
        with transaction(self._db):
            for name in changed:
                if name[0] != "library" and not self._take(name, streams[name]):
                    failed.add(name)
            for name in known.keys() - streams.keys():
                self._db.execute("DELETE FROM stream WHERE (source, scope, key) = (?, ?, ?)", name)
        for name in changed:
            if name[0] == "library":  # reading takes its time; the file is not locked meanwhile
                entries = list(self._reader.entries(name, streams[name]))
                with transaction(self._db):
                    self._take(name, streams[name], entries)
        self._taken = {name: files for name, files in streams.items() if name not in failed}

    def _known(self) -> dict[Name, str]:
        rows = self._db.execute("SELECT source, scope, key, files FROM stream")
        return {(source, scope, key): files for source, scope, key, files in rows}

    def _check(self) -> None:
        if self._closing():
            raise Interrupted

    def _take(
        self, name: Name, files: Sequence[SourceFile], entries: Iterable[Entry] | None = None
    ) -> bool:
        """Take in a stream; whether that worked. One that holds what the database does not take (a
        value that no one thought of) is passed over as well."""
        self._check()
        self._db.execute("SAVEPOINT stream")
        try:
            id = self._id(name)
            if name[0] == "message":
                self._take_session(id, files)
            else:
                entries = self._reader.entries(name, files) if entries is None else entries
                self._replace(id, entries, apart=name[0] == "history")
                self._remember(id, files=_states(files))
        except (NanobotError, OSError, ValueError, OverflowError, _FileMoved) as error:
            self._db.execute("ROLLBACK TO stream")
            self._db.execute("RELEASE stream")
            if not isinstance(error, _FileMoved) and name not in self._reported:
                self._reported.add(name)
                logger.warning("{} {} is not searched: {}", name[0], name[2], error)
            return False
        self._db.execute("RELEASE stream")
        return True

    def _id(self, name: Name) -> int:
        self._db.execute("INSERT OR IGNORE INTO stream (source, scope, key) VALUES (?, ?, ?)", name)
        row = self._db.execute(
            "SELECT id FROM stream WHERE (source, scope, key) = (?, ?, ?)", name
        ).fetchone()
        return int(row[0])

    def _remember(self, id: int, **columns: str | int) -> None:
        names = ", ".join(f"{name} = ?" for name in columns)
        self._db.execute(f"UPDATE stream SET {names} WHERE id = ?", (*columns.values(), id))  # noqa: S608

    def _take_session(self, id: int, files: Sequence[SourceFile]) -> None:
        with ExitStack() as stack:
            opened = [_Opened.of(file, stack.enter_context(file.opened())) for file in files]
            reader = self._read_on(id, opened) or self._read_all(id, opened)
            live = opened[-1]
            self._remember(
                id,
                files=_states([file.source for file in opened]),
                number=reader.number,
                retractions=json.dumps([[r.turn_id, r.first, r.last] for r in reader.retractions]),
                read=live.end,
                mark=live.mark(live.end),
            )
        if reader.metadata is not None:
            self._remember(id, metadata=json.dumps(reader.metadata))

    def _read_on(self, id: int, opened: Sequence[_Opened]) -> SessionReader | None:
        """Read on where the last refresh ended; None where the files did not just grow."""
        files, number, retracted, read, mark = self._db.execute(
            "SELECT files, number, retractions, read, mark FROM stream WHERE id = ?", (id,)
        ).fetchone()
        live, before = opened[-1], json.loads(files or "[]")
        if not _grew(before, [file.source for file in opened]) or live.mark(read) != mark:
            return None
        # A retraction speaks of numbers, so it holds for messages that are written after it too.
        gone = [Retraction(turn, first, last, None) for turn, first, last in json.loads(retracted)]
        reader = SessionReader(number, list(gone))
        new = [entry for raw in live.lines(read) if (entry := reader.entry(raw))]
        last = self._db.execute("SELECT max(seq) FROM passage WHERE stream = ?", (id,)).fetchone()
        seqs = [last[0] or 0, *(entry.seq for entry in new)]
        if len(reader.retractions) > len(gone) or seqs != sorted(set(seqs)):
            return None
        self._append(id, new)
        return reader

    def _read_all(self, id: int, opened: Sequence[_Opened]) -> SessionReader:
        """Compare all of a session with the index; lines that it knows are not parsed."""
        gone = [gone for file in opened for gone in retractions_in(file.lines())]
        for one in gone:
            at = (id, min(one.first, MOST), min(one.last, MOST), well_formed(one.turn_id))
            self._db.execute(
                "DELETE FROM passage WHERE stream = ? AND seq BETWEEN ? AND ? AND ? IN ('', turn)",
                at,
            )
        reader, standing = SessionReader(retractions=gone), _Standing(self._db, id)

        def unknown() -> Iterator[Entry]:
            for raw in (raw for file in opened for raw in file.lines()):
                if standing.is_more and (seq := standing.passes(line_hash(raw))):
                    reader.number = seq
                elif entry := reader.entry(raw):
                    yield entry

        self._append(id, standing.replaced_by(unknown()))
        return reader

    def _replace(self, id: int, entries: Iterable[Entry], *, apart: bool) -> None:
        """Make the index say what `entries` say."""
        standing = _Standing(self._db, id)
        unknown = (entry for entry in entries if not standing.passes(entry.hash))
        self._append(id, standing.replaced_by(unknown), apart=apart)

    def _append(self, stream: int, entries: Iterable[Entry], *, apart: bool = False) -> None:
        """Add `entries` after what the stream has; `apart`: each is a segment of its own."""
        rows, tail = iter(entries), None
        while batch := list(islice(rows, _BATCH)):
            self._check()
            # Only now: drawing the first one may take out what stood at the end.
            tail = tail or _Tail(self._db, stream)
            passages, words = [], []
            for entry in batch:
                id, segment = tail.next(entry, apart)
                text, original = _stored(entry.text)
                words.append((id, text))
                passages.append(
                    (
                        id,
                        stream,
                        entry.seq,
                        segment,
                        entry.moment,
                        entry.role,
                        well_formed(entry.speaker),
                        entry.asks,
                        well_formed(entry.origin),
                        well_formed(entry.turn),
                        well_formed(entry.place),
                        original,
                        entry.hash,
                        entry.first,
                        entry.last,
                    )
                )
            self._db.executemany(_PASSAGE, passages)
            self._db.executemany("INSERT INTO words (rowid, text) VALUES (?, ?)", words)
            names = {entry.speaker for entry in batch} - {"", "user", "assistant", "tool"}
            self._db.executemany(
                "INSERT OR IGNORE INTO speaker VALUES (?, ?)",
                ((stream, well_formed(name)) for name in names),
            )


class _Standing:
    """What the index has of a stream, by seq, compared with what the files say."""

    def __init__(self, db: sqlite3.Connection, stream: int) -> None:
        self._db, self._stream = db, stream
        self._rows = db.execute(
            "SELECT seq, hash FROM passage WHERE stream = ? ORDER BY seq", (stream,)
        )
        self._next: tuple[int, int] | None = self._rows.fetchone()
        self._passed = 0
        self._new = set[int]()

    @property
    def is_more(self) -> bool:
        """Whether any passage was not passed yet."""
        return self._next is not None

    def passes(self, hash: int) -> int:
        """The seq of the next passage if it has this hash: it stays. 0 where it has another."""
        if self._next is None or self._next[1] != hash:
            return 0
        self._passed = self._next[0]
        self._next = self._rows.fetchone()
        return self._passed

    def replaced_by(self, entries: Iterable[Entry]) -> Iterator[Entry]:
        """Those of `entries` that are new, each seq once; what was not passed is taken out."""
        for entry in entries:
            if not self._has(entry.seq):
                self._cut()
                self._new.add(entry.seq)
                yield entry
        self._cut()

    def _has(self, seq: int) -> bool:
        if seq in self._new or seq > self._passed:
            return seq in self._new
        at = (self._stream, seq)
        found = self._db.execute("SELECT 1 FROM passage WHERE (stream, seq) = (?, ?)", at)
        return found.fetchone() is not None

    def _cut(self) -> None:
        if self._next is not None:
            self._rows.close()
            at = (self._stream, self._next[0])
            self._db.execute("DELETE FROM passage WHERE stream = ? AND seq >= ?", at)
            self._next = None


class _Tail:
    """Where a stream ends: the last ids of talk and output, and the segment that may go on."""

    def __init__(self, db: sqlite3.Connection, stream: int) -> None:
        base = stream << STREAM_BITS
        (output,) = db.execute(
            "SELECT max(id) FROM passage WHERE id BETWEEN ? AND ?",
            (base + TOOLS_FROM, base + PLACES - 1),
        ).fetchone()
        talk = db.execute(
            "SELECT id, segment, moment FROM passage WHERE id BETWEEN ? AND ?"
            " ORDER BY id DESC LIMIT 1",
            (base, base + TOOLS_FROM - 1),
        ).fetchone()
        self._output = output or base + TOOLS_FROM
        last: tuple[int, int, str] = talk or (base, 0, "")
        self._said, self._segment, self._moment = last

    def next(self, entry: Entry, apart: bool) -> tuple[int, int]:
        """The id and the segment of the passage that comes next: the open segment, or a new one
        after a pause."""
        if entry.role == "tool":
            self._output += 1
            return self._output, self._output
        self._said += 1
        full = self._said - self._segment >= SEGMENT_MOST
        if not self._segment or apart or full or _paused(self._moment, entry.moment):
            self._segment = self._said
        self._moment = entry.moment or self._moment
        return self._said, self._segment


class _Opened(NamedTuple):
    """A file of a session; what ends at `end` are whole lines."""

    source: SourceFile
    descriptor: int
    end: int

    @classmethod
    def of(cls, file: SourceFile, descriptor: int) -> _Opened:
        """Raises `_FileMoved` where another file has the name by now."""
        state = FileState.of(os.fstat(descriptor))
        if state.inode != file.state.inode:
            raise _FileMoved
        source = SourceFile(file.folder, file.name, state)
        return cls(source, descriptor, whole_size(descriptor, state.size))

    def lines(self, start: int = 0) -> Iterator[bytes]:
        """The lines from `start` on."""
        with os.fdopen(os.dup(self.descriptor), "rb") as file:
            file.seek(start)
            left = self.end - start
            for raw in file:
                left -= len(raw)
                if left < 0:
                    return
                yield raw

    def mark(self, end: int) -> int:
        """Stands for what is before `end`."""
        start = max(0, end - _MARK)
        return crc32(os.pread(self.descriptor, end - start, start))


def _states(files: Sequence[SourceFile]) -> str:
    """The files of a stream and their states, as the index keeps them."""
    return json.dumps([_state(file) for file in files])


def _state(file: SourceFile) -> list[str | int]:
    path, state = well_formed(f"{file.folder}/{file.name}"), file.state
    return [path, state.inode, state.size, state.modified]


def _grew(before: list[list[str | int]], files: Sequence[SourceFile]) -> bool:
    """Whether the last file is longer than it was, and nothing else has changed."""
    now = [_state(file) for file in files]
    if not before or before[:-1] != now[:-1] or before[-1][:2] != now[-1][:2]:
        return False
    return int(before[-1][2]) < files[-1].state.size


def _stored(text: str) -> tuple[str, str | None]:
    """`text` as the full-text table takes it, and itself where that differs."""
    if text.isascii():
        return text, None
    whole = text.encode("utf-8", "replace").decode()
    spelled = prepared(whole)
    return spelled, None if spelled == whole else whole


def _paused(before: str, now: str) -> bool:
    """Whether a conversation stopped between two moments. Which came first says little: a platform
    has a clock of its own, and cuts its times to seconds."""
    if not before or not now or (before[:13], before[19:]) == (now[:13], now[19:]):
        return False  # most messages come within the same hour
    one, other = datetime.fromisoformat(before), datetime.fromisoformat(now)
    if (one.tzinfo is None) != (other.tzinfo is None):
        return True
    return abs(other - one) > PAUSE
