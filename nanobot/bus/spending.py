"""What all model calls of a day have used, for the daily budget: counted call by call, so that what
stopped turns, helpers and memory used is in it, and a restart forgets nothing.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from datetime import date

from nanobot.bus.database import Database


@dataclass(frozen=True, slots=True)
class Spent:
    """Tokens of one day, and whether the owner was warned on it."""

    tokens: int = 0
    warned: bool = False


def spent(db: sqlite3.Connection, day: date) -> Spent:
    """What was used on a day."""
    query = "SELECT tokens, warned FROM spending WHERE day = ?"
    row = db.execute(query, (day.isoformat(),)).fetchone()
    return Spent(int(row[0]), bool(row[1])) if row else Spent()


def add_spent(db: sqlite3.Connection, day: date, tokens: int, *, warned: bool = False) -> None:
    """Count a call's tokens on a day, and remember a warning."""
    db.execute(
        "INSERT INTO spending VALUES (?, ?, ?) ON CONFLICT (day) DO UPDATE SET"
        " tokens = tokens + excluded.tokens, warned = max(warned, excluded.warned)",
        (day.isoformat(), tokens, int(warned)),
    )


class JournalSpending:
    """Keeps it in the journal behind `database`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def of(self, day: date) -> Spent:
        """See `spent`. Raises `StorageError`."""
        return await self._database.run(lambda db: spent(db, day))

    def add(self, day: date, tokens: int, *, warned: bool = False) -> None:
        """See `add_spent`; not waited for."""
        self._database.post(lambda db: add_spent(db, day, tokens, warned=warned), patient=True)
