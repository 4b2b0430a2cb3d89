"""Streams of lines: sessions with their archive, and histories.

A file that only grew is read from where reading ended; that it only grew is known by its inode and
by what stands before that place. In any other case (moved to the archive, saved by an editor,
erased, cut, gone) all files of the stream are read and compared with the index by a hash of each
line. Equal lines stay untouched wherever they now stand, so moving lines indexes nothing twice; the
others are replaced, taken out, or added at the end. What would have to be put in between makes the
whole stream anew.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol
from zlib import crc32

from nanobot.io import FileState
from nanobot.memory.history.entries import MOST
from nanobot.memory.search.passages import Entry, line_hash, well_formed
from nanobot.memory.search.values import SourceFile, Stream
from nanobot.memory.search.writing import Writer
from nanobot.session.loading import whole_size
from nanobot.session.records import Metadata, Retraction, decode

_MARK = 4_096


class LineReader(Protocol):
    """Reads lines in order; `number` is that of the last message, for messages without one."""

    number: int
    metadata: Metadata | None

    def read(self, lines: Iterable[bytes]) -> Iterator[Entry | Retraction]: ...


@dataclass(frozen=True, slots=True)
class Known:
    """What the index remembers of a file: its state, up to where it was read, and a hash of what
    stood before that place."""

    state: FileState
    read: int
    mark: int


class FileMoved(Exception):
    """A file is no longer the one that was listed; the next refresh sees the new one."""


class LineStreams:
    """Brings streams of lines up to date. Callers hold a transaction."""

    def __init__(self, db: sqlite3.Connection, writer: Writer) -> None:
        self._db, self._writer = db, writer

    def take(
        self,
        id: int,
        stream: Stream,
        known: dict[str, Known],
        reader_at: Callable[[int], LineReader],
    ) -> None:
        """Take in what changed in the stream `id`; `reader_at` makes a reader that stands at a
        message's number. Raises OSError, StorageError, `FileMoved`."""
        grown = _only_grown(stream, known)
        if grown is None or not self._grow(id, stream, grown, known[grown.path], reader_at):
            self._compare(id, stream, reader_at)

    def _grow(
        self,
        id: int,
        stream: Stream,
        file: SourceFile,
        known: Known,
        reader_at: Callable[[int], LineReader],
    ) -> bool:
        """Read on where the last refresh ended; False where that does not do."""
        (number,) = self._db.execute("SELECT number FROM stream WHERE id = ?", (id,)).fetchone()
        reader = reader_at(number)
        with file.open() as descriptor:
            state = _state(descriptor, file)
            if state.size < known.read or _mark(descriptor, known.read) != known.mark:
                return False
            end = whole_size(descriptor, state.size)
            found = list(reader.read(_lines(descriptor, known.read, end)))
            mark = _mark(descriptor, end)
        last = self._db.execute("SELECT max(seq) FROM passage WHERE stream = ?", (id,)).fetchone()[
            0
        ]
        entries = [item for item in found if isinstance(item, Entry)]
        numbers = [last or 0, *(entry.seq for entry in entries)]
        if any(one >= next for one, next in pairwise(numbers)):
            return False
        retractions = [item for item in found if isinstance(item, Retraction)]
        # A retraction speaks of numbers, so it holds for messages that are written after it too.
        known_gone = [*self._retractions(id), *retractions]
        kept = [entry for entry in entries if not _retracted(entry, known_gone)]
        self._writer.append(id, kept, apart=stream.source == "history")
        self._retract(id, retractions)
        self._remember(id, file.path, Known(state, end, mark))
        self._finish(id, reader)
        return True

    def _retractions(self, id: int) -> list[Retraction]:
        rows = self._db.execute("SELECT turn, first, last FROM retraction WHERE stream = ?", (id,))
        return [Retraction(turn, first, last, None) for turn, first, last in rows]

    def _retract(self, id: int, retractions: Iterable[Retraction]) -> None:
        """Take out what was retracted, and remember what was."""
        for gone in retractions:
            turn, first, last = (
                well_formed(gone.turn_id),
                min(gone.first, MOST),
                min(gone.last, MOST),
            )
            self._db.execute(
                "INSERT OR IGNORE INTO retraction (stream, first, last, turn) VALUES (?, ?, ?, ?)",
                (id, first, last, turn),
            )
            rows = self._db.execute(
                "SELECT id FROM passage WHERE stream = ? AND seq BETWEEN ? AND ?"
                " AND (turn = ? OR ? = '')",
                (id, first, last, turn, turn),
            ).fetchall()
            self._writer.remove([row[0] for row in rows])

    def _compare(self, id: int, stream: Stream, reader_at: Callable[[int], LineReader]) -> None:
        """Make the index say what the files say, touching what differs."""
        with ExitStack() as stack:
            files = _Files(stream, stack)
            retractions = files.retractions()
            reader = reader_at(0)
            new = self._beyond(id, files.lines(), reader, retractions)
            if new is not None:
                self._writer.append(id, new, apart=stream.source == "history")
            else:
                reader = self._mend(id, stream, files, retractions, reader_at)
            self._db.execute("DELETE FROM retraction WHERE stream = ?", (id,))
            self._retract(id, retractions)
            self._db.execute("DELETE FROM file WHERE stream = ?", (id,))
            for path, known in files.known():
                self._remember(id, path, known)
        self._finish(id, reader)

    def _beyond(
        self,
        id: int,
        lines: Iterable[bytes],
        reader: LineReader,
        retractions: Sequence[Retraction],
    ) -> list[Entry] | None:
        """What `lines` say after all that the index has; None where they do not say that first,
        in its order.

        So it is when lines were moved to the archive, and it takes no memory however many they are.
        """
        standing = self._db.execute(
            "SELECT seq, hash FROM passage WHERE stream = ? ORDER BY seq", (id,)
        )
        expected = standing.fetchone()
        if expected is None:
            return None
        last, new = 0, list[Entry]()
        for raw in lines:
            if expected is not None and line_hash(raw) == expected[1]:
                reader.number = last = expected[0]
                expected = standing.fetchone()
                continue
            for item in reader.read([raw]):
                if isinstance(item, Retraction) or _retracted(item, retractions):
                    continue
                if expected is not None or item.seq <= last:
                    return None
                last = item.seq
                new.append(item)
        return new if expected is None else None

    def _mend(
        self,
        id: int,
        stream: Stream,
        files: _Files,
        retractions: list[Retraction],
        reader_at: Callable[[int], LineReader],
    ) -> LineReader:
        """Take in what differs, line by line, or all of a stream that the index does not have yet;
        the reader that has read it."""
        standing = {
            seq: (passage, hash)
            for passage, seq, hash in self._db.execute(
                "SELECT id, seq, hash FROM passage WHERE stream = ?", (id,)
            )
        }
        reader = reader_at(0)
        source = _Standing(standing, files.lines(), reader, retractions)
        apart = stream.source == "history"
        if not standing:
            self._writer.append(id, source.entries(), apart=apart)
            return reader
        entries = list(source.entries())
        changed = [entry for entry in entries if entry.seq in standing]
        added = [entry for entry in entries if entry.seq not in standing]
        if added and added[0].seq < max(standing):
            self._writer.clear(id)
            reader = reader_at(0)
            again = _Standing({}, files.lines(), reader, retractions)
            self._writer.append(id, again.entries(), apart=apart)
            return reader
        gone = standing.keys() - source.seen
        self._writer.remove([standing[seq][0] for seq in sorted(gone)])
        self._writer.replace([(standing[entry.seq][0], entry) for entry in changed])
        self._writer.append(id, added, apart=apart)
        return reader

    def _remember(self, id: int, path: str, known: Known) -> None:
        state = known.state
        self._db.execute(
            "INSERT OR REPLACE INTO file (stream, path, inode, size, mtime, read, mark)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            (id, path, state.inode, state.size, state.modified, known.read, known.mark),
        )

    def _finish(self, id: int, reader: LineReader) -> None:
        self._db.execute("UPDATE stream SET number = ? WHERE id = ?", (reader.number, id))
        if reader.metadata is not None:
            metadata = json.dumps(dict(reader.metadata.metadata or {}))
            self._db.execute("UPDATE stream SET metadata = ? WHERE id = ?", (metadata, id))


