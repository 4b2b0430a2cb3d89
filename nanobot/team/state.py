"""The documents of a home in a team's database, which all workers share.

A document that is set aside stays in the table under another name.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

import psycopg
from loguru import logger

from nanobot.bus.state import Stored
from nanobot.errors import WriteConflict
from nanobot.team import schema
from nanobot.team.connection import DatabaseAddress, Row, storable

T = TypeVar("T")

_ANSWER_SECONDS = 5
"""Timeout of a statement."""


class PostgresState:
    """The documents in the database at `address`, which connects on first use. Any thread may call.
    Calls run one at a time. Implements `nanobot.bus.state.StateStore`."""

    def __init__(self, address: DatabaseAddress) -> None:
        self._address = address
        self._connection: psycopg.Connection[Row] | None = None
        self._is_prepared = False
        self._using = threading.RLock()

    def close(self) -> None:
        """Close the connection. The next use reconnects."""
        with self._using:
            if self._connection is not None:
                with suppress(psycopg.Error):
                    self._connection.close()
                self._connection = None

    def read(self, name: str) -> Stored | None:
        return self._run(lambda db: _read_document(db, name))

    def write(self, name: str, content: bytes, expected: int) -> int:
        text = storable(content.decode())
        if not self._run(lambda db: _replace(db, name, text, expected)):
            raise WriteConflict(f"the stored document {name!r}")
        return expected + 1

    def set_aside(self, name: str) -> str:
        aside = self._run(lambda db: _rename(db, name))
        if not aside:
            return "nothing"
        return f"{aside} (SELECT content FROM document WHERE name = '{aside}' shows it)"

    def _run(self, work: Callable[[psycopg.Connection[Row]], T]) -> T:
        """Run `work` on the connection. If that is lost, run `work` once more on a new one, so
        `work` must detect that it has already run. Raises `StorageError`."""
        with self._using, self._address.errors():
            try:
                return work(self._connect())
            except psycopg.OperationalError as error:
                logger.debug("documents: retry after {}", self._address.error(error))
            self.close()
            try:
                return work(self._connect())
            except psycopg.Error:
                self.close()
                raise

    def _connect(self) -> psycopg.Connection[Row]:
        if not self._is_prepared:
            schema.prepare(self._address)
            self._is_prepared = True
        if self._connection is None or self._connection.closed:
            self._connection = self._address.connect_blocking()
            self._connection.execute(f"SET statement_timeout = '{_ANSWER_SECONDS}s'".encode())
        return self._connection


def _read_document(db: psycopg.Connection[Row], name: str) -> Stored | None:
    query = "SELECT content, revision FROM document WHERE name = %s"
    row = db.execute(query, (name,)).fetchone()
    return Stored(row[0].encode(), row[1]) if row else None


def _replace(db: psycopg.Connection[Row], name: str, text: str, expected: int) -> bool:
    """Replace a document at revision `expected`. Return True if it has the new text and revision
    now, also by an earlier attempt."""
    if expected == 0:
        put = "INSERT INTO document VALUES (%s, %s, 1) ON CONFLICT DO NOTHING"
        done = db.execute(put, (name, text)).rowcount
    else:
        put = "UPDATE document SET content = %s, revision = %s WHERE (name, revision) = (%s, %s)"
        done = db.execute(put, (text, expected + 1, name, expected)).rowcount
    return bool(done) or _read_document(db, name) == Stored(text.encode(), expected + 1)


def _rename(db: psycopg.Connection[Row], name: str) -> str:
    """Rename the document to a free name. Return that, or an empty string if there is no
    document."""
    aside = f"{name}.json.broken-"
    rows = db.execute(
        "UPDATE document SET name = %s || 1 + (SELECT coalesce(max(substr(name, %s)::int), 0)"
        " FROM document WHERE starts_with(name, %s)) WHERE name = %s RETURNING name",
        (aside, len(aside) + 1, aside, name),
    ).fetchall()
    return rows[0][0] if rows else ""
