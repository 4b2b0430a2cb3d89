"""The index as a file: its tables, and what makes it fit to be used.

Nothing in it is worth keeping, so it is built for speed (no syncs) and thrown away rather than
repaired or migrated: `Unusable` says that it must be built again. Deleted text is overwritten, in
pages by `secure_delete` at once and in the full-text table by `purge`, which takes a while and is
therefore owed (a row in `setting`) until there is time; so what was erased from the files is not
left here.

A stream is what has one order of its own: a session with its archive, the history of a scope, a
note, a document. A passage's `id` is its stream's number times 2**24 plus its place in the stream,
so that neighbours differ by one and a scope is a set of ranges. The output of tools has places from
2**23 on, beside the talk. `segment` is the id of the first passage of a stretch of conversation;
the table `segment` counts the passages in each. What belongs to a passage is taken out with it by a
trigger, which also sees to it that a purge is owed. A vector belongs to the line that its
passage came from (`hash`), so that passages which are indexed again keep theirs.
"""

from __future__ import annotations

import os
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from nanobot.memory.history import MOST
from nanobot.memory.search.question import prepared
from nanobot.memory.search.reading import Entry, Name, well_formed
from nanobot.session.records import Retraction

VERSION = 5
STREAM_BITS = 24
TOOLS_FROM = 1 << 23
PLACES = 1 << STREAM_BITS

PAUSE = timedelta(hours=1)
"""A longer silence ends a segment."""

SEGMENT_MOST = 60
"""No segment has more passages."""

