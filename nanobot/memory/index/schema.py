"""The file behind the index: its tables, and what makes it fit to be used.

Nothing in it is worth keeping, so it is built for speed (no syncs) and thrown away rather than
repaired or migrated: `Unusable` says that it must be made anew. Deleted text is overwritten, in
pages by `secure_delete` at once and in the full-text table by `purge`, which takes a while and is
therefore owed (`owe_purge`) until somebody has the time; so what was erased from the files is not
left here.

A passage's `id` is its stream's number times 2**24 plus its place in the stream, so that neighbours
differ by one and a scope is a set of ranges. The output of tools has places from 2**23 on, beside
the talk. `segment` is the id of the first passage of a stretch of conversation; the table `segment`
counts the passages in each.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

VERSION = 2
STREAM_BITS = 24
TOOLS_FROM = 1 << 23
PLACES = 1 << STREAM_BITS

ASKS, ENDS_ASKING = 1, 2
"""Bits of `passage.flags`."""

_OWED = "purge"

_TABLES = """
CREATE TABLE stream (
    id INTEGER PRIMARY KEY, source TEXT NOT NULL, key TEXT NOT NULL, scope TEXT NOT NULL,
    metadata TEXT NOT NULL DEFAULT '{}', number INTEGER NOT NULL DEFAULT 0,
    UNIQUE (source, scope, key)
);
CREATE TABLE file (
    id INTEGER PRIMARY KEY, stream INTEGER NOT NULL, path TEXT NOT NULL UNIQUE,
    inode INTEGER NOT NULL, size INTEGER NOT NULL, mtime INTEGER NOT NULL,
    read INTEGER NOT NULL, mark INTEGER NOT NULL
);
CREATE TABLE retraction (
    stream INTEGER, first INTEGER, last INTEGER, turn TEXT,
    PRIMARY KEY (stream, first, last, turn)
) WITHOUT ROWID;
CREATE TABLE speaker (stream INTEGER, name TEXT, PRIMARY KEY (stream, name)) WITHOUT ROWID;
CREATE TABLE passage (
    id INTEGER PRIMARY KEY, stream INTEGER NOT NULL, seq INTEGER NOT NULL,
    segment INTEGER NOT NULL, moment TEXT, role TEXT, speaker TEXT, flags INTEGER NOT NULL,
    origin TEXT, turn TEXT, place TEXT, original TEXT, hash INTEGER, first INTEGER, last INTEGER
);
CREATE INDEX passage_seq ON passage (stream, seq);
CREATE VIRTUAL TABLE words USING fts5 (
    text, tokenize = 'porter unicode61 remove_diacritics 2'
);
CREATE TABLE segment (id INTEGER PRIMARY KEY, passages INTEGER NOT NULL);
CREATE VIRTUAL TABLE vocabulary USING fts5vocab (words, 'row');
CREATE TABLE vector (id INTEGER PRIMARY KEY, signs BLOB NOT NULL, data BLOB NOT NULL);
CREATE TABLE setting (name TEXT PRIMARY KEY, value TEXT);
"""


class Unusable(Exception):
    """The file is missing, damaged or of another version; it has to be made anew."""


def connect(path: Path | None, patience: float = 10.0) -> sqlite3.Connection:
    """A usable index at `path`, in memory for None; an empty one where there was nothing.

    `patience` is how many seconds a write waits for another process's.
    Raises `Unusable`, or `OSError` or `sqlite3.OperationalError` where the place cannot be written.
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


def remove(path: Path) -> None:
    """Delete the file and what SQLite keeps beside it."""
    for suffix in ("", "-wal", "-shm", "-journal"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def owe_purge(db: sqlite3.Connection) -> None:
    """Note, in the transaction that deletes text, that there is something to `purge`."""
    db.execute("INSERT OR REPLACE INTO setting VALUES (?, '')", (_OWED,))


def purge(db: sqlite3.Connection) -> None:
    """Leave nothing of deleted text in the file or beside it; cheap where none was deleted."""
    if not db.execute("SELECT 1 FROM setting WHERE name = ?", (_OWED,)).fetchone():
        return
    db.execute("BEGIN IMMEDIATE")
    try:
        db.execute("INSERT INTO words (words) VALUES ('optimize')")
        db.execute("DELETE FROM setting WHERE name = ?", (_OWED,))
    except BaseException:
        db.execute("ROLLBACK")
        raise
    db.execute("COMMIT")
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _prepare(db: sqlite3.Connection) -> None:
    try:
        db.execute("PRAGMA secure_delete = ON")
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = OFF")
        db.execute("PRAGMA cache_size = -4000")  # KiB; with more, a search is no quicker
        db.execute("PRAGMA temp_store = MEMORY")
        db.execute("BEGIN IMMEDIATE")
        version = db.execute("PRAGMA user_version").fetchone()[0]
        empty = db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
        if empty:
            for statement in _TABLES.split(";\n"):
                db.execute(statement)
            # A larger memory for words not yet sorted into the file: fewer merges.
            db.execute("INSERT INTO words (words, rank) VALUES ('hashsize', 33554432)")
            db.execute(f"PRAGMA user_version = {VERSION}")
        db.execute("COMMIT")
    except sqlite3.OperationalError:
        raise
    except sqlite3.DatabaseError as error:
        raise Unusable(str(error)) from error
    if not empty and version != VERSION:
        raise Unusable(f"schema version {version}")
