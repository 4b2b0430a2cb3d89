"""The index file: its tables, and its upkeep.

It holds only derived data, so it is built for speed (no syncs), and deleted rather than repaired or
migrated. Deleted text is overwritten: in pages by `secure_delete` at once, in the full-text table
by `purge`, which is slow and therefore pending (a row in `setting`) until there is time. So text
that was erased from the files does not stay here. The same holds for vectors."""

from __future__ import annotations

import sqlite3
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from struct import pack
from typing import NamedTuple

from loguru import logger

from nanobot.bus.sqlite import is_damaged, open_cache, transaction

VERSION = 5
STREAM_BITS = 28
PLACES = 1 << STREAM_BITS  # a passage's id is its stream's number times this, plus its place
TOOLS_FROM = PLACES // 2  # the first place of tool output, which is apart from the talk
TURN = 16  # distance of neighbours in the talk or the output; replies have the places between
NO_VECTOR = -1  # the `row` of a passage that can have none

# stream: a sequence with its own order, such as a session with its archive, the history of a scope,
#   a note, a document. `files` are their stamps at the last read, `position` is how far a session's
#   files were read, and `languages` are those of its passages, the latest first. A scope is a set
#   of ranges of ids.
# passage: the first message of a turn has a place divisible by TURN. `segment` is the id of the
#   first passage of a stretch of conversation, 0 for tool output. `news` is the number of words
#   of a reply that says something new, or 0. A trigger deletes the dependent rows of a passage with
#   it, and makes a purge pending. `row` is NULL until there is a vector.
# lent: words of a fact (in `words`, with this id) that the history entry `passage` lends to the
#   message `seq` of its conversation.
# vector: at the next purge, a row without a passage goes back to one of the same line (`hash`), or
#   is deleted, so vectors outlast a conversation that is indexed again. `before` is the hash of the
#   message that was embedded with it, or 0: if that one is no longer before it, the row is deleted.
#   Row numbers are never reused, and `origin` differs in each database: from these the worker knows
#   which it has read.
_TABLES = """
CREATE TABLE IF NOT EXISTS stream (
    id INTEGER PRIMARY KEY, source TEXT NOT NULL, scope TEXT NOT NULL, key TEXT NOT NULL,
    files TEXT NOT NULL DEFAULT '', position TEXT NOT NULL DEFAULT '[]',
    metadata TEXT NOT NULL DEFAULT '{}', languages TEXT NOT NULL DEFAULT '',
    UNIQUE (source, scope, key)
);
CREATE TABLE IF NOT EXISTS passage (
    id INTEGER PRIMARY KEY, stream INTEGER NOT NULL, segment INTEGER NOT NULL,
    seq INTEGER NOT NULL, moment TEXT, role TEXT, asks INTEGER NOT NULL, hash INTEGER,
    first INTEGER, last INTEGER, original TEXT, speaker TEXT, origin TEXT, turn TEXT, place TEXT,
    kept INTEGER NOT NULL DEFAULT 0, news INTEGER NOT NULL DEFAULT 0,
    row INTEGER
);
CREATE INDEX IF NOT EXISTS passage_seq ON passage (stream, seq);
CREATE INDEX IF NOT EXISTS passage_segment ON passage (segment);
CREATE INDEX IF NOT EXISTS passage_moment ON passage (moment);
CREATE VIRTUAL TABLE IF NOT EXISTS words USING fts5 (
    text, tokenize = "porter unicode61 remove_diacritics 2 categories 'L* N* M* Co So'"
);
CREATE TABLE IF NOT EXISTS lent (id INTEGER PRIMARY KEY, passage INTEGER, seq INTEGER);
CREATE INDEX IF NOT EXISTS lent_passage ON lent (passage);
CREATE VIEW IF NOT EXISTS passage_text AS
    SELECT passage.*, coalesce(original, words.text) AS text
    FROM passage JOIN words ON words.rowid = passage.id;
CREATE TABLE IF NOT EXISTS speaker (
    stream INTEGER, name TEXT, PRIMARY KEY (stream, name)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS vector (
    row INTEGER PRIMARY KEY AUTOINCREMENT, stream INTEGER, hash INTEGER,
    before INTEGER NOT NULL, numbers BLOB
);
CREATE INDEX IF NOT EXISTS vector_line ON vector (stream, hash);
CREATE TABLE IF NOT EXISTS setting (name TEXT PRIMARY KEY, value TEXT);
INSERT OR IGNORE INTO setting VALUES ('origin', hex(randomblob(8)));

CREATE TRIGGER IF NOT EXISTS passage_removed AFTER DELETE ON passage BEGIN
    DELETE FROM words WHERE rowid = old.id;
    DELETE FROM words WHERE rowid IN (SELECT id FROM lent WHERE passage = old.id);
    DELETE FROM lent WHERE passage = old.id;
    INSERT OR REPLACE INTO setting VALUES ('purge', '');
END;
CREATE TRIGGER IF NOT EXISTS stream_removed BEFORE DELETE ON stream BEGIN
    DELETE FROM passage WHERE stream = old.id;
    DELETE FROM speaker WHERE stream = old.id;
END;

-- A larger buffer for words that are not in the file yet needs fewer merges.
INSERT INTO words (words, rank) VALUES ('hashsize', 33554432);
"""


