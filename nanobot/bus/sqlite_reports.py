"""What people ask of the journal (queue, turns, usage), and what is kept beside turns.

Most are functions of a connection, so that they serve a running gateway (through `Database.run`) as
well as a command that opens the file by itself.

- Usage: turns report their tokens, and reports are kept for 30 days. What memory itself asks a
  model (consolidation, Dream) belongs to no turn and is counted by day.
- Spending: what all model calls of a day have used, for the daily budget, counted call by call.
- Helpers at work: what is stored of one is the message that reports its loss. Its real report has
  the same event id, so the conversation gets whichever comes first, and never both.
- Erasing: `redact_rows` changes texts in a transaction; `compact` then rebuilds the file, because
  SQLite keeps old bytes in free pages and in the write-ahead log. Doing both again is safe.
- `set_aside_rows`: what was under way in a journal restored from a backup waits for a person's
  decision, because it has in all likelihood been finished since.
"""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
from datetime import date, datetime

from loguru import logger

from nanobot.bus.events import (
    InboundMessage,
    OutboundPart,
    decode_inbound,
    decode_outbound,
    excerpt,
)
from nanobot.bus.journal import (
    InboxEntry,
    OutboxPart,
    QueueCounts,
    QueueRow,
    Redact,
    Spent,
    TurnCounts,
    TurnRecord,
    Usage,
)
from nanobot.bus.sqlite import Database, storable
from nanobot.bus.sqlite_state import SqliteState
from nanobot.errors import NanobotError


def load_part(db: sqlite3.Connection, part_id: int) -> OutboxPart:
    """One part. Raises `ValueError` if it cannot be read."""
    return stored_part(db.execute(f"{SELECT_PARTS} WHERE id = ?", (part_id,)).fetchone())


NOTICE = "undelivered-"


NOTICES = f"{NOTICE}%"
"""The turn ids of notices that a part could not be delivered, as a pattern for LIKE."""


SELECT_PARTS = (
    "SELECT id, turn_id, call, part, channel, chat_id, attempts, next_try_at,"
    " in_doubt OR state = 'sending', payload FROM outbox"
)


_Row = tuple[int, str, str, int, str, str, int, float, int, str | None]


def stored_part(row: _Row) -> OutboxPart:
    row_id, turn_id, call, number, channel, chat_id, attempts, next_try_at, doubt, payload = row
    message, event_ids, last = decode_outbound(channel, chat_id, payload or "")
    part = OutboundPart.of(f"{turn_id}/{call}/{number}", message, event_ids, last)
    return OutboxPart(row_id, part, attempts, next_try_at, bool(doubt))


_EXCERPT = 80


class SqliteReports:
    """The reports of the journal in `database`. See `JournalReports` for what each method gives."""

    def __init__(self, database: Database, state: SqliteState) -> None:
        self._database, self._state = database, state

    async def counts(self) -> QueueCounts:
        return await self._database.run(queue_counts)

    async def turn_counts(self, since: datetime) -> TurnCounts:
        return await self._database.run(lambda db: _turn_counts(db, since))

    async def queue(self) -> tuple[list[QueueRow], list[QueueRow]]:
        return await self._database.run(_queue_rows)

    async def retry(self, row: str) -> InboxEntry | OutboxPart:
        return await self._database.run(lambda db: _retry_row(db, row))

    async def drop(self, row: str) -> None:
        await self._database.run(lambda db: _drop_row(db, row))

    async def turn(self, turn_id: str) -> TurnRecord:
        return await self._database.run(lambda db: _turn_record(db, turn_id))

    async def mentioned(self, name: re.Pattern[str]) -> frozenset[str]:
        return await self._database.run(lambda db: _mentioned(db, name))

    async def usage(self, *, session: str = "", since: datetime | None = None) -> Usage:
        return await self._database.run(lambda db: _usage(db, session=session, since=since))

    async def learning(self, since: date) -> Usage:
        return await self._database.run(lambda db: _learning_usage(db, since))

    def add_learning(self, day: date, used: Usage) -> None:
        self._database.post(lambda db: _add_learning(db, day, used), patient=True)

    async def spent(self, day: date) -> Spent:
        return await self._database.run(lambda db: _spent(db, day))

    def add_spent(self, day: date, tokens: int, *, warned: bool = False) -> None:
        self._database.post(lambda db: _add_spent(db, day, tokens, warned=warned), patient=True)

    async def erase(self, redact: Redact) -> int:
        changed = await self._database.run(lambda db: redact_rows(db, redact), afterwards=compact)
        await asyncio.to_thread(self._state.copy)
        return changed

    async def count_erasures(self, redact: Redact) -> int:
        return await self._database.run(lambda db: len(_changes(db, redact)))


