"""Questions to the owner that wait at one worker, and are answered at another.

A question is stored with a row, which names the worker that asks and goes with it. Who gets an
answer to a question that does not wait there leaves it for that worker. The worker gives it to the
call that waits, and writes what the owner is to be told. Nothing else is decided here: whether an
answer is possible, and who may give it, is judged where the question waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from msgspec import Struct, json

from nanobot.bus.events import Address, ApprovalAnswer
from nanobot.errors import NanobotError
from nanobot.tasks import Background
from nanobot.team.connection import Connection, Row, execute
from nanobot.team.postgres import Database

_PATIENCE = 5.0
_LOOK_SECONDS = 0.1


class Answer(Struct, frozen=True):
    """What was said, by whom, and in which chat; None where the owner sees all questions."""

    answer: ApprovalAnswer
    by: str
    channel: str = ""
    chat_id: str = ""
    thread_id: str = ""

    @property
    def address(self) -> Address | None:
        return Address(self.channel, self.chat_id, self.thread_id) if self.channel else None


Settle = Callable[[str, Answer], Awaitable[str]]
"""Gives the question with a code its answer; what to tell the owner. Raises `NanobotError`."""

Tell = Callable[[str, str], None]
"""Says to all other workers that there is something new of a kind."""


class SharedQuestions:
    """The tables `approval` and `answer`. `settle` is how questions of this worker are answered."""

    def __init__(self, database: Database, settle: Settle, tell: Tell) -> None:
        self._database, self._settle, self._tell = database, settle, tell
        self._background = Background()

    def closed(self, code: str) -> None:
        gone = "DELETE FROM approval WHERE code = %s"
        self._database.post(lambda db: execute(db, gone, code))

    async def answer(self, code: str, answer: Answer) -> str:
        """Give an answer to the worker that asks; what to tell the owner. Raises `NanobotError`."""
        put = "INSERT INTO answer (code, worker, said) SELECT code, worker, %s FROM approval"
        said = json.encode(answer).decode()

        async def leave(db: Connection) -> int:
            stored = await execute(db, f"{put} WHERE code = %s RETURNING id", said, code)
            row = await stored.fetchone()
            return row[0] if row else 0

        async def take_back(db: Connection) -> Row | None:
            gone = "DELETE FROM answer WHERE id = %s RETURNING outcome, failed"
            return await (await execute(db, gone, number)).fetchone()

        number = await self._database.run(leave)
        if number:
            self._tell("answer", str(number))
        for _ in range(round(_PATIENCE / _LOOK_SECONDS)) if number else ():
            await asyncio.sleep(_LOOK_SECONDS)
            query = "SELECT outcome FROM answer WHERE id = %s"
            rows = await self._database.read(query, number, after_writes=False)
            if not rows or rows[0][0]:
                break
        outcome, failed = await self._database.run(take_back) or ("", True)
        if failed or not outcome:
            raise NanobotError(outcome or _NOT_WAITING)
        return str(outcome)

    def heard(self, number: str) -> None:
        """Another worker left an answer."""
        self._background.start(self._take(int(number)), name="answer to a question")

    async def close(self) -> None:
        await self._background.drain(0)

    async def _take(self, number: int) -> None:
        query = "SELECT code, said FROM answer WHERE id = %s AND worker = %s AND outcome = ''"
        rows = await self._database.read(query, number, self._database.worker)
        if not rows:
            return
        code, said = rows[0]
        try:
            outcome, failed = await self._settle(code, json.decode(said, type=Answer)), False
        except NanobotError as error:
            outcome, failed = str(error), True
        put = "UPDATE answer SET outcome = %s, failed = %s WHERE id = %s"
        self._database.post(lambda db: execute(db, put, outcome, failed, number))


_NOT_WAITING = "No question waits for this answer: it was answered, is too old, or was dropped."