def changes(db: sqlite3.Connection) -> tuple[int, int]:
    """Return a value that differs after each change to the tables, by any process."""
    return db.execute("PRAGMA data_version").fetchone()[0], db.total_changes


def mean_length(db: sqlite3.Connection) -> float:
    """Return the mean number of words of the rows in `words`, which its bm25 uses. FTS5 keeps the
    number of rows and of their words in a record, as varints."""
    numbers, number = list[int](), 0
    for byte in db.execute("SELECT block FROM words_data WHERE id = 1").fetchone()[0]:
        number = number << 7 | byte & 0x7F
        if byte < 0x80:
            numbers.append(number)
            number = 0
    rows, words = numbers[:2] if len(numbers) > 1 else (0, 0)
    return words / rows if words else 1.0


def connect(path: Path, patience: float = 10.0) -> sqlite3.Connection:
    """Return a usable index at `path`, new if there was none. As `open_cache`."""
    return open_cache(path, _TABLES, VERSION, patience)


@contextmanager
def unless_refused() -> Iterator[None]:
    """Ignore a busy file or a failing disk: the next refresh makes up for it."""
    try:
        yield
    except sqlite3.OperationalError as error:
        # Python's own errors, as for invalid UTF-8, have no code.
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
        if is_damaged(error) or code == sqlite3.SQLITE_INTERRUPT:
            raise
        logger.warning("memory index: {}. Search may miss the newest messages", error)


# The message before a passage in the talk, and the values of `before` that fit the passage.
_EARLIER = f"earlier.id = passage.id - {TURN} AND earlier.segment = passage.segment"
_FITTING = f"(0, (SELECT hash FROM passage AS earlier WHERE {_EARLIER}))"  # noqa: S608 - ours
_SAME_LINE = (
    "SELECT row FROM vector WHERE (stream, hash) = (passage.stream, passage.hash)"  # noqa: S608
    f" AND before IN {_FITTING}"
)
_OWN = "(SELECT before FROM vector WHERE vector.row = passage.row)"
_RECLAIM = (
    f"UPDATE passage SET row = NULL WHERE row >= 0 AND ({_OWN} IN {_FITTING}) IS NOT TRUE",  # noqa: S608
    f"UPDATE OR IGNORE passage SET row = ({_SAME_LINE})"  # noqa: S608 - ours
    f" WHERE row IS NULL AND role != 'tool' AND EXISTS ({_SAME_LINE})",
    "DELETE FROM vector WHERE row NOT IN (SELECT row FROM passage WHERE row >= 0)",
)


@unless_refused()
def purge(db: sqlite3.Connection) -> None:
    """Overwrite all deleted text in the file. Cheap if nothing was deleted."""
    if not db.execute("SELECT 1 FROM setting WHERE name = 'purge'").fetchone():
        return
    with transaction(db):
        if db.execute("SELECT 1 FROM vector").fetchone():
            for statement in _RECLAIM:
                db.execute(statement)
        db.execute("INSERT INTO words (words) VALUES ('optimize')")
        db.execute("DELETE FROM setting WHERE name = 'purge'")
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")


