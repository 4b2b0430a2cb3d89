"""What people look at in a team's journal: what waits, turns as a list, what they used by day."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from datetime import date, datetime
from typing import Any, Concatenate, ParamSpec, TypeVar

from nanobot.bus.journal import (
    NOTICE,
    DayTimes,
    DayUsage,
    QueueCounts,
    QueueRow,
    Spent,
    TurnCounts,
    TurnRecord,
    TurnRow,
)
from nanobot.bus.rows import (
    decode_report,
    shown_rows,
    spending_key,
    unknown_turn,
)
from nanobot.team.connection import Connection
from nanobot.team.postgres import Database
from nanobot.team.schema import (
    DEAD_PARTS,
    FAILED_MESSAGES,
    OPEN_MESSAGES,
    OPEN_PARTS,
    WAITING_MESSAGES,
    WAITING_PARTS,
)

P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S", bound="Looking")

IS_NOTICE = f"starts_with(turn_id, '{NOTICE}')"
_UNDELIVERED = f"{OPEN_PARTS} AND NOT (state = 'dead' AND {IS_NOTICE})"


class Looking:
    """The questions of people among the methods of `Journal`."""

    def __init__(self, database: Database) -> None:
        self.database = database

    async def counts(self) -> QueueCounts:
        waits = "(state = 'received' OR not_before != 0)"
        rows = await self.database.read(
            f"SELECT count(*) FILTER (WHERE {waits}), count(*) FILTER (WHERE NOT {waits}),"
            f" (SELECT count(*) FROM inbox WHERE {FAILED_MESSAGES}),"
            f" (SELECT count(*) FROM outbox WHERE {WAITING_PARTS}),"
            f" (SELECT count(*) FROM outbox WHERE {DEAD_PARTS} AND NOT {IS_NOTICE}),"
            " count(*) FILTER (WHERE not_before > 0)"
            f" FROM inbox WHERE {WAITING_MESSAGES}"
        )
        received, working, failed, pending, dead, put_off = rows[0]
        return QueueCounts(received, working, failed, pending, dead, put_off)

    async def queue_rows(self) -> tuple[list[QueueRow], list[QueueRow]]:
        inbox = await self.database.read(
            "SELECT payload, 'in-' || id, session_key, CASE WHEN state != 'failed'"
            " AND not_before != 0 THEN 'waiting' ELSE state END, attempts, received_at, reason"
            f" FROM inbox WHERE {OPEN_MESSAGES} ORDER BY id"
        )
        outbox = await self.database.read(
            "SELECT payload, 'out-' || id, channel || ':' || chat_id, state, attempts, created_at,"
            f" reason FROM outbox WHERE {_UNDELIVERED} ORDER BY id"
        )
        return shown_rows(inbox), shown_rows(outbox)

    async def turn_record(self, turn_id: str) -> TurnRecord:
        query = "SELECT id, session_key, state, started_at, report FROM turn WHERE id = %s"
        rows = await self.database.read(query, turn_id)
        if not rows:
            raise unknown_turn(turn_id)
        report = decode_report(rows[0][4])
        query = "SELECT text FROM prompt WHERE id = %s"
        prompt = await self.database.read(query, str(report.get("system_id", "")))
        key, place, state, began, _ = rows[0]
        return TurnRecord(key, place, state, began, report, prompt[0][0] if prompt else "")

    async def turns(
        self, *, session: str = "", state: str = "", before: str = "", limit: int = 50
    ) -> list[TurnRow]:
        wanted, values = ["true"], list[object]()
        for condition, value in (
            ("session_key = %s", session),
            ("state = %s", state),
            ("number < (SELECT number FROM turn WHERE id = %s)", before),
        ):
            if value:
                wanted.append(condition)
                values.append(value)
        rows = await self.database.read(
            "SELECT id, session_key, state, started_at, model, coalesce(milliseconds, 0),"
            " coalesce(prompt, 0), coalesce(cached, 0), coalesce(completion, 0), cost FROM turn"
            f" WHERE {' AND '.join(wanted)} ORDER BY number DESC LIMIT %s",
            *(*values, limit),
        )
        return [TurnRow(*row) for row in rows]

    async def used_by_day(self, since: date) -> list[DayUsage]:
        rows = await self.database.read(
            "SELECT day, session_key, turns, prompt, cached, completion, cost FROM used"
            " WHERE day >= %s ORDER BY day, session_key",
            since.isoformat(),
        )
        return [DayUsage(*row) for row in rows]

    async def times_by_day(self, since: date) -> list[DayTimes]:
        rank = "percentile_disc(ARRAY[0.5, 0.95]) WITHIN GROUP (ORDER BY milliseconds)"
        rows = await self.database.read(
            f"SELECT left(started_at, 10) AS day, count(*), {rank} FROM turn"
            " WHERE state = 'done' AND milliseconds > 0 AND started_at >= %s"
            " GROUP BY 1 ORDER BY 1",
            since.isoformat(),
        )
        return [DayTimes(day, turns, *ranks) for day, turns, ranks in rows]

    async def turn_counts(self, since: datetime) -> TurnCounts:
        states = (f"count(*) FILTER (WHERE state = '{s}')" for s in ("done", "failed", "stopped"))
        query = f"SELECT {', '.join(states)} FROM turn WHERE started_at::timestamptz >= %s"
        return TurnCounts(*(await self.database.read(query, since))[0])

    async def day_tokens(self, day: date, use: str = "") -> Spent:
        rows = await self.database.read(
            "SELECT coalesce(sum(tokens), 0)::bigint, coalesce(bool_or(warned), false)"
            " FROM spending WHERE day = %s",
            spending_key(day, use),
        )
        return Spent(*rows[0])


def transaction(
    work: Callable[Concatenate[S, Connection, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """Run a method as a transaction by the writer. It returns once that is durable."""

    async def method(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.database.run(lambda db: work(self, db, *args, **kwargs))

    return method