def queue_counts(db: sqlite3.Connection) -> QueueCounts:
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


def _turn_counts(db: sqlite3.Connection, since: datetime) -> TurnCounts:
    """The turns that began at `since` (aware) or later and have ended."""
    # Without GROUP BY, for which SQLite would sort all turns that are kept.
    row = db.execute(
        "SELECT total(state = 'done'), total(state = 'failed'), total(state = 'stopped') FROM turn"
        " WHERE datetime(started_at) >= datetime(?)",
        (since.isoformat(),),
    ).fetchone()
    return TurnCounts(*map(int, row))


def _queue_rows(db: sqlite3.Connection) -> tuple[list[QueueRow], list[QueueRow]]:
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


def _retry_row(db: sqlite3.Connection, row: str) -> InboxEntry | OutboxPart:
    """Make a failed message or a dead part ready to be tried again, and return it.

    Raises `NanobotError` when the row does not exist, is not in trouble or cannot be read.
    """
    try:
        return _retry_readable(db, row)
    except ValueError as error:
        raise NanobotError(
            f"{row} cannot be read, so it cannot be tried again",
            hint=f"`nanobot queue drop {row}` removes it; ask the person to send it again.",
        ) from error


def _retry_readable(db: sqlite3.Connection, row: str) -> InboxEntry | OutboxPart:
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


def _drop_row(db: sqlite3.Connection, row: str) -> None:
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


def _turn_record(db: sqlite3.Connection, turn_id: str) -> TurnRecord:
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


def _mentioned(db: sqlite3.Connection, name: re.Pattern[str]) -> frozenset[str]:
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


def _usage(db: sqlite3.Connection, *, session: str = "", since: datetime | None = None) -> Usage:
    """The usage of one conversation (all of them for an empty `session`) from `since` (aware) on.

    A turn without a report that can be read does not count.
    """
    row = db.execute(
        "WITH report AS ("
        " SELECT iif(json_valid(report), report, '{}') AS body FROM turn"
        " WHERE (:session = '' OR session_key = :session)"
        " AND (:since = '' OR datetime(started_at) >= datetime(:since)))"
        " SELECT count(json_extract(body, '$.prompt_tokens')),"
        " total(json_extract(body, '$.prompt_tokens')),"
        " total(json_extract(body, '$.cached_tokens')),"
        " total(json_extract(body, '$.completion_tokens')) FROM report",
        {"session": session, "since": since.isoformat() if since else ""},
    ).fetchone()
    return Usage(*map(int, row))


def _learning_usage(db: sqlite3.Connection, since: date) -> Usage:
    """What memory itself used, from the day `since` on."""
    row = db.execute(
        "SELECT total(calls), total(prompt), total(cached), total(completion) FROM learning"
        " WHERE day >= ?",
        (since.isoformat(),),
    ).fetchone()
    return Usage(*map(int, row))


def _add_learning(db: sqlite3.Connection, day: date, used: Usage) -> None:
    """Count calls of memory's own on a day."""
    db.execute(
        "INSERT INTO learning VALUES (?, ?, ?, ?, ?) ON CONFLICT (day) DO UPDATE SET"
        " calls = calls + excluded.calls, prompt = prompt + excluded.prompt,"
        " cached = cached + excluded.cached, completion = completion + excluded.completion",
        (day.isoformat(), used.turns, used.prompt, used.cached, used.completion),
    )


def _spent(db: sqlite3.Connection, day: date) -> Spent:
    """What was used on a day."""
    query = "SELECT tokens, warned FROM spending WHERE day = ?"
    row = db.execute(query, (day.isoformat(),)).fetchone()
    return Spent(int(row[0]), bool(row[1])) if row else Spent()


