"""How workers wake each other: PostgreSQL's NOTIFY, on a connection of its own.

A notification says what has changed, and never carries it: one that is lost only means that the
next look, which each worker takes every moment anyway, finds it later. (Except an answer to a
question, a `/stop`, and what was erased, which is kept nowhere.) They are gathered for a few
milliseconds and sent together, since PostgreSQL lets no two transactions that notify commit at
once. What is too long for one payload is cut: pieces of one transaction come one after the other,
and begin with how many are still to come.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import psycopg
from loguru import logger

from nanobot.errors import StorageError
from nanobot.tasks import Background
from nanobot.team.connection import Connection, DatabaseAddress

_GATHER_SECONDS = 0.003
_MOST_BYTES = 7_000
"""PostgreSQL takes payloads of less than 8,000 bytes."""
_AGAIN_SECONDS = 1.0

Heard = Callable[[str, str], None]
"""Is given the kind of a notification, and the name that it is about."""


class Waking:
    """Tells all workers of the database at `address` of something, this one excepted."""

    def __init__(self, address: DatabaseAddress, heard: Heard) -> None:
        self._address, self._heard = address, heard
        self._background = Background()
        self.channel = "nanobot"
        """Has the team's secret word, which other roles of the server cannot read."""
        self._gathered: set[tuple[str, str]] = set()
        self._begun = ""
        self._sender: Connection | None = None
        self._sender_pid = 0
        self._sending = asyncio.Lock()

    def start(self) -> None:
        self._background.start(self._listen_forever(), name="listen for other workers")

    def tell(self, kind: str, name: str = "") -> None:
        """Say that something of this kind happened. Best effort."""
        if not self._gathered:
            self._background.start(self._send(), name="tell other workers")
        self._gathered.add((kind, name))

    async def close(self) -> None:
        """Send what was gathered, and stop listening."""
        await self._background.drain(0.2)
        if self._sender is not None:
            await self._sender.close()

    async def _send(self) -> None:
        await asyncio.sleep(_GATHER_SECONDS)
        async with self._sending:
            told, self._gathered = self._gathered, set()
            for _ in range(2):  # the connection may be one from before a restart
                try:
                    if self._sender is None or self._sender.closed:
                        self._sender = await self._address.connect()
                        asked = await self._sender.execute("SELECT pg_backend_pid()")
                        # Of a pooler, the connection itself knows another number.
                        (self._sender_pid,) = await asked.fetchone() or (0,)
                    query = "SELECT pg_notify(%s, piece) FROM unnest(%s::text[]) AS piece"
                    await self._sender.execute(query, (self.channel, _payloads(sorted(told))))
                except (psycopg.Error, StorageError) as error:
                    said = self._address.error(error)
                    logger.debug("other workers were not told: {}", said)
                    if self._sender is not None:
                        await self._sender.close()
                    self._sender = None
                else:
                    return

    async def _listen_forever(self) -> None:
        while True:
            try:
                connection = await self._address.connect()
                async with connection:
                    await connection.execute(f'LISTEN "{self.channel}"')
                    self._begun = ""
                    self._heard("gone", "")  # what was said before was not heard
                    async for one in connection.notifies():
                        if one.pid != self._sender_pid:
                            self._hear(one.payload)
            except (psycopg.Error, StorageError) as error:
                said = self._address.error(error)
                logger.debug("not listening for other workers: {}", said)
            await asyncio.sleep(_AGAIN_SECONDS)

    def _hear(self, payload: str) -> None:
        if not payload.startswith("["):
            left, _, piece = payload.partition(" ")
            self._begun += piece
            if left != "0":
                return
            payload, self._begun = self._begun, ""
        try:
            for kind, name in json.loads(payload):
                self._heard(kind, name)
        except Exception as error:  # noqa: BLE001 - the boundary: whoever may connect can notify
            logger.warning("a notification cannot be read: {}", error)


def _payloads(told: list[tuple[str, str]]) -> list[str]:
    """What is told, in pieces that PostgreSQL takes."""
    text = json.dumps(told)
    pieces = [text[at : at + _MOST_BYTES] for at in range(0, len(text), _MOST_BYTES)]
    if len(pieces) == 1:
        return pieces
    return [f"{len(pieces) - number} {piece}" for number, piece in enumerate(pieces, 1)]
