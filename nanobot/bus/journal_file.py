"""The journal's file, `state/journal.db`: its tables, its documents, and work on the whole file
(backup, restore, `doctor`, erasing). Messages go through the port `Journal`.

Each change of a document also rewrites the copy of all documents, `state/documents.json`. If a
damaged database is moved away, the new one takes its documents from that copy. When the database is
opened, a file `state/NAME.json` with a document's name is imported and renamed to
`NAME.json.imported`. Imported jobs arrive this way, and people can restore a document by hand.

Erasing takes two steps, both safe to repeat: `redact_rows` changes texts in a transaction, then
`compact` rebuilds the file, because SQLite keeps old bytes in free pages and in the write-ahead
log."""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path

from loguru import logger

from nanobot.bus.journal import QueueCounts, Redact
from nanobot.bus.rows import COUNT_QUEUE, KEYS, TABLES, TEXTS, decode_helper
from nanobot.bus.sqlite import (
    Schema,
    open_file,
    storable,
    storage_error,
)
from nanobot.bus.state import DOCUMENTS, InvalidDocument, Stored, decode_versioned
from nanobot.errors import DatabaseDamaged, StorageError, WriteConflict
from nanobot.io import replace_file, storage_errors

_TABLES = f"""{TABLES}
    CREATE INDEX inbox_open ON inbox (state) WHERE state IN ('received', 'working', 'failed');
    CREATE INDEX turn_running ON turn (state) WHERE state = 'running';
    CREATE INDEX turn_session ON turn (session_key);
    CREATE INDEX outbox_open ON outbox (state) WHERE state IN ('pending', 'sending', 'dead')
"""
"""The indexes come last, so that new and compacted files have their tables on the same pages.
`nanobot.bus.damage` relies on this to restore a damaged list of tables."""

COPY = "documents.json"
"""The copy of all documents, next to the database."""

_COPY_VERSION = 1
_PUT = """
    INSERT INTO document VALUES (?1, ?2, 1)
    ON CONFLICT DO UPDATE SET content = ?2, revision = revision + 1 WHERE content != ?2
"""


def importable_files(folder: Path) -> list[Path]:
    """Return the document files in `folder` to be imported."""
    paths = (folder / f"{name}.json" for name in DOCUMENTS)
    return [path for path in paths if os.path.lexists(path)]


def import_documents(db: sqlite3.Connection, folder: Path, is_new: bool) -> list[Path]:
    """Import document files within the caller's transaction. A new database loads the copy first.

    Return the files, to be renamed after the commit. A file that replaces a stored document must be
    JSON. Raise `OSError` if a file cannot be read."""
    if is_new:
        _take_copy(db, folder / COPY)
    taken = []
    for path in importable_files(folder):
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            content = file.read().decode("utf-8", "backslashreplace")
        if _read_document(db, path.stem) and not is_json(content):
            logger.error("{} is ignored: it is not JSON", path)
            continue
        db.execute(_PUT, (path.stem, content))
        taken.append(path)
    return taken


def _take_copy(db: sqlite3.Connection, path: Path) -> None:
    """Store the documents in the copy at `path`, or move an unusable copy aside."""
    if not path.exists():
        return
    documents = load_copy(path)
    if documents is None:
        aside = path.replace(path.with_name(f"{path.name}.broken"))
        logger.error(
            "{} cannot be used and is kept as {}. Until you restore it, only the people in "
            "config.yaml have access, no workspace skill is enabled, and no job runs.",
            *(path, aside.name),
        )
        return
    logger.warning("{} were restored from {}", ", ".join(documents), path)
    for name, document in documents.items():
        db.execute(_PUT, (name, json.dumps(document, indent=1)))


def load_copy(path: Path) -> dict[str, object] | None:
    """Return the documents in the copy at `path`, or None if it cannot be used."""
    try:
        found = decode_versioned(path.read_bytes(), _COPY_VERSION).get("documents")
    except (InvalidDocument, OSError):
        return None
    if not isinstance(found, dict):
        return None
    return {name: one for name, one in found.items() if name in DOCUMENTS}


def _read_document(db: sqlite3.Connection, name: str) -> Stored | None:
    query = "SELECT content, revision FROM document WHERE name = ?"
    row = db.execute(query, (name,)).fetchone()
    return Stored(row[0].encode(), row[1]) if row else None


def is_json(content: str) -> bool:
    try:
        json.loads(content)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


SCHEMA = Schema(_TABLES, import_files=import_documents)


