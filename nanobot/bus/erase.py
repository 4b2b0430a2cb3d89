"""Taking a text out of the journal, so that no page of its files holds it.

`redact` changes the rows in a transaction; `compact` then makes the file anew, because SQLite keeps
the old bytes in free pages and in the write-ahead log. A crash between the two leaves the text in
free pages only; doing both again removes it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

from nanobot.bus.connecting import storable
from nanobot.bus.journal import Journal

Redact = Callable[[str], str]
"""Gives back a stored text (JSON, lines of JSON, or plain) as it may stay."""

TEXTS = (
    ("inbox", "payload"),
    ("inbox", "reason"),
    ("turn", "report"),
    ("step", "payload"),
    ("prompt", "text"),
    ("unfiled", "lines"),
    ("outbox", "payload"),
    ("outbox", "reason"),
    ("button", "value"),
    ("helper", "if_lost"),
)
"""Where the journal keeps what people and models said. All else are ids, states and times."""


async def erase(journal: Journal, redact: Redact) -> int:
    """Pass every text of the journal through `redact` and compact it; how many texts changed.

    Raises StorageError; it is then as it was, or redacted and not compacted.
    """
    return await journal.database.run(lambda db: redact_rows(db, redact), afterwards=compact)


async def count(journal: Journal, redact: Redact) -> int:
    """How many texts `erase` would change now."""
    return await journal.database.run(lambda db: len(_changes(db, redact)))


def redact_rows(db: sqlite3.Connection, redact: Redact) -> int:
    """Pass every text through `redact`, in the caller's transaction; how many changed."""
    changes = list(_changes(db, redact))
    for statement, new, keys in changes:
        db.execute(statement, (new, *keys))
    return len(changes)


def compact(db: sqlite3.Connection) -> None:
    """Make the file anew without free pages, and empty the log. Outside any transaction."""
    db.execute("PRAGMA secure_delete=ON")
    try:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        db.execute("VACUUM")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    finally:
        db.execute("PRAGMA secure_delete=OFF")


def _changes(
    db: sqlite3.Connection, redact: Redact
) -> list[tuple[str, str, tuple[str | int, ...]]]:
    found = []
    for table, column in TEXTS:
        keys = ("turn_id", "number") if table == "step" else ("id",)
        where = " AND ".join(f"{key} = ?" for key in keys)
        statement = f"UPDATE {table} SET {column} = ? WHERE {where}"  # noqa: S608 - names from above
        rows = db.execute(
            f"SELECT {column}, {', '.join(keys)} FROM {table}"  # noqa: S608 - names from above
            f" WHERE {column} IS NOT NULL AND {column} != ''"
        )
        for text, *key in rows:
            new = storable(redact(text))
            if new != text:
                found.append((statement, new, tuple(key)))
    return found
