"""How workers wake each other: PostgreSQL's NOTIFY, on a connection of its own.

A notification says what has changed, and never carries it: one that is lost only means that the
next look, which each worker takes every moment anyway, finds it later. Notifications are gathered
for a few milliseconds and sent together, since PostgreSQL lets no two transactions that notify
commit at once.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import psycopg
from loguru import logger

from nanobot.tasks import Background
from nanobot.team.connection import Connection, DatabaseAddress, storable

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
        self._sender: Connection | None = None

    def start(self) -> None:
        """Listen from now on."""
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
        told, self._gathered = self._gathered, set()
        try:
            if self._sender is None or self._sender.closed:
                self._sender = await self._connected()
            pieces = _payloads(sorted(told))
            query = "SELECT pg_notify(%s, piece) FROM unnest(%s::text[]) AS piece"
            await self._sender.execute(query, (self.channel, pieces))
        except psycopg.Error as error:
            logger.debug("other workers were not told: {}", error)
            if self._sender is not None:
                await self._sender.close()
            self._sender = None

    async def _listen_forever(self) -> None:
        while True:
            try:
                connection = await self._connected()
                async with connection:
                    await connection.execute(f'LISTEN "{self.channel}"')
                    self._heard("free", "")  # what was said while nobody listened
                    async for one in connection.notifies():
                        if self._sender is None or one.pid != self._sender.info.backend_pid:
                            self._hear(one.payload)
            except psycopg.Error as error:
                logger.debug("not listening for other workers: {}", error)
            await asyncio.sleep(_AGAIN_SECONDS)

    def _hear(self, payload: str) -> None:
        try:
            for kind, name in json.loads(payload):
                self._heard(kind, name)
        except Exception as error:  # noqa: BLE001 - the boundary: whoever may connect can notify
            logger.warning("a notification cannot be read: {}", error)

    async def _connected(self) -> Connection:
        return await psycopg.AsyncConnection.connect(self._address.conninfo, autocommit=True)


def _payloads(told: list[tuple[str, str]]) -> list[str]:
    """The notifications in pieces that PostgreSQL takes."""
    pieces: list[str] = []
    piece: list[tuple[str, str]] = []
    for one in told:
        if piece and len(_encoded([*piece, one]).encode()) > _MOST_BYTES:
            pieces.append(_encoded(piece))
            piece = []
        piece.append(one)
    return [*pieces, _encoded(piece)] if piece else pieces


def _encoded(piece: list[tuple[str, str]]) -> str:
    return storable(json.dumps(piece, ensure_ascii=False))
