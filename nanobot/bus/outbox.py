"""The outbox: replies on their way out, one row per part that a channel can send at once.

A part goes `pending → sending → sent | dead`. One that is `sending` when the process dies, or that
the platform did not answer, is in doubt: it may have arrived. It is sent once more. That is the one
repetition that is not excluded, because no platform takes an idempotency key for every kind of
message.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from loguru import logger

from nanobot.bus.address import Address
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
    """A stored part. `next_try_at` is in seconds since the epoch; `in_doubt`: an earlier attempt
    may have arrived."""

    id: int
    part: OutboundPart
    attempts: int = 0
    next_try_at: float = 0.0
    in_doubt: bool = False


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

    async def sent(self, item: OutboxPart, platform_id: str) -> tuple[OutboxPart, ...]:
        """The platform accepted it. Returns when that is durable, however long the disk refuses:
        until then nothing more goes to the chat, so that a crash leaves one part in doubt. What it
        returns are notices of this chat that were refused before, to be sent now."""

        def work(db: sqlite3.Connection) -> tuple[OutboxPart, ...]:
            db.execute(
                "UPDATE outbox SET state = 'sent', platform_id = ?, payload = NULL WHERE id = ?",
                (storable(platform_id), item.id),
            )
            rows = db.execute(
                "UPDATE outbox SET state = 'pending' WHERE state = 'dead' AND turn_id LIKE ?"
                " AND channel = ? AND chat_id = ? RETURNING id",
                (NOTICES, item.part.channel, storable(item.part.chat_id)),
            ).fetchall()
            return tuple(load_part(db, row_id) for (row_id,) in rows)

        return await self._database.insist(work)

    def later(self, item: OutboxPart, reason: str) -> None:
        """It did not go out; try again at `item.next_try_at`. Queued: if it is lost the try is
        earlier."""
        self._database.post(
            lambda db: db.execute(
                "UPDATE outbox SET state = 'pending', next_try_at = ?, in_doubt = ?, reason = ?"
                " WHERE id = ?",
                (item.next_try_at, item.in_doubt, storable(reason), item.id),
            )
        )

    async def give_up(self, item: OutboxPart, reason: str, now: str) -> tuple[OutboxPart, ...]:
        """It will never go out by itself. It is kept for `nanobot queue`, and with it is stored a
        notice to people, once for each message: that is returned, to be sent. A notice itself waits
        until something else reaches its chat."""

        def work(db: sqlite3.Connection) -> tuple[OutboxPart, ...]:
            db.execute(
                "UPDATE outbox SET state = 'dead', reason = ? WHERE id = ?",
                (storable(reason), item.id),
            )
            turn_id, call = item.part.key.rsplit("/", 2)[:2]
            if turn_id.startswith(_NOTICE):
                return ()
            notice = Outgoing(call, (_notice(db, item, reason, turn_id),))
            return insert_outgoing(db, f"{_NOTICE}{turn_id}", (notice,), now)

        return await self._database.insist(work)


_NOTICE = "undelivered-"
NOTICES = f"{_NOTICE}%"
"""The turn ids of notices that a part could not be delivered, as a pattern for LIKE."""

_EXCERPT = 60


def _notice(db: sqlite3.Connection, item: OutboxPart, reason: str, turn_id: str) -> OutboundMessage:
    """What is said of a part that was given up: in the chat where its turn was asked for, else in
    its own."""
    part = item.part
    row = db.execute(
        "SELECT channel, chat_id, session_key FROM inbox WHERE turn_id = ? ORDER BY id LIMIT 1",
        (turn_id,),
    ).fetchone()
    channel, chat_id, key = row or (part.channel, part.chat_id, "")
    here = (channel, chat_id) == (part.channel, part.chat_id)
    asked = Address.of(key)
    thread = asked.thread_id if (asked.channel, asked.chat_id) == (channel, chat_id) else ""
    what = ", ".join(media.name or media.ref for media in part.media)
    what = f"The file {what}" if what else f"A message that begins “{_beginning(part.content)}”"
    place = "here" if here else f"to {part.channel}:{part.chat_id}"
    text = (
        f"⚠️ {what} could not be delivered {place}: {reason.rstrip('. ')}. It is kept:"
        f" `nanobot queue retry out-{item.id}` sends it again."
    )
    return OutboundMessage(channel, chat_id, text, thread_id=part.thread_id if here else thread)


def _beginning(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= _EXCERPT else f"{words[:_EXCERPT].rstrip()}…"


_SELECT = (
    "SELECT id, turn_id, call, part, channel, chat_id, attempts, next_try_at,"
    " in_doubt OR state = 'sending', payload FROM outbox"
)
_Row = tuple[int, str, str, int, str, str, int, float, int, str | None]


def _stored_part(row: _Row) -> OutboxPart:
    row_id, turn_id, call, number, channel, chat_id, attempts, next_try_at, doubt, payload = row
    message, event_ids, last = decode_outbound(channel, chat_id, payload or "")
    part = _part(f"{turn_id}/{call}/{number}", message, event_ids, last)
    return OutboxPart(row_id, part, attempts, next_try_at, bool(doubt))


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
