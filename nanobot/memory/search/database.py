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
trigger, which also sees to it that a purge is owed.

Where an embedder is configured, there is a matrix of vectors beside the index: `row` is a
passage's place in it, NULL until it has one, `NO_VECTOR` where it can have none. The row of a
passage that was taken out is `vacant`. While it still holds the vector (`hash` is set), it goes
back to the passage if the same line is indexed again; `purge` overwrites it. That is also how
vectors outlast an index that is thrown away after an erasure (`discard_passages`). What is in the
matrix and not known here counts for nothing: rows are written there first, and then here.
"""

from __future__ import annotations

import json
import sqlite3
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from loguru import logger

from nanobot.bus.sqlite import is_damaged, open_cache, remove_cache, transaction

VERSION = 13
STREAM_BITS = 28
PLACES = 1 << STREAM_BITS
TOOLS_FROM = PLACES // 2
TURN = 16
NO_VECTOR = -1

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
    kept INTEGER NOT NULL DEFAULT 0,
    row INTEGER
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
CREATE TABLE IF NOT EXISTS vacant (row INTEGER PRIMARY KEY, stream INTEGER, hash INTEGER);
CREATE INDEX IF NOT EXISTS vacant_line ON vacant (stream, hash);
CREATE TABLE IF NOT EXISTS setting (name TEXT PRIMARY KEY, value TEXT);

CREATE TRIGGER IF NOT EXISTS passage_removed AFTER DELETE ON passage BEGIN
    DELETE FROM words WHERE rowid = old.id;
    INSERT INTO vacant SELECT old.row, old.stream, old.hash WHERE old.row >= 0;
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


_ROWS = {
    "SELECT id, source, scope, key FROM stream":
        "INSERT INTO stream (id, source, scope, key) VALUES (?, ?, ?, ?)",
    "SELECT row, stream, hash FROM vacant"
    " UNION ALL SELECT row, stream, hash FROM passage WHERE row >= 0":
        "INSERT INTO vacant (row, stream, hash) VALUES (?, ?, ?)",
    "SELECT name, value FROM setting WHERE name IN ('embedder', 'row_bytes')"
    " UNION ALL SELECT 'purge', ''":
        "INSERT INTO setting (name, value) VALUES (?, ?)",
}  # fmt: skip
"""What tells which rows hold vectors of which lines, and what puts that into an empty index."""


def discard_passages(path: Path) -> None:
    """Put an empty index in place of one. It knows of the rows of the matrix from which lines they
    came, all vacant and a purge owed, so that those of lines which are not there again are
    overwritten whatever happens meanwhile. Raises as `connect`, and `sqlite3.Error`."""
    with closing(connect(path)) as db:
        kept = [(db.execute(query).fetchall(), insert) for query, insert in _ROWS.items()]
    remove_cache(path)
    with closing(connect(path)) as db, transaction(db):
        for rows, insert in kept:
            db.executemany(insert, rows)


@unless_refused()
def purge(db: sqlite3.Connection, matrix: Path) -> None:
    """Leave nothing of deleted text in the file or beside it; cheap where none was deleted."""
    if not db.execute("SELECT 1 FROM setting WHERE name = 'purge'").fetchone():
        return
    with transaction(db):
        _reclaim(db)
        _overwrite(db, matrix)
        db.execute("INSERT INTO words (words) VALUES ('optimize')")
        db.execute("DELETE FROM setting WHERE name = 'purge'")
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _overwrite(db: sqlite3.Connection, matrix: Path) -> None:
    """Empty the vacant rows of the matrix."""
    rows = db.execute("SELECT row FROM vacant WHERE hash IS NOT NULL").fetchall()
    if not rows:
        return
    size = int(_setting(db, "row_bytes") or 0)
    with suppress(FileNotFoundError), matrix.open("r+b") as file:
        for (row,) in rows:
            file.seek(row * size)
            file.write(bytes(size))
    db.execute("UPDATE vacant SET stream = NULL, hash = NULL")


def _reclaim(db: sqlite3.Connection) -> None:
    """Give vacant rows back to passages that came from the same line."""
    if not db.execute("SELECT 1 FROM vacant WHERE hash IS NOT NULL").fetchone():
        return
    db.execute(
        "UPDATE OR IGNORE passage SET row ="
        " (SELECT v.row FROM vacant v WHERE (v.stream, v.hash) = (passage.stream, passage.hash))"
        " WHERE row IS NULL AND role != 'tool' AND EXISTS"
        " (SELECT 1 FROM vacant v WHERE (v.stream, v.hash) = (passage.stream, passage.hash))"
    )
    db.execute(
        "DELETE FROM vacant WHERE EXISTS"
        " (SELECT 1 FROM passage WHERE passage.row = vacant.row AND passage.row >= 0)"
    )


def _setting(db: sqlite3.Connection, name: str) -> str:
    row = db.execute("SELECT value FROM setting WHERE name = ?", (name,)).fetchone()
    return row[0] if row else ""


_VECTOR_INDEXES = """
CREATE INDEX IF NOT EXISTS passage_waiting ON passage (moment)
    WHERE row IS NULL AND role != 'tool';
