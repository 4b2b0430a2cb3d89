"""The documents of a home in the journal's database, and their copy for people.

After each change all documents are written to `state/documents.json` as well. A database that is
made anew, because the one before was damaged and moved away, takes them from there.

A file `state/NAME.json` with the name of a document is taken in when the database is opened, and
called `NAME.json.imported` then. That is how documents of earlier versions come in, within the
transaction that brings the database forward, and how a person puts one in place by hand.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

from loguru import logger

from nanobot.bus.sqlite import storable
from nanobot.bus.state import DOCUMENTS, Stored, UnfitDocument, versioned_object
from nanobot.errors import StorageError, WriteConflict
from nanobot.io import replace_file, storage_errors

_VERSION = 1

COPY = "documents.json"
"""The copy of all documents, beside the database."""

TABLE = """
    CREATE TABLE document (
        name TEXT PRIMARY KEY,
        content TEXT NOT NULL,
        revision INTEGER NOT NULL
    ) WITHOUT ROWID
"""

_PUT = """
    INSERT INTO document VALUES (?1, ?2, 1)
    ON CONFLICT DO UPDATE SET content = ?2, revision = revision + 1 WHERE content != ?2
"""


def waiting_files(folder: Path) -> list[Path]:
    """The files in `folder` that are to be taken in."""
    paths = (folder / f"{name}.json" for name in DOCUMENTS)
    return [path for path in paths if os.path.lexists(path)]


def take_in(db: sqlite3.Connection, folder: Path, version: int) -> list[Path]:
    """Store the documents that lie in `folder` as files, within the caller's transaction; the
    files, to be renamed once that is durable. `version`: of the database before, 0 for none.

    A file that replaces a stored document must be JSON. Raises `OSError` where one cannot be read.
    """
    if version == 0:
        for name, text in _copied(folder / COPY).items():
            db.execute(_PUT, (name, text))
    taken = []
    for path in waiting_files(folder):
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            content = file.read()
        if _revision(db, path.stem) and not _is_json(content):
            logger.error("{} is not taken in: it is not JSON", path)
            continue
        db.execute(_PUT, (path.stem, content.decode("utf-8", "backslashreplace")))
        taken.append(path)
    return taken


def stored_documents(db: sqlite3.Connection | None, folder: Path) -> dict[str, bytes]:
    """The documents as the next start finds them, from a database of any version or none. Raises
    `sqlite3.Error` and `OSError`."""
    found = {}
    if db and db.execute("SELECT 1 FROM sqlite_master WHERE name = 'document'").fetchone():
        rows = db.execute("SELECT name, content FROM document")
        found = {name: content.encode() for name, content in rows}
    return found | {path.stem: path.read_bytes() for path in waiting_files(folder)}


def _copied(path: Path) -> dict[str, str]:
    """The documents in the copy at `path`. One that cannot be used is moved aside."""
    try:
        documents = _documents_in(path.read_bytes())
    except FileNotFoundError:
        return {}
    except UnfitDocument as error:
        aside = path.with_name(f"{path.name}.broken")
        path.replace(aside)
        logger.error(
            "{} cannot be used ({}) and is kept as {}. Until you let them in again, only the people"
            " in config.yaml may talk, no skill of yours is enabled, and no job runs.",
            *(path, error, aside.name),
        )
        return {}
    logger.warning("{} were taken from {}", ", ".join(documents), path)
    return {name: json.dumps(one, indent=1) for name, one in documents.items()}


def _documents_in(copy: bytes) -> dict[str, object]:
    documents = versioned_object(copy, _VERSION).get("documents")
    if not isinstance(documents, dict):
        raise UnfitDocument("it holds no documents")
    return documents


def _revision(db: sqlite3.Connection, name: str) -> int:
    row = db.execute("SELECT revision FROM document WHERE name = ?", (name,)).fetchone()
    return int(row[0]) if row else 0


def _is_json(content: bytes) -> bool:
    try:
        json.loads(content)
    except (ValueError, RecursionError):
        return False
    return True


class SqliteState:
    """The documents in the database that `connect` opens when it is first needed. Implements
    `nanobot.bus.state.StateStore`; `folder` is where the copy is kept."""

    def __init__(self, connect: Callable[[], sqlite3.Connection], folder: Path) -> None:
        self._connect = connect
        self._folder = folder
        self._db: sqlite3.Connection | None = None
        self._using = threading.RLock()

    def close(self) -> None:
        """Let go of the database; it is opened again when it is needed."""
        with self._using:
            if self._db is not None:
                self._db.close()
                self._db = None

    def revision(self, name: str) -> int:
        with self._database() as db:
            return _revision(db, name)

    def read(self, name: str) -> Stored | None:
        with self._database() as db:
            row = db.execute(
                "SELECT content, revision FROM document WHERE name = ?", (name,)
            ).fetchone()
        return Stored(row[0].encode(), row[1]) if row else None

    def write(self, name: str, content: bytes, expected: int) -> int:
        self._replace(name, expected, storable(content.decode()))
        return expected + 1

    def set_aside(self, name: str) -> str:
        stored = self.read(name)
        if stored is None:
            return "nothing"
        paths = (self._folder / f"{name}.json.broken-{number}" for number in count(1))
        aside = next(path for path in paths if not os.path.lexists(path))
        with storage_errors(aside):
            replace_file(aside, stored.content)
        self._replace(name, stored.revision, None)
        return aside.name

    def copy(self) -> None:
        """Bring the copy for people up to date. One that the disk refuses is made with the next
        change."""
        with self._database() as db:
            rows = db.execute("SELECT name, content FROM document ORDER BY name").fetchall()
        found = {}
        for name, content in rows:
            with suppress(ValueError, RecursionError):
                found[name] = json.loads(content)
        content = json.dumps({"version": _VERSION, "documents": found}, indent=1).encode() + b"\n"
        path = self._folder / COPY
        try:
            if not path.exists() or path.read_bytes() != content:
                replace_file(path, content)
        except OSError as error:
            logger.warning("{} is not up to date: {}", path, error.strerror)

    def _replace(self, name: str, expected: int, content: str | None) -> None:
        """Put `content`, or nothing, in place of revision `expected`."""
        with self._database() as db, db:
            db.execute("BEGIN IMMEDIATE")
            if _revision(db, name) != expected:
                raise WriteConflict(f"the stored document {name!r}")
            db.execute("DELETE FROM document WHERE name = ?", (name,))
            if content is not None:
                db.execute("INSERT INTO document VALUES (?, ?, ?)", (name, content, expected + 1))
        self.copy()

    @contextmanager
    def _database(self) -> Iterator[sqlite3.Connection]:
        with self._using:
            if self._db is None:
                self._db = self._connect()
                self.copy()
            try:
                yield self._db
            except sqlite3.Error as error:
                raise StorageError("state/journal.db", str(error)) from error
