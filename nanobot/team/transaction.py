"""Pieces of work, and how they are run together in one transaction of a worker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import psycopg

from nanobot.bus.sql import Job
from nanobot.team.connection import Connection

T = TypeVar("T")
Work = Callable[[Connection], Awaitable[T]]

_OWN_FAULTS = (
    psycopg.IntegrityError,
    psycopg.DataError,
    psycopg.ProgrammingError,
    psycopg.NotSupportedError,
)
"""Errors that blame a statement. All others of psycopg blame the server or the way there."""

COLLISIONS = (psycopg.errors.DeadlockDetected, psycopg.errors.SerializationFailure)
"""Another worker was in the way, and is not any more."""

_STAMP = """
    INSERT INTO stamp SELECT id, %s FROM worker WHERE id = %s FOR KEY SHARE
    ON CONFLICT (worker) DO UPDATE SET number = excluded.number RETURNING number
"""


class Fenced(Exception):
    """The row of this worker is gone."""


async def run_all(
    connection: Connection, jobs: Sequence[Job], worker: int | None, number: int, *, apart: bool
) -> None:
    """Run them after `BEGIN`, with the worker's stamp; `apart`: each with a savepoint, so that it
    undoes only itself, else so that statements can be in flight together. Raises `Fenced`, and what
    spoils the transaction."""
    stamp = None
    if worker is not None:
        stamp = await connection.execute(_STAMP, (number, worker))
    for job in jobs:
        if apart:
            await _run_apart(connection, job)
        else:
            assert job.work is not None
            job.result, job.error = await job.work(connection), None
    if stamp is not None and await stamp.fetchone() is None:
        raise Fenced


async def _run_apart(connection: Connection, job: Job) -> None:
    """Run it so that it undoes only itself where it fails."""
    assert job.work is not None
    await connection.execute("SAVEPOINT job")
    try:
        job.result, job.error = await job.work(connection), None
    except Exception as error:
        if isinstance(error, psycopg.Error) and not isinstance(error, _OWN_FAULTS):
            raise
        job.error = error
        await connection.execute("ROLLBACK TO SAVEPOINT job")
    await connection.execute("RELEASE SAVEPOINT job")


async def only_stamp(db: Connection) -> None:
    """Do nothing but the transaction itself, which stamps its worker's row."""


def has_lost(connection: Connection, error: Exception) -> bool:
    """Whether the connection is no use any more, so that a commit may have no answer."""
    fatal = isinstance(error, psycopg.Error) and error.diag.severity_nonlocalized in (
        "FATAL",
        "PANIC",
    )
    return fatal or connection.closed
