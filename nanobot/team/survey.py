"""What a person sees of a team: its workers, who has what, and what waits. Asked of the database
alone, so that any machine can, whether a worker runs there or not."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import psycopg

from nanobot.bus.rows import OPEN_MESSAGES, OPEN_PARTS
from nanobot.team import schema
from nanobot.team.connection import DatabaseAddress, Row
from nanobot.team.leases import SINGLE
from nanobot.team.membership import TTL

_WORKERS = f"""
    SELECT id, name, version, started_at AS since,
        until > clock_timestamp() AS alive,
        extract(epoch FROM clock_timestamp() - until)::float + %s AS seen_seconds,
        (SELECT count(*) FROM lease WHERE worker = worker.id
            AND NOT starts_with(scope, '{SINGLE}')) AS scopes,
        ARRAY(SELECT substr(scope, {len(SINGLE) + 1}) FROM lease WHERE worker = worker.id
            AND starts_with(scope, '{SINGLE}') ORDER BY 1) AS single
    FROM worker ORDER BY id
"""
_QUEUES = f"""
    SELECT scope, lease.worker, sum(waiting)::int AS waiting, sum(working)::int AS working,
        sum(failed)::int AS failed, sum(sending)::int AS sending, sum(dead)::int AS undeliverable
    FROM (
        SELECT scope, (state = 'received')::int AS waiting, (state = 'working')::int AS working,
            (state = 'failed')::int AS failed, 0 AS sending, 0 AS dead
        FROM inbox WHERE {OPEN_MESSAGES}
        UNION ALL SELECT scope, 0, 0, 0, (state != 'dead')::int, (state = 'dead')::int
        FROM outbox WHERE {OPEN_PARTS}
    ) AS row LEFT JOIN lease USING (scope) GROUP BY 1, 2 ORDER BY 1
"""


def survey(address: DatabaseAddress) -> dict[str, Any]:
    """`schema_version`, `workers` and `queues`. Blocks. Raises `StorageError`."""
    with address.errors(), address.connect_blocking() as db, db.transaction():
        db.execute("SET TRANSACTION READ ONLY")
        if not schema.has_tables(db):
            return {"schema_version": 0, "workers": [], "queues": []}
        version = db.execute("SELECT version FROM schema_version").fetchone()
        return {
            "schema_version": version[0] if version else 0,
            "workers": _rows(db, _WORKERS, TTL),
            "queues": _rows(db, _QUEUES),
        }


def clock_ahead(address: DatabaseAddress, now: Callable[[], float]) -> float:
    """By how many seconds the clock `now` is ahead of the database's. Blocks. Raises
    `StorageError`."""
    with address.errors(), address.connect_blocking() as db:
        before = now()
        row = db.execute("SELECT extract(epoch FROM clock_timestamp())::float").fetchone()
        return (before + now()) / 2 - (row[0] if row else 0.0)


def documents(address: DatabaseAddress) -> dict[str, bytes]:
    """The documents that the workers share, by name. Blocks. Raises `StorageError`."""
    with address.errors(), address.connect_blocking() as db:
        found = db.execute("SELECT name, content FROM document")
        return {name: text.encode() for name, text in found}


def _rows(db: psycopg.Connection[Row], query: str, *values: object) -> list[dict[str, Any]]:
    cursor = db.execute(query.encode(), values or None)
    names = [column.name for column in cursor.description or ()]
    return [dict(zip(names, map(_plain, row), strict=True)) for row in cursor]


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="seconds")
    return value
