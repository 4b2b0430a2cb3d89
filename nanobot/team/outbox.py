"""The outbox in a team's journal: parts of replies, what became of them, and their buttons.

A part belongs to the scope of the chat that gets it, as far as that chat has written, else to its
turn's. What goes out on an exclusive channel belongs to the lease of the channel.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime

from loguru import logger
from msgspec.structs import replace

from nanobot.bus.journal import MOST_DOUBTS, NOTICE, QUESTION, OutboxPart, Outgoing
from nanobot.bus.rows import (
    PART,
    encode_event,
    failure_notice,
    new_parts,
    not_of_chat,
    parse_row,
    stored_part,
    unreadable_row,
)
from nanobot.clock import Clock
from nanobot.team.connection import Connection, Row, execute
from nanobot.team.leases import SINGLE
from nanobot.team.looking import IS_NOTICE, Looking, transaction
from nanobot.team.postgres import Database

ORPHANED = (
    f"starts_with(turn_id, '{QUESTION}')"
    f" AND NOT EXISTS (SELECT FROM approval WHERE turn_id = '{QUESTION}' || code)"
)
"""Which rows of the outbox are questions to the owner that no worker waits for."""


class PostgresOutbox(Looking):
    """What becomes of replies, among the methods of `Journal`."""

    def __init__(self, database: Database, clock: Clock) -> None:
        super().__init__(database)
        self._clock = clock
        self.exclusive: Collection[str] = ()
        """Channels that one worker runs for all."""

    async def resolve_button(
        self, button_id: str, channel: str, chat_id: str, sender_ids: Collection[str]
    ) -> str | None:
        query = "SELECT value, sender_id FROM button WHERE (id, channel, chat_id) = (%s, %s, %s)"
        rows = await self.database.read(query, button_id, channel, chat_id)
        return next((value for value, only in rows if not only or only in sender_ids), None)

    def add_outgoing(self, turn_id: str, outgoing: Outgoing) -> Future[tuple[OutboxPart, ...]]:
        now = self._clock.now()
        return self.database.run(lambda db: self._insert_outgoing(db, turn_id, (outgoing,), now))

    def mark_sending(self, item: OutboxPart) -> None:
        self._post(
            "UPDATE outbox SET state = 'sending', in_doubt = %s, attempts = %s WHERE id = %s",
            *(item.doubts + 1, item.attempts, item.id),
            can_wait=True,
        )

    async def mark_sent(
        self, item: OutboxPart, platform_id: str, *, keep: bool = False
    ) -> tuple[OutboxPart, ...]:
        async def work(db: Connection) -> tuple[OutboxPart, ...]:
            refused = await execute(
                db,
                "WITH sent AS (UPDATE outbox SET state = 'sent', platform_id = %s,"
                f" payload = CASE WHEN %s THEN payload END WHERE id = %s)"
                f" UPDATE outbox SET state = 'pending' WHERE state = 'dead' AND {IS_NOTICE}"
                f" AND in_doubt < {MOST_DOUBTS} AND (channel, chat_id) = (%s, %s) AND id != %s"
                f" RETURNING scope, {PART}",
                *(platform_id, keep, item.id, item.part.channel, item.part.chat_id, item.id),
            )
            rows = sorted(await refused.fetchall(), key=lambda row: row[1])
            return read_parts(rows)[0]

        return await self.database.run(work, until_stored=True)

    @transaction
    async def mark_undelivered(
        self, db: Connection, channel: str, platform_id: str, reason: str
    ) -> str:
        rows = await execute(
            db,
            "UPDATE outbox SET state = 'dead', reason = %s WHERE state = 'sent'"
            " AND (channel, platform_id) = (%s, %s) AND payload IS NOT NULL RETURNING id",
            *(reason, channel, platform_id),
        )
        found = await rows.fetchone()
        return f"out-{found[0]}" if found else ""

    async def open_questions(self) -> list[tuple[OutboxPart, str]]:
        rows = await self.database.read(
            f"SELECT {PART}, platform_id, scope FROM outbox WHERE {ORPHANED} AND state = 'sent'"
            " AND payload IS NOT NULL ORDER BY id"
        )
        return [(replace(stored_part(row), scope=scope), sent) for *row, sent, scope in rows]

    def close_question(self, code: str) -> None:
        query = "UPDATE outbox SET payload = NULL WHERE turn_id = %s AND state = 'sent'"
        self._post(query, f"{QUESTION}{code}")

    def retry_later(self, item: OutboxPart, reason: str) -> None:
        self._post(
            "UPDATE outbox SET state = 'pending', next_try_at = %s, in_doubt = %s, attempts = %s,"
            " reason = %s WHERE id = %s",
            *(item.next_try_at, item.doubts, item.attempts, reason, item.id),
        )

    async def give_up(self, item: OutboxPart, reason: str) -> tuple[OutboxPart, ...]:
        now = self._clock.now()

        async def work(db: Connection) -> tuple[OutboxPart, ...]:
            dead = "UPDATE outbox SET state = 'dead', in_doubt = %s, reason = %s WHERE id = %s"
            await execute(db, dead, item.doubts, reason, item.id)
            turn_id, call = item.part.key.rsplit("/", 2)[:2]
            if turn_id.startswith(NOTICE):
                return ()
            asked_in = await _asked_in(db, turn_id)
            notice = Outgoing(call, (failure_notice(item, reason, asked_in),))
            return await self._insert_outgoing(db, f"{NOTICE}{turn_id}", (notice,), now)

        return await self.database.run(work, until_stored=True)

    async def resend(self, row: str, chat: tuple[str, str] | None) -> tuple[OutboxPart, ...]:
        async def work(db: Connection) -> tuple[OutboxPart, ...]:
            return await revive(db, await _dead_parts(db, row, chat))

        try:
            return await self.database.run(work)
        except ValueError as error:
            raise unreadable_row(row) from error

    async def _run(self, statement: str, *values: object) -> None:
        """Run one statement; returns once that is durable."""
        await self.database.run(lambda db: execute(db, statement, *values))

    def _post(self, statement: str, *values: object, can_wait: bool = False) -> None:
        self.database.post(lambda db: execute(db, statement, *values), can_wait=can_wait)

    async def _insert_outgoing(
        self,
        db: Connection,
        turn_id: str,
        outgoing: Iterable[Outgoing],
        now: datetime,
        entry_ids: Sequence[int] = (),
    ) -> tuple[OutboxPart, ...]:
        """Store messages, in order, with a random id on each button. One that this turn already
        has is not stored again. `entry_ids`: the messages that it answers."""
        sent = []
        for item in outgoing:
            for number, part in enumerate(new_parts(turn_id, item)):
                cursor = await execute(
                    db,
                    "INSERT INTO outbox (turn_id, call, part, channel, chat_id, payload,"
                    " created_at, scope) VALUES (%s, %s, %s, %s, %s, %s, %s, coalesce(%s,"
                    " (SELECT scope FROM conversation WHERE key = %s),"
                    " (SELECT scope FROM turn WHERE id = %s),"
                    " (SELECT min(scope) FROM inbox WHERE id = ANY(%s)), ''))"
                    " ON CONFLICT DO NOTHING RETURNING id, scope",
                    *(turn_id, item.call, number, part.channel, part.chat_id, encode_event(part)),
                    now.isoformat(),
                    f"{SINGLE}{part.channel}" if part.channel in self.exclusive else None,
                    *(f"{part.channel}:{part.chat_id}", turn_id, list(entry_ids)),
                )
                sent.append((part, cursor))
        stored = []
        for part, cursor in sent:
            if row := await cursor.fetchone():
                stored.append(OutboxPart(row[0], part, scope=row[1]))
                if turn_id.startswith(QUESTION) and self.database.worker is not None:
                    # With the question itself: what waits nowhere is not sent.
                    waits = "INSERT INTO approval VALUES (%s, %s) ON CONFLICT DO NOTHING"
                    await execute(db, waits, turn_id.removeprefix(QUESTION), self.database.worker)
                place = part.channel, part.chat_id
                for button in part.buttons:
                    put = "INSERT INTO button VALUES (%s, %s, %s, %s, %s, %s)"
                    values = button.id, *place, button.only, button.value, now.isoformat()
                    await execute(db, put, *values)
        return tuple(stored)


def read_parts(
    rows: Iterable[Row],
) -> tuple[tuple[OutboxPart, ...], list[tuple[int, ValueError]]]:
    """The parts in rows of `_SELECT_PARTS`, and those that cannot be read."""
    parts, broken = list[OutboxPart](), list[tuple[int, ValueError]]()
    for scope, *row in rows:
        try:
            parts.append(replace(stored_part(row), scope=scope))
        except ValueError as error:
            broken.append((row[0], error))
    return tuple(parts), broken


async def set_aside_parts(db: Connection, broken: Sequence[tuple[int, ValueError]]) -> None:
    """Parts that cannot be read wait for a person's decision."""
    for row_id, error in broken:
        logger.error("out-{} cannot be read: {}", row_id, error)
        dead = "UPDATE outbox SET state = 'dead', reason = %s WHERE id = %s"
        await execute(db, dead, f"it cannot be read: {error}", row_id)


