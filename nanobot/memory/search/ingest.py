"""From the files to the index: what changed since the last time, found by one stat per file.

All that is found goes in within one transaction, so that a search sees all of a conversation's move
to the archive or nothing of it. A file that cannot be read is reported once and does not hide the
others. Lines of sessions and histories are read on from where reading ended (see `records`); notes
and documents are read anew, and from the first passage that differs on they are indexed anew.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import takewhile

from loguru import logger

from nanobot.clock import Clock
from nanobot.errors import NanobotError
from nanobot.io import FileState
from nanobot.memory.search.passages import (
    Entry,
    HistoryLines,
    SessionLines,
    fact_passages,
    line_hash,
    note_passages,
)
from nanobot.memory.search.places import Catalogue, Stream
from nanobot.memory.search.records import FileMoved, Known, LineReader, LineStreams
from nanobot.memory.search.tables import owe_purge, purge
from nanobot.memory.search.writing import Writer
from nanobot.memory.store.guard import text_of

_LARGEST_NOTE = 4 * 1024 * 1024

_Name = tuple[str, str, str]
"""Source, scope and key: what a stream is called."""


class Ingest:
    """Brings the index at `db` up to date with the files.

    Raises `Interrupted` soon after `closing` has become true.
    """

    def __init__(
        self,
        db: sqlite3.Connection,
        catalogue: Catalogue,
        clock: Clock,
        closing: Callable[[], bool],
    ) -> None:
        self._db, self._catalogue, self._clock = db, catalogue, clock
        self._writer = Writer(db, closing)
        self._lines = LineStreams(db, self._writer)
        self._reported: set[str] = set()
        self._glance: list[object] = []

    def refresh(self) -> bool:
        """Take in what changed; whether anything had. Raises `sqlite3.Error`, StorageError."""
        glance = self._catalogue.glance()
        if glance == self._glance:
            return False
        streams: dict[_Name, Stream] = {
            (s.source, s.scope, s.key): s for s in self._catalogue.streams()
        }
        self._glance = glance
        if not _differences(streams, self._known()):
            return False
        try:
            self._take_all(streams)
        except BaseException:
            self._glance = []
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise
        return True

    def purge(self) -> None:
        """Leave nothing of what was taken out in the file. Raises `sqlite3.Error`."""
        purge(self._db)

    def _take_all(self, streams: dict[_Name, Stream]) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        # Asked again: another process may have been at it until this transaction began.
        known = self._known()
        documents = []
        for name in _differences(streams, known):
            self._writer.check()
            stream = streams.get(name)
            if stream is None:
                self._drop(name)
            elif stream.source == "library":
                documents.append(stream)
            else:
                self._take(stream, known.get(name, {}))
        self._commit()
        for stream in documents:
            self._writer.check()
            # Reading a document takes its time; nobody waits for the file meanwhile.
            entries = list(self._document(stream))
            self._db.execute("BEGIN IMMEDIATE")
            with self._apart(stream):
                self._read_anew(stream, entries)
            self._commit()

    def _commit(self) -> None:
        if self._writer.deleted:
            owe_purge(self._db)
        self._db.execute("COMMIT")
        self._writer.deleted = False

    def _known(self) -> dict[_Name, dict[str, Known]]:
        names = self._db.execute("SELECT source, scope, key FROM stream")
        known: dict[_Name, dict[str, Known]] = {(row[0], row[1], row[2]): {} for row in names}
        for source, scope, key, path, inode, size, mtime, read, mark in self._db.execute(
            "SELECT source, scope, key, path, inode, size, mtime, read, mark FROM file"
            " JOIN stream ON stream.id = file.stream"
        ):
            state = FileState(inode, size, mtime)
            known[source, scope, key][path] = Known(state, read, mark)
        return known

    def _take(self, stream: Stream, known: dict[str, Known]) -> None:
        with self._apart(stream):
            if stream.source in ("note", "memory"):
                self._read_anew(stream, self._text(stream))
            else:
                self._lines.take(self._id(stream), stream, known, self._reader_of(stream))

    @contextmanager
    def _apart(self, stream: Stream) -> Iterator[None]:
        """Take back what a stream brought that cannot be read, or holds what the database does not
        take (a value nobody thought of); the others go on."""
        self._db.execute("SAVEPOINT stream")
        try:
            yield
        except (NanobotError, OSError, FileMoved, ValueError, OverflowError) as error:
            self._db.execute("ROLLBACK TO stream")
            self._glance = []
            if not isinstance(error, FileMoved) and stream.key not in self._reported:
                self._reported.add(stream.key)
                logger.warning("{} {} is not searched: {}", stream.source, stream.key, error)
        self._db.execute("RELEASE stream")

    def _reader_of(self, stream: Stream) -> type[SessionLines] | _HistoryAt:
        if stream.source == "message":
            return SessionLines
        return _HistoryAt(self._clock)

    def _read_anew(self, stream: Stream, entries: Iterable[Entry]) -> None:
        id = self._id(stream)
        found = [entry._replace(hash=_hash(entry)) for entry in entries]
        standing = self._db.execute(
            "SELECT id, hash FROM passage WHERE stream = ? ORDER BY seq", (id,)
        ).fetchall()
        pairs = zip(standing, found, strict=False)
        same = sum(1 for _ in takewhile(lambda pair: pair[0][1] == pair[1].hash, pairs))
        self._writer.remove([row[0] for row in standing[same:]])
        self._writer.append(id, found[same:])
        for file in stream.files:
            state = file.state
            self._db.execute(
                "INSERT OR REPLACE INTO file (stream, path, inode, size, mtime, read, mark)"
                " VALUES (?, ?, ?, ?, ?, 0, 0)",
                (id, file.path, state.inode, state.size, state.modified),
            )

    def _text(self, stream: Stream) -> Iterator[Entry]:
        with stream.files[0].open() as descriptor:
            text = text_of(os.pread(descriptor, _LARGEST_NOTE, 0))
        if stream.source == "memory":
            return fact_passages(stream.key, text, self._catalogue.template(stream))
        return note_passages(stream.key, text, self._clock.now().tzinfo)

    def _document(self, stream: Stream) -> Iterator[Entry]:
        for number, (place, text) in enumerate(self._catalogue.passages(stream), 1):
            yield Entry(number, text, place=place)

    def _id(self, stream: Stream) -> int:
        name = (stream.source, stream.scope, stream.key)
        self._db.execute("INSERT OR IGNORE INTO stream (source, scope, key) VALUES (?, ?, ?)", name)
        return _id_of(self._db, name)

    def _drop(self, name: _Name) -> None:
        id = _id_of(self._db, name)
        self._writer.clear(id)
        self._db.execute("DELETE FROM file WHERE stream = ?", (id,))
        self._db.execute("DELETE FROM stream WHERE id = ?", (id,))


def _hash(entry: Entry) -> int:
    """Stands for a passage of a note or document, and for its place."""
    said = (entry.text, entry.moment, entry.origin, entry.place)
    return line_hash("\0".join(said).encode("utf-8", "replace"))


class _HistoryAt:
    """Makes readers of history lines; entries have numbers of their own."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def __call__(self, number: int) -> LineReader:
        return HistoryLines(self._clock.now().tzinfo)


def _id_of(db: sqlite3.Connection, name: _Name) -> int:
    row = db.execute("SELECT id FROM stream WHERE (source, scope, key) = (?, ?, ?)", name)
    return int(row.fetchone()[0])


def _differences(streams: dict[_Name, Stream], known: dict[_Name, dict[str, Known]]) -> list[_Name]:
    """The names of streams that are new, changed or gone."""
    changed = [name for name, s in streams.items() if not _unchanged(s, known.get(name))]
    return [*changed, *(known.keys() - streams.keys())]


def _unchanged(stream: Stream, known: dict[str, Known] | None) -> bool:
    if known is None or len(known) != len(stream.files):
        return False
    states = ((known.get(file.path), file.state) for file in stream.files)
    return all(before is not None and before.state == state for before, state in states)
