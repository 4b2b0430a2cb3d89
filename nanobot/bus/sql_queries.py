"""Queries of people on the journal: the queue, the turns, and their usage by day.

Turns are kept for `KEEP_DAYS`. When they end, their usage is added to their day and conversation in
the table `used`, which is kept for `USED_DAYS`. The clock at the start of a turn decides its
day."""

from __future__ import annotations

import re
from datetime import date, datetime

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
from nanobot.bus.rows import (
    COUNT_QUEUE,
    OPEN_MESSAGES,
    OPEN_PARTS,
    UNDELIVERED,
    decode_report,
    make_queue_rows,
    spending_key,
    unknown_turn,
)
from nanobot.bus.sql import SqlStore

USED_DAYS = 400

ADD_USAGE = """
    ON CONFLICT (day, session_key) DO UPDATE SET turns = used.turns + excluded.turns,
        prompt = used.prompt + excluded.prompt, cached = used.cached + excluded.cached,
        completion = used.completion + excluded.completion,
        cost = coalesce(used.cost + excluded.cost, used.cost, excluded.cost)
"""


class SqlQueries(SqlStore):
    """The methods of `Journal` that count, or only read for people."""

    async def counts(self) -> QueueCounts:
        """Return how many rows are in progress or failed."""
        return QueueCounts(*(await self._read(COUNT_QUEUE))[0])

    async def queue_rows(self) -> tuple[list[QueueRow], list[QueueRow]]:
        """Return the unanswered messages and the undelivered parts, oldest first."""
        inbox = await self._read(
            "SELECT payload, 'in-' || id, session_key, CASE WHEN state != 'failed'"
            " AND not_before != 0 THEN 'waiting' ELSE state END, attempts, received_at, reason"
            f" FROM inbox WHERE {OPEN_MESSAGES} ORDER BY id"
        )
        outbox = await self._read(
            "SELECT payload, 'out-' || id, channel || ':' || chat_id, state, attempts, created_at,"
            f" reason FROM outbox WHERE {UNDELIVERED} ORDER BY id"
        )
        return make_queue_rows(inbox), make_queue_rows(outbox)

    async def turn_record(self, turn_id: str) -> TurnRecord:
        """Return the stored record of a turn. Raise `NanobotError` if it is unknown or expired."""
        query = "SELECT id, session_key, state, started_at, report FROM turn WHERE id = ?"
        rows = await self._read(query, turn_id)
        if not rows:
            raise unknown_turn(turn_id)
        key, place, state, began, text = rows[0]
        report = decode_report(text)
        query = "SELECT text FROM prompt WHERE id = ?"
        prompt = await self._read(query, str(report.get("system_id", "")))
        return TurnRecord(key, place, state, began, report, prompt[0][0] if prompt else "")

    async def turns(
        self, *, session: str = "", state: str = "", before: str = "", limit: int = 50
    ) -> list[TurnRow]:
        """Return up to `limit` turns, newest first, filtered by conversation and state if given.
        `before` is the id of the turn before which they began."""
        number, wanted, values = self.TURN_NUMBER, ["true"], list[object]()
        for condition, value in (
            ("session_key = ?", session),
            ("state = ?", state),
            (f"{number} < (SELECT {number} FROM turn WHERE id = ?)", before),
        ):
            if value:
                wanted.append(condition)
                values.append(value)
        names = ("milliseconds", "prompt_tokens", "cached_tokens", "completion_tokens")
        numbers = ", ".join(f"coalesce({self._report_value(name)}, 0)" for name in names)
        rows = await self._read(
            "SELECT id, session_key, state, started_at,"
            f" coalesce({self._report_value('model')}, ''), {numbers},"
            f" {self._report_value('cost')} FROM turn"
            f" WHERE {' AND '.join(wanted)} ORDER BY {number} DESC LIMIT ?",
            *(*values, limit),
        )
        return [TurnRow(*row) for row in rows]

    async def usage_by_day(self, since: date) -> list[DayUsage]:
        """Return the usage of ended turns by day and conversation, from `since` on, oldest first.
        Memory's own calls are `LEARNING`. Usage is kept longer than the turns."""
        rows = await self._read(
            "SELECT day, session_key, turns, prompt, cached, completion, cost FROM used"
            " WHERE day >= ? ORDER BY day, session_key",
            since.isoformat(),
        )
        return [DayUsage(*row) for row in rows]

    async def times_by_day(self, since: date) -> list[DayTimes]:
        """Return the durations of the stored answered turns by day, oldest first."""
        rows = await self._read(
            f"""
            WITH took AS (
                SELECT substr(started_at, 1, 10) AS day, {self._report_value("milliseconds")} AS ms
                FROM turn WHERE state = 'done' AND started_at >= ?
            ), ranked AS (
                SELECT day, ms, row_number() OVER (PARTITION BY day ORDER BY ms) AS place,
                    count(*) OVER (PARTITION BY day) AS turns
                FROM took WHERE ms > 0
            )
            SELECT day, turns, max(CASE WHEN place = (turns * 50 + 99) / 100 THEN ms ELSE 0 END),
                max(CASE WHEN place = (turns * 95 + 99) / 100 THEN ms ELSE 0 END)
            FROM ranked GROUP BY day, turns ORDER BY day
            """,
            since.isoformat(),
        )
        return [DayTimes(*row) for row in rows]

    async def find_mentions(self, name: re.Pattern[str]) -> frozenset[str]:
        """Return matches of `name` in unanswered messages, running turns, unsent replies, and lines
        that may not be in their file."""
        rows = await self._read(
            f"SELECT payload FROM inbox WHERE {OPEN_MESSAGES}"
            " UNION ALL SELECT payload FROM step UNION ALL SELECT lines FROM unfiled"
            f" UNION ALL SELECT payload FROM outbox WHERE {OPEN_PARTS}"
        )
        return frozenset(found for (payload,) in rows for found in name.findall(payload or ""))

    async def turn_counts(self, since: datetime) -> TurnCounts:
        """Count the ended turns that began at `since` (aware) or later."""
        # Without GROUP BY, for which SQLite would sort all stored turns.
        states = (f"count(*) FILTER (WHERE state = '{s}')" for s in ("done", "failed", "stopped"))
        query = f"SELECT {', '.join(states)} FROM turn WHERE {self.BEGAN_SINCE}"
        return TurnCounts(*(await self._read(query, since.isoformat()))[0])

    def add_learning_usage(self, day: date, used: UsageTotals) -> None:
        """Add calls of memory to a day. Posted."""
        self._post(
            f"INSERT INTO used VALUES (?, ?, ?, ?, ?, ?, ?) {ADD_USAGE}",
            *(day.isoformat(), LEARNING, used.turns),
            *(used.prompt, used.cached, used.completion, used.cost),
            can_wait=True,
        )

    async def day_tokens(self, day: date, use: str = "") -> Spent:
        """Return the tokens of a day's model calls, for one `use` or all. Raise `StorageError`."""
        query = "SELECT CAST(coalesce(sum(tokens), 0) AS bigint), count(*) FILTER (WHERE warned)"
        rows = await self._read(f"{query} FROM spending WHERE day = ?", spending_key(day, use))
        tokens, warned = rows[0]
        return Spent(tokens, warned > 0)
