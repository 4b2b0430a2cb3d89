"""The tables of `state/journal.db`, as migrations: entry n brings version n to n + 1."""

from __future__ import annotations

MIGRATIONS = (
    """
    CREATE TABLE inbox (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        channel TEXT NOT NULL,
        chat_id TEXT NOT NULL,
        event_id TEXT NOT NULL,
        session_key TEXT NOT NULL,
        state TEXT NOT NULL DEFAULT 'received'
            CHECK (state IN ('received', 'working', 'done', 'failed', 'stopped')),
        attempts INTEGER NOT NULL DEFAULT 0,
        runs INTEGER NOT NULL DEFAULT 0,
        not_before REAL NOT NULL DEFAULT 0,
        group_id TEXT NOT NULL DEFAULT '',
        turn_id TEXT NOT NULL DEFAULT '',
        reason TEXT NOT NULL DEFAULT '',
        received_at TEXT NOT NULL,
        payload TEXT,
        UNIQUE (channel, chat_id, event_id)
    );
    CREATE INDEX inbox_open ON inbox (state) WHERE state IN ('received', 'working', 'failed');

    CREATE TABLE cursor (channel TEXT PRIMARY KEY, value TEXT NOT NULL);

    CREATE TABLE turn (
        id TEXT PRIMARY KEY,
        session_key TEXT NOT NULL,
        state TEXT NOT NULL CHECK (state IN ('running', 'done', 'failed', 'stopped')),
        progress INTEGER NOT NULL DEFAULT 0,
        started_at TEXT NOT NULL,
        report TEXT NOT NULL DEFAULT ''
    );
    CREATE INDEX turn_running ON turn (state) WHERE state = 'running';

    CREATE TABLE step (
        turn_id TEXT NOT NULL,
        number INTEGER NOT NULL,
        kind TEXT NOT NULL,
        payload TEXT NOT NULL,
        PRIMARY KEY (turn_id, number)
    ) WITHOUT ROWID;

    CREATE TABLE prompt (id TEXT PRIMARY KEY, text TEXT NOT NULL, used_at TEXT NOT NULL);

    CREATE TABLE unfiled (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        session_key TEXT NOT NULL,
        lines TEXT NOT NULL
    );

    CREATE TABLE outbox (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        turn_id TEXT NOT NULL,
        call TEXT NOT NULL,
        part INTEGER NOT NULL,
        channel TEXT NOT NULL,
        chat_id TEXT NOT NULL,
        state TEXT NOT NULL DEFAULT 'pending'
            CHECK (state IN ('pending', 'sending', 'sent', 'dead')),
        attempts INTEGER NOT NULL DEFAULT 0,
        next_try_at REAL NOT NULL DEFAULT 0,
        platform_id TEXT NOT NULL DEFAULT '',
        reason TEXT NOT NULL DEFAULT '',
        payload TEXT,
        created_at TEXT NOT NULL,
        UNIQUE (turn_id, call, part)
    );
    CREATE INDEX outbox_open ON outbox (state) WHERE state IN ('pending', 'sending', 'dead')
    """,
    """
    CREATE TABLE learning (
        day TEXT PRIMARY KEY,
        calls INTEGER NOT NULL,
        prompt INTEGER NOT NULL,
        cached INTEGER NOT NULL,
        completion INTEGER NOT NULL
    ) WITHOUT ROWID
    """,
    """
    CREATE TABLE button (
        id TEXT PRIMARY KEY,
        channel TEXT NOT NULL,
        chat_id TEXT NOT NULL,
        sender_id TEXT NOT NULL,
        value TEXT NOT NULL,
        created_at TEXT NOT NULL
    ) WITHOUT ROWID
    """,
    """
    CREATE TABLE helper (
        id TEXT PRIMARY KEY,
        started_at TEXT NOT NULL,
        if_lost TEXT NOT NULL
    ) WITHOUT ROWID
    """,
    """
    CREATE TABLE spending (
        day TEXT PRIMARY KEY,
        tokens INTEGER NOT NULL,
        warned INTEGER NOT NULL
    ) WITHOUT ROWID
    """,
    # Whether an earlier attempt may have arrived.
    "ALTER TABLE outbox ADD COLUMN in_doubt INTEGER NOT NULL DEFAULT 0",
    # How often a turn that was taken up asked the model since it last made progress.
    "ALTER TABLE turn ADD COLUMN asked INTEGER NOT NULL DEFAULT 0",
)
