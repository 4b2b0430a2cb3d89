"""The index as a file: its tables, and what makes it fit to be used.

Nothing in it is worth keeping, so it is built for speed (no syncs) and thrown away rather than
repaired or migrated. Deleted text is overwritten, in
pages by `secure_delete` at once and in the full-text table by `purge`, which takes a while and is
therefore owed (a row in `setting`) until there is time; so what was erased from the files is not
left here.

A stream is what has one order of its own: a session with its archive, the history of a scope, a
note, a document. Its `files` are their stamps as they were read, and `position` says how far those
of a session were read; `languages` are those that its passages are in, the latest first. A
passage's `id` is its stream's number times `PLACES` plus its place in the stream, so that a scope
is a set of ranges. A turn is what a person says and the agent's replies to
it: what begins one has a place divisible by `TURN`, so that neighbours in the talk differ by that,
and the replies have the places that follow. The output of tools has places from `TOOLS_FROM` on,
beside the talk, at the same distance. `segment` is the id of the first passage of a stretch of
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

from nanobot.bus.sqlite import is_damaged, open_cache, transaction

VERSION = 11
STREAM_BITS = 28
PLACES = 1 << STREAM_BITS
TOOLS_FROM = PLACES // 2
TURN = 16

_TABLES = """
CREATE TABLE IF NOT EXISTS stream (
    id INTEGER PRIMARY KEY, source TEXT NOT NULL, scope TEXT NOT NULL, key TEXT NOT NULL,
    files TEXT NOT NULL DEFAULT '', position TEXT NOT NULL DEFAULT '[[]]',
    metadata TEXT NOT NULL DEFAULT '{}', languages TEXT NOT NULL DEFAULT '',
    UNIQUE (source, scope, key)
);
CREATE TABLE IF NOT EXISTS passage (
    id INTEGER PRIMARY KEY, stream INTEGER NOT NULL, segment INTEGER NOT NULL,
    seq INTEGER NOT NULL, moment TEXT, role TEXT, asks INTEGER NOT NULL, hash INTEGER,
    first INTEGER, last INTEGER, original TEXT, speaker TEXT, origin TEXT, turn TEXT, place TEXT,
    kept INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX IF NOT EXISTS passage_seq ON passage (stream, seq);
CREATE INDEX IF NOT EXISTS passage_segment ON passage (segment);
CREATE VIRTUAL TABLE IF NOT EXISTS words USING fts5 (
    text, tokenize = "porter unicode61 remove_diacritics 2 categories 'L* N* M* Co'"
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


def changes(db: sqlite3.Connection) -> tuple[int, int]:
    """Another value after each change to the tables, by any process."""
    return db.execute("PRAGMA data_version").fetchone()[0], db.total_changes


class Interrupted(Exception):
    """The index is being closed: what was under way is given up."""


def connect(path: Path, patience: float = 10.0) -> sqlite3.Connection:
    """A usable index at `path`; an empty one where there was nothing. As `open_cache`."""
    return open_cache(path, _TABLES, VERSION, patience)


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
