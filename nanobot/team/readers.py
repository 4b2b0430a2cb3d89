"""A few connections that only read, each statement by itself."""

from __future__ import annotations

import asyncio

from nanobot.errors import StorageError
from nanobot.team.connection import PLANNING, Connection, DatabaseAddress, Row, execute

_MOST = 4


class Readers:
    """Up to `_MOST` connections, made when they are needed and kept. (The pool of psycopg waits
    ever longer before it connects again, also when the database is there again.)"""

    def __init__(self, address: DatabaseAddress) -> None:
        self._address = address
        self._idle: list[Connection] = []
        self._turns = asyncio.Semaphore(_MOST)

    async def fetch(self, statement: str, *values: object) -> list[Row]:
        """The rows of a query. Raises `StorageError`."""
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
        """Let go of them."""
        while self._idle:
            await self._idle.pop().close()