class _Files:
    """The open files of a stream, to be read more than once."""

    def __init__(self, stream: Stream, stack: ExitStack) -> None:
        self._open = []
        for file in stream.files:
            descriptor = stack.enter_context(file.open())
            state = _state(descriptor, file)
            self._open.append((file.path, descriptor, state, whole_size(descriptor, state.size)))

    def lines(self) -> Iterator[bytes]:
        """Every line, in order."""
        for _, descriptor, _, end in self._open:
            yield from _lines(descriptor, 0, end)

    def retractions(self) -> list[Retraction]:
        """What was retracted, known before the messages are read."""
        records = (decode(raw) for raw in self.lines() if b'"retract"' in raw)
        return [record for record in records if isinstance(record, Retraction)]

    def known(self) -> Iterator[tuple[str, Known]]:
        """What there is to remember, by path."""
        for path, descriptor, state, end in self._open:
            yield path, Known(state, end, _mark(descriptor, end))


class _Standing:
    """The entries that the index does not have as they are; `seen` collects the seqs of all."""

    def __init__(
        self,
        standing: dict[int, tuple[int, int]],
        lines: Iterator[bytes],
        reader: LineReader,
        retractions: list[Retraction],
    ) -> None:
        self.seen: set[int] = set()
        self._lines, self._reader, self._retractions = lines, reader, retractions
        self._hashes = {hash: seq for seq, (_, hash) in standing.items()}
        if len(self._hashes) < len(standing):  # equal lines: their order tells them apart
            self._hashes = {}

    def entries(self) -> Iterator[Entry]:
        """In order of the files; each seq once, without what was retracted."""
        for item in self._reader.read(self._unknown()):
            if isinstance(item, Retraction) or item.seq in self.seen:
                continue
            if self._retractions and _retracted(item, self._retractions):
                continue
            self.seen.add(item.seq)
            yield item

    def _unknown(self) -> Iterator[bytes]:
        if not self._hashes:
            yield from self._lines
            return
        for raw in self._lines:
            seq = self._hashes.get(line_hash(raw))
            if seq is None:
                yield raw
            else:
                self._reader.number = seq
                self.seen.add(seq)