async def _dead_parts(db: Connection, row: str, chat: tuple[str, str] | None) -> list[int]:
    """Of the message that a part belongs to. Raises `NanobotError` if it is not of this chat."""
    table, row_id = parse_row(row)
    query = "SELECT turn_id, call, channel, chat_id FROM outbox WHERE id = %s"
    found = await (await execute(db, query, row_id)).fetchone()
    if table != "outbox" or found is None:
        raise not_of_chat(row)
    turn_id, call, *place = found
    if chat not in (None, tuple(place)) and chat != (await _asked_in(db, turn_id) or ())[:2]:
        raise not_of_chat(row)
    query = "SELECT id FROM outbox WHERE (turn_id, call) = (%s, %s) AND state = 'dead' ORDER BY id"
    return [part_id for (part_id,) in await (await execute(db, query, turn_id, call)).fetchall()]


async def revive(db: Connection, part_ids: Sequence[int]) -> tuple[OutboxPart, ...]:
    """Those that were dead. Their notice is forgotten, so that another failure is told again."""
    dead = await execute(
        db,
        "UPDATE outbox SET state = 'pending', attempts = 0, next_try_at = 0, in_doubt = 0,"
        f" reason = '' WHERE id = ANY(%s) AND state = 'dead' RETURNING scope, {PART}",
        list(part_ids),
    )
    rows = sorted(await dead.fetchall(), key=lambda row: row[1])
    for _, _, turn_id, call, *_ in rows:
        told = "DELETE FROM outbox WHERE (turn_id, call) = (%s, %s) AND state IN ('sent', 'dead')"
        await execute(db, told, f"{NOTICE}{turn_id}", call)
    return tuple(replace(stored_part(row), scope=scope) for scope, *row in rows)


async def _asked_in(db: Connection, turn_id: str) -> tuple[str, str, str] | None:
    """The channel, chat and conversation of a turn's first message."""
    query = "SELECT channel, chat_id, session_key FROM inbox WHERE turn_id = %s AND turn_id != ''"
    found = await execute(db, f"{query} ORDER BY id LIMIT 1", turn_id)
    asked: tuple[str, str, str] | None = await found.fetchone()
    return asked
