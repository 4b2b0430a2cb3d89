"""What nanobot used: tokens in, cached, and out.

Turns say so in their reports, which the journal keeps for 30 days, so no sum of them reaches back
further. What memory itself asks a model (consolidation, Dream) belongs to no turn and is counted by
day.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from datetime import date, datetime

from nanobot.bus.database import Database


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of a number of turns, or of calls that belong to none. `cached` are those of `prompt`
    that the provider had cached."""

    turns: int = 0
    prompt: int = 0
    cached: int = 0
    completion: int = 0


def usage(db: sqlite3.Connection, *, session: str = "", since: datetime | None = None) -> Usage:
    """The usage of one conversation (all of them for an empty `session`) from `since` (aware) on.

    A turn without a report that can be read does not count.
    """
    row = db.execute(
        "WITH report AS ("
        " SELECT iif(json_valid(report), report, '{}') AS body FROM turn"
        " WHERE (:session = '' OR session_key = :session)"
        " AND (:since = '' OR datetime(started_at) >= datetime(:since)))"
        " SELECT count(json_extract(body, '$.prompt_tokens')),"
        " total(json_extract(body, '$.prompt_tokens')),"
        " total(json_extract(body, '$.cached_tokens')),"
        " total(json_extract(body, '$.completion_tokens')) FROM report",
        {"session": session, "since": since.isoformat() if since else ""},
    ).fetchone()
    return Usage(*map(int, row))


def learning(db: sqlite3.Connection, since: date) -> Usage:
    """What memory itself used, from the day `since` on."""
    row = db.execute(
        "SELECT total(calls), total(prompt), total(cached), total(completion) FROM learning"
        " WHERE day >= ?",
        (since.isoformat(),),
    ).fetchone()
    return Usage(*map(int, row))


def add_learning(db: sqlite3.Connection, day: date, used: Usage) -> None:
    """Count calls of memory's own on a day."""
    db.execute(
        "INSERT INTO learning VALUES (?, ?, ?, ?, ?) ON CONFLICT (day) DO UPDATE SET"
        " calls = calls + excluded.calls, prompt = prompt + excluded.prompt,"
        " cached = cached + excluded.cached, completion = completion + excluded.completion",
        (day.isoformat(), used.turns, used.prompt, used.cached, used.completion),
    )


class JournalUsage:
    """Asks the journal behind `database`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def __call__(self, *, session: str = "", since: datetime | None = None) -> Usage:
        """See `usage`."""
        return await self._database.run(lambda db: usage(db, session=session, since=since))

    async def learning(self, since: date) -> Usage:
        """See `learning`."""
        return await self._database.run(lambda db: learning(db, since))

    def learned(self, day: date, prompt: int, cached: int, completion: int) -> None:
        """Count one call of memory's own; not waited for."""
        used = Usage(1, prompt, cached, completion)
        self._database.post(lambda db: add_learning(db, day, used), patient=True)
