"""Messages between workers: PostgreSQL's NOTIFY, and answers to questions of other workers.

A notification names a change and never carries it. If it is lost, the next periodic look of each
worker finds the change. (Exceptions: an answer to a question, which is notified again for a while,
a `/stop`, and an erased text, which is stored nowhere.) Notifications have their own connection,
are gathered for a few milliseconds and sent together, because PostgreSQL never commits two
notifying transactions at once. A text too long for one payload is cut: the pieces of a transaction
arrive in order and begin with the number of pieces still to come.

A question to the owner has a row, which names its worker and is deleted with it. Another worker
that gets the answer stores it for that worker, which passes it to the waiting call and writes the
reply to the owner. The worker of the question decides whether an answer is possible and who may
give it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

import msgspec
import psycopg
from loguru import logger
from msgspec import Struct

from nanobot.bus.events import Address, ApprovalAnswer
from nanobot.errors import NanobotError, StorageError
from nanobot.tasks import Background
from nanobot.team.connection import Connection, DatabaseAddress, Row, execute
from nanobot.team.postgres import Database

_GATHER_SECONDS = 0.003
_MOST_BYTES = 7_000
"""PostgreSQL's limit of a payload is 8,000 bytes."""
_AGAIN_SECONDS = 1.0

Heard = Callable[[str, str], None]
"""Gets the kind of a notification and the name of its subject."""


class Notifications:
    """Notifications to all other workers of the database at `address`."""

    def __init__(self, address: DatabaseAddress, heard: Heard) -> None:
        self._address, self._heard = address, heard
        self._background = Background()
        self.channel = "nanobot"
        """Contains the team's secret word, which other roles of the server cannot read."""
        self._gathered: set[tuple[str, str]] = set()
        self._begun = ""
        self._sender: Connection | None = None
        self._sender_pid = 0
        self._sending = asyncio.Lock()

    def start(self) -> None:
        self._background.start(self._listen_forever(), name="listen for other workers")

    def tell(self, kind: str, name: str = "") -> None:
        """Announce an event of this kind. Best effort."""
        if not self._gathered:
            self._background.start(self._send(), name="tell other workers")
        self._gathered.add((kind, name))

    async def close(self) -> None:
        """Send the gathered events and stop listening."""
        await self._background.drain(0.2)
        if self._sender is not None:
            await self._sender.close()

    async def _send(self) -> None:
        await asyncio.sleep(_GATHER_SECONDS)
        async with self._sending:
            told, self._gathered = self._gathered, set()
            for _ in range(2):  # the connection may be stale after a restart
                try:
                    if self._sender is None or self._sender.closed:
                        self._sender = await self._address.connect()
                        asked = await self._sender.execute("SELECT pg_backend_pid()")
                        # With a pooler, the connection's own number is a different one.
                        (self._sender_pid,) = await asked.fetchone() or (0,)
                    query = "SELECT pg_notify(%s, piece) FROM unnest(%s::text[]) AS piece"
                    await self._sender.execute(query, (self.channel, _payloads(sorted(told))))
                except (psycopg.Error, StorageError) as error:
                    said = self._address.error(error)
                    logger.debug("other workers were not notified: {}", said)
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
                    self._heard("gone", "")  # earlier notifications were missed
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
    """Return the events in pieces that PostgreSQL accepts."""
    text = json.dumps(told)
    pieces = [text[at : at + _MOST_BYTES] for at in range(0, len(text), _MOST_BYTES)]
    if len(pieces) == 1:
        return pieces
    return [f"{len(pieces) - number} {piece}" for number, piece in enumerate(pieces, 1)]


_PATIENCE = 30.0
_LOOK_SECONDS = 0.1
_TELL_EVERY = 10
"""Number of looks between two notifications of the same answer. A worker misses one while its
connection is lost."""


class Answer(Struct, frozen=True):
    """An answer, its author, and its chat, which is None for an owner who sees all questions."""

    answer: ApprovalAnswer
    by: str
    channel: str = ""
    chat_id: str = ""
    thread_id: str = ""

    @property
    def address(self) -> Address | None:
        return Address(self.channel, self.chat_id, self.thread_id) if self.channel else None


Settle = Callable[[str, Answer], Awaitable[str]]
"""Answers the question with a code and returns a reply for the owner. Raises `NanobotError`."""

Tell = Callable[[str, str], None]
"""Announces an event of a kind to all other workers."""


class SharedQuestions:
    """The tables `approval` and `answer`. `settle` answers questions of this worker."""

    def __init__(self, database: Database, settle: Settle, tell: Tell) -> None:
        self._database, self._settle, self._tell = database, settle, tell
        self._background = Background()
        self._taken: set[int] = set()
        """The numbers of the answers that this worker has handled or is handling."""

    def remove(self, code: str) -> None:
        gone = "DELETE FROM approval WHERE code = %s"
        self._database.post(lambda db: execute(db, gone, code))

    async def answer(self, code: str, answer: Answer) -> str:
        """Pass an answer to the worker of the question and return the reply for the owner. Raises
        `NanobotError`."""
        put = "INSERT INTO answer (code, worker, said) SELECT code, worker, %s FROM approval"
        said = msgspec.json.encode(answer).decode()

        async def leave(db: Connection) -> int:
            stored = await execute(db, f"{put} WHERE code = %s RETURNING id", said, code)
            row = await stored.fetchone()
            return row[0] if row else 0

        async def take_back(db: Connection) -> Row | None:
            gone = "DELETE FROM answer WHERE id = %s RETURNING outcome, failed"
            return await (await execute(db, gone, number)).fetchone()

        number = await self._database.run(leave)
        if number:
            await self._wait_for_outcome(number)
        outcome, failed = await self._database.run(take_back) or (_NOT_WAITING, True)
        if failed or not outcome:
            raise NanobotError(outcome or _SILENT)
        return str(outcome)

    async def _wait_for_outcome(self, number: int) -> None:
        """Notify the worker of the question until it has handled the answer, at most for
        `_PATIENCE` seconds."""
        for look in range(round(_PATIENCE / _LOOK_SECONDS)):
            if look % _TELL_EVERY == 0:
                self._tell("answer", str(number))
            await asyncio.sleep(_LOOK_SECONDS)
            query = "SELECT outcome FROM answer WHERE id = %s"
            rows = await self._database.read(query, number, after_writes=False)
            if not rows or rows[0][0]:
                break

    def take_answer(self, number: str) -> None:
        """Take an answer that another worker stored, once."""
        if int(number) not in self._taken:
            self._taken.add(int(number))
            self._background.start(self._take(int(number)), name="answer to a question")

    async def close(self) -> None:
        await self._background.drain(0)

    async def _take(self, number: int) -> None:
        query = "SELECT code, said FROM answer WHERE id = %s AND worker = %s AND outcome = ''"
        try:
            rows = await self._database.read(query, number, self._database.worker)
        except StorageError:
            self._taken.discard(number)  # the next notification tries again
            return
        if not rows:
            return
        code, said = rows[0]
        try:
            outcome, failed = (
                await self._settle(code, msgspec.json.decode(said, type=Answer)),
                False,
            )
        except NanobotError as error:
            outcome, failed = str(error), True
        put = "UPDATE answer SET outcome = %s, failed = %s WHERE id = %s"
        self._database.post(lambda db: execute(db, put, outcome, failed, number))


_SILENT = "The worker that asked this does not respond. Send the answer again in a minute."
_NOT_WAITING = "No such question is pending. It may have expired, or been answered or withdrawn."
