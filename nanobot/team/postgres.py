"""PostgreSQL behind one writer task, which shares commits between concurrent callers.

Each job is a coroutine function of the connection. A transaction's jobs are first sent in a
pipeline. If that fails, they run again with a savepoint before each.

A worker's transaction begins by locking its row and storing a number in its row of `stamp`:

- If the row is gone, this worker was fenced, others may have its leases, and it stores nothing
  more.
- If the connection is lost before a commit is answered, the number shows after the reconnect
  whether it was stored. The lost transaction is ended first, or waited for. Then the results count,
  or the jobs run again, unnoticed by their callers.

While the database is unreachable, jobs to keep are pending and run first after the reconnect. All
others fail at once."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from typing import TypeVar

import psycopg
from loguru import logger
from msgspec import Struct

from nanobot.bus.sql import BATCH, Job, WriteQueue, resolve, take_outcomes
from nanobot.errors import StorageError
from nanobot.tasks import Background
from nanobot.team import schema
from nanobot.team.connection import (
    END_SESSIONS,
    PLANNING,
    Connection,
    DatabaseAddress,
    Readers,
    Row,
    session_name,
)

T = TypeVar("T")
Work = Callable[[Connection], Awaitable[T]]

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 1.0
"""Seconds between attempts from the third one. The second follows at once."""

_LONG_SECONDS = 0.5
"""A commit that takes longer may never end."""

_TRIES = 3


_OWN_FAULTS = (
    psycopg.IntegrityError,
    psycopg.DataError,
    psycopg.ProgrammingError,
    psycopg.NotSupportedError,
)
"""Errors that blame a statement. All others of psycopg blame the server or the network."""

_COLLISIONS = (psycopg.errors.DeadlockDetected, psycopg.errors.SerializationFailure)
"""Conflicts with another worker, which are over once reported."""

_STAMP = """
    INSERT INTO stamp SELECT id, %s FROM worker WHERE id = %s FOR KEY SHARE
    ON CONFLICT (worker) DO UPDATE SET number = excluded.number RETURNING number
