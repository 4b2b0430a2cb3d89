"""Shared helpers of the tests of a team's database: a worker's row, and queries without nanobot."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import psycopg

from nanobot.team.postgres import Database


def sql(dsn: str, statement: str, *values: object) -> list[tuple[Any, ...]]:
    """Return the rows of a statement on a separate connection."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        cursor = connection.execute(statement.encode(), values or None)
        return cursor.fetchall() if cursor.description else []


def enlist(dsn: str) -> int:
    """Return the id of a new worker."""
    row = "INSERT INTO worker (name, version, until) VALUES ('w', '1', now() + '6 s') RETURNING id"
    worker: int = sql(dsn, row)[0][0]
    return worker


@contextlib.asynccontextmanager
async def open_database(
    dsn: str, worker: int | None, fenced: Callable[[], None] = lambda: None
) -> AsyncIterator[Database]:
    """Open a database, of a worker or without one, and close it at the end."""
    database = Database(dsn, fenced)
    await database.open()
    database.worker = worker
    try:
        yield database
    finally:
        await database.close()
