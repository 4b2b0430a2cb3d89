"""What stands beside the messages in the journal's database: documents, and what people ask of it.

Documents of a home: after each change all of them are written to `state/documents.json` as well. A
database that is made anew, because the one before was damaged and moved away, takes them from
there. A file `state/NAME.json` with the name of a document is taken in when the database is opened,
and called `NAME.json.imported` then. That is how documents of earlier versions come in, within the
transaction that brings the database forward, and how a person puts one in place by hand.

Reports (queue, turns, usage), and what is counted:

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
import os
import re
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import date, datetime
from itertools import count
from pathlib import Path

from loguru import logger

from nanobot.bus.events import InboundMessage, decode_inbound, decode_part, excerpt
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
from nanobot.bus.sqlite import Database, execute, storable
from nanobot.bus.state import DOCUMENTS, Stored, UnfitDocument, versioned_object
from nanobot.errors import NanobotError, StorageError, WriteConflict
from nanobot.io import replace_file, storage_errors

_VERSION = 1

COPY = "documents.json"
"""The copy of all documents, beside the database."""

TABLE = """
    CREATE TABLE document (
        name TEXT PRIMARY KEY,
        content TEXT NOT NULL,
        revision INTEGER NOT NULL
    ) WITHOUT ROWID
"""

_PUT = """
    INSERT INTO document VALUES (?1, ?2, 1)
    ON CONFLICT DO UPDATE SET content = ?2, revision = revision + 1 WHERE content != ?2
