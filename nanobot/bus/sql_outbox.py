"""The outbox in the journal: parts of replies, their states, and the buttons under them.

A reply has one row for each part that a channel sends at once. A part goes from `pending` to
`sending` (if a repetition would show) to `sent` or `dead`. A part that is `sending` when the
process dies, or that the platform did not acknowledge, is in doubt: it may have arrived, and is
sent once more. No platform takes an idempotency key for every kind of message, so that repetition
can't be excluded.

A button's id on the platform is random, is valid only in its chat, and expires with the other
traces of its message. The value stays here, so an invented id does nothing."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime
from typing import Any, TypeVar

from loguru import logger
from msgspec.structs import replace

from nanobot.bus.journal import MOST_DOUBTS, NOTICE, QUESTION, InboxEntry, OutboxPart, Outgoing
from nanobot.bus.rows import (
    DEAD_PARTS,
    ENTRY,
    IS_NOTICE,
    IS_QUESTION,
    PART,
    decode_entry,
    decode_part,
    encode_event,
    failure_notice,
    new_parts,
    not_of_chat,
    not_retryable,
    parse_row,
    unreadable_row,
)
from nanobot.bus.sql import Row, Steps, fetch, rows_of, send, transaction
from nanobot.bus.sql_queries import SqlQueries
from nanobot.clock import Clock

T = TypeVar("T")
Broken = tuple[Row, ValueError]
"""An unreadable row and the reason."""


class SqlOutbox(SqlQueries):
    """The methods of `Journal` for replies."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    async def resolve_button(
        self, button_id: str, channel: str, chat_id: str, sender_ids: Collection[str]
    ) -> str | None:
        """Return the value of a button of this chat that a person with these ids may press."""
        query = "SELECT value, sender_id FROM button WHERE id = ? AND channel = ? AND chat_id = ?"
        rows = await self._read(query, button_id, channel, chat_id)
        return next((value for value, only in rows if not only or only in sender_ids), None)

    def add_outgoing(self, turn_id: str, outgoing: Outgoing) -> Future[tuple[OutboxPart, ...]]:
        """Put a message in the outbox outside a completion, even if the future is not awaited. The
        same `call` of a turn is stored once."""
        now = self._clock.now()
        return self._transact(lambda: self._insert_outgoing(turn_id, (outgoing,), now))

    def mark_sending(self, item: OutboxPart) -> None:
        """Record the start of an attempt to send a part. Posted. Without a recorded outcome, the
        part may have arrived."""
        self._post(
            "UPDATE outbox SET state = 'sending', in_doubt = ?, attempts = ? WHERE id = ?",
            *(item.doubts + 1, item.attempts, item.id),
            can_wait=True,
        )

    def mark_sent(
        self, item: OutboxPart, platform_id: str, *, keep: bool = False, can_wait: bool = False
    ) -> Future[tuple[OutboxPart, ...]]:
        """Record that the platform accepted a part. With `keep`, its text is kept for a day,
        because it may still fail. With `can_wait`, share a commit.

        The future is done once that is durable, however long the disk rejects it. It returns this
        chat's rejected notices, to be sent now."""
        sent = item.id, item.part.channel, item.part.chat_id, platform_id
        work = self._work(lambda: self._mark_sent(*sent, keep=keep))
        return self.database.run(work, until_stored=True, can_wait=can_wait)

    def _mark_sent(
        self, part_id: int, channel: str, chat_id: str, platform_id: str, *, keep: bool
    ) -> Steps[tuple[OutboxPart, ...]]:
        """Return this chat's notices that were rejected earlier, to be sent now."""
        yield from send(
            "UPDATE outbox SET state = 'sent', platform_id = ?,"
            " payload = CASE WHEN ? THEN payload END WHERE id = ?",
            *(platform_id, keep, part_id),
        )
        rows = yield from fetch(
            f"UPDATE outbox SET state = 'pending' WHERE {DEAD_PARTS} AND {IS_NOTICE}"
            f" AND in_doubt < {MOST_DOUBTS} AND channel = ? AND chat_id = ?"
            f" RETURNING {PART}, {self.SCOPE}",
            *(channel, chat_id),
        )
        return tuple(split_readable(sorted(rows), decode_part)[0])

    async def mark_undelivered(self, channel: str, platform_id: str, reason: str) -> str:
        """Mark an accepted part as dead, because the platform reports that it did not arrive.
        Return its row (`out-7`), or "" if the part is unknown or its text was not kept."""
        rows = await self._transact(
            lambda: fetch(
                "UPDATE outbox SET state = 'dead', reason = ? WHERE state = 'sent' AND channel = ?"
                " AND platform_id = ? AND payload IS NOT NULL RETURNING id",
                *(reason, channel, platform_id),
            )
        )
        return f"out-{rows[0][0]}" if rows else ""

    async def open_questions(self) -> list[tuple[OutboxPart, str]]:
        """Return the open questions that were sent with `keep` and have no waiting process, with
        their platform's ids. Without a team these are all questions of earlier processes."""
        rows = await self._read(
            f"SELECT {PART}, {self.SCOPE}, platform_id FROM outbox WHERE {IS_QUESTION}"
            f" AND {self.NOBODY_WAITS} AND state = 'sent' AND payload IS NOT NULL ORDER BY id"
        )
        return [(decode_part(part), platform_id) for *part, platform_id in rows]

    def close_question(self, code: str) -> None:
        """Record that the buttons of a question are removed. Posted."""
        query = "UPDATE outbox SET payload = NULL WHERE turn_id = ? AND state = 'sent'"
        self._post(query, f"{QUESTION}{code}")

    def retry_later(self, item: OutboxPart, reason: str) -> None:
        """Schedule a part that was not sent for `item.next_try_at`. Posted."""
        self._post(
            "UPDATE outbox SET state = 'pending', next_try_at = ?, in_doubt = ?, attempts = ?,"
            " reason = ? WHERE id = ?",
            *(item.next_try_at, item.doubts, item.attempts, reason, item.id),
        )

    async def give_up(self, item: OutboxPart, reason: str) -> tuple[OutboxPart, ...]:
        """Mark a part as dead, for `nanobot queue`, and store a notice, once for each message.
        Return the notice to send. A notice itself waits until something else reaches its chat, and
        is sent at most twice."""
        now = self._clock.now()

        def steps() -> Steps[tuple[OutboxPart, ...]]:
            dead = "UPDATE outbox SET state = 'dead', in_doubt = ?, reason = ? WHERE id = ?"
            yield from send(dead, item.doubts, reason, item.id)
            turn_id, call = item.part.key.rsplit("/", 2)[:2]
            if turn_id.startswith(NOTICE):
                return ()
            asked_in = yield from _find_request_chat(turn_id)
            notice = Outgoing(call, (failure_notice(item, reason, asked_in),))
            return (yield from self._insert_outgoing(f"{NOTICE}{turn_id}", (notice,), now))

        return await self._transact(steps, until_stored=True)

    async def retry_row(self, row: str) -> InboxEntry | OutboxPart:
        """Schedule a failed message or a dead part again and return it. Raise `NanobotError` if the
        row does not exist, has not failed or cannot be read."""
        table, row_id = parse_row(row)
        try:
            if table == "inbox":
                return await self._transact(lambda: self._retry_message(row, row_id))
            if revived := await self._revive((row_id,)):
                return revived[0]
        except ValueError as error:
            raise unreadable_row(row) from error
        raise not_retryable(row)

    async def resend(self, row: str, chat: tuple[str, str] | None) -> tuple[OutboxPart, ...]:
        """Schedule all dead parts of the message with the part `row`. Return these parts in order.

        Another failure is reported again. With `chat` (channel and id), raise `NanobotError` unless
        the message is for this chat or was requested in it."""
        try:
            return await self._revive(await self._transact(lambda: _dead_parts(row, chat)))
        except ValueError as error:
            raise unreadable_row(row) from error

    @transaction
    def _revive(self, part_ids: Sequence[int]) -> Steps[tuple[OutboxPart, ...]]:
        """Schedule the dead parts among these again. Return them."""
        rows = yield from fetch(
            "UPDATE outbox SET state = 'pending', attempts = 0, next_try_at = 0, in_doubt = 0,"
            f" reason = '' WHERE id {self.AMONG} AND state = 'dead' RETURNING {PART}, {self.SCOPE}",
            list(part_ids),
        )
        for _, turn_id, call, *_ in rows:  # so that another failure is reported again
            told = "DELETE FROM outbox WHERE turn_id = ? AND call = ? AND state IN ('sent', 'dead')"
            yield from send(told, f"{NOTICE}{turn_id}", call)
        return tuple(map(decode_part, sorted(rows)))

    def _retry_message(self, row: str, row_id: int) -> Steps[InboxEntry]:
        rows = yield from fetch(
            "UPDATE inbox SET state = 'received', attempts = 0, not_before = 0, reason = ''"
            f" WHERE id = ? AND state = 'failed' RETURNING {ENTRY}, {self.SCOPE}",
            row_id,
        )
        if not rows:
            raise not_retryable(row)
        return replace(decode_entry(rows[0], recovered=False), received_at=0.0)

    @transaction
    def drop_row(self, row: str) -> Steps[None]:
        """Give up a failed message or a dead part for good. Raise like `retry_row`."""
        table, row_id = parse_row(row)
        ended = "state = 'stopped', payload = NULL WHERE state = 'failed'"
        if table == "outbox":
            ended = "state = 'sent', payload = NULL, reason = 'dropped' WHERE state = 'dead'"
        if not (yield from fetch(f"UPDATE {table} SET {ended} AND id = ? RETURNING id", row_id)):
            raise not_retryable(row)

    def _insert_outgoing(
        self,
        turn_id: str,
        outgoing: Iterable[Outgoing],
        now: datetime,
        entry_ids: Sequence[int] = (),
    ) -> Steps[tuple[OutboxPart, ...]]:
        """Store messages in order, with a random id on each button, unless this turn already has
        them. `entry_ids` are the messages that they answer."""
        sent = list[tuple[Any, Any]]()
        for item in outgoing:
            for number, part in enumerate(new_parts(turn_id, item)):
                place = part.channel, part.chat_id
                column, scope, whose = self._whose(chat=place, turn_id=turn_id, entry_ids=entry_ids)
                stored = yield from send(
                    "INSERT INTO outbox (turn_id, call, part, channel, chat_id, payload,"
                    f" created_at{column}) VALUES (?, ?, ?, ?, ?, ?, ?{scope})"
                    f" ON CONFLICT DO NOTHING RETURNING id, {self.SCOPE}",
                    *(turn_id, item.call, number, *place, encode_event(part)),
                    *(now.isoformat(), *whose),
                )
                sent.append((part, stored))
        parts = list[OutboxPart]()
        for part, stored in sent:
            for row_id, scope in (yield from rows_of(stored)):
                parts.append(OutboxPart(row_id, part, scope=scope))
                for button in part.buttons:
                    values = button.only, button.value, now.isoformat()
                    put = "INSERT INTO button VALUES (?, ?, ?, ?, ?, ?)"
                    yield from send(put, button.id, part.channel, part.chat_id, *values)
        return tuple(parts)