class SqliteState:
    """The `StateStore` in `folder/journal.db`, which is opened on first use, with its copy."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.on_failure: Callable[[StorageError], None] | None = None
        """Called when the database turns out to be damaged."""
        self._db: sqlite3.Connection | None = None
        self._using = threading.RLock()

    def close(self) -> None:
        """Close the database. The next use opens it again."""
        with self._using:
            if self._db is not None:
                self._db.close()
                self._db = None

    def read(self, name: str) -> Stored | None:
        with self._database() as db:
            return _read_document(db, name)

    def write(self, name: str, content: bytes, expected: int) -> int:
        with self._replacing(name, expected) as db:
            row = (name, storable(content.decode()), expected + 1)
            db.execute("INSERT OR REPLACE INTO document VALUES (?, ?, ?)", row)
        return expected + 1

    def set_aside(self, name: str) -> str:
        stored = self.read(name)
        if stored is None:
            return "nothing"
        paths = (self._folder / f"{name}.json.broken-{number}" for number in count(1))
        aside = next(path for path in paths if not os.path.lexists(path))
        with storage_errors(aside):
            replace_file(aside, stored.content)
        with self._replacing(name, stored.revision) as db:
            db.execute("DELETE FROM document WHERE name = ?", (name,))
        return aside.name

    def copy(self) -> None:
        """Update the copy of all documents. If the disk rejects it, the next change tries again."""
        with self._database() as db:
            rows = db.execute("SELECT name, content FROM document ORDER BY name").fetchall()
        found = {name: json.loads(content) for name, content in rows if is_json(content)}
        copy = {"version": _COPY_VERSION, "documents": found}
        content = json.dumps(copy, indent=1).encode() + b"\n"
        path = self._folder / COPY
        try:
            if not path.exists() or path.read_bytes() != content:
                replace_file(path, content)
        except OSError as error:
            logger.warning("{} is not up to date: {}", path, error.strerror)

    @contextmanager
    def _replacing(self, name: str, expected: int) -> Iterator[sqlite3.Connection]:
        """Open a transaction that replaces revision `expected`, then update the copy."""
        with self._database() as db, db:
            db.execute("BEGIN IMMEDIATE")
            stored = _read_document(db, name)
            if (stored.revision if stored else 0) != expected:
                raise WriteConflict(f"the stored document {name!r}")
            yield db
        self.copy()

    @contextmanager
    def _database(self) -> Iterator[sqlite3.Connection]:
        with self._using:
            if self._db is None:
                self._db = open_file(self._folder / "journal.db", SCHEMA)
                self.copy()
            try:
                yield self._db
            except sqlite3.Error as error:
                failure = storage_error(self._folder / "journal.db", error)
                if isinstance(failure, DatabaseDamaged) and self.on_failure:
                    self.on_failure(failure)
                raise failure from error


def queue_counts(db: sqlite3.Connection) -> QueueCounts:
    """Return how many rows are in progress or failed."""
    return QueueCounts(*db.execute(COUNT_QUEUE).fetchone())


def documents_set_aside(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the problem and the remedy for each document that was set aside."""
    for aside in sorted(folder.glob("*.json.broken-*")):
        place = aside.with_name(aside.name.partition(".broken-")[0])
        yield (
            f"{place.stem} could not be read, so it is not used. It is kept as {aside}",
            f"Repair it, save it as {place}, restart nanobot, and remove {aside.name}.",
        )


REASON = "it was running during the backup and may have finished since"


def fail_open_work(path: Path) -> int:
    """Mark open messages, parts of replies and reports of lost subagents as failed. Return how
    many.

    Work that was in progress in a restored journal has probably been finished since, so a person
    decides about it. Raise `StorageError`."""
    if not path.exists():
        return 0
    try:
        with closing(sqlite3.connect(path)) as db, db:
            for helper_id, started_at, text in db.execute("SELECT * FROM helper").fetchall():
                if lost := decode_helper(helper_id, text):
                    place = lost.channel, lost.chat_id, lost.event_id
                    db.execute(
                        "INSERT INTO inbox (channel, chat_id, event_id, session_key, received_at,"
                        " payload) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
                        (*place, lost.session_key, started_at, text),
                    )
            db.execute("DELETE FROM helper")
            db.execute("UPDATE turn SET state = 'failed' WHERE state = 'running'")
            under_way = (
                "UPDATE inbox SET state = 'failed', reason = ?"
                " WHERE state IN ('received', 'working')",
                "UPDATE outbox SET state = 'dead', reason = ?"
                " WHERE state IN ('pending', 'sending')",
            )
            return sum(db.execute(rows, (REASON,)).rowcount for rows in under_way)
    except sqlite3.Error as error:
        raise storage_error(path, error) from error


def redact_rows(db: sqlite3.Connection, redact: Redact) -> int:
    """Redact every text, in the caller's transaction. Return how many changed."""
    changed = 0
    for table, column in TEXTS:
        keys = KEYS.get(table, "id")
        also = ", revision = revision + 1" if table == "document" else ""
        rows = db.execute(f"SELECT {column}, {keys} FROM {table} WHERE {column} != ''")
        for text, *key in rows.fetchall():
            new = storable(redact(text))
            if new != text:
                changed += db.execute(
                    f"UPDATE {table} SET {column} = ?{also}"
                    f" WHERE ({keys}) = ({', '.join('?' * len(key))})",
                    (new, *key),
                ).rowcount
    return changed


def compact(db: sqlite3.Connection) -> None:
    """Rebuild the file without free pages and empty the log. Call it outside transactions."""
    db.execute("PRAGMA secure_delete=ON")
    try:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        db.execute("VACUUM")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    finally:
        db.execute("PRAGMA secure_delete=OFF")
