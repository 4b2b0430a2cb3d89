"""Copies all rows of a journal's file into a team's database, and back. Both run in the caller's
transaction in the database, while no worker is there.

Ids and the order of turns stay. Rows get their scope from `Whose`. Counts of all workers go to no
worker in particular, and are added up on the way back. Leases, questions, rates and the scopes of
chats exist only in a team and are not copied back."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Sequence
from typing import Any

import psycopg
from msgspec import Struct, field

from nanobot.bus.events import InboundMessage
from nanobot.bus.rows import decode_event, decode_report, number_in
from nanobot.errors import NanobotError
from nanobot.team import schema
from nanobot.team.connection import Row, storable
from nanobot.team.leases import SINGLE

Database = psycopg.Connection[Row]

_TABLES = (
    "inbox", "turn", "step", "prompt", "unfiled", "outbox", "button", "helper", "used",
    "spending", "cursor", "document",
)  # fmt: skip
"""Ordered: a scope comes from an earlier table."""

_NUMBERED = ("inbox", "unfiled", "outbox")
"""Tables whose ids are never reused."""
_TRUTHS = ("warned",)
_NUMBERS = ("milliseconds", "prompt_tokens", "cached_tokens", "completion_tokens", "cost")
_SUMMED = {
    "spending": "SELECT day, sum(tokens)::bigint, bool_or(warned) FROM spending GROUP BY day",
}


class Whose(Struct, frozen=True):
    """The memory scopes of messages and conversations (by their key). Parts for `exclusive`
    channels belong to the worker that runs the channel."""

    message: Callable[[InboundMessage], str]
    conversation: Callable[[str], str]
    exclusive: Collection[str] = ()


def expect_nobody(db: Database) -> None:
    """Keep workers from joining until the caller's transaction ends. Raises `NanobotError` if one
    is alive."""
    db.execute("LOCK TABLE worker IN EXCLUSIVE MODE")
    alive = db.execute("SELECT name FROM worker WHERE until > clock_timestamp()").fetchall()
    if names := ", ".join(sorted({name for (name,) in alive})):
        hint = "Stop all workers first. `nanobot team status` lists them."
        raise NanobotError(f"the team's workers are still running: {names}", hint=hint)


def has_rows(db: sqlite3.Connection | Database) -> bool:
    return any(_first(db, f"SELECT EXISTS (SELECT 1 FROM {table})") for table in _TABLES)


def to_database(file: sqlite3.Connection, db: Database, whose: Whose) -> None:
    """Copy everything. The tables must be empty."""
    scopes = _Scopes(whose)
    for table in _TABLES:
        columns = _columns(file, table)
        names = [*columns.values(), *_MORE.get(table, ())]
        into = f"COPY {table} ({', '.join(names)}) FROM STDIN"
        rows = file.execute(f"SELECT {', '.join(columns)} FROM {table}")
        with db.cursor() as cursor, cursor.copy(into.encode()) as copy:
            for values in rows:
                row = dict(zip(columns.values(), map(_convert, names, values), strict=True))
                copy.write_row((*row.values(), *scopes.more(table, row)))
    with db.cursor() as cursor, cursor.copy(b"COPY conversation FROM STDIN") as copy:
        for chat in scopes.chats.items():
            copy.write_row(chat)
    for table in _NUMBERED:
        last = file.execute("SELECT seq FROM sqlite_sequence WHERE name = ?", (table,)).fetchone()
        _continue_ids(db, table, "id", last[0] if last else 0)
    _continue_ids(db, "turn", "number", _first(file, "SELECT coalesce(max(rowid), 0) FROM turn"))


def to_file(db: Database, file: sqlite3.Connection) -> None:
    """Copy everything into a new file."""
    db.execute(f"LOCK TABLE {', '.join(_TABLES)} IN EXCLUSIVE MODE".encode())
    with file:
        for table in _TABLES:
            columns = _columns(file, table)
            marks = ", ".join("?" * len(columns))
            put = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})"
            names = list(columns.values())
            query = _SUMMED.get(table, f"SELECT {', '.join(names)} FROM {table}")
            if table in (*_NUMBERED, "turn"):
                query += f" ORDER BY {names[0]}"
            with db.cursor(name="rows") as rows:
                rows.execute(query.encode())
                file.executemany(put, rows)
        for table in _NUMBERED:
            last, is_used = db.execute(
                f"SELECT last_value, is_called FROM {table}_id_seq".encode()
            ).fetchone() or (0, False)
            file.execute("DELETE FROM sqlite_sequence WHERE name = ?", (table,))
            if is_used:
                file.execute("INSERT INTO sqlite_sequence VALUES (?, ?)", (table, last))


def clear(db: Database) -> None:
    """Remove every row, and the mark that the database is a team's."""
    db.execute(f"TRUNCATE {', '.join(schema.TABLES)} RESTART IDENTITY".encode())