def _add_spent(db: sqlite3.Connection, day: date, tokens: int, *, warned: bool = False) -> None:
    """Count a call's tokens on a day, and remember a warning."""
    db.execute(
        "INSERT INTO spending VALUES (?, ?, ?) ON CONFLICT (day) DO UPDATE SET"
        " tokens = tokens + excluded.tokens, warned = max(warned, excluded.warned)",
        (day.isoformat(), tokens, int(warned)),
    )


def decode_helper(helper_id: str, if_lost: str) -> InboundMessage | None:
    """What is to be said of a helper; None where it cannot be read."""
    try:
        return decode_inbound(if_lost)
    except ValueError as error:
        logger.warning("what is to be said of helper {} cannot be read: {}", helper_id, error)
        return None


TEXTS = (
    ("inbox", "payload"),
    ("inbox", "reason"),
    ("turn", "report"),
    ("step", "payload"),
    ("prompt", "text"),
    ("unfiled", "lines"),
    ("outbox", "payload"),
    ("outbox", "reason"),
    ("button", "value"),
    ("helper", "if_lost"),
    ("document", "content"),
)
"""Where the journal keeps what people and models said. All else are ids, states and times."""
_KEYS = {"step": ("turn_id", "number"), "document": ("name",)}


def redact_rows(db: sqlite3.Connection, redact: Redact) -> int:
    """Pass every text through `redact`, in the caller's transaction; how many changed."""
    changes = list(_changes(db, redact))
    for statement, new, keys in changes:
        db.execute(statement, (new, *keys))
    return len(changes)


def compact(db: sqlite3.Connection) -> None:
    """Make the file anew without free pages, and empty the log. Outside any transaction."""
    db.execute("PRAGMA secure_delete=ON")
    try:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        db.execute("VACUUM")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    finally:
        db.execute("PRAGMA secure_delete=OFF")


def _changes(
    db: sqlite3.Connection, redact: Redact
) -> list[tuple[str, str, tuple[str | int, ...]]]:
    found = []
    for table, column in TEXTS:
        keys = _KEYS.get(table, ("id",))
        where = " AND ".join(f"{key} = ?" for key in keys)
        also = ", revision = revision + 1" if table == "document" else ""
        statement = f"UPDATE {table} SET {column} = ?{also} WHERE {where}"  # noqa: S608
        rows = db.execute(
            f"SELECT {column}, {', '.join(keys)} FROM {table}"  # noqa: S608 - names from above
            f" WHERE {column} IS NOT NULL AND {column} != ''"
        )
        for text, *key in rows:
            new = storable(redact(text))
            if new != text:
                found.append((statement, new, tuple(key)))
    return found


REASON = "it was under way when the backup was made, and may have been done since"


def set_aside_rows(db: sqlite3.Connection) -> int:
    """Let all that was under way be what failed, in the caller's transaction; how many rows."""
    db.execute("UPDATE turn SET state = 'failed' WHERE state = 'running'")
    messages = db.execute(
        "UPDATE inbox SET state = 'failed', reason = ? WHERE state IN ('received', 'working')",
        (REASON,),
    ).rowcount
    parts = db.execute(
        "UPDATE outbox SET state = 'dead', reason = ? WHERE state IN ('pending', 'sending')",
        (REASON,),
    ).rowcount
    return messages + parts + _helpers(db)


def _helpers(db: sqlite3.Connection) -> int:
    """A helper's report has most likely come since: that it was lost is no news by itself."""
    if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'helper'").fetchone():
        return 0
    count_erasures = 0
    helpers = db.execute("SELECT id, started_at, if_lost FROM helper").fetchall()
    for helper_id, started_at, text in helpers:
        lost = decode_helper(helper_id, text)
        if lost is None:
            continue
        count_erasures += db.execute(
            "INSERT INTO inbox (channel, chat_id, event_id, session_key, state, reason,"
            " received_at, payload) VALUES (?, ?, ?, ?, 'failed', ?, ?, ?)"
            " ON CONFLICT (channel, chat_id, event_id) DO NOTHING",
            (
                *(lost.channel, lost.chat_id, lost.event_id, lost.session_key),
                *(REASON, started_at, text),
            ),
        ).rowcount
    db.execute("DELETE FROM helper")
    return count_erasures
