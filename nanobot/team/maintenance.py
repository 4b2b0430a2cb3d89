"""Maintenance of a team's database: a survey for people, pruning, erasing.

All of it uses separate connections, so any machine can run it, with or without a worker."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg

from nanobot.bus.journal import KEEP_DAYS, Redact
from nanobot.bus.rows import (
    KEYS,
    OPEN_MESSAGES,
    OPEN_PARTS,
    TEXTS,
    WAITING_MESSAGES,
    WAITING_PARTS,
)
from nanobot.bus.sql_queries import USED_DAYS
from nanobot.team import schema
from nanobot.team.connection import DatabaseAddress, Row, storable
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
    """Return `schema_version`, `workers` and `queues`. Blocks. Raises `StorageError`."""
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
    """Return the seconds by which the clock `now` is ahead of the database's. Blocks. Raises
    `StorageError`."""
    with address.errors(), address.connect_blocking() as db:
        before = now()
        row = db.execute("SELECT extract(epoch FROM clock_timestamp())::float").fetchone()
        return (before + now()) / 2 - (row[0] if row else 0.0)


def documents(address: DatabaseAddress) -> dict[str, bytes]:
    """Return the documents that the workers share, by name. Blocks. Raises `StorageError`."""
    with address.errors(), address.connect_blocking() as db:
        found = db.execute("SELECT name, content FROM document")
        return {name: text.encode() for name, text in found}


def _rows(db: psycopg.Connection[Row], query: str, *values: object) -> list[dict[str, Any]]:
    cursor = db.execute(query.encode(), values or None)
    names = [column.name for column in cursor.description or ()]
    found = [dict(zip(names, row, strict=True)) for row in cursor]
    for row in found:
        if "since" in row:
            row["since"] = row["since"].astimezone(UTC).isoformat(timespec="seconds")
    return found


_AT_ONCE = 2_000
"""Rows that one transaction deletes."""

_ENDED = (
    ("inbox", f"NOT {WAITING_MESSAGES} AND received_at < %(horizon)s"),
    ("outbox", f"NOT {WAITING_PARTS} AND created_at < %(horizon)s"),
    ("turn", "state != 'running' AND started_at < %(horizon)s"),
    ("step", "NOT EXISTS (SELECT FROM turn WHERE id = turn_id AND state = 'running')"),
    ("button", "created_at < %(horizon)s"),
    ("prompt", "used_at < %(horizon)s"),
    ("used", "day < %(oldest)s"),
    ("rate", "minute < %(minute)s"),
)

_CONFIRMED = (
    "UPDATE outbox SET payload = NULL WHERE state = 'sent' AND payload IS NOT NULL"
    " AND created_at < %(day)s"
)
"""Drops the texts of parts that a platform could still have failed after accepting them, and
didn't."""


async def prune(address: DatabaseAddress, now: datetime) -> None:
    """Delete what ended more than `KEEP_DAYS` before `now`, a little at a time, so workers don't
    wait. Does nothing while another worker prunes. Raises `StorageError`."""
    horizon = (now - timedelta(days=KEEP_DAYS)).isoformat()
    oldest = (now.date() - timedelta(days=USED_DAYS)).isoformat()
    yesterday = int((now - timedelta(days=1)).timestamp()) // 60
    values = {"horizon": horizon, "oldest": oldest, "minute": yesterday}
    with address.errors():
        async with await address.connect() as connection:
            lock = "SELECT pg_try_advisory_lock(hashtext('nanobot prune'))"
            if await (await connection.execute(lock)).fetchone() == (False,):
                return
            for table, ended in _ENDED:
                rows = f"SELECT ctid FROM {table} WHERE {ended} LIMIT {_AT_ONCE}"
                delete = f"DELETE FROM {table} WHERE ctid = ANY(ARRAY({rows})) AND {ended}"
                deleted = _AT_ONCE
                while deleted == _AT_ONCE:
                    deleted = (await connection.execute(delete.encode(), values)).rowcount
            day = (now - timedelta(days=1)).isoformat()
            await connection.execute(_CONFIRMED.encode(), {"day": day})


def erase(address: DatabaseAddress, redact: Redact) -> int:
    """Pass every stored text of people and models through `redact` and return the number of
    changes.

    PostgreSQL keeps old versions of changed rows, so changed tables are rebuilt afterwards, which
    blocks writers. Until then their names are in `rebuild`, and the next `erase` continues.
    Write-ahead logs, standbys and backups are out of reach. Blocks. Raises `StorageError`."""
    with address.errors(), address.connect_blocking() as connection:
        connection.execute("SET idle_in_transaction_session_timeout = 0")
        changed = sum(_redact_column(connection, *place, redact) for place in TEXTS)
        for (table,) in connection.execute("SELECT name FROM rebuild").fetchall():
            connection.execute(f"VACUUM FULL {table}".encode())
            connection.execute("DELETE FROM rebuild WHERE name = %s", (table,))
        return changed


def _redact_column(
    connection: psycopg.Connection[Row], table: str, column: str, redact: Redact
) -> int:
    """Redact one column in a transaction. A text that changes at the same time is skipped."""
    keys = KEYS.get(table, "id")
    marks = ", ".join(["%s"] * len(keys.split(",")))
    also = ", revision = revision + 1" if table == "document" else ""
    change = f"UPDATE {table} SET {column} = %s{also} WHERE ({keys}) = ({marks}) AND {column} = %s"
    changed = 0
    with connection.transaction(), connection.cursor(name="texts") as texts:
        texts.execute(f"SELECT {column}, {keys} FROM {table} WHERE {column} != ''".encode())
        for text, *key in texts:
            new = storable(redact(text))
            if new != text:
                changed += connection.execute(change.encode(), (new, *key, text)).rowcount
        if changed:
            note = "INSERT INTO rebuild VALUES (%s) ON CONFLICT DO NOTHING"
            connection.execute(note, (table,))
    return changed
