"""The outbox: replies on their way out, one row per part that a channel can send at once.

A part goes `pending → sending → sent | dead`. What is `sending` when the process dies goes out
again at the next start: it may arrive twice, which is the one repetition that is not excluded,
because no platform takes an idempotency key for every kind of message.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from loguru import logger

from nanobot.bus.buttons import with_button_ids
from nanobot.bus.codec import decode_outbound, encode_outbound
from nanobot.bus.connecting import storable
from nanobot.bus.database import Database
from nanobot.bus.events import OutboundMessage, OutboundPart


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message to send, already split into `parts` that fit; `call` tells a turn's messages apart
    (`reply` is the final one)."""

    call: str
    parts: tuple[OutboundMessage, ...]
    event_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OutboxPart:
    """A stored part. `next_try_at` is in seconds since the epoch."""

    id: int
    part: OutboundPart
    attempts: int = 0
    next_try_at: float = 0.0


def insert_outgoing(
    db: sqlite3.Connection, turn_id: str, outgoing: Sequence[Outgoing], now: str
) -> tuple[OutboxPart, ...]:
    """Store messages, in order. One that this turn already has is not stored again."""
    stored = []
    for item in outgoing:
        for number, message in enumerate(item.parts):
            last = number == len(item.parts) - 1
            row = db.execute(
                "INSERT INTO outbox (turn_id, call, part, channel, chat_id, payload, created_at)"
                " VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING RETURNING id",
                (
                    turn_id,
                    item.call,
                    number,
                    message.channel,
                    storable(message.chat_id),
                    encode_outbound(message, item.event_ids, last),
                    now,
                ),
            ).fetchone()
            if row:
                key = f"{turn_id}/{item.call}/{number}"
                sent = with_button_ids(db, message, now)
                if message.buttons:
                    payload = encode_outbound(sent, item.event_ids, last)
                    db.execute("UPDATE outbox SET payload = ? WHERE id = ?", (payload, row[0]))
                stored.append(OutboxPart(row[0], _part(key, sent, item.event_ids, last)))
    return tuple(stored)


def open_parts(db: sqlite3.Connection) -> Iterator[OutboxPart]:
    """What was not confirmed, oldest first. A part that cannot be read any more is dead."""
    rows = db.execute(f"{_SELECT} WHERE state IN ('pending', 'sending') ORDER BY id").fetchall()
    for row in rows:
        try:
            yield _stored_part(row)
        except ValueError as error:
            logger.error("reply out-{} cannot be read: {}", row[0], error)
            db.execute(
                "UPDATE outbox SET state = 'dead', reason = ? WHERE id = ?",
                (f"it cannot be read: {error}", row[0]),
            )


def load_part(db: sqlite3.Connection, part_id: int) -> OutboxPart:
    """One part. Raises `ValueError` if it cannot be read."""
    return _stored_part(db.execute(f"{_SELECT} WHERE id = ?", (part_id,)).fetchone())


class Outbox:
    """The dispatcher's marks on the parts it sends."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def sending(self, part_id: int) -> None:
        """An attempt begins. Queued, not awaited: if it is lost nothing changes."""
        self._database.post(
            lambda db: db.execute(
                "UPDATE outbox SET state = 'sending', attempts = attempts + 1 WHERE id = ?",
                (part_id,),
            ),
            patient=True,
            keep=False,
        )

    async def sent(self, part_id: int, platform_id: str) -> None:
        """The platform accepted it. Returns when that is durable, however long the disk refuses:
        until then nothing more goes to the chat, so that a crash leaves one part in doubt."""
        await self._database.insist(
            lambda db: db.execute(
                "UPDATE outbox SET state = 'sent', platform_id = ?, payload = NULL WHERE id = ?",
                (storable(platform_id), part_id),
            )
        )

    def later(self, part_id: int, next_try_at: float, reason: str) -> None:
        """It did not go out; try again at that time. Queued: if it is lost the try is earlier."""
        self._database.post(
            lambda db: db.execute(
                "UPDATE outbox SET state = 'pending', next_try_at = ?, reason = ? WHERE id = ?",
                (next_try_at, storable(reason), part_id),
            )
        )

    def dead(self, part_id: int, reason: str) -> None:
        """It will never go out by itself; kept for `nanobot queue`. Queued: if it is lost the part
        is refused once more."""
        self._database.post(
            lambda db: db.execute(
                "UPDATE outbox SET state = 'dead', reason = ? WHERE id = ?",
                (storable(reason), part_id),
            )
        )


_SELECT = (
    "SELECT id, turn_id, call, part, channel, chat_id, attempts, next_try_at, payload FROM outbox"
)


def _stored_part(row: tuple[int, str, str, int, str, str, int, float, str | None]) -> OutboxPart:
    row_id, turn_id, call, number, channel, chat_id, attempts, next_try_at, payload = row
    message, event_ids, last = decode_outbound(channel, chat_id, payload or "")
    part = _part(f"{turn_id}/{call}/{number}", message, event_ids, last)
    return OutboxPart(row_id, part, attempts, next_try_at)


def _part(
    key: str, message: OutboundMessage, event_ids: tuple[str, ...], last: bool
) -> OutboundPart:
    return OutboundPart(
        key=key,
        channel=message.channel,
        chat_id=message.chat_id,
        content=message.content,
        media=message.media,
        reply_to=message.reply_to,
        thread_id=message.thread_id,
        buttons=message.buttons,
        event_ids=event_ids,
        last=last,
    )
