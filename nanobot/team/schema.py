"""The tables of a team's database. The first worker makes them. `nanobot.bus.rows` has the
conditions of the partial indexes.

What differs from the single machine's file: rows carry the `scope` of memory that they belong to,
whose lease decides who handles them; numbers of a turn's report stand in columns; what all workers
count has a row for each of them, because a row that all of them write to would let their commits
wait for each other.
"""

from __future__ import annotations

import re
from typing import Any

import psycopg

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
    -- The number of the last transaction of each worker: after a connection was lost, it tells
    -- whether that was stored. (The server's own transaction ids are used again after a crash.)
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
    -- Chats (`channel:chat_id`, without a thread) and whose memory they use.
    CREATE TABLE conversation (key TEXT PRIMARY KEY, scope TEXT NOT NULL);

    CREATE TABLE inbox (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        scope TEXT NOT NULL,
        channel TEXT NOT NULL,
        chat_id TEXT NOT NULL,
        event_id TEXT NOT NULL,
        session_key TEXT NOT NULL,
        state TEXT NOT NULL DEFAULT 'received'
            CHECK (state IN ('received', 'working', 'done', 'failed', 'stopped')),
        attempts integer NOT NULL DEFAULT 0,
        runs integer NOT NULL DEFAULT 0,
        not_before double precision NOT NULL DEFAULT 0,
        group_id TEXT NOT NULL DEFAULT '',
        turn_id TEXT NOT NULL DEFAULT '',
        reason TEXT NOT NULL DEFAULT '',
        received_at TEXT NOT NULL,
        payload TEXT,
        worker bigint, -- Where somebody waits for the answer: nobody else handles it meanwhile.
        UNIQUE (channel, chat_id, event_id)
    );
    -- Without failed rows: each look for work reads the whole index.
    CREATE INDEX inbox_open ON inbox (scope) WHERE state IN ('received', 'working');
    CREATE INDEX inbox_failed ON inbox (scope) WHERE state = 'failed';
    CREATE INDEX inbox_turn ON inbox (turn_id) WHERE turn_id != '';
    CREATE TABLE cursor (channel TEXT PRIMARY KEY, value TEXT NOT NULL);
    CREATE TABLE turn (
        id TEXT PRIMARY KEY,
        number bigint GENERATED ALWAYS AS IDENTITY,
        scope TEXT NOT NULL,
        session_key TEXT NOT NULL,
        state TEXT NOT NULL CHECK (state IN ('running', 'done', 'failed', 'stopped')),
        progress integer NOT NULL DEFAULT 0,
        asked integer NOT NULL DEFAULT 0,
        started_at TEXT NOT NULL,
        report TEXT NOT NULL DEFAULT '',
        model TEXT NOT NULL DEFAULT '',
        milliseconds bigint,
        prompt bigint,
        cached bigint,
        completion bigint,
        cost bigint
    );
    CREATE INDEX turn_running ON turn (scope) WHERE state = 'running';
    CREATE INDEX turn_number ON turn (number);
    CREATE INDEX turn_session ON turn (session_key, number);
    CREATE INDEX turn_started ON turn (started_at);
    CREATE TABLE step (
        turn_id TEXT NOT NULL,
        number integer NOT NULL,
        kind TEXT NOT NULL,
        payload TEXT NOT NULL,
        PRIMARY KEY (turn_id, number)
    );
    CREATE TABLE prompt (id TEXT PRIMARY KEY, text TEXT NOT NULL, used_at TEXT NOT NULL);
    CREATE TABLE unfiled (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        scope TEXT NOT NULL,
        session_key TEXT NOT NULL,
        lines TEXT NOT NULL
    );
    CREATE INDEX unfiled_scope ON unfiled (scope);
    CREATE TABLE outbox (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        scope TEXT NOT NULL,
        turn_id TEXT NOT NULL,
        call TEXT NOT NULL,
        part integer NOT NULL,
        channel TEXT NOT NULL,
        chat_id TEXT NOT NULL,
        state TEXT NOT NULL DEFAULT 'pending'
            CHECK (state IN ('pending', 'sending', 'sent', 'dead')),
        attempts integer NOT NULL DEFAULT 0,
        next_try_at double precision NOT NULL DEFAULT 0,
        in_doubt integer NOT NULL DEFAULT 0,
        platform_id TEXT NOT NULL DEFAULT '',
        reason TEXT NOT NULL DEFAULT '',
        payload TEXT,
        created_at TEXT NOT NULL,
        UNIQUE (turn_id, call, part)
    );
    CREATE INDEX outbox_open ON outbox (scope) WHERE state IN ('pending', 'sending');
    CREATE INDEX outbox_dead ON outbox (channel, chat_id) WHERE state = 'dead';
    CREATE INDEX outbox_sent ON outbox (channel, chat_id, platform_id) WHERE platform_id != '';
    CREATE TABLE button (
        id TEXT PRIMARY KEY,
        channel TEXT NOT NULL,
        chat_id TEXT NOT NULL,
        sender_id TEXT NOT NULL,
        value TEXT NOT NULL,
        created_at TEXT NOT NULL
    );
    CREATE TABLE helper (
        id TEXT PRIMARY KEY,
        scope TEXT NOT NULL,
        started_at TEXT NOT NULL,
        if_lost TEXT NOT NULL,
        worker bigint
    );
    CREATE TABLE used (
        day TEXT NOT NULL,
        session_key TEXT NOT NULL,
        turns bigint NOT NULL,
        prompt bigint NOT NULL,
        cached bigint NOT NULL,
        completion bigint NOT NULL,
        cost bigint,
        PRIMARY KEY (day, session_key)
    );
    CREATE TABLE spending (
        day TEXT NOT NULL,
        worker bigint NOT NULL,
        tokens bigint NOT NULL,
        warned boolean NOT NULL,
        PRIMARY KEY (day, worker)
    );
    -- The messages of a sender in a minute, so that all workers count them.
    CREATE TABLE rate (
        sender TEXT NOT NULL,
        minute bigint NOT NULL,
        event_id TEXT NOT NULL,
        PRIMARY KEY (sender, minute, event_id)
    );
    CREATE TABLE document (name TEXT PRIMARY KEY, content TEXT NOT NULL, revision bigint NOT NULL);
    -- The word that the shared folder has as well.
    CREATE TABLE team (word TEXT PRIMARY KEY);
    -- Tables that still have to be rebuilt without what was erased.
    CREATE TABLE rebuild (name TEXT PRIMARY KEY);
"""

# Compared byte by byte, as SQLite does, whatever the database's language is.
_STATEMENTS = _TABLES.replace("TEXT", 'text COLLATE "C"')

TABLES = re.findall(r"CREATE TABLE (\w+)", _STATEMENTS)
"""Their names."""

VERSION = 1
"""The version of the tables."""

_LOCK = 0x6E616E6F626F74
"""The advisory lock of the worker that makes the tables."""


def prepare(address: DatabaseAddress) -> None:
    """Make the tables if there are none. Blocks. Raises `StorageError`, also for tables of another
    version."""
    with (
        address.errors(),
        address.connect_blocking() as connection,
        connection.transaction(),
    ):
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        if not _one(connection, "SELECT to_regclass('schema_version') IS NOT NULL"):
            connection.execute("CREATE TABLE schema_version (version integer NOT NULL)")
            connection.execute("INSERT INTO schema_version VALUES (%s)", (VERSION,))
            connection.execute(_STATEMENTS.encode())
        found = _one(connection, "SELECT version FROM schema_version")
        if found != VERSION:
            raise StorageError(
                address.place,
                f"its tables were made by another version of nanobot (version {found})",
                hint="Install the version that the other workers have.",
            )


def has_tables(connection: psycopg.Connection[Row]) -> bool:
    """Whether somebody made them."""
    return bool(_one(connection, "SELECT to_regclass('team') IS NOT NULL"))


def _one(connection: psycopg.Connection[Row], query: str) -> Any:
    row = connection.execute(query.encode()).fetchone()
    assert row is not None
    return row[0]
