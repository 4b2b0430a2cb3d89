"""The tables of a team's database, which the first worker makes. `nanobot.bus.rows` has the tables
shared with the single machine's file, and the conditions of the partial indexes.

Unlike in the file, rows carry the memory `scope` whose lease decides which worker handles them, the
numbers of a turn's report have columns, and shared counters have a row for each worker, because
commits that write the same row wait for each other."""

from __future__ import annotations

import re
from typing import Any

import psycopg

from nanobot.bus import rows
from nanobot.errors import StorageError
from nanobot.team.connection import DatabaseAddress, Row

_TABLES = """
    CREATE TABLE worker (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        name TEXT NOT NULL,
        version TEXT NOT NULL,
        started_at timestamptz NOT NULL DEFAULT now(),
        until timestamptz NOT NULL
    );
    -- The number of each worker's last transaction. After a lost connection, it shows whether that
    -- transaction was stored. (The server reuses its own transaction ids after a crash.)
    CREATE TABLE stamp (
        worker bigint PRIMARY KEY REFERENCES worker ON DELETE CASCADE,
        number bigint NOT NULL
    ) WITH (fillfactor = 50);
    CREATE TABLE lease (
        scope TEXT PRIMARY KEY,
        worker bigint REFERENCES worker ON DELETE SET NULL
    );
    CREATE INDEX lease_worker ON lease (worker);
    CREATE TABLE approval (
        code TEXT PRIMARY KEY,
        worker bigint NOT NULL REFERENCES worker ON DELETE CASCADE
    );
    CREATE INDEX approval_worker ON approval (worker);
    CREATE TABLE answer (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        code TEXT NOT NULL,
        worker bigint NOT NULL REFERENCES worker ON DELETE CASCADE,
        said TEXT NOT NULL,
        outcome TEXT NOT NULL DEFAULT '',
        failed boolean NOT NULL DEFAULT false
    );
    CREATE INDEX answer_worker ON answer (worker);
    -- Chats (`channel:chat_id`, without a thread) and the scope whose memory they use.
    CREATE TABLE conversation (key TEXT PRIMARY KEY, scope TEXT NOT NULL);

    ALTER TABLE inbox ADD scope TEXT NOT NULL,
        ADD worker bigint; -- The only worker that handles it, because its client waits there.
    ALTER TABLE turn ADD number bigint GENERATED ALWAYS AS IDENTITY, ADD scope TEXT NOT NULL,
        ADD model TEXT NOT NULL DEFAULT '', ADD milliseconds bigint, ADD prompt bigint,
        ADD cached bigint, ADD completion bigint, ADD cost bigint;
    ALTER TABLE unfiled ADD scope TEXT NOT NULL;
    ALTER TABLE outbox ADD scope TEXT NOT NULL;
    ALTER TABLE helper ADD scope TEXT NOT NULL, ADD worker bigint;
    ALTER TABLE spending ADD worker bigint NOT NULL, DROP CONSTRAINT spending_pkey,
        ADD PRIMARY KEY (day, worker), ALTER warned TYPE boolean USING warned != 0;

    -- Without failed rows, because each search for work reads the whole index.
    CREATE INDEX inbox_open ON inbox (scope) WHERE state IN ('received', 'working');
    CREATE INDEX inbox_failed ON inbox (scope) WHERE state = 'failed';
    CREATE INDEX inbox_turn ON inbox (turn_id) WHERE turn_id != '';
    CREATE INDEX turn_running ON turn (scope) WHERE state = 'running';
    CREATE INDEX turn_number ON turn (number);
    CREATE INDEX turn_session ON turn (session_key, number);
    CREATE INDEX turn_started ON turn (started_at);
    CREATE INDEX unfiled_scope ON unfiled (scope);
    CREATE INDEX outbox_open ON outbox (scope) WHERE state IN ('pending', 'sending');
    CREATE INDEX outbox_dead ON outbox (channel, chat_id) WHERE state = 'dead';
    CREATE INDEX outbox_sent ON outbox (channel, chat_id, platform_id) WHERE platform_id != '';
    -- A sender's messages in a minute, which all workers count.
    CREATE TABLE rate (
        sender TEXT NOT NULL,
        minute bigint NOT NULL,
        event_id TEXT NOT NULL,
        PRIMARY KEY (sender, minute, event_id)
    );
    -- The same word is in the shared folder.
    CREATE TABLE team (word TEXT PRIMARY KEY);
    -- Tables that must still be rebuilt without the erased text.
    CREATE TABLE rebuild (name TEXT PRIMARY KEY);
"""

_TYPES = {
    "INTEGER PRIMARY KEY AUTOINCREMENT": "bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
    "INTEGER": "bigint",
    "REAL": "double precision",
    "WITHOUT ROWID": "",
    # Compare bytes, as SQLite does, in any database locale.
    "TEXT": 'text COLLATE "C"',
}
_STATEMENTS = re.sub("|".join(_TYPES), lambda found: _TYPES[found[0]], rows.TABLES + _TABLES)

TABLES = re.findall(r"CREATE TABLE (\w+)", _STATEMENTS)
"""Names of the tables."""

VERSION = 1
"""Version of the tables."""

_LOCK = 0x6E616E6F626F74
"""Advisory lock of the worker that makes the tables."""


def prepare(address: DatabaseAddress) -> None:
    """Make the tables if there are none. Blocks. Raises `StorageError`, also for tables of another
    version."""
    with (
        address.errors(),
        address.connect_blocking() as connection,
        connection.transaction(),
    ):
        # Several workers may start at once.
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        if not _one(connection, "SELECT to_regclass('schema_version') IS NOT NULL"):
            connection.execute("CREATE TABLE schema_version (version integer NOT NULL)")
            connection.execute("INSERT INTO schema_version VALUES (%s)", (VERSION,))
            connection.execute(_STATEMENTS.encode())
        found = _one(connection, "SELECT version FROM schema_version")
        if found != VERSION:
            raise StorageError(
                address.place,
                f"its schema version ({found}) belongs to another version of nanobot",
                hint="Install the same version as on the other workers.",
            )


def has_tables(connection: psycopg.Connection[Row]) -> bool:
    """Return True if the tables exist."""
    return bool(_one(connection, "SELECT to_regclass('team') IS NOT NULL"))


def _one(connection: psycopg.Connection[Row], query: str) -> Any:
    row = connection.execute(query.encode()).fetchone()
    assert row is not None
    return row[0]