"""


class _Fenced(Exception):
    """The row of this worker is gone."""


class _Doubt(Struct, frozen=True):
    """A commit that was sent and not answered."""

    number: int
    jobs: list[Job]


class Database(WriteQueue):
    """The database at `dsn` while it is open.

    `fenced` is called, at most once, when this process must not continue as `worker`, because
    others took over. `worker` is None until the process has a row. Until then it can't be
    fenced."""

    def __init__(self, dsn: str, fenced: Callable[[], None]) -> None:
        self.address = DatabaseAddress(dsn)
        super().__init__(self.address.place)
        self.worker: int | None = None
        self._on_fenced, self._is_fenced = fenced, False
        self._kept: list[Job] = []
        self._wake = asyncio.Event()
        self._background = Background()
        self._writer: asyncio.Task[None] | None = None
        self._is_closing = False
        self._writing_since: float | None = None
        self._connection: Connection | None = None
        self._named: int | None = None
        self._refused: StorageError | None = None
        self._pause, self._try_at = 0.0, 0.0
        self._numbers = count(1)
        self._doubt: _Doubt | None = None
        self._readers = Readers(self.address)

    async def open(self) -> None:
        """Make the tables if needed and start the writer. Raises `StorageError`."""
        await asyncio.to_thread(schema.prepare, self.address)
        try:
            await self._connect()
        except psycopg.Error as error:
            await self._disconnect()
            raise self.address.error(error) from error
        self._is_closing = False
        self._writer = self._background.start(self._write(), name="journal")

    @property
    def is_open(self) -> bool:
        return self._writer is not None

    @property
    def has_died(self) -> bool:
        return self._is_fenced or (self._writer is not None and self._writer.done())

    @property
    def is_behind(self) -> bool:
        """True if the database has not answered for a while, or rejected the last write."""
        since = self._writing_since
        hangs = since is not None and asyncio.get_running_loop().time() - since > _LONG_SECONDS
        return hangs or bool(self.refusal)

    async def close(self) -> None:
        writer, self._writer = self._writer, None
        if writer is None:
            return
        self._is_closing = True
        self._wake.set()
        await asyncio.wait([writer])
        await self._readers.close()
        await self._disconnect()

    async def flush(self) -> None:
        """Return once everything queued before has been stored. Raises `StorageError`."""
        if self._gathered or self._kept or self._doubt or self._writing_since is not None:
            await self.run(None)

    async def read(self, statement: str, *values: object, after_writes: bool = True) -> list[Row]:
        """Return the rows of a query, on a read-only connection. With `after_writes` it sees all
        jobs queued here before. Raises `StorageError`."""
        if after_writes:
            await self.flush()
        if self._writer is None:
            raise self._not_open()
        self._expect_answers()
        return await self._readers.fetch(statement, *values)

    def _wake_writer(self) -> None:
        self._wake.set()

    async def _write(self) -> None:
        loop = asyncio.get_running_loop()
        while not (self._is_closing and not self._gathered):
            jobs = await self._next_jobs()
            self._writing_since = loop.time()
            self._kept = await self._store(jobs)
            self._writing_since = None
        if self._kept or self._doubt:
            self._kept = await self._store(self._kept)
        error = StorageError(self.address.place, "it was closed before everything was stored")
        resolve(take_outcomes((*(self._doubt.jobs if self._doubt else ()), *self._kept), error))

    async def _next_jobs(self) -> list[Job]:
        """Wait for jobs, or until it is time to retry rejected ones."""
        waits = self._kept or self._doubt or self.refusal
        now = asyncio.get_running_loop().time()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(max(self._try_at, now) if waits else None):
                await self._wake.wait()
        jobs, self._gathered = self._kept + self._gathered[:BATCH], self._gathered[BATCH:]
        if not self._gathered:
            self._wake.clear()
        if self.refusal and not (jobs or self._is_closing):
            jobs = [Job(only_stamp, retry=False)]  # test whether it accepts writes again
        return jobs

    async def _store(self, jobs: list[Job]) -> list[Job]:
        """Run jobs in one transaction and report their results. Return the rejected ones to
        retry."""
        try:
            if self._doubt or any(job.work for job in jobs):
                self._expect_answers()
                connection = await self._connect()
                jobs = await self._settle(connection) + jobs
                await self._transact(connection, [job for job in jobs if job.work])
                self.refusal, self._refused, self._pause = None, None, 0.0
        except _Fenced:
            return self._end(jobs)
        except (psycopg.Error, StorageError) as error:
            return await self._refuse(jobs, error)
        resolve(take_outcomes(jobs))
        return []

    async def _transact(self, connection: Connection, jobs: list[Job]) -> None:
        """Run jobs in one transaction. Raises `psycopg.Error` if the server rejects all of them:
        then nothing is stored, or `_doubt` is set."""
        for tries in range(1, _TRIES + 1) if jobs else ():
            try:
                return await self._attempt(connection, jobs, apart=tries > 1)
            except Exception as error:
                if _has_lost(connection, error):
                    raise psycopg.OperationalError(str(error)) from error
                self._doubt = None
                await connection.execute("ROLLBACK")
                # A pipeline does not show the faulty job.
                again = tries == 1 or isinstance(error, _COLLISIONS)
                if isinstance(error, _Fenced) or not again or tries == _TRIES:
                    raise
        return None

    async def _attempt(self, connection: Connection, jobs: list[Job], *, apart: bool) -> None:
        """Run one transaction with the worker's stamp. With `apart`, each job has a savepoint.
        Otherwise a pipeline keeps several statements in flight."""
        number = next(self._numbers)
        async with contextlib.nullcontext() if apart else connection.pipeline():
            await connection.execute("BEGIN")
            stamp = None
            if self.worker is not None:
                stamp = await connection.execute(_STAMP, (number, self.worker))
            for job in jobs:
                await _run(connection, job, apart=apart)
            if stamp is not None and await stamp.fetchone() is None:
                raise _Fenced
            self._doubt = _Doubt(number, jobs)
            ended = await connection.execute("COMMIT")
        if ended.statusmessage != "COMMIT":
            raise psycopg.InternalError("the transaction was rolled back")
        self._doubt = None

    async def _settle(self, connection: Connection) -> list[Job]:
        """Find out whether the doubtful commit was stored, and report it. Return the jobs to run
        again."""
        doubt = self._doubt
        if doubt is None:
            return []
        stored = False
        if self.worker is not None:
            async with connection.transaction():
                mine = "SELECT 1 FROM worker WHERE id = %s FOR UPDATE"
                if not await (await connection.execute(mine, (self.worker,))).fetchone():
                    raise _Fenced
                # A separate statement sees commits made while the first one waited.
                query = "SELECT 1 FROM stamp WHERE worker = %s AND number = %s"
                found = await connection.execute(query, (self.worker, doubt.number))
                stored = await found.fetchone() is not None
        self._doubt = None
        logger.info("journal: an unanswered commit was {}", "stored" if stored else "lost")
        if stored:
            resolve(take_outcomes(doubt.jobs))
            return []
        if self.worker is not None:
            return doubt.jobs
        error = StorageError(self.address.place, "it is unknown whether the data was stored")
        return _give_up(doubt.jobs, error)

    async def _connect(self) -> Connection:
        """Return the connection, named after the worker. If it is new, end the transactions of the
        one before. Raises `StorageError` and `psycopg.Error`."""
        if self._connection is None:
            self._connection = await self.address.connect()
            self._named = None
            await self._connection.execute(PLANNING)
        if self._named != self.worker:
            name = session_name(self.worker)
            rename = "SELECT set_config('application_name', %s, false)"
            await self._connection.execute(rename, (name,))
            await self._connection.execute(END_SESSIONS, (name,))
            self._named = self.worker
        return self._connection

    def _expect_answers(self) -> None:
        """Raise the last `StorageError` again until the next attempt is due."""
        if self._refused is not None and asyncio.get_running_loop().time() < self._try_at:
            raise self._refused.with_traceback(None)

    async def _refuse(self, jobs: list[Job], error: Exception) -> list[Job]:
        """Handle a rejection by the database. Return the jobs to run again."""
        refused = self.address.error(error)
        if refused is not self._refused:
            self._refused = refused
            self._try_at = asyncio.get_running_loop().time() + self._pause
            self._pause = min(max(2 * self._pause, _FIRST_PAUSE), _LONGEST_PAUSE)
            await self._disconnect()
            if self.refusal is None:  # health reports later reasons
                logger.error("journal: {} {}", refused, refused.hint)
            self.refusal = refused
        if self._doubt is not None:
            jobs = [job for job in jobs if job not in self._doubt.jobs]
        return _give_up(jobs, refused)

    async def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(psycopg.Error):
                await connection.close()

    def _end(self, jobs: list[Job]) -> list[Job]:
        """Fail all jobs, because this worker was fenced."""
        error = StorageError(
            self.address.place,
            "this worker was unreachable for too long, so other workers are taking over its work",
            hint="This worker is stopping. Start it again.",
        )
        resolve(take_outcomes((*(self._doubt.jobs if self._doubt else ()), *jobs), error))
        self._doubt = None
        self.refusal = error
        if not self._is_fenced:
            self._is_fenced = True
            self._on_fenced()
        return []


def _give_up(jobs: Sequence[Job], error: StorageError) -> list[Job]:
    """Fail the jobs that don't wait until they are stored. Return the jobs to run again."""
    resolve(take_outcomes((job for job in jobs if not job.until_stored), error))
    return [job for job in jobs if job.retry and job.work]


async def _run(connection: Connection, job: Job, *, apart: bool) -> None:
    """Run a job in the transaction. With `apart`, a failed job undoes only itself."""
    assert job.work is not None
    if not apart:
        job.result, job.error = await job.work(connection), None
        return
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
    """Do nothing: the transaction itself stamps its worker's row."""


def _has_lost(connection: Connection, error: Exception) -> bool:
    """Return True if the connection is unusable, so that a commit may have no answer."""
    fatal = isinstance(error, psycopg.Error) and error.diag.severity_nonlocalized in (
        "FATAL",
        "PANIC",
    )
    return fatal or connection.closed