_BATCH = 4_096
_PASSAGE = (
    "INSERT INTO passage (id, stream, seq, segment, moment, role, speaker, asks, origin, turn,"
    " place, original, hash, first, last) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_TABLES = """
CREATE TABLE stream (
    id INTEGER PRIMARY KEY, source TEXT NOT NULL, scope TEXT NOT NULL, key TEXT NOT NULL,
    files TEXT NOT NULL DEFAULT '[]', metadata TEXT NOT NULL DEFAULT '{}',
    number INTEGER NOT NULL DEFAULT 0, read INTEGER NOT NULL DEFAULT 0,
    mark INTEGER NOT NULL DEFAULT 0,
    UNIQUE (source, scope, key)
);
CREATE TABLE passage (
    id INTEGER PRIMARY KEY, stream INTEGER NOT NULL, seq INTEGER NOT NULL,
    segment INTEGER NOT NULL, moment TEXT, role TEXT, speaker TEXT, asks INTEGER NOT NULL,
    origin TEXT, turn TEXT, place TEXT, original TEXT, hash INTEGER, first INTEGER, last INTEGER
);
CREATE INDEX passage_seq ON passage (stream, seq);
CREATE VIRTUAL TABLE words USING fts5 (
    text, tokenize = 'porter unicode61 remove_diacritics 2'
);
CREATE VIEW said AS
    SELECT passage.*, coalesce(original, words.text) AS text
    FROM passage JOIN words ON words.rowid = passage.id;
CREATE TABLE segment (id INTEGER PRIMARY KEY, passages INTEGER NOT NULL);
CREATE TABLE speaker (stream INTEGER, name TEXT, PRIMARY KEY (stream, name)) WITHOUT ROWID;
CREATE VIRTUAL TABLE vocabulary USING fts5vocab (words, 'row');
CREATE TABLE vector (hash INTEGER PRIMARY KEY, signs BLOB NOT NULL, data BLOB NOT NULL);
CREATE TABLE setting (name TEXT PRIMARY KEY, value TEXT);

CREATE TRIGGER passage_removed AFTER DELETE ON passage BEGIN
    UPDATE segment SET passages = passages - 1 WHERE id = old.segment;
    DELETE FROM segment WHERE id = old.segment AND passages = 0;
    DELETE FROM words WHERE rowid = old.id;
    INSERT OR REPLACE INTO setting VALUES ('purge', '');
END;
CREATE TRIGGER stream_removed BEFORE DELETE ON stream BEGIN
    DELETE FROM passage WHERE stream = old.id;
    DELETE FROM speaker WHERE stream = old.id;
END;
"""


class Interrupted(Exception):
    """The index is being closed: what was under way is given up."""


class Unusable(Exception):
    """The file is of another version or no index; it has to be built again."""


def sqlite_version() -> tuple[str, bool]:
    """The version of SQLite, and whether it has full-text search."""
    with closing(sqlite3.connect(":memory:")) as db:
        has_fts5 = db.execute("SELECT sqlite_compileoption_used('ENABLE_FTS5')").fetchone()[0]
    return sqlite3.sqlite_version, bool(has_fts5)


def connect(path: Path | None, patience: float = 10.0) -> sqlite3.Connection:
    """A usable index at `path`, in memory for None; an empty one where there was nothing.

    `patience` is how many seconds a write waits for another process's.
    Raises `Unusable`, `sqlite3.Error`, or `OSError` where the place cannot be written.
    """
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # Made here, for its owner only: SQLite lets others read, and its side files follow it.
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.fchmod(descriptor, 0o600)
        finally:
            os.close(descriptor)
    db = sqlite3.connect(
        ":memory:" if path is None else path,
        timeout=patience,
        isolation_level=None,
        check_same_thread=False,
    )
    try:
        _prepare(db)
    except BaseException:
        db.close()
        raise
    return db


def _prepare(db: sqlite3.Connection) -> None:
    db.execute("PRAGMA secure_delete = ON")
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = OFF")
    db.execute("PRAGMA cache_size = -4000")  # KiB; with more, a search is no quicker
    db.execute("PRAGMA temp_store = MEMORY")
    if _version(db) == VERSION:
        return
    with transaction(db):
        if db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0:
            for statement in _statements():
                db.execute(statement)
            # A larger memory for words not yet sorted into the file: fewer merges.
            db.execute("INSERT INTO words (words, rank) VALUES ('hashsize', 33554432)")
            db.execute(f"PRAGMA user_version = {VERSION}")
        elif (version := _version(db)) != VERSION:
            raise Unusable(f"schema version {version}")


def _version(db: sqlite3.Connection) -> int:
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def _statements() -> Iterator[str]:
    """`executescript` would end the transaction."""
    statement = ""
    for line in _TABLES.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


@contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[None]:
    """All that is done within, or nothing of it; other processes do not write meanwhile."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def remove(path: Path) -> None:
    """Delete the file and what SQLite keeps beside it."""
    for suffix in ("", "-wal", "-shm", "-journal"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def purge(db: sqlite3.Connection) -> None:
    """Leave nothing of deleted text in the file or beside it; cheap where none was deleted."""
    if not db.execute("SELECT 1 FROM setting WHERE name = 'purge'").fetchone():
        return
    with transaction(db):
        db.execute("INSERT INTO words (words) VALUES ('optimize')")
        db.execute("DELETE FROM vector WHERE hash NOT IN (SELECT hash FROM passage)")
        db.execute("DELETE FROM setting WHERE name = 'purge'")
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")


class Position(NamedTuple):
    """Where reading a stream ended: the states of its files (JSON), the number of the last message,
    and how far the last file was read, with a mark of what is before that."""

    files: str
    number: int = 0
    read: int = 0
    mark: int = 0


class Tables:
    """What ingest writes, and what it needs to know for that. Callers hold a transaction.

    Raises `Interrupted` soon after `closing` has become true.
    """

    def __init__(self, db: sqlite3.Connection, closing: Callable[[], bool]) -> None:
        self._db, self._closing = db, closing

    def transaction(self) -> AbstractContextManager[None]:
        """All that is done within, or nothing of it."""
        return transaction(self._db)

    @contextmanager
    def apart(self) -> Iterator[None]:
        """The same within a transaction, for one stream."""
        self.check()
        self._db.execute("SAVEPOINT stream")
        try:
            yield
        except Exception as error:
            if not isinstance(error, sqlite3.Error):  # the transaction may be gone
                self._db.execute("ROLLBACK TO stream")
                self._db.execute("RELEASE stream")
            raise
        self._db.execute("RELEASE stream")

    def check(self) -> None:
        """Raise `Interrupted` if it is time to end."""
        if self._closing():
            raise Interrupted

    def known(self) -> dict[Name, str]:
        """The streams that are indexed, with the states of their files."""
        rows = self._db.execute("SELECT source, scope, key, files FROM stream")
        return {(source, scope, key): files for source, scope, key, files in rows}

    def id_of(self, name: Name) -> int:
        """The number of a stream, which is begun where it is new."""
        self._db.execute("INSERT OR IGNORE INTO stream (source, scope, key) VALUES (?, ?, ?)", name)
        row = self._db.execute(
            "SELECT id FROM stream WHERE (source, scope, key) = (?, ?, ?)", name
        ).fetchone()
        return int(row[0])

    def drop(self, name: Name) -> None:
        """Take a stream out with all its passages."""
        self._db.execute("DELETE FROM stream WHERE (source, scope, key) = (?, ?, ?)", name)

    def position(self, id: int) -> Position:
        """Where reading a session ended."""
        row = self._db.execute("SELECT files, number, read, mark FROM stream WHERE id = ?", (id,))
        return Position._make(row.fetchone())

    def remember(self, id: int, position: Position, metadata: str | None = None) -> None:
        """Keep where reading a stream ended, and the metadata of a session where there was any."""
        self._db.execute(
            "UPDATE stream SET (files, number, read, mark) = (?, ?, ?, ?),"
            " metadata = coalesce(?, metadata) WHERE id = ?",
            (*position, metadata, id),
        )

    def retract(self, id: int, gone: Retraction) -> None:
        """Take out what was retracted."""
        self._db.execute(
            "DELETE FROM passage WHERE stream = ? AND seq BETWEEN ? AND ? AND ? IN ('', turn)",
            (id, min(gone.first, MOST), min(gone.last, MOST), well_formed(gone.turn_id)),
        )

    def standing(self, id: int) -> Standing:
        """What the index has of a stream, to be compared."""
        rows = self._db.execute(
            "SELECT seq, hash FROM passage WHERE stream = ? ORDER BY seq", (id,)
        )
        return Standing(self._db, id, rows)

    def passed(self, id: int) -> Standing:
        """The same where all of it is known to stay."""
        rows = self._db.execute("SELECT max(seq), 0 FROM passage WHERE stream = ?", (id,))
        standing = Standing(self._db, id, rows)
        standing.passes(0)
        return standing

    def append(self, stream: int, entries: Iterable[Entry], *, apart: bool = False) -> None:
        """Add `entries` after what the stream has; `apart`: each is a segment of its own."""
        rows, tail = iter(entries), None
        while batch := list(islice(rows, _BATCH)):
            self.check()
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
            # Not by a trigger: with one, inserting takes half as long again.
            talk = Counter(row[3] for row in passages if row[0] % PLACES < TOOLS_FROM)
            self._db.executemany(
                "INSERT INTO segment VALUES (?, ?)"
                " ON CONFLICT (id) DO UPDATE SET passages = passages + excluded.passages",
                talk.items(),
            )
            names = {entry.speaker for entry in batch} - {"", "user", "assistant", "tool"}
            self._db.executemany(
                "INSERT OR IGNORE INTO speaker VALUES (?, ?)",
                ((stream, well_formed(name)) for name in names),
            )


class Standing:
    """What the index has of a stream, by seq, compared with what the files say."""

    def __init__(self, db: sqlite3.Connection, stream: int, rows: sqlite3.Cursor) -> None:
        self._db, self._stream, self._rows = db, stream, rows
        self._next: tuple[int, int] | None = rows.fetchone()
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
        self._passed = self._next[0] or 0
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
