"""What people ask of the journal: how much waits, what failed, what a turn did.

Functions of a connection, so that they serve a running gateway (through `Database.run`) as well as
a command that opens the file by itself.
"""

from __future__ import annotations

import json
import re
import sqlite3
from dataclasses import dataclass
from datetime import datetime

from nanobot.bus.codec import decode_inbound, excerpt
from nanobot.bus.connecting import storable
from nanobot.bus.outbox import NOTICES, OutboxPart, load_part
from nanobot.bus.records import InboxEntry
from nanobot.errors import NanobotError

_EXCERPT = 80


@dataclass(frozen=True, slots=True)
class QueueCounts:
    """How many rows are in each state that is not an end. `put_off` are those of `received` that
    wait for the model, or ask it once more; `dead` are parts of replies."""

    received: int = 0
    working: int = 0
    failed: int = 0
    outbox_pending: int = 0
    dead: int = 0
    put_off: int = 0


@dataclass(frozen=True, slots=True)
class TurnCounts:
    """How many turns ended in which way."""

    done: int = 0
    failed: int = 0
    stopped: int = 0


@dataclass(frozen=True, slots=True)
class QueueRow:
    """A row for people. `id` is `in-12` or `out-7`; `place` the session, or the chat it goes to."""

    id: str
    place: str
    state: str
    attempts: int
    since: str
    text: str
    reason: str


@dataclass(frozen=True, slots=True)
class TurnRecord:
    """What is kept of a turn. `report` is what the agent wrote about it, decoded."""

    id: str
    session_key: str
    state: str
    started_at: str
    report: dict[str, object]
    system_prompt: str


def counts(db: sqlite3.Connection) -> QueueCounts:
    """How much is under way or in trouble."""
    inbox: dict[str, int] = dict(
        db.execute(
            "SELECT iif(state != 'failed' AND not_before, 'received', state), count(*) FROM inbox"
            " WHERE state IN ('received', 'working', 'failed') GROUP BY 1"
        )
    )
    outbox: dict[str, int] = dict(
        db.execute(
            "SELECT state, count(*) FROM outbox WHERE state IN ('pending', 'sending')"
            " OR (state = 'dead' AND turn_id NOT LIKE ?) GROUP BY state",
            (NOTICES,),
        )
    )
    put_off = db.execute(
        "SELECT count(*) FROM inbox WHERE state IN ('received', 'working') AND not_before > 0"
    ).fetchone()[0]
    return QueueCounts(
        inbox.get("received", 0),
        inbox.get("working", 0),
        inbox.get("failed", 0),
        outbox.get("pending", 0) + outbox.get("sending", 0),
        outbox.get("dead", 0),
        put_off,
    )


def turn_counts(db: sqlite3.Connection, since: datetime) -> TurnCounts:
    """The turns that began at `since` (aware) or later and have ended."""
    # Without GROUP BY, for which SQLite would sort all turns that are kept.
    row = db.execute(
        "SELECT total(state = 'done'), total(state = 'failed'), total(state = 'stopped') FROM turn"
        " WHERE datetime(started_at) >= datetime(?)",
        (since.isoformat(),),
    ).fetchone()
    return TurnCounts(*map(int, row))


def queue_rows(db: sqlite3.Connection) -> tuple[list[QueueRow], list[QueueRow]]:
    """Messages that are not answered, and parts that are not delivered; oldest first."""
    inbox = [
        QueueRow(f"in-{row_id}", key, state, attempts, since, excerpt(payload, _EXCERPT), reason)
        for row_id, key, state, attempts, since, payload, reason in db.execute(
            "SELECT id, session_key, iif(state != 'failed' AND not_before, 'waiting', state),"
            " attempts, received_at, payload, reason FROM inbox"
            " WHERE state IN ('received', 'working', 'failed') ORDER BY id"
        )
    ]
    outbox = [
        QueueRow(
            f"out-{row_id}",
            f"{channel}:{chat}",
            state,
            tries,
            since,
            excerpt(payload, _EXCERPT),
            why,
        )
        for row_id, channel, chat, state, tries, since, payload, why in db.execute(
            "SELECT id, channel, chat_id, state, attempts, created_at, payload, reason FROM outbox"
            " WHERE state IN ('pending', 'sending') OR (state = 'dead' AND turn_id NOT LIKE ?)"
            " ORDER BY id",
            (NOTICES,),
        )
    ]
    return inbox, outbox


