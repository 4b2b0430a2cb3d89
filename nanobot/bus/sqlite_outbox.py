"""The outbox in the journal: parts of replies, their states, and the buttons under them.

A reply has one row per part that a channel can send at once. A part goes `pending → sending → sent
| dead`. One that is `sending` when the process dies, or that the platform did not answer, is in
doubt: it may have arrived, and is sent once more. That repetition cannot be excluded, because no
platform takes an idempotency key for every kind of message. `sends.log` has these marks before the
disk has them here, so that a part is in doubt only if its answer had not come when the process was
killed; the next start takes them from there.

A button's id on the platform is random, is valid in its own chat only, and expires with the other
traces of its message; the value stays here. A client that makes up an id presses nothing.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from loguru import logger

from nanobot.bus.journal import (
    MOST_DOUBTS,
    NOTICE,
    QUESTION,
    InboxEntry,
    OutboxPart,
    Outgoing,
)
from nanobot.bus.journal_looking import SqliteQueries, transaction
from nanobot.bus.rows import (
    NOTICES,
    OPEN_PARTS,
    PART,
    decode_inbound,
    encode_event,
    failure_notice,
    new_parts,
    not_of_chat,
    not_retryable,
    parse_row,
    stored_part,
    unreadable_row,
)
from nanobot.bus.sends import Mark, SendLog
from nanobot.bus.sqlite import execute
from nanobot.clock import Clock

ASKED = f"turn_id GLOB '{QUESTION}*'"
"""Which rows of the outbox are questions to the owner."""


class SqliteOutbox(SqliteQueries):
    """The methods of `Journal` for replies, for the file at `path`."""

    def __init__(self, path: Path, clock: Clock) -> None:
        super().__init__(path)
        self._clock = clock
        self._sends = SendLog(path.with_name("sends.log"))

    async def resolve_button(
        self, button_id: str, channel: str, chat_id: str, sender_ids: Collection[str]
    ) -> str | None:
        query = "SELECT value, sender_id FROM button WHERE id = ? AND channel = ? AND chat_id = ?"
        rows = await self._run(query, button_id, channel, chat_id)
        return next((value for value, only in rows if not only or only in sender_ids), None)

    def add_outgoing(
        self, turn_id: str, outgoing: Outgoing
    ) -> asyncio.Future[tuple[OutboxPart, ...]]:
        now = self._clock.now().isoformat()
        return self.database.run(lambda db: insert_outgoing(db, turn_id, (outgoing,), now))

    def mark_sending(self, item: OutboxPart) -> None:
        doubts = item.doubts + 1
        self._sends.write(Mark("sending", item.id, doubts))
        self._post(
            "UPDATE outbox SET state = 'sending', in_doubt = ?, attempts = ? WHERE id = ?",
            *(doubts, item.attempts, item.id),
            can_wait=True,
        )

    async def mark_sent(
        self, item: OutboxPart, platform_id: str, *, keep: bool = False
    ) -> tuple[OutboxPart, ...]:
        self._sends.write(Mark("kept" if keep else "sent", item.id, item.doubts, platform_id))
        place = item.part.channel, item.part.chat_id
        notices = await self.database.run(
            lambda db: _mark_sent(db, item.id, *place, platform_id, keep=keep), until_stored=True
        )
        self._sends.marks.pop(item.id, None)
        return tuple(map(stored_part, notices))

    async def mark_undelivered(self, channel: str, platform_id: str, reason: str) -> str:
        rows = await self._run(
            "UPDATE outbox SET state = 'dead', reason = ? WHERE state = 'sent' AND channel = ?"
            " AND platform_id = ? AND payload IS NOT NULL RETURNING id",
            *(reason, channel, platform_id),
        )
        return f"out-{rows[0][0]}" if rows else ""

    async def open_questions(self) -> list[tuple[OutboxPart, str]]:
        rows = await self._run(
            f"SELECT {PART}, platform_id FROM outbox WHERE {ASKED} AND state = 'sent'"
            " AND payload IS NOT NULL ORDER BY id"
        )
        return [(stored_part(row[:-1]), row[-1]) for row in rows]

    def close_question(self, code: str) -> None:
        query = "UPDATE outbox SET payload = NULL WHERE turn_id = ? AND state = 'sent'"
        self._post(query, f"{QUESTION}{code}")

    def retry_later(self, item: OutboxPart, reason: str) -> None:
        self._sends.write(Mark("pending", item.id, item.doubts))
        self._post(
            "UPDATE outbox SET state = 'pending', next_try_at = ?, in_doubt = ?, attempts = ?,"
            " reason = ? WHERE id = ?",
            *(item.next_try_at, item.doubts, item.attempts, reason, item.id),
        )

    async def give_up(self, item: OutboxPart, reason: str) -> tuple[OutboxPart, ...]:
        now = self._clock.now().isoformat()

        def work(db: sqlite3.Connection) -> tuple[OutboxPart, ...]:
            dead = "UPDATE outbox SET state = 'dead', in_doubt = ?, reason = ? WHERE id = ?"
            execute(db, dead, item.doubts, reason, item.id)
            turn_id, call = item.part.key.rsplit("/", 2)[:2]
            if turn_id.startswith(NOTICE):
                return ()
            notice = Outgoing(call, (failure_notice(item, reason, _asked_in(db, turn_id)),))
            return insert_outgoing(db, f"{NOTICE}{turn_id}", (notice,), now)

        told = await self.database.run(work, until_stored=True)
        self._sends.marks.pop(item.id, None)
        return told

    async def retry_row(self, row: str) -> InboxEntry | OutboxPart:
        table, row_id = parse_row(row)
        try:
            if table == "inbox":
                return await self.database.run(lambda db: _retry_message(db, row, row_id))
            dead = await self._run("SELECT id FROM outbox WHERE id = ? AND state = 'dead'", row_id)
            if revived := await self._revive([part_id for (part_id,) in dead]):
                return revived[0]
        except ValueError as error:
            raise unreadable_row(row) from error
        raise not_retryable(row)

    async def resend(self, row: str, chat: tuple[str, str] | None) -> tuple[OutboxPart, ...]:
        try:
            return await self._revive(
                await self.database.run(lambda db: _dead_parts(db, row, chat))
            )
        except ValueError as error:
            raise unreadable_row(row) from error

    async def _revive(self, part_ids: Sequence[int]) -> tuple[OutboxPart, ...]:
        for part_id in part_ids:  # an earlier send of it counts no more
            self._sends.write(Mark("pending", part_id))
        return await self.database.run(
            lambda db: tuple(part for part_id in part_ids for part in _revive(db, part_id))
        )

    @transaction
    def drop_row(self, db: sqlite3.Connection, row: str) -> None:
        table, row_id = parse_row(row)
        ended = "state = 'stopped', payload = NULL WHERE state = 'failed'"
        if table == "outbox":
            ended = "state = 'sent', payload = NULL, reason = 'dropped' WHERE state = 'dead'"
        changed = db.execute(f"UPDATE {table} SET {ended} AND id = ?", (row_id,))
        if not changed.rowcount:
            raise not_retryable(row)


def apply_mark(db: sqlite3.Connection, mark: Mark) -> None:
    """Bring a part that is not delivered up to date."""
    row = execute(
        db,
        f"SELECT channel, chat_id FROM outbox WHERE {OPEN_PARTS} AND state != 'dead' AND id = ?",
        mark.part_id,
    ).fetchone()
    if row and mark.state in ("sent", "kept"):
        channel, chat_id = row
        keep = mark.state == "kept"
        _mark_sent(db, mark.part_id, channel, chat_id, mark.platform_id, keep=keep)
    elif row:
        changed = "UPDATE outbox SET state = ?, in_doubt = ? WHERE id = ?"
        execute(db, changed, mark.state, mark.doubts, mark.part_id)


def _mark_sent(
    db: sqlite3.Connection,
    part_id: int,
    channel: str,
    chat_id: str,
    platform_id: str,
    *,
    keep: bool,
) -> list[Any]:
    """The rows of notices of this chat that were refused before, and are to be sent now."""
    execute(
        db,
        "UPDATE outbox SET state = 'sent', platform_id = ?,"
        " payload = iif(?, payload, NULL) WHERE id = ?",
        *(platform_id, keep, part_id),
    )
    rows = execute(
        db,
        f"UPDATE outbox SET state = 'pending' WHERE {OPEN_PARTS} AND state = 'dead'"
        f" AND turn_id LIKE '{NOTICES}' AND in_doubt < {MOST_DOUBTS}"
        f" AND channel = ? AND chat_id = ? RETURNING {PART}",
        *(channel, chat_id),
    ).fetchall()
    return sorted(rows)


def _retry_message(db: sqlite3.Connection, row: str, row_id: int) -> InboxEntry:
    found = db.execute(
        "UPDATE inbox SET state = 'received', attempts = 0, not_before = 0, reason = ''"
        " WHERE id = ? AND state = 'failed' RETURNING payload, runs, turn_id",
        (row_id,),
    ).fetchone()
    if found is None:
        raise not_retryable(row)
    message = decode_inbound(found[0] or "")
    return InboxEntry(row_id, message, runs=found[1], previous_turn=found[2])


def _dead_parts(db: sqlite3.Connection, row: str, chat: tuple[str, str] | None) -> list[int]:
    """Of the message that a part belongs to. Raises `NanobotError` if it is not of this chat."""
    table, row_id = parse_row(row)
    query = "SELECT turn_id, call, channel, chat_id FROM outbox WHERE id = ?"
    found = db.execute(query, (row_id,)).fetchone()
    if table != "outbox" or found is None:
        raise not_of_chat(row)
    turn_id, call, *place = found
    if chat not in (None, tuple(place)) and chat != (_asked_in(db, turn_id) or ())[:2]:
        raise not_of_chat(row)
    query = "SELECT id FROM outbox WHERE turn_id = ? AND call = ? AND state = 'dead' ORDER BY id"
    return [part_id for (part_id,) in db.execute(query, (turn_id, call))]


def _revive(db: sqlite3.Connection, part_id: int) -> Iterator[OutboxPart]:
    """The part, if it was dead. Its notice is forgotten, so that another failure is told again."""
    found = db.execute(
        "UPDATE outbox SET state = 'pending', attempts = 0, next_try_at = 0, in_doubt = 0,"
        f" reason = '' WHERE id = ? AND state = 'dead' RETURNING {PART}",
        (part_id,),
    ).fetchone()
    if found:
        _, turn_id, call, *_ = found
        told = "DELETE FROM outbox WHERE turn_id = ? AND call = ? AND state IN ('sent', 'dead')"
        db.execute(told, (f"{NOTICE}{turn_id}", call))
        yield stored_part(found)


def _asked_in(db: sqlite3.Connection, turn_id: str) -> tuple[str, str, str] | None:
    """The channel, chat and conversation of a turn's first message."""
    query = "SELECT channel, chat_id, session_key FROM inbox WHERE turn_id = ? ORDER BY id LIMIT 1"
    found: tuple[str, str, str] | None = db.execute(query, (turn_id,)).fetchone()
    return found


