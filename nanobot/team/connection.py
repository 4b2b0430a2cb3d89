"""The connection to a team's database: its address, the guarantees that the server must give, error
texts, and how a statement runs.

No error here holds the password of its address."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import quote

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from nanobot.errors import StorageError

Row = tuple[Any, ...]
Connection = psycopg.AsyncConnection[Row]

OLDEST = 140_000
"""The oldest `server_version_num` that is supported."""

logging.getLogger("psycopg").setLevel(logging.ERROR)  # callers report failures

_POOLER_SECONDS = 3.0
_POOLER = (
    "Set pool_mode = session in PgBouncer, with a pool of 9 connections per worker, or put "
    "PostgreSQL's own address into team.database."
)

_FILLER = re.compile(
    r"^(connection is bad|connection failed): | Is the server running [^?]*\?"
    r"| This probably means [^.]*\."
)
"""Phrases of psycopg and libpq that add nothing."""

_DEFAULTS: dict[str, str | int | None] = {
    "application_name": "nanobot",
    "client_encoding": "UTF8",
    "connect_timeout": 4,
    # Of several hosts, use the writable one, which changes at a failover.
    "target_session_attrs": "read-write",
    # Notice a lost machine within seconds.
    "keepalives_idle": 4,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}

_IDLE_SECONDS = 2
"""Seconds until the server ends a transaction whose process stops between two statements."""

_ASK = f"""
    SELECT current_setting('server_version_num')::int, current_setting('fsync'),
        current_setting('synchronous_commit'), current_setting('server_encoding'),
        left(pg_walfile_name(pg_current_wal_lsn()), 8), pg_backend_pid(),
        set_config('idle_in_transaction_session_timeout', '{_IDLE_SECONDS}s', false)
"""

PLANNING = """
    SELECT set_config('enable_seqscan', 'off', false), set_config('jit', 'off', false),
        set_config('plan_cache_mode', 'force_generic_plan', false)
"""
"""The journal's statements find their rows by an index and are planned once. A plan made while a
table was empty would keep reading all of it."""

END_SESSIONS = """
    SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
    WHERE application_name = %s AND datname = current_database() AND usename = current_user
    AND pid != pg_backend_pid()
    AND wait_event IS DISTINCT FROM 'SyncRep'
"""
"""Ends a worker's sessions, by its `session_name`, and waits for that. The server does not notice a
stopped process, nor for hours a machine that is gone, and keeps their transactions and locks. A
commit that waits for a standby is not ended, because it can't be undone."""

END_SESSIONS_OF_THE_DEAD = """
    SELECT pg_terminate_backend(pid, 1000) FROM worker
    JOIN pg_stat_activity ON application_name = 'nanobot worker ' || worker.id
    WHERE worker.until < clock_timestamp() AND datname = current_database()
    AND usename = current_user AND pid != pg_backend_pid() AND wait_event IS DISTINCT FROM 'SyncRep'
"""
"""Ends the sessions of all workers that did not renew. A worker that was stopped in a transaction
would otherwise keep its row locked and could not be fenced."""


def session_name(worker: int | None) -> str:
    """Return the name of the connection on which a worker writes."""
    return "nanobot" if worker is None else f"nanobot worker {worker}"


@contextmanager
def limit_wait(connection: psycopg.Connection[Row], seconds: float) -> Iterator[None]:
    """Close the connection if the server takes longer inside, so the statement fails. A server that
    is stopped or waits for a standby reports nothing by itself."""
    timer = threading.Timer(seconds, _hang_up, [connection])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _hang_up(connection: psycopg.Connection[Row]) -> None:
    with (
        suppress(OSError, psycopg.Error),
        socket.socket(fileno=os.dup(connection.fileno())) as link,
    ):
        link.shutdown(socket.SHUT_RDWR)