"""


def waiting_files(folder: Path) -> list[Path]:
    """The files in `folder` that are to be taken in."""
    paths = (folder / f"{name}.json" for name in DOCUMENTS)
    return [path for path in paths if os.path.lexists(path)]


def take_in(db: sqlite3.Connection, folder: Path, version: int) -> list[Path]:
    """Store the documents that lie in `folder` as files, within the caller's transaction; the
    files, to be renamed once that is durable. `version`: of the database before, 0 for none.

    A file that replaces a stored document must be JSON. Raises `OSError` where one cannot be read.
    """
    if version == 0:
        for name, text in _copied(folder / COPY).items():
            db.execute(_PUT, (name, text))
    taken = []
    for path in waiting_files(folder):
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            content = file.read()
        if _revision(db, path.stem) and not _is_json(content):
            logger.error("{} is not taken in: it is not JSON", path)
            continue
        db.execute(_PUT, (path.stem, content.decode("utf-8", "backslashreplace")))
        taken.append(path)
    return taken


def stored_documents(db: sqlite3.Connection | None, folder: Path) -> dict[str, bytes]:
    """The documents as the next start finds them, from a database of any version or none. Raises
    `sqlite3.Error` and `OSError`."""
    found = {}
    if db and db.execute("SELECT 1 FROM sqlite_master WHERE name = 'document'").fetchone():
        rows = db.execute("SELECT name, content FROM document")
        found = {name: content.encode() for name, content in rows}
    return found | {path.stem: path.read_bytes() for path in waiting_files(folder)}


def _copied(path: Path) -> dict[str, str]:
    """The documents in the copy at `path`. One that cannot be used is moved aside."""
    try:
        documents = _documents_in(path.read_bytes())
    except FileNotFoundError:
        return {}
    except UnfitDocument as error:
        aside = path.with_name(f"{path.name}.broken")
        path.replace(aside)
        logger.error(
            "{} cannot be used ({}) and is kept as {}. Until you let them in again, only the people"
            " in config.yaml may talk, no skill of yours is enabled, and no job runs.",
            *(path, error, aside.name),
        )
        return {}
    logger.warning("{} were taken from {}", ", ".join(documents), path)
    return {name: json.dumps(one, indent=1) for name, one in documents.items()}


def _documents_in(copy: bytes) -> dict[str, object]:
    documents = versioned_object(copy, _VERSION).get("documents")
    if not isinstance(documents, dict):
        raise UnfitDocument("it holds no documents")
    return documents


def _revision(db: sqlite3.Connection, name: str) -> int:
    row = db.execute("SELECT revision FROM document WHERE name = ?", (name,)).fetchone()
    return int(row[0]) if row else 0


def _is_json(content: bytes) -> bool:
    try:
        json.loads(content)
    except (ValueError, RecursionError):
        return False
    return True


class SqliteState:
    """The documents in the database that `connect` opens when it is first needed. Implements
    `nanobot.bus.state.StateStore`; `folder` is where the copy is kept."""

    def __init__(self, connect: Callable[[], sqlite3.Connection], folder: Path) -> None:
        self._connect = connect
        self._folder = folder
        self._db: sqlite3.Connection | None = None
        self._using = threading.RLock()

    def close(self) -> None:
        """Let go of the database; it is opened again when it is needed."""
        with self._using:
            if self._db is not None:
                self._db.close()
                self._db = None

    def revision(self, name: str) -> int:
        with self._database() as db:
            return _revision(db, name)

    def read(self, name: str) -> Stored | None:
        with self._database() as db:
            row = db.execute(
                "SELECT content, revision FROM document WHERE name = ?", (name,)
            ).fetchone()
        return Stored(row[0].encode(), row[1]) if row else None

    def write(self, name: str, content: bytes, expected: int) -> int:
        self._replace(name, expected, storable(content.decode()))
        return expected + 1

    def set_aside(self, name: str) -> str:
        stored = self.read(name)
        if stored is None:
            return "nothing"
        paths = (self._folder / f"{name}.json.broken-{number}" for number in count(1))
        aside = next(path for path in paths if not os.path.lexists(path))
        with storage_errors(aside):
            replace_file(aside, stored.content)
        self._replace(name, stored.revision, None)
        return aside.name

    def copy(self) -> None:
        """Bring the copy for people up to date. One that the disk refuses is made with the next
        change."""
        with self._database() as db:
            rows = db.execute("SELECT name, content FROM document ORDER BY name").fetchall()
        found = {}
        for name, content in rows:
            with suppress(ValueError, RecursionError):
                found[name] = json.loads(content)
        content = json.dumps({"version": _VERSION, "documents": found}, indent=1).encode() + b"\n"
        path = self._folder / COPY
        try:
            if not path.exists() or path.read_bytes() != content:
                replace_file(path, content)
        except OSError as error:
            logger.warning("{} is not up to date: {}", path, error.strerror)

    def _replace(self, name: str, expected: int, content: str | None) -> None:
        """Put `content`, or nothing, in place of revision `expected`."""
        with self._database() as db, db:
            db.execute("BEGIN IMMEDIATE")
            if _revision(db, name) != expected:
                raise WriteConflict(f"the stored document {name!r}")
            db.execute("DELETE FROM document WHERE name = ?", (name,))
            if content is not None:
                db.execute("INSERT INTO document VALUES (?, ?, ?)", (name, content, expected + 1))
        self.copy()

    @contextmanager
    def _database(self) -> Iterator[sqlite3.Connection]:
        with self._using:
            if self._db is None:
                self._db = self._connect()
                self.copy()
            try:
                yield self._db
            except sqlite3.Error as error:
                raise StorageError("state/journal.db", str(error)) from error


NOTICE = "undelivered-"

NOTICES = f"{NOTICE}%"
"""The turn ids of notices that a part could not be delivered, as a pattern for LIKE."""

SELECT_PARTS = (
    "SELECT id, turn_id, call, part, channel, chat_id, attempts, next_try_at,"
    " in_doubt OR state = 'sending', payload FROM outbox"
)

_UNDELIVERED = (
    f"state IN ('pending', 'sending') OR (state = 'dead' AND turn_id NOT LIKE '{NOTICES}')"
)
_EXCERPT = 80

_Row = tuple[int, str, str, int, str, str, int, float, int, str | None]


def stored_part(row: _Row) -> OutboxPart:
    """The part in a row of `SELECT_PARTS`. Raises `ValueError` if it cannot be read."""
    row_id, turn_id, call, number, channel, chat_id, attempts, next_try_at, doubt, payload = row
    part = decode_part(f"{turn_id}/{call}/{number}", channel, chat_id, payload or "")
    return OutboxPart(row_id, part, attempts, next_try_at, bool(doubt))


class SqliteReports:
    """The reports of the journal in `database`. See `JournalReports` for what each method gives."""

    def __init__(self, database: Database, state: SqliteState) -> None:
        self._database, self._state = database, state

    async def counts(self) -> QueueCounts:
        return await self._database.run(queue_counts)

    async def queue(self) -> tuple[list[QueueRow], list[QueueRow]]:
        return await self._database.run(_queue_rows)

    async def retry(self, row: str) -> InboxEntry | OutboxPart:
        try:
            return await self._database.run(lambda db: _retry_row(db, row))
        except ValueError as error:
            raise NanobotError(
                f"{row} cannot be read, so it cannot be tried again",
                hint=f"`nanobot queue drop {row}` removes it; ask the person to send it again.",
            ) from error

    async def drop(self, row: str) -> None:
        await self._database.run(lambda db: _drop_row(db, row))

    async def turn(self, turn_id: str) -> TurnRecord:
        return await self._database.run(lambda db: _turn_record(db, turn_id))

    async def mentioned(self, name: re.Pattern[str]) -> frozenset[str]:
        query = (
            "SELECT payload FROM inbox WHERE state IN ('received', 'working', 'failed')"
            " UNION ALL SELECT payload FROM step"
            " UNION ALL SELECT payload FROM outbox WHERE state IN ('pending', 'sending', 'dead')"
        )
        return await self._database.run(
            lambda db: frozenset(
                found for (payload,) in db.execute(query) for found in name.findall(payload or "")
            )
        )

    async def turn_counts(self, since: datetime) -> TurnCounts:
        # Without GROUP BY, for which SQLite would sort all turns that are kept.
        query = (
            "SELECT total(state = 'done'), total(state = 'failed'), total(state = 'stopped')"
            " FROM turn WHERE datetime(started_at) >= datetime(?)"
        )
        return TurnCounts(*await self._numbers(query, since.isoformat()))

    async def usage(self, *, session: str = "", since: datetime | None = None) -> Usage:
        query = (
            "WITH report AS ("
            " SELECT iif(json_valid(report), report, '{}') AS body FROM turn"
            " WHERE (?1 = '' OR session_key = ?1)"
            " AND (?2 = '' OR datetime(started_at) >= datetime(?2)))"
            " SELECT count(json_extract(body, '$.prompt_tokens')),"
            " total(json_extract(body, '$.prompt_tokens')),"
            " total(json_extract(body, '$.cached_tokens')),"
            " total(json_extract(body, '$.completion_tokens')) FROM report"
        )
        return Usage(*await self._numbers(query, session, since.isoformat() if since else ""))

    async def learning(self, since: date) -> Usage:
        query = (
            "SELECT total(calls), total(prompt), total(cached), total(completion) FROM learning"
            " WHERE day >= ?"
        )
        return Usage(*await self._numbers(query, since.isoformat()))

    def add_learning(self, day: date, used: Usage) -> None:
        self._add(
            "INSERT INTO learning VALUES (?, ?, ?, ?, ?) ON CONFLICT (day) DO UPDATE SET"
            " calls = calls + excluded.calls, prompt = prompt + excluded.prompt,"
            " cached = cached + excluded.cached, completion = completion + excluded.completion",
            *(day.isoformat(), used.turns, used.prompt, used.cached, used.completion),
        )

    async def spent(self, day: date) -> Spent:
        query = "SELECT total(tokens), total(warned) FROM spending WHERE day = ?"
        tokens, warned = await self._numbers(query, day.isoformat())
        return Spent(tokens, bool(warned))

    def add_spent(self, day: date, tokens: int, *, warned: bool = False) -> None:
        self._add(
            "INSERT INTO spending VALUES (?, ?, ?) ON CONFLICT (day) DO UPDATE SET"
            " tokens = tokens + excluded.tokens, warned = max(warned, excluded.warned)",
            *(day.isoformat(), tokens, int(warned)),
        )

    async def erase(self, redact: Redact) -> int:
        changed = await self._database.run(lambda db: redact_rows(db, redact), afterwards=compact)
        await asyncio.to_thread(self._state.copy)
        return changed

    async def _numbers(self, query: str, *values: object) -> list[int]:
        """The one row that a query has, all numbers."""
        row = await self._database.run(lambda db: execute(db, query, *values).fetchone())
        return list(map(int, row))

    def _add(self, statement: str, *values: object) -> None:
        self._database.post(lambda db: execute(db, statement, *values), patient=True)


def queue_counts(db: sqlite3.Connection) -> QueueCounts:
    """How much is under way or in trouble."""
    inbox = db.execute(
        "SELECT total(state != 'failed' AND (state = 'received' OR not_before)),"
        " total(state = 'working' AND NOT not_before), total(state = 'failed'),"
        " total(state != 'failed' AND not_before > 0)"
        " FROM inbox WHERE state IN ('received', 'working', 'failed')"
    ).fetchone()
    outbox = db.execute(
        f"SELECT total(state != 'dead'), total(state = 'dead') FROM outbox WHERE {_UNDELIVERED}"  # noqa: S608 - from above
    ).fetchone()
    received, working, failed, put_off = map(int, inbox)
    pending, dead = map(int, outbox)
    return QueueCounts(received, working, failed, pending, dead, put_off)


def _queue_rows(db: sqlite3.Connection) -> tuple[list[QueueRow], list[QueueRow]]:
    inbox = db.execute(
        "SELECT payload, 'in-' || id, session_key,"
        " iif(state != 'failed' AND not_before, 'waiting', state), attempts, received_at, reason"
        " FROM inbox"
        " WHERE state IN ('received', 'working', 'failed') ORDER BY id"
    )
    outbox = db.execute(
        "SELECT payload, 'out-' || id, channel || ':' || chat_id, state, attempts, created_at,"  # noqa: S608 - from above
        f" reason FROM outbox WHERE {_UNDELIVERED} ORDER BY id"
    )

    def shown(rows: sqlite3.Cursor) -> list[QueueRow]:
        return [QueueRow(*(*row, excerpt(text, _EXCERPT))) for text, *row in rows]

    return shown(inbox), shown(outbox)


def _retry_row(db: sqlite3.Connection, row: str) -> InboxEntry | OutboxPart:
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
        changed = db.execute(
            "UPDATE outbox SET state = 'pending', attempts = 0, next_try_at = 0,"
            " in_doubt = 0, reason = '' WHERE id = ? AND state = 'dead'",
            (row_id,),
        )
        if changed.rowcount:
            return stored_part(db.execute(f"{SELECT_PARTS} WHERE id = ?", (row_id,)).fetchone())
    raise _not_in_trouble(row)


def _drop_row(db: sqlite3.Connection, row: str) -> None:
    table, row_id = _parse(row)
    ended = "state = 'stopped', payload = NULL WHERE state = 'failed'"
    if table == "outbox":
        ended = "state = 'sent', payload = NULL, reason = 'dropped' WHERE state = 'dead'"
    changed = db.execute(f"UPDATE {table} SET {ended} AND id = ?", (row_id,))  # noqa: S608 - from above
    if not changed.rowcount:
        raise _not_in_trouble(row)


def _parse(row: str) -> tuple[str, int]:
    found = re.fullmatch(r"(in|out)-([0-9]{1,18})", row)
    if found is None:
        raise NanobotError(
            f"there is no {row!r} in the queue",
            hint="`nanobot queue list` shows ids such as in-12 or out-7.",
        )
    return "inbox" if found[1] == "in" else "outbox", int(found[2])


def _not_in_trouble(row: str) -> NanobotError:
    return NanobotError(
        f"{row} is not waiting for a decision",
        hint="Only failed messages and dead replies can be retried or dropped; see"
        " `nanobot queue list`.",
    )


def _turn_record(db: sqlite3.Connection, turn_id: str) -> TurnRecord:
    row = execute(
        db,
        "SELECT id, session_key, state, started_at, report FROM turn WHERE id = ?",
        turn_id,
    ).fetchone()
    if row is None:
        raise NanobotError(
            f"no turn {turn_id!r}",
            hint="`nanobot sessions show KEY` shows the turns of a conversation; reports are kept"
            " for 30 days.",
        )
    try:
        report = json.loads(row[4] or "{}")
    except ValueError:  # damaged: what else is known of the turn can still be shown
        report = {}
    report = report if isinstance(report, dict) else {}
    query = "SELECT text FROM prompt WHERE id = ?"
    prompt = db.execute(query, (str(report.get("system_id", "")),)).fetchone()
    return TurnRecord(row[0], row[1], row[2], row[3], report, prompt[0] if prompt else "")


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
_KEYS = {"step": "turn_id, number", "document": "name"}


def redact_rows(db: sqlite3.Connection, redact: Redact) -> int:
    """Pass every text through `redact`, in the caller's transaction; how many changed."""
    changed = 0
    for table, column in TEXTS:
        keys = _KEYS.get(table, "id")
        also = ", revision = revision + 1" if table == "document" else ""
        rows = db.execute(f"SELECT {column}, {keys} FROM {table} WHERE {column} != ''")  # noqa: S608 - names from above
        for text, *key in rows.fetchall():
            new = storable(redact(text))
            if new != text:
                changed += db.execute(
                    f"UPDATE {table} SET {column} = ?{also}"  # noqa: S608 - names from above
                    f" WHERE ({keys}) = ({', '.join('?' * len(key))})",
                    (new, *key),
                ).rowcount
    return changed