CREATE UNIQUE INDEX IF NOT EXISTS passage_row ON passage (row) WHERE row >= 0;
"""


class VectorRows:
    """Which passages have a row in the matrix, for an embedder of this `name`, empty for none.
    Vectors of another embedder are given up."""

    def __init__(self, db: sqlite3.Connection, matrix: Path, name: str) -> None:
        self._db, self._matrix, self._name = db, matrix, name
        with unless_refused():
            self._prepare()

    def _prepare(self) -> None:
        if not self._is_prepared():
            with transaction(self._db):
                self._forget()
                new = "INSERT OR REPLACE INTO setting VALUES ('embedder', ?)"
                self._db.execute(new, (self._name,))
        if self._name:
            self._db.executescript(_VECTOR_INDEXES)

    def _is_prepared(self) -> bool:
        return _setting(self._db, "embedder") == self._name

    @unless_refused()
    def forget(self) -> None:
        """The matrix is not the one that is known here: no passage has a vector, and what is in
        it may be of erased text."""
        with transaction(self._db):
            self._forget()

    def _forget(self) -> None:
        self._matrix.unlink(missing_ok=True)
        self._db.execute("UPDATE passage SET row = NULL WHERE row IS NOT NULL")
        self._db.execute("DELETE FROM vacant")

    def waiting(self, limit: int, characters: int) -> list[tuple[int, int, str]]:
        """The ids, hashes and texts, cut to so many characters, of up to `limit` passages that have
        no vector, the newest."""
        if not self._is_prepared():
            return []
        return self._db.execute(
            "SELECT id, hash, substr(text, 1, ?) FROM passage_text"
            " WHERE id IN (SELECT id FROM passage WHERE row IS NULL AND role != 'tool'"
            " ORDER BY moment DESC LIMIT ?)",
            (characters, limit),
        ).fetchall()

    def known(self) -> int:
        """How many rows the matrix has, vacant ones included."""
        if not self._is_prepared():
            return 0
        (last,) = self._db.execute(
            "SELECT max((SELECT coalesce(max(row), -1) FROM passage WHERE row >= 0),"
            " (SELECT coalesce(max(row), -1) FROM vacant))"
        ).fetchone()
        return int(last) + 1

    def free(self, number: int) -> list[int]:
        """So many rows that nothing is in."""
        found = self._db.execute("SELECT row FROM vacant WHERE hash IS NULL LIMIT ?", (number,))
        rows, known = [row for (row,) in found], self.known()
        return [*rows, *range(known, known + number - len(rows))]

    def keep(self, passages: Iterable[tuple[int, int, int]], row_bytes: int) -> None:
        """Note the ids, hashes and rows of passages. The row of one that is gone is vacant."""
        with transaction(self._db):
            for id, hash, row in passages:
                if row >= 0:
                    self._db.execute("DELETE FROM vacant WHERE row = ?", (row,))
                change = "UPDATE passage SET row = ? WHERE id = ? AND hash = ? AND row IS NULL"
                if not self._db.execute(change, (row, id, hash)).rowcount and row >= 0:
                    self._db.execute("INSERT INTO vacant VALUES (?, 0, ?)", (row, hash))
                    self._db.execute("INSERT OR REPLACE INTO setting VALUES ('purge', '')")
            size = "INSERT OR REPLACE INTO setting VALUES ('row_bytes', ?)"
            self._db.execute(size, (str(row_bytes),))

    def passages(self, rows: Sequence[int]) -> dict[int, int]:
        """The ids of the passages in these rows, by row."""
        found = self._db.execute(
            "SELECT row, id FROM passage"
            " WHERE row >= 0 AND row IN (SELECT value FROM json_each(?))",
            (json.dumps(rows),),
        )
        return dict(found.fetchall())

    def within(self, first: str, before: str) -> bytes:
        """The rows of the passages between two moments, as 32-bit numbers."""
        found = self._db.execute(
            "SELECT row FROM passage WHERE row >= 0 AND moment >= ? AND moment < ?", (first, before)
        )
        return array("I", [row for (row,) in found]).tobytes()

    def count(self) -> int:
        """How many passages have a vector."""
        (number,) = self._db.execute("SELECT count(*) FROM passage WHERE row >= 0").fetchone()
        return int(number)