def split_readable(rows: Iterable[Row], read: Callable[[Row], T]) -> tuple[list[T], list[Broken]]:
    """Return the values that `read` makes of rows, and the unreadable rows."""
    values, broken = list[T](), list[Broken]()
    for row in rows:
        try:
            values.append(read(row))
        except ValueError as error:
            broken.append((row, error))
    return values, broken


def set_aside_parts(broken: Iterable[Broken]) -> Steps[None]:
    """Mark unreadable parts as dead, so that a person decides about them."""
    for (row_id, *_), error in broken:
        logger.error("out-{} cannot be read: {}", row_id, error)
        dead = "UPDATE outbox SET state = 'dead', reason = ? WHERE id = ?"
        yield from send(dead, f"it cannot be read: {error}", row_id)


def _dead_parts(row: str, chat: tuple[str, str] | None) -> Steps[list[int]]:
    """Return the dead parts of a part's message. Raise `NanobotError` if it is not of this chat."""
    table, row_id = parse_row(row)
    query = "SELECT turn_id, call, channel, chat_id FROM outbox WHERE id = ?"
    found = yield from fetch(query, row_id)
    if table != "outbox" or not found:
        raise not_of_chat(row)
    turn_id, call, *place = found[0]
    if chat not in (None, tuple(place)):
        asked_in = yield from _find_request_chat(turn_id)
        if chat != (asked_in or ())[:2]:
            raise not_of_chat(row)
    query = "SELECT id FROM outbox WHERE turn_id = ? AND call = ? AND state = 'dead' ORDER BY id"
    return [part_id for (part_id,) in (yield from fetch(query, turn_id, call))]


def _find_request_chat(turn_id: str) -> Steps[tuple[str, str, str] | None]:
    """Return the channel, chat and conversation of a turn's first message."""
    query = "SELECT channel, chat_id, session_key FROM inbox WHERE turn_id = ? AND turn_id != ''"
    rows = yield from fetch(f"{query} ORDER BY id LIMIT 1", turn_id)
    return (rows[0][0], rows[0][1], rows[0][2]) if rows else None