def compact(db: sqlite3.Connection) -> None:
    """Make the file anew without free pages, and empty the log. Outside any transaction."""
    db.execute("PRAGMA secure_delete=ON")
    try:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        db.execute("VACUUM")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    finally:
        db.execute("PRAGMA secure_delete=OFF")


REASON = "it was under way when the backup was made, and may have been done since"


def set_aside_rows(db: sqlite3.Connection) -> int:
    """Let all that was under way be what failed, in the caller's transaction; how many rows. A
    helper's report has most likely come since: that it was lost is no news by itself."""
    db.execute("UPDATE turn SET state = 'failed' WHERE state = 'running'")
    changed = db.execute(
        "UPDATE inbox SET state = 'failed', reason = ? WHERE state IN ('received', 'working')",
        (REASON,),
    ).rowcount
    changed += db.execute(
        "UPDATE outbox SET state = 'dead', reason = ? WHERE state IN ('pending', 'sending')",
        (REASON,),
    ).rowcount
    for helper_id, started_at, text in db.execute("SELECT * FROM helper").fetchall():
        if lost := decode_helper(helper_id, text):
            changed += db.execute(
                "INSERT INTO inbox (channel, chat_id, event_id, session_key, state, reason,"
                " received_at, payload) VALUES (?, ?, ?, ?, 'failed', ?, ?, ?)"
                " ON CONFLICT (channel, chat_id, event_id) DO NOTHING",
                (
                    *(lost.channel, lost.chat_id, lost.event_id, lost.session_key),
                    *(REASON, started_at, text),
                ),
            ).rowcount
    db.execute("DELETE FROM helper")
    return changed
