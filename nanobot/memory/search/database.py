"""The index as a file: its tables, and what makes it fit to be used.

Nothing in it is worth keeping, so it is built for speed (no syncs) and thrown away rather than
repaired or migrated: `Unusable` says that it must be built again. Deleted text is overwritten, in
pages by `secure_delete` at once and in the full-text table by `purge`, which takes a while and is
therefore owed (a row in `setting`) until there is time; so what was erased from the files is not
left here.

A stream is what has one order of its own: a session with its archive, the history of a scope, a
note, a document. Its `files` are their stamps as they were read, and `position` says how far those
of a session were read. A passage's `id` is its stream's number times 2**24 plus its place in the
stream, so that neighbours differ by one and a scope is a set of ranges. The output of tools has
places from 2**23 on, beside the talk. `segment` is the id of the first passage of a stretch of
conversation, 0 for the output of tools. What belongs to a passage is taken out with it by a
trigger, which also sees to it that a purge is owed. A vector belongs to the line that its passage
came from (`hash`), so that passages which are indexed again keep theirs.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from loguru import logger

VERSION = 7
STREAM_BITS = 24
TOOLS_FROM = 1 << 23
PLACES = 1 << STREAM_BITS

_TABLES = """
CREATE TABLE IF NOT EXISTS stream (
    id INTEGER PRIMARY KEY, source TEXT NOT NULL, scope TEXT NOT NULL, key TEXT NOT NULL,
    files TEXT NOT NULL DEFAULT '', position TEXT NOT NULL DEFAULT '[[]]',
    metadata TEXT NOT NULL DEFAULT '{}',
    UNIQUE (source, scope, key)
);
CREATE TABLE IF NOT EXISTS passage (
    id INTEGER PRIMARY KEY, stream INTEGER NOT NULL, segment INTEGER NOT NULL,
    seq INTEGER NOT NULL, moment TEXT, role TEXT, asks INTEGER NOT NULL, hash INTEGER,
    first INTEGER, last INTEGER, original TEXT, speaker TEXT, origin TEXT, turn TEXT, place TEXT
);
CREATE INDEX IF NOT EXISTS passage_seq ON passage (stream, seq);
CREATE INDEX IF NOT EXISTS passage_segment ON passage (segment);
CREATE VIRTUAL TABLE IF NOT EXISTS words USING fts5 (
    text, tokenize = 'porter unicode61 remove_diacritics 2'
);
CREATE VIEW IF NOT EXISTS passage_text AS
    SELECT passage.*, coalesce(original, words.text) AS text
    FROM passage JOIN words ON words.rowid = passage.id;
CREATE TABLE IF NOT EXISTS speaker (
    stream INTEGER, name TEXT, PRIMARY KEY (stream, name)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS vector (
    hash INTEGER PRIMARY KEY, signs BLOB NOT NULL, data BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS setting (name TEXT PRIMARY KEY, value TEXT);

CREATE TRIGGER IF NOT EXISTS passage_removed AFTER DELETE ON passage BEGIN
    DELETE FROM words WHERE rowid = old.id;
    INSERT OR REPLACE INTO setting VALUES ('purge', '');
END;
CREATE TRIGGER IF NOT EXISTS stream_removed BEFORE DELETE ON stream BEGIN
    DELETE FROM passage WHERE stream = old.id;
    DELETE FROM speaker WHERE stream = old.id;
END;

-- With a larger memory for words that are not yet sorted into the file there are fewer merges.
INSERT INTO words (words, rank) VALUES ('hashsize', 33554432);
"""
_SETTINGS = """
PRAGMA secure_delete = ON;
PRAGMA journal_mode = WAL;
PRAGMA synchronous = OFF;
PRAGMA cache_size = -4000;
PRAGMA temp_store = MEMORY;
"""


class Interrupted(Exception):
    """The index is being closed: what was under way is given up."""


class Unusable(sqlite3.DatabaseError):
    """The file is of another version; it has to be built again."""

    sqlite_errorcode = sqlite3.SQLITE_NOTADB


def connect(path: Path, patience: float = 10.0) -> sqlite3.Connection:
    """A usable index at `path`; an empty one where there was nothing.

    `patience` is how many seconds a write waits for another process's.
    Raises `Unusable`, `sqlite3.Error`, or `OSError` where the place cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    # Made here, for its owner only: SQLite lets others read, and its side files follow it.
    path.touch(mode=0o600)
    path.chmod(0o600)
    db = sqlite3.connect(path, timeout=patience, isolation_level=None, check_same_thread=False)
    try:
        _prepare(db)
    except BaseException:
        db.close()
        raise
    return db


def _prepare(db: sqlite3.Connection) -> None:
    db.executescript(_SETTINGS)
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if version not in (0, VERSION):
        raise Unusable(f"schema version {version}")
    if version == 0:
        db.executescript(f"BEGIN IMMEDIATE;{_TABLES}PRAGMA user_version = {VERSION};COMMIT;")


def is_damaged(error: Exception) -> bool:
    """Whether the file is no use and has to be built again."""
    damaged = {sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in damaged


@contextmanager
def unless_refused() -> Iterator[None]:
    """Go on where another process is writing to the file, or the disk refuses: the next refresh
    makes up for it."""
    try:
        yield
    except sqlite3.OperationalError as error:
        if is_damaged(error):
            raise
        logger.warning("the memory index: {}; the newest messages may be missing", error)


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


@unless_refused()
def purge(db: sqlite3.Connection) -> None:
    """Leave nothing of deleted text in the file or beside it; cheap where none was deleted."""
    if not db.execute("SELECT 1 FROM setting WHERE name = 'purge'").fetchone():
        return
    with transaction(db):
        db.execute("INSERT INTO words (words) VALUES ('optimize')")
        db.execute("DELETE FROM vector WHERE hash NOT IN (SELECT hash FROM passage)")
        db.execute("DELETE FROM setting WHERE name = 'purge'")
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