def retry(db: sqlite3.Connection, row: str) -> InboxEntry | OutboxPart:
    """Make a failed message or a dead part ready to be tried again, and return it.

    Raises `NanobotError` when the row does not exist, is not in trouble or cannot be read.
    """
    try:
        return _retry(db, row)
    except ValueError as error:
        raise NanobotError(
            f"{row} cannot be read, so it cannot be tried again",
            hint=f"`nanobot queue drop {row}` removes it; ask the person to send it again.",
        ) from error


def _retry(db: sqlite3.Connection, row: str) -> InboxEntry | OutboxPart:
    table, row_id = _parse(row)
    if table == "inbox":
        found = db.execute(
            "UPDATE inbox SET state = 'received', attempts = 0, not_before = 0, reason = ''"
            " WHERE id = ? AND state = 'failed' RETURNING payload, runs, turn_id",
            (row_id,),
        ).fetchone()
        if found:
            message = decode_inbound(found[0] or "")
            return InboxEntry(row_id, message, runs=found[1], previous_turn=found[2])
    else:
        db.execute(
            "UPDATE outbox SET state = 'pending', attempts = 0, next_try_at = 0,"
            " in_doubt = 0, reason = ''"
            " WHERE id = ? AND state = 'dead'",
            (row_id,),
        )
        if db.execute("SELECT changes()").fetchone()[0]:
            return load_part(db, row_id)
    raise _not_in_trouble(row)


def drop(db: sqlite3.Connection, row: str) -> None:
    """Give up a failed message or a dead part for good. Raises `NanobotError` like `retry`."""
    table, row_id = _parse(row)
    if table == "inbox":
        db.execute(
            "UPDATE inbox SET state = 'stopped', payload = NULL WHERE id = ? AND state = 'failed'",
            (row_id,),
        )
    else:
        db.execute(
            "UPDATE outbox SET state = 'sent', payload = NULL, reason = 'dropped'"
            " WHERE id = ? AND state = 'dead'",
            (row_id,),
        )
    if not db.execute("SELECT changes()").fetchone()[0]:
        raise _not_in_trouble(row)


def turn_record(db: sqlite3.Connection, turn_id: str) -> TurnRecord:
    """What is kept of a turn. Raises `NanobotError` for an id that is not known (any more)."""
    row = db.execute(
        "SELECT id, session_key, state, started_at, report FROM turn WHERE id = ?",
        (storable(turn_id),),
    ).fetchone()
    if row is None:
        raise NanobotError(
            f"no turn {turn_id!r}",
            hint="`nanobot sessions show KEY` shows the turns of a conversation; reports are kept"
            " for 30 days.",
        )
    report = _report(row[4])
    prompt = db.execute(
        "SELECT text FROM prompt WHERE id = ?", (report.get("system_id", ""),)
    ).fetchone()
    return TurnRecord(row[0], row[1], row[2], row[3], report, prompt[0] if prompt else "")


def mentioned(db: sqlite3.Connection, name: re.Pattern[str]) -> frozenset[str]:
    """What looks like `name` in messages that are not answered, in steps of turns that run, and in
    replies that are not sent."""
    rows = db.execute(
        "SELECT payload FROM inbox WHERE state IN ('received', 'working', 'failed')"
        " UNION ALL SELECT payload FROM step"
        " UNION ALL SELECT payload FROM outbox WHERE state IN ('pending', 'sending', 'dead')"
    )
    return frozenset(found for (payload,) in rows for found in name.findall(payload or ""))


def _report(text: str) -> dict[str, object]:
    try:
        report = json.loads(text) if text else {}
    except ValueError:  # damaged: what else is known of the turn can still be shown
        return {}
    return report if isinstance(report, dict) else {}


def _parse(row: str) -> tuple[str, int]:
    kind, _, number = row.partition("-")
    table = {"in": "inbox", "out": "outbox"}.get(kind)
    if table is None or not (number.isascii() and number.isdigit()) or len(number) > 18:
        raise NanobotError(
            f"there is no {row!r} in the queue",
            hint="`nanobot queue list` shows ids such as in-12 or out-7.",
        )
    return table, int(number)


def _not_in_trouble(row: str) -> NanobotError:
    return NanobotError(
        f"{row} is not waiting for a decision",
        hint="Only failed messages and dead replies can be retried or dropped; see"
        " `nanobot queue list`.",
    )