_MORE = {
    "inbox": ("scope",),
    "turn": ("scope", "model", "milliseconds", "prompt", "cached", "completion", "cost"),
    "unfiled": ("scope",),
    "outbox": ("scope",),
    "helper": ("scope",),
    "spending": ("worker",),
}
"""Columns that rows have only in the database."""


class _Scopes(Struct):
    """Scopes of the rows, worked out from one table to the next."""

    whose: Whose
    chats: dict[str, str] = field(default_factory=dict)
    turns: dict[str, str] = field(default_factory=dict)

    def more(self, table: str, row: dict[str, Any]) -> Sequence[Any]:
        """Return the values of the `_MORE` columns for a row of the file."""
        if table not in _MORE:
            return ()
        if table in _SUMMED:
            return (0,)
        scope = self._scope(table, row)
        if table != "turn":
            return (scope,)
        report = decode_report(row["report"])
        model = storable(str(report.get("model") or ""))
        return (scope, model, *(number_in(report, name) for name in _NUMBERS))

    def _scope(self, table: str, row: dict[str, Any]) -> str:
        match table:
            case "inbox":
                return self._of_message(row)
            case "outbox" if row["channel"] in self.whose.exclusive:
                return f"{SINGLE}{row['channel']}"
            case "outbox":
                chat = f"{row['channel']}:{row['chat_id']}"
                known = self.chats.get(chat) or self.turns.get(row["turn_id"])
                return known or self.whose.conversation(chat)
            case "helper":
                message = _decode_message(row["if_lost"])
                return self.whose.message(message) if message else ""
        scope = self.whose.conversation(row["session_key"])
        return self.turns.setdefault(row["id"], scope) if table == "turn" else scope

    def _of_message(self, row: dict[str, Any]) -> str:
        message, chat = _decode_message(row["payload"]), f"{row['channel']}:{row['chat_id']}"
        if message is None:  # handled and dropped: use the stored chat
            scope = self.whose.conversation(row["session_key"])
            if row["session_key"].startswith(chat):
                self.chats.setdefault(chat, scope)
        else:
            scope = self.whose.message(message)
            if not message.is_background:
                self.chats[chat] = scope
        self.turns.setdefault(row["turn_id"], scope)
        return scope


def _decode_message(payload: str | None) -> InboundMessage | None:
    try:
        return decode_event(InboundMessage, payload) if payload else None
    except ValueError:
        return None


def _columns(file: sqlite3.Connection, table: str) -> dict[str, str]:
    """Return the columns of a table in the file, each with its name in the database."""
    known = (row[1] for row in file.execute(f"PRAGMA table_info({table})"))
    order = {"rowid": "number"} if table == "turn" else {}
    return {**order, **{name: name for name in known}}


def _convert(name: str, value: Any) -> Any:
    """Convert a value of the file for the database."""
    if name in _TRUTHS:
        return bool(value)
    return storable(value) if isinstance(value, str) else value


def _continue_ids(db: Database, table: str, column: str, last: int) -> None:
    """Continue a sequence after `last`."""
    if last:
        db.execute("SELECT setval(pg_get_serial_sequence(%s, %s), %s)", (table, column, last))


def _first(db: sqlite3.Connection | Database, query: str) -> Any:
    if isinstance(db, psycopg.Connection):
        row = db.execute(query.encode()).fetchone()
    else:
        row = db.execute(query).fetchone()
    return row[0] if row else None
