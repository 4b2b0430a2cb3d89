"""Queries of people on the journal's file: the queue, the turns, and their usage by day.

Turns are kept for `KEEP_DAYS`. Their usage is summed by day and conversation when they end, in
the table `used`, and stays for `USED_DAYS`. A day is that of the clock which the turn began by.
"""

from __future__ import annotations

import asyncio
import re
import sqlite3
from collections.abc import Callable, Coroutine
from datetime import date, datetime
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from nanobot.bus.journal import (
    LEARNING,
    DayTimes,
    DayUsage,
    QueueCounts,
    QueueRow,
    Spent,
    TurnCounts,
    TurnRecord,
    TurnRow,
    UsageTotals,
)
from nanobot.bus.journal_file import SCHEMA, UNDELIVERED, queue_counts
from nanobot.bus.rows import (
    OPEN_MESSAGES,
    OPEN_PARTS,
    decode_report,
    shown_rows,
    spending_key,
    unknown_turn,
)
from nanobot.bus.sqlite import Database, execute

USED_DAYS = 400

_ADD = """
    ON CONFLICT (day, session_key) DO UPDATE SET turns = turns + excluded.turns,
        prompt = prompt + excluded.prompt, cached = cached + excluded.cached,
        completion = completion + excluded.completion,
        cost = coalesce(cost + excluded.cost, cost, excluded.cost)
"""

COUNT_TURN = f"""
    INSERT INTO used
        SELECT substr(started_at, 1, 10), session_key, 1,
            total(json_extract(report, '$.prompt_tokens')),
            total(json_extract(report, '$.cached_tokens')),
            total(json_extract(report, '$.completion_tokens')),
            sum(json_extract(report, '$.cost'))
        FROM turn WHERE id = ? AND json_valid(report) GROUP BY id
    {_ADD}
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

P = ParamSpec("P")
T = TypeVar("T")
Store = TypeVar("Store", bound="SqliteQueries")


def transaction(
    work: Callable[Concatenate[Store, sqlite3.Connection, P], T],
) -> Callable[Concatenate[Store, P], Coroutine[Any, Any, T]]:
    """A method that is run as a transaction by the writer, and returns once that is durable."""

    async def method(self: Store, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.database.run(lambda db: work(self, db, *args, **kwargs))

    return method


class SqliteQueries:
    """The methods of `Journal` that only read for people, for the file at `path`."""

    def __init__(self, path: Path) -> None:
        self.database = Database(path, SCHEMA)

    async def counts(self) -> QueueCounts:
        return await self.database.run(queue_counts)

    @transaction
    def queue_rows(self, db: sqlite3.Connection) -> tuple[list[QueueRow], list[QueueRow]]:
        inbox = db.execute(
            "SELECT payload, 'in-' || id, session_key,"
            " iif(state != 'failed' AND not_before, 'waiting', state), attempts, received_at,"
            f" reason FROM inbox WHERE {OPEN_MESSAGES} ORDER BY id"
        )
        outbox = db.execute(
            "SELECT payload, 'out-' || id, channel || ':' || chat_id, state, attempts, created_at,"
            f" reason FROM outbox WHERE {UNDELIVERED} ORDER BY id"
        )
        return shown_rows(inbox), shown_rows(outbox)

    @transaction
    def turn_record(self, db: sqlite3.Connection, turn_id: str) -> TurnRecord:
        row = execute(
            db, "SELECT id, session_key, state, started_at, report FROM turn WHERE id = ?", turn_id
        ).fetchone()
        if row is None:
            raise unknown_turn(turn_id)
        report = decode_report(row[4])
        query = "SELECT text FROM prompt WHERE id = ?"
        prompt = db.execute(query, (str(report.get("system_id", "")),)).fetchone()
        return TurnRecord(row[0], row[1], row[2], row[3], report, prompt[0] if prompt else "")

    @transaction
    def turns(
        self,
        db: sqlite3.Connection,
        *,
        session: str = "",
        state: str = "",
        before: str = "",
        limit: int = 50,
    ) -> list[TurnRow]:
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

    async def used_by_day(self, since: date) -> list[DayUsage]:
        query = "SELECT * FROM used WHERE day >= ? ORDER BY day, session_key"
        return [DayUsage(*row) for row in await self._run(query, since.isoformat())]

    async def times_by_day(self, since: date) -> list[DayTimes]:
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
        return [DayTimes(*row) for row in await self._run(query, since.isoformat())]

    async def find_mentions(self, name: re.Pattern[str]) -> frozenset[str]:
        query = (
            f"SELECT payload FROM inbox WHERE {OPEN_MESSAGES}"
            " UNION ALL SELECT payload FROM step"
            f" UNION ALL SELECT payload FROM outbox WHERE {OPEN_PARTS}"
        )
        return await self.database.run(
            lambda db: frozenset(
                found for (payload,) in db.execute(query) for found in name.findall(payload or "")
            )
        )

    async def turn_counts(self, since: datetime) -> TurnCounts:
        # Without GROUP BY, for which SQLite would sort all turns that are kept.
        query = (
            "SELECT total(state = 'done'), total(state = 'failed'), total(state = 'stopped')"
            " FROM turn WHERE datetime(started_at) >= datetime(?)"
        )
        return TurnCounts(*await self._numbers(query, since.isoformat()))

    def add_learning_usage(self, day: date, used: UsageTotals) -> None:
        self._post(
            f"INSERT INTO used VALUES (?, ?, ?, ?, ?, ?, ?) {_ADD}",
            *(day.isoformat(), LEARNING, used.turns),
            *(used.prompt, used.cached, used.completion, used.cost),
            can_wait=True,
        )

    async def day_tokens(self, day: date, use: str = "") -> Spent:
        query = "SELECT total(tokens), total(warned) FROM spending WHERE day = ?"
        tokens, warned = await self._numbers(query, spending_key(day, use))
        return Spent(tokens, bool(warned))

    def add_day_tokens(
        self, day: date, tokens: int, use: str = "", *, warned: bool = False
    ) -> None:
        self._post(
            "INSERT INTO spending VALUES (?, ?, ?) ON CONFLICT (day) DO UPDATE SET"
            " tokens = tokens + excluded.tokens, warned = max(warned, excluded.warned)",
            *(spending_key(day, use), tokens, int(warned)),
            can_wait=True,
        )

    async def _numbers(self, query: str, *values: object) -> list[Any]:
        """The one row that a query has, all whole numbers or None."""
        row = await self.database.run(lambda db: execute(db, query, *values).fetchone())
        return [None if value is None else int(value) for value in row]

    def _run(self, statement: str, *values: object) -> asyncio.Future[list[Any]]:
        """The rows of one statement, once it is durable."""
        return self.database.run(lambda db: execute(db, statement, *values).fetchall())

    def _post(self, statement: str, *values: object, can_wait: bool = False) -> None:
        self.database.post(lambda db: execute(db, statement, *values), can_wait=can_wait)
