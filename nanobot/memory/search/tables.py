"""The index as a file: its tables, what makes it fit to be used, and rows read as passages.

Nothing in it is worth keeping, so it is built for speed (no syncs) and thrown away rather than
repaired or migrated: `Unusable` says that it must be made anew. Deleted text is overwritten, in
pages by `secure_delete` at once and in the full-text table by `purge`, which takes a while and is
therefore owed (`owe_purge`) until there is time; so what was erased from the files is not left
here.

A passage's `id` is its stream's number times 2**24 plus its place in the stream, so that neighbours
differ by one and a scope is a set of ranges. The output of tools has places from 2**23 on, beside
the talk. `segment` is the id of the first passage of a stretch of conversation; the table `segment`
counts the passages in each.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import NamedTuple, cast

from nanobot.bus.sqlite import check_file
from nanobot.clock import Clock
from nanobot.memory.documents import LONG_TERM
from nanobot.memory.history.entries import MOST
from nanobot.memory.search.values import Passage, Source
from nanobot.session.records import JsonValue

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


_LETTER: dict[Source, str] = {
    "message": "m",
    "history": "h",
    "note": "n",
    "memory": "f",
    "library": "l",
}
_SOURCE = {letter: source for source, letter in _LETTER.items()}
_PASSAGE = (
    "SELECT passage.id, segment, seq, moment, role, speaker, origin, place, turn, first, last,"
    " coalesce(original, words.text) FROM passage JOIN words ON words.rowid = passage.id"
)
_IS_TALK = f"(passage.id & {2 * TOOLS_FROM - 1}) <= {TOOLS_FROM}"


@dataclass(frozen=True, slots=True)
class Readable:
    """A stream that may be read."""

    id: int
    source: Source
    key: str
    scope: str

    def passage_id(self, seq: int) -> str:
        """The id of a passage, the same after every rebuild."""
        name = {"message": self.key, "history": self.scope, "library": self.key}.get(self.source)
        if name is None:
            name = f"{self.scope}:{self.key.removesuffix('.md')}"
        return f"{_LETTER[self.source]}:{name}:{seq}"


class Rows:
    """Questions to the tables. `scope_of` gives the scope of a session, asked each time."""

    def __init__(
        self,
        db: sqlite3.Connection,
        scope_of: Callable[[str, Mapping[str, JsonValue]], str],
    ) -> None:
        self._db, self._scope_of = db, scope_of

    def streams(self, scopes: Sequence[str]) -> dict[int, Readable]:
        """The streams in `scopes`, by number. Of all but the first, which asks, it is not to see
        who they are and what manner they like: no USER.md, no SOUL.md."""
        allowed = set(scopes)
        found = {}
        for id, source, key, scope, metadata in self._db.execute(
            "SELECT id, source, key, scope, metadata FROM stream"
        ):
            session = source == "message"
            owner = self._scope_of(key, json.loads(metadata)) if session else scope
            if source == "memory" and key != LONG_TERM and scope not in scopes[:1]:
                continue
            if owner in allowed:
                found[id] = Readable(id, cast("Source", source), key, owner)
        return found

    def speakers(self, streams: Mapping[int, Readable]) -> set[str]:
        """Names of people who speak in `streams`."""
        rows = self._db.execute("SELECT stream, name FROM speaker")
        names = {name for stream, name in rows if stream in streams}
        return names - {"user", "assistant", "tool"}

    def candidates(self, ids: Iterable[int]) -> dict[int, Candidate]:
        """What ranking needs of those of `ids` that exist."""
        rows = self._db.execute(
            "SELECT id, segment, role, speaker, moment, flags & ?, flags & ?, seq FROM passage"
            " WHERE id IN (SELECT value FROM json_each(?))",
            (ASKS, ENDS_ASKING, json.dumps(list(ids))),
        )
        return {row[0]: Candidate._make(row) for row in rows}

    def texts(self, ids: Iterable[int]) -> dict[int, str]:
        """The texts of passages, as they were written."""
        return dict(
            self._db.execute(
                "SELECT passage.id, coalesce(original, words.text) FROM passage"
                " JOIN words ON words.rowid = passage.id"
                " WHERE passage.id IN (SELECT value FROM json_each(?))",
                (json.dumps(list(ids)),),
            ).fetchall()
        )

    def summed_up(self, ids: Iterable[int]) -> list[tuple[int, str, int, int]]:
        """Of history entries: id, session, and the first and last seq that they sum up."""
        return self._db.execute(
            "SELECT id, turn, first, last FROM passage"
            " WHERE last > 0 AND id IN (SELECT value FROM json_each(?))",
            (json.dumps(list(ids)),),
        ).fetchall()

    def passages(
        self, streams: Mapping[int, Readable], ids: Iterable[int]
    ) -> dict[int, tuple[int, Passage]]:
        """Those of `ids` that exist and lie in `streams`, each after its segment."""
        rows = self._db.execute(
            f"{_PASSAGE} WHERE passage.id IN (SELECT value FROM json_each(?))",  # noqa: S608
            (json.dumps(list(ids)),),
        )
        inside = ((row, streams.get(row[0] >> STREAM_BITS)) for row in rows)
        return {row[0]: (row[1], _passage(stream, row)) for row, stream in inside if stream}

    def beside(
        self, stream: Readable, seq: int, steps: int, *, before: bool, talk_only: bool = False
    ) -> tuple[Passage, ...]:
        """Up to `steps` passages before or after `seq` in its stream, in order."""
        talk = f"AND {_IS_TALK}" if talk_only else ""
        order, sign = ("DESC", "<") if before else ("ASC", ">")
        rows = self._db.execute(
            f"{_PASSAGE} WHERE stream = ? AND seq {sign} ? {talk} ORDER BY seq {order} LIMIT ?",
            (stream.id, seq, steps),
        ).fetchall()
        found = [_passage(stream, row) for row in rows]
        return tuple(reversed(found) if before else found)

    def located(self, id: str, streams: Mapping[int, Readable]) -> tuple[Readable, int] | None:
        """The stream and number that the id of a passage names, if it lies in `streams`."""
        letter, _, rest = id.partition(":")
        name, _, number = rest.rpartition(":")
        source = _SOURCE.get(letter)
        if source is None or not number.isdecimal() or len(number) >= len(str(MOST)):
            return None
        wanted = f"{letter}:{name}:{int(number)}"
        for stream in streams.values():
            if stream.source == source and stream.passage_id(int(number)) == wanted:
                return stream, int(number)
        return None

    def at(self, stream: Readable, seq: int) -> Passage | None:
        """The passage with this number in a stream."""
        row = self._db.execute(
            f"{_PASSAGE} WHERE stream = ? AND seq = ?", (stream.id, seq)
        ).fetchone()
        return _passage(stream, row) if row else None


_Row = tuple[int, int, int, str, str, str, str, str, str, int, int, str]


def _passage(stream: Readable, row: _Row) -> Passage:
    _, _, seq, moment, role, speaker, origin, place, turn, first, last, text = row
    session = stream.key
    match stream.source:
        case "message":
            place = f"{stream.key} #{seq}"
        case "history":
            session = turn
            place = f"{place} ({turn} #{first}-{last})" if last else place
        case _:
            session = ""
    return Passage(
        id=stream.passage_id(seq),
        source=stream.source,
        scope=stream.scope,
        session=session,
        seq=seq,
        role=role,
        speaker=speaker,
        when=datetime.fromisoformat(moment) if moment else None,
        text=text,
        origin=origin,
        place=place,
    )


class Candidate(NamedTuple):
    """What ranking knows of a passage; a tuple because each search makes a thousand.

    Neighbours have ids that differ by one, and the same `segment`. `moment` is ISO, empty where
    there is none, and begins with the civil day. `asks`: a question stands in it; `ends_asking`: it
    ends with one. To and from the output of tools (role `tool`), which stands beside the talk, no
    score flows.
    """

    id: int
    segment: int
    role: str = ""
    speaker: str = ""
    moment: str = ""
    asks: bool = False
    ends_asking: bool = False
    seq: int = 0
