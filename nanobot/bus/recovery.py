"""What a start finds in the journal: what was under way, what is old, what cannot be read.

What always holds: no row stops the start. One whose payload is broken is set aside as failed, with
a reason, and its person is told.
"""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from datetime import datetime

from loguru import logger

from nanobot.bus.codec import decode_inbound
from nanobot.bus.events import InboundMessage, OutboundMessage
from nanobot.bus.outbox import NOTICES, Outgoing, insert_outgoing, open_parts
from nanobot.bus.records import GIVE_UP_AFTER, InboxEntry, Leftovers, Step, Unfiled

_MOST_ASKED = 10
_UNREADABLE = (
    "A message of yours was damaged on my disk before I could answer it. Please send it again."
)


def leftovers(db: sqlite3.Connection, now: datetime) -> Leftovers:
    """What there is to do. An end without progress is counted once: a turn counts again only when
    it was claimed again, so one that never got its chance is not blamed. One that had asked the
    model by then is not blamed either, unless that happened `_MOST_ASKED` times in a row."""
    db.execute(
        "UPDATE inbox SET attempts = attempts + 1 WHERE state = 'working' AND turn_id IN"
        " (SELECT id FROM turn WHERE state = 'running' AND progress = 0)"
    )
    db.execute(
        "UPDATE inbox SET attempts = ? WHERE state = 'working' AND turn_id IN"
        " (SELECT id FROM turn WHERE state = 'running' AND asked >= ?)",
        (GIVE_UP_AFTER, _MOST_ASKED),
    )
    db.execute("UPDATE turn SET progress = 1 WHERE state = 'running'")
    unfiled = db.execute("SELECT id, session_key, lines FROM unfiled ORDER BY id").fetchall()
    entries = _open_entries(db, now)
    return Leftovers(tuple(Unfiled(*row) for row in unfiled), entries, tuple(open_parts(db)))


def prune(db: sqlite3.Connection, horizon: str) -> None:
    """Forget what ended and is older than `horizon`, an ISO time."""
    db.execute(
        "DELETE FROM inbox WHERE state IN ('done', 'stopped') AND received_at < ?", (horizon,)
    )
    db.execute(
        "DELETE FROM outbox WHERE created_at < ?"
        " AND (state = 'sent' OR (state = 'dead' AND turn_id LIKE ?))",
        (horizon, NOTICES),
    )
    db.execute("DELETE FROM turn WHERE state != 'running' AND started_at < ?", (horizon,))
    db.execute(
        "DELETE FROM step WHERE turn_id NOT IN (SELECT id FROM turn WHERE state = 'running')"
    )
    db.execute("DELETE FROM button WHERE created_at < ?", (horizon,))
    db.execute("DELETE FROM prompt WHERE used_at < ?", (horizon,))


def _open_entries(db: sqlite3.Connection, now: datetime) -> tuple[InboxEntry, ...]:
    rows = db.execute(
        "SELECT id, channel, chat_id, event_id, payload, attempts, runs, turn_id, not_before,"
        " reason, received_at, state FROM inbox WHERE state IN ('received', 'working') ORDER BY id"
    ).fetchall()
    waiting: list[InboxEntry] = []
    turns: dict[str, list[InboxEntry]] = {}
    for row_id, channel, chat_id, event_id, payload, *rest in rows:
        attempts, runs, turn_id, not_before, reason, received_at, state = rest
        message = _decoded(db, row_id, payload)
        if message is None:
            _tell(db, row_id, OutboundMessage(channel, chat_id, _UNREADABLE), event_id, now)
        elif state == "working":
            entry = InboxEntry(row_id, message, attempts, runs, turn_id, not_before, reason)
            entry = replace(entry, recovered=True, received_at=_seconds(received_at))
            turns.setdefault(turn_id, []).append(entry)
        else:
            entry = InboxEntry(row_id, message, attempts, runs, "", not_before, reason)
            entry = replace(entry, recovered=True, received_at=_seconds(received_at))
            waiting.append(replace(entry, previous_turn=turn_id))
    resumed = [
        replace(entries[0], joined=tuple(entries[1:]), steps=_steps(db, turn_id))
        for turn_id, entries in turns.items()
    ]
    return tuple(sorted((*resumed, *waiting), key=lambda entry: entry.id))


def _seconds(stored: str) -> float:
    """A stored time in seconds since the epoch; 0 where it cannot be read."""
    try:
        return datetime.fromisoformat(stored).timestamp()
    except ValueError:
        return 0.0


def _decoded(db: sqlite3.Connection, row_id: int, payload: str | None) -> InboundMessage | None:
    try:
        return decode_inbound(payload or "")
    except ValueError as error:
        logger.error("message in-{} cannot be read: {}", row_id, error)
        db.execute(
            "UPDATE inbox SET state = 'failed', reason = ? WHERE id = ?",
            (f"it cannot be read: {error}", row_id),
        )
        return None


def _tell(
    db: sqlite3.Connection, row_id: int, message: OutboundMessage, event_id: str, now: datetime
) -> None:
    outgoing = Outgoing("reply", (message,), (event_id,))
    insert_outgoing(db, f"unreadable-{row_id}", (outgoing,), now.isoformat())


def _steps(db: sqlite3.Connection, turn_id: str) -> tuple[Step, ...]:
    rows = db.execute(
        "SELECT kind, payload FROM step WHERE turn_id = ? ORDER BY number", (turn_id,)
    )
    return tuple(Step(kind, payload) for kind, payload in rows)