def _only_grown(stream: Stream, known: dict[str, Known]) -> SourceFile | None:
    """The only file that differs, if it is known and longer than what was read."""
    if known.keys() != {file.path for file in stream.files}:
        return None
    different = [file for file in stream.files if known[file.path].state != file.state]
    if len(different) != 1:
        return None
    file, before = different[0], known[different[0].path]
    same = file.state.inode == before.state.inode and file.state.size != before.state.size
    return file if same and file.state.size >= before.read else None


def _state(descriptor: int, file: SourceFile) -> FileState:
    state = FileState.of(os.fstat(descriptor))
    if state.inode != file.state.inode:
        raise FileMoved(file.path)
    return state


def _mark(descriptor: int, end: int) -> int:
    start = max(0, end - _MARK)
    return crc32(os.pread(descriptor, end - start, start))


def _lines(descriptor: int, start: int, end: int) -> Iterator[bytes]:
    with os.fdopen(os.dup(descriptor), "rb") as file:
        file.seek(start)
        left = end - start
        for raw in file:
            left -= len(raw)
            if left < 0:
                return
            yield raw


def _retracted(entry: Entry, retractions: Iterable[Retraction]) -> bool:
    return any(
        gone.first <= entry.seq <= gone.last and gone.turn_id in {"", entry.turn}
        for gone in retractions
    )
