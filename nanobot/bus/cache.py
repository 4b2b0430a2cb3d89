"""Caches in SQLite: databases that can be rebuilt from their sources.

Fast, without syncs, and what is deleted is overwritten.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from nanobot.io import make_folder


class Unusable(sqlite3.DatabaseError):
    """A cache is of another version; it has to be built again."""

    sqlite_errorcode = sqlite3.SQLITE_NOTADB


_CACHE_SETTINGS = """
PRAGMA secure_delete = ON;
PRAGMA journal_mode = WAL;
PRAGMA synchronous = OFF;
PRAGMA cache_size = -4000;
PRAGMA temp_store = MEMORY;
"""


def open_cache(path: Path, tables: str, version: int, patience: float = 10.0) -> sqlite3.Connection:
    """A database that can be built again from what it caches: fast, without syncs, and what is
    deleted is overwritten. `tables` are made in an empty file.

    `patience` is how many seconds a write waits for another process's.
    Raises `Unusable`, `sqlite3.Error`, or `OSError` where the place cannot be written.
    """
    make_folder(path.parent)
    # Made here, for its owner only: SQLite lets others read, and its side files follow it.
    path.touch(mode=0o600)
    path.chmod(0o600)
    db = sqlite3.connect(path, timeout=patience, isolation_level=None, check_same_thread=False)
    try:
        _prepare_cache(db, tables, version)
    except BaseException:
        db.close()
        raise
    return db


def _prepare_cache(db: sqlite3.Connection, tables: str, version: int) -> None:
    db.executescript(_CACHE_SETTINGS)
    (found,) = db.execute("PRAGMA user_version").fetchone()
    if found not in (0, version):
        raise Unusable(f"schema version {found}")
    if found == 0:
        db.executescript(f"BEGIN IMMEDIATE;{tables}PRAGMA user_version = {version};COMMIT;")


def is_damaged(error: Exception) -> bool:
    """Whether the file of a cache is no use and has to be built again: nothing of a whole one
    violates a constraint, and no word in its errors is damaged."""
    if isinstance(error, UnicodeDecodeError):
        return True
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in {
        sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_CONSTRAINT,
    }  # fmt: skip


@contextlib.contextmanager
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


def remove_cache(path: Path) -> None:
    """Delete the file and its SQLite companions."""
    for suffix in ("", "-wal", "-shm", "-journal"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