_VECTOR_INDEXES = """
CREATE INDEX IF NOT EXISTS passage_waiting ON passage (moment)
    WHERE row IS NULL AND role != 'tool';
CREATE UNIQUE INDEX IF NOT EXISTS passage_row ON passage (row) WHERE row >= 0;
"""


class PendingPassage(NamedTuple):
    """A passage to embed. `context` is the end of the message `before` it, given by its hash."""

    id: int
    hash: int
    text: str
    before: int
    context: str


class Vectors:
    """The vectors of the embedder with this `name`, empty for none. Vectors of another one are
    dropped."""

    def __init__(self, db: sqlite3.Connection, name: str) -> None:
        self._db, self._name = db, name
        with unless_refused():
            if not self._is_prepared():
                self.forget()
            if name:
                db.executescript(_VECTOR_INDEXES)

    def _is_prepared(self) -> bool:
        of_whom = "SELECT value FROM setting WHERE name = 'embedder'"
        return bool(self._db.execute(of_whom).fetchone() == (self._name,))

    @unless_refused()
    def forget(self) -> None:
        """Drop all vectors."""
        new = "INSERT OR REPLACE INTO setting VALUES ('embedder', ?)"
        with transaction(self._db):
            self._db.execute("UPDATE passage SET row = NULL WHERE row IS NOT NULL")
            self._db.execute("DELETE FROM vector")
            self._db.execute(new, (self._name,))

    def select_pending(self, limit: int, characters: int, context: int) -> list[PendingPassage]:
        """Return the newest passages without a vector, up to `limit`. Their texts are cut to so
        many characters. With `context`, a person's message has the last characters of the message
        before it."""
        if not self._is_prepared():
            return []
        before = f"WHERE ? AND passage.role = 'user' AND {_EARLIER}"
        rows = self._db.execute(
            "SELECT id, hash, substr(text, 1, ?),"  # noqa: S608 - ours
            f" coalesce((SELECT hash FROM passage AS earlier {before}), 0),"
            f" coalesce((SELECT substr(text, -?) FROM passage_text AS earlier {before}), '')"
            " FROM passage_text AS passage WHERE id IN (SELECT id FROM passage"
            " WHERE row IS NULL AND role != 'tool' ORDER BY moment DESC LIMIT ?)",
            (characters, context, context, context, limit),
        )
        return [PendingPassage(*row) for row in rows]

    def keep(self, found: Iterable[tuple[PendingPassage, Sequence[float] | None]]) -> None:
        """Store the vectors of passages. None is for a passage that can't have one. A passage that
        was deleted, or whose context was, is skipped."""
        same = f"id = ? AND hash = ? AND row IS NULL AND ? IN {_FITTING}"
        new = (
            "INSERT INTO vector (stream, hash, before, numbers)"  # noqa: S608 - ours
            f" SELECT stream, hash, ?, ? FROM passage WHERE {same}"
        )
        named = f"UPDATE passage SET row = ? WHERE {same}"  # noqa: S608 - ours
        with transaction(self._db):
            for (id, hash, _, before, _), vector in found:
                row: int | None = NO_VECTOR
                if vector:
                    values = (before, quantise(vector), id, hash, before)
                    row = self._db.execute(new, values).lastrowid
                self._db.execute(named, (row, id, hash, before))

    def has_any(self) -> bool:
        """Return True if there are any vectors."""
        any_row = self._db.execute("SELECT 1 FROM vector").fetchone()
        return any_row is not None and self._is_prepared()

    def count(self) -> int:
        """Count the passages with a vector."""
        (number,) = self._db.execute("SELECT count(*) FROM passage WHERE row >= 0").fetchone()
        return int(number)


def quantise(vector: Sequence[float]) -> bytes:
    """Return a vector as a scale, and its numbers as 8-bit integers."""
    step = max(map(abs, vector)) / 127 or 1.0
    return pack("<f", step) + bytes(array("b", [round(number / step) for number in vector]))