class DatabaseAddress:
    """The address in `team.database`. Once `timeline` is known, servers with another one are
    rejected: after a failover, one of the two is behind. Raises `StorageError` if the address is
    invalid."""

    def __init__(self, dsn: str) -> None:
        try:
            given = conninfo_to_dict(dsn)
        except psycopg.Error:
            raise StorageError(
                "team.database",
                "it is not the URL of a PostgreSQL database",
                hint=(
                    "Write postgresql://USER:PASSWORD@HOST:5432/DATABASE. In the password, "
                    "replace @ with %40 and / with %2F."
                ),
            ) from None
        self.conninfo = make_conninfo("", **{**_DEFAULTS, **given})
        host = given.get("host") or given.get("hostaddr") or "this machine"
        self.place = f"the database {given.get('dbname') or ''} on {host}".replace("  ", " ")
        self._password = str(given.get("password") or "")
        self._has_sessions = False
        self.timeline = ""

    def error(self, error: Exception) -> StorageError:
        """Return an error of psycopg or the network as a `StorageError`."""
        if isinstance(error, StorageError):
            return error
        said = _FILLER.sub("", self.redact(str(error)))
        return StorageError(self.place, said or type(error).__name__, hint=_hint(error))

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Turn an error of psycopg inside into a `StorageError`."""
        try:
            yield
        except psycopg.Error as error:
            raise self.error(error) from error

    def redact(self, text: str) -> str:
        """Return `text` on one line, without the password."""
        line = " ".join(text.split())
        for secret in (self._password, quote(self._password, safe="")):
            # An address may contain the password quoted.
            line = line.replace(secret, "***") if secret else line
        return line

    async def connect(self) -> Connection:
        """Return a new connection in autocommit for writing. Raises `StorageError`, also if the
        server lacks a required guarantee."""
        with self.errors():
            connection = await Connection.connect(self.conninfo, autocommit=True)
            try:
                self._check(await (await connection.execute(_ASK)).fetchone())
            except BaseException:
                await connection.close()
                raise
        return connection

    def connect_blocking(self) -> psycopg.Connection[Row]:
        """Do the same as `connect` in a thread."""
        with self.errors():
            connection = psycopg.connect(self.conninfo, autocommit=True)
            try:
                row = connection.execute(_ASK).fetchone()
                self._check(row)
                if row and row[5] != connection.info.backend_pid:  # poolers invent one
                    self._expect_sessions(connection)
            except BaseException:
                connection.close()
                raise
        return connection

    def _expect_sessions(self, one: psycopg.Connection[Row]) -> None:
        """Raise `StorageError` if a pooler lends the server connection to others after each
        transaction: they would get its settings, locks and LISTEN. To find out, `one` and a second
        connection take turns, and each must keep its server process."""
        if self._has_sessions:
            return
        cause: psycopg.Error | None = None
        try:
            with (
                psycopg.connect(self.conninfo, autocommit=True) as two,
                limit_wait(one, _POOLER_SECONDS),
                limit_wait(two, _POOLER_SECONDS),
            ):
                self._has_sessions = _keep_their_processes(one, two)
        except psycopg.Error as error:  # too few connections, or no transactions
            cause = error
        if not self._has_sessions:
            reason = "the connection pooler does not keep one server connection per session"
            raise StorageError(self.place, reason, hint=_POOLER) from cause

    def _check(self, row: Row | None) -> None:
        version, fsync, commit, encoding, timeline = row[:5] if row else (0, "", "", "", "")
        reason = hint = ""
        if version < OLDEST:
            reason = f"it is PostgreSQL {version // 10_000}, and nanobot requires 14 or newer"
            hint = "Move the database to a newer server with pg_dump and pg_restore."
        elif fsync == "off":
            reason = "fsync is off, so a power failure would lose stored data"
            hint = "ALTER SYSTEM SET fsync = on; then SELECT pg_reload_conf();"
        elif commit in ("off", "local"):
            reason = f"synchronous_commit is {commit} for nanobot's role, so a crash or failover"
            reason += " would lose stored data"
            hint = "ALTER ROLE CURRENT_USER SET synchronous_commit = on;"
        elif encoding != "UTF8":
            reason = f"its encoding is {encoding}, and nanobot requires UTF-8"
            hint = "CREATE DATABASE nanobot ENCODING 'UTF8' TEMPLATE template0;"
        elif self.timeline not in ("", timeline):
            reason = "a failover has replaced the server since this worker started"
            hint = "Make sure that the old server can't come back."
        if reason:
            raise StorageError(self.place, reason, hint=hint)


def _keep_their_processes(one: psycopg.Connection[Row], two: psycopg.Connection[Row]) -> bool:
    """Return True if each connection has one separate server process."""
    seen: dict[int, set[int]] = {0: set(), 1: set()}

    def ask(which: int) -> None:
        row = (one, two)[which].execute("SELECT pg_backend_pid()", prepare=False).fetchone()
        seen[which].add(row[0] if row else 0)

    for which, db in ((0, two), (1, one), (0, two), (1, one)):
        ask(which)
        with db.transaction():  # so a pooler can't lend the connection
            ask(1 - which)
            ask(which)
    return len(seen[0]) == len(seen[1]) == 1 and seen[0] != seen[1]


def storable(text: str) -> str:
    """Return `text` as PostgreSQL takes it: UTF-8 without lone surrogates and NUL."""
    if "\0" in text:
        text = text.replace("\0", "\\x00")
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")


async def execute(db: Connection, statement: str, *values: object) -> psycopg.AsyncCursor[Row]:
    """Run a statement with these values, after making texts `storable`. In a pipeline, it returns
    before its rows arrive."""
    plain = [storable(value) if isinstance(value, str) else value for value in values]
    return await db.execute(statement.encode(), plain or None)


_HINTS = {
    "53100": "Free some space on the database's disk. Stored data is safe.",
    "53300": "Increase max_connections in PostgreSQL. Each worker uses up to 9.",
    "42501": "nanobot's role must own its database: ALTER DATABASE … OWNER TO …;",
}
"""Fixes by the error's `sqlstate`."""


