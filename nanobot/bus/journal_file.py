"""The journal as a file of a home: what backups, restores, `doctor` and commands that run without a
gateway have to know of it. Whoever works with messages knows the port `Journal` alone.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct, field

from nanobot.bus.journal import QueueCounts
from nanobot.bus.sqlite import check_file, reading
from nanobot.bus.sqlite_journal import SCHEMA, documents_of
from nanobot.bus.sqlite_records import queue_counts, set_aside_rows, stored_documents
from nanobot.errors import StorageError

__all__ = ["FORMAT", "JournalFound", "documents_of", "inspect_journal", "set_aside"]

FORMAT = SCHEMA.version
"""The format that this version writes; it reads those from `SCHEMA.first` on."""


class JournalFound(Struct, frozen=True):
    """A journal as it lies on the disk: of format `version`, with what `damage` says is wrong with
    it. `documents` are by name, those included that are to be taken in at the next start."""

    version: int = 0
    damage: str = ""
    counts: QueueCounts = field(default_factory=QueueCounts)
    documents: Mapping[str, bytes] = field(default_factory=dict)


def inspect_journal(path: Path) -> JournalFound:
    """Look at the journal at `path`, of any version, without changing it; never raises for what is
    wrong with it."""
    version, damage = check_file(path) if path.exists() else (0, "")
    if 0 < version < SCHEMA.first:
        damage = f"it was written by an older nanobot (format {version})"
    if damage:
        return JournalFound(version, damage)
    try:
        if not version:
            return JournalFound(documents=stored_documents(None, path.parent))
        with reading(path) as db:
            return JournalFound(version, "", queue_counts(db), stored_documents(db, path.parent))
    except (sqlite3.Error, OSError) as error:
        return JournalFound(version, str(error))


def set_aside(path: Path) -> int:
    """In the journal at `path`, of any version, let every message that waits, every part of a
    reply, and what is to be said of every helper that was at work, be one that failed; how many.
    Raises `StorageError`."""
    if not path.exists():
        return 0
    try:
        with contextlib.closing(sqlite3.connect(path)) as db, db:
            return set_aside_rows(db)
    except sqlite3.Error as error:
        raise StorageError(path, str(error)) from error