def insert_outgoing(
    db: sqlite3.Connection, turn_id: str, outgoing: Sequence[Outgoing], now: str
) -> tuple[OutboxPart, ...]:
    """Store messages, in order, with a random id on each button. One that this turn already has is
    not stored again."""
    stored = []
    for item in outgoing:
        for number, part in enumerate(new_parts(turn_id, item)):
            place = part.channel, part.chat_id
            row = execute(
                db,
                "INSERT INTO outbox (turn_id, call, part, channel, chat_id, payload, created_at)"
                " VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING RETURNING id",
                *(turn_id, item.call, number, *place, encode_event(part), now),
            ).fetchone()
            for button in part.buttons if row else ():
                values = button.id, *place, button.only, button.value, now
                execute(db, "INSERT INTO button VALUES (?, ?, ?, ?, ?, ?)", *values)
            if row:
                stored.append(OutboxPart(row[0], part))
    return tuple(stored)


def open_parts(db: sqlite3.Connection) -> Iterator[OutboxPart]:
    """What was not confirmed, oldest first. A part that cannot be read any more is dead."""
    here = f"WHERE {OPEN_PARTS} AND state != 'dead' ORDER BY id"
    for row in db.execute(f"SELECT {PART} FROM outbox {here}").fetchall():
        try:
            yield stored_part(row)
        except ValueError as error:
            set_aside(db, "outbox", row[0], error)


def set_aside(db: sqlite3.Connection, table: str, row_id: int, error: ValueError) -> None:
    """A row cannot be read: it waits for a person's decision."""
    name, state = (f"in-{row_id}", "failed") if table == "inbox" else (f"out-{row_id}", "dead")
    logger.error("{} cannot be read: {}", name, error)
    execute(
        db,
        f"UPDATE {table} SET state = ?, reason = ? WHERE id = ?",
        *(state, f"it cannot be read: {error}", row_id),
    )