def _hint(error: Exception) -> str:
    state = getattr(error, "sqlstate", None) or ""
    if state in _HINTS:
        return _HINTS[state]
    # Errors from before the session starts have no code.
    refused = ("password", "authentication failed", "does not exist", "pg_hba", "not permitted")
    if not state and any(words in str(error) for words in refused):
        return "Check the user, password, and database in team.database."
    if not state and "too many" in str(error):
        return _HINTS["53300"]
    return (
        "Check that PostgreSQL is running and reachable from this machine. Running workers "
        "resume automatically when it responds."
    )


_MOST = 4


class Readers:
    """Up to `_MOST` connections for single read-only statements, made on demand and kept. (The pool
    of psycopg waits ever longer before it reconnects, even if the database is back.)"""

    def __init__(self, address: DatabaseAddress) -> None:
        self._address = address
        self._idle: list[Connection] = []
        self._turns = asyncio.Semaphore(_MOST)

    async def fetch(self, statement: str, *values: object) -> list[Row]:
        """Return the rows of a query. Raises `StorageError`."""
        async with self._turns:
            while True:
                is_new = not self._idle
                connection = await self._address.connect() if is_new else self._idle.pop()
                try:
                    with self._address.errors():
                        if is_new:
                            await connection.execute(PLANNING)
                            await connection.execute("SET default_transaction_read_only = on")
                        rows = await (await execute(connection, statement, *values)).fetchall()
                except BaseException as error:
                    went_stale = connection.closed and not is_new  # as after a restart
                    await connection.close()
                    if not (went_stale and isinstance(error, StorageError)):
                        raise
                else:
                    self._idle.append(connection)
                    return rows

    async def close(self) -> None:
        while self._idle:
            await self._idle.pop().close()
