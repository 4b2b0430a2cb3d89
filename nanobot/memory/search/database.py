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
the table `segment` counts the passages in each. Triggers keep it in step with `passage`, take words
out with their passage, and see to it that a purge is owed. A vector belongs to the line that its
passage came from (`hash`), so that passages which are indexed again keep theirs.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from nanobot.bus.sqlite import check_file
from nanobot.clock import Clock

VERSION = 3
STREAM_BITS = 24
TOOLS_FROM = 1 << 23
PLACES = 1 << STREAM_BITS

ASKS, ENDS_ASKING = 1, 2
"""Values of `passage.asks`: a question stands in it, or at its end; 0 for none."""

_TABLES = """
CREATE TABLE stream (
    id INTEGER PRIMARY KEY, source TEXT NOT NULL, scope TEXT NOT NULL, key TEXT NOT NULL,
    files TEXT NOT NULL DEFAULT '', metadata TEXT NOT NULL DEFAULT '{}',
    number INTEGER NOT NULL DEFAULT 0, retractions TEXT NOT NULL DEFAULT '[]',
    read INTEGER NOT NULL DEFAULT 0, mark INTEGER NOT NULL DEFAULT 0,
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

CREATE TRIGGER talk_added AFTER INSERT ON passage WHEN new.role != 'tool' BEGIN
    INSERT INTO segment VALUES (new.segment, 1)
        ON CONFLICT (id) DO UPDATE SET passages = passages + 1;
END;
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


class Unusable(Exception):
    """The file is of another version or no index; it has to be built again."""


def inspect_index(path: Path, clock: Clock) -> tuple[int, str]:
    """The version of the index at `path`, and what is wrong with it; empty for nothing."""
    return check_file(path, clock)


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
    with transaction(db):
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0:
            for statement in _statements():
                db.execute(statement)
            # A larger memory for words not yet sorted into the file: fewer merges.
            db.execute("INSERT INTO words (words, rank) VALUES ('hashsize', 33554432)")
            db.execute(f"PRAGMA user_version = {VERSION}")
        elif version != VERSION:
            raise Unusable(f"schema version {version}")


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


def changes(db: sqlite3.Connection) -> tuple[int, int]:
    """Another value after each change to the tables, by any process."""
    return db.execute("PRAGMA data_version").fetchone()[0], db.total_changes
