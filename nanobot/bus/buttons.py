"""Buttons under messages: the platform gets an id that says nothing, the journal keeps the value.

An id is random, holds in its own chat only, and lives as long as other traces of a message do. So
a client that makes one up, or presses one from another chat, presses nothing.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection
from dataclasses import replace

from nanobot.bus.connecting import storable
from nanobot.bus.events import OutboundMessage


def with_button_ids(db: sqlite3.Connection, message: OutboundMessage, now: str) -> OutboundMessage:
    """The message with an id on each button, which is stored in the caller's transaction."""
    buttons = []
    for button in message.buttons:
        row = db.execute(
            "INSERT INTO button VALUES (lower(hex(randomblob(12))), ?, ?, ?, ?, ?) RETURNING id",
            (
                message.channel,
                storable(message.chat_id),
                storable(button.only),
                storable(button.value),
                now,
            ),
        ).fetchone()
        buttons.append(replace(button, id=row[0]))
    return replace(message, buttons=tuple(buttons))


def pressed(
    db: sqlite3.Connection, button_id: str, channel: str, chat_id: str, sender_ids: Collection[str]
) -> str | None:
    """The value of a button of this chat, for a person with these ids; None for any other."""
    row = db.execute(
        "SELECT value, sender_id FROM button WHERE id = ? AND channel = ? AND chat_id = ?",
        (storable(button_id), channel, storable(chat_id)),
    ).fetchone()
    if row is None or (row[1] and row[1] not in sender_ids):
        return None
    value: str = row[0]
    return value
