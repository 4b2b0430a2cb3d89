"""What people look at in the journal's file: turns as a list, and what they used by day.

Turns are kept for `KEEP_DAYS`. What they used is summed by day and conversation when they end, in
the table `used`, and stays for `USED_DAYS`. A day is that of the clock which the turn began by.
"""

from __future__ import annotations

import sqlite3
from datetime import date

from nanobot.bus.journal import DayTimes, DayUsage, TurnRow

USED_DAYS = 400

COUNT_TURN = """
    INSERT INTO used
        SELECT substr(started_at, 1, 10), session_key, 1,
            total(json_extract(report, '$.prompt_tokens')),
            total(json_extract(report, '$.cached_tokens')),
            total(json_extract(report, '$.completion_tokens')),
            sum(json_extract(report, '$.cost'))
        FROM turn WHERE id = ? AND json_valid(report) GROUP BY id
        ON CONFLICT (day, session_key) DO UPDATE SET turns = turns + 1,
            prompt = prompt + excluded.prompt, cached = cached + excluded.cached,
            completion = completion + excluded.completion,
            cost = coalesce(cost + excluded.cost, cost, excluded.cost)
"""
"""Adds what a turn used, which has just ended, to its day."""

_ROW = """
    SELECT id, session_key, state, started_at,
        coalesce(json_extract(body, '$.model'), ''),
        CAST(coalesce(json_extract(body, '$.milliseconds'), 0) AS INTEGER),
        CAST(coalesce(json_extract(body, '$.prompt_tokens'), 0) AS INTEGER),
        CAST(coalesce(json_extract(body, '$.cached_tokens'), 0) AS INTEGER),
        CAST(coalesce(json_extract(body, '$.completion_tokens'), 0) AS INTEGER),
        json_extract(body, '$.cost')
    FROM (
        SELECT rowid AS number, *, iif(json_valid(report), report, '{}') AS body FROM turn
        WHERE {wanted} ORDER BY rowid DESC LIMIT ?
    ) ORDER BY number DESC
"""


def list_turns(
    db: sqlite3.Connection, session: str, state: str, before: str, limit: int
) -> list[TurnRow]:
    """The newest turns, or those before one; see `Journal.turns`."""
    wanted, values = ["1"], list[object]()
    for condition, value in (
        ("session_key = ?", session),
        ("state = ?", state),
        ("rowid < (SELECT rowid FROM turn WHERE id = ?)", before),
    ):
        if value:
            wanted.append(condition)
            values.append(value)
    query = _ROW.replace("{wanted}", " AND ".join(wanted))
    return [TurnRow(*row) for row in db.execute(query, (*values, limit))]


def used_by_day(db: sqlite3.Connection, since: date) -> list[DayUsage]:
    """By day and conversation, the earliest first."""
    query = "SELECT * FROM used WHERE day >= ? ORDER BY day, session_key"
    return [DayUsage(*row) for row in db.execute(query, (since.isoformat(),))]


def times_by_day(db: sqlite3.Connection, since: date) -> list[DayTimes]:
    """How long turns took that were answered, by day: the nearest rank of each part."""
    query = """
        WITH took AS (
            SELECT substr(started_at, 1, 10) AS day,
                CAST(json_extract(report, '$.milliseconds') AS INTEGER) AS ms
            FROM turn WHERE state = 'done' AND json_valid(report) AND started_at >= ?
        ), ranked AS (
            SELECT day, ms, row_number() OVER (PARTITION BY day ORDER BY ms) AS place,
                count(*) OVER (PARTITION BY day) AS turns
            FROM took WHERE ms > 0
        )
        SELECT day, turns, max(iif(place = (turns * 50 + 99) / 100, ms, 0)),
            max(iif(place = (turns * 95 + 99) / 100, ms, 0))
        FROM ranked GROUP BY day ORDER BY day
    """
    return [DayTimes(*row) for row in db.execute(query, (since.isoformat(),))]
