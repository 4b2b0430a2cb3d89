"""An upgrade finds the journal of the version before, with all in it, and can be taken back."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest

from nanobot.bus.events import encode_event
from nanobot.bus.journal_file import SCHEMA, fail_open_work
from nanobot.bus.sqlite_journal import SqliteJournal
from nanobot.errors import StorageError
from nanobot.testing.clock import FakeClock
from tests.bus.support import HELLO, done, no_file_may_grow_beyond, opened, rows, said

OLDER = range(SCHEMA.first, SCHEMA.version)
ROWS = (
    "INSERT INTO turn (id, session_key, state, progress, started_at)"
    " VALUES ('t1', 'fake:1', 'running', 1, '2026-03-02T08:00:00+00:00')",
    "INSERT INTO step VALUES ('t1', 1, 'reply', '{\"role\": \"assistant\"}')",
    "INSERT INTO unfiled (session_key, lines) VALUES ('fake:2', 'a line')",
    "INSERT INTO cursor VALUES ('fake', '41')",
    "INSERT INTO outbox (turn_id, call, part, channel, chat_id, state, payload, created_at) VALUES"
    " ('t0', 'reply', 0, 'fake', '1', 'dead', '{}', '2026-03-02T08:00:00+00:00')",
)


def older(path: Path, version: int) -> None:
    """A journal as that version wrote it: a message that waits, one that is answered, one done."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode=WAL")
        for migration in SCHEMA.migrations[: version - SCHEMA.first + 1]:
            db.executescript(migration)
        db.execute(f"PRAGMA user_version={version}")
        for statement in ROWS:
            db.execute(statement)
        for state, event, turn in (
            ("received", "m1", ""),
            ("working", "m2", "t1"),
            ("done", "m3", ""),
        ):
            payload = None if state == "done" else encode_event(said(event))
            db.execute(
                "INSERT INTO inbox (channel, chat_id, event_id, session_key, state, turn_id,"
                " received_at, payload) VALUES ('fake', '1', ?, 'fake:1', ?, ?, ?, ?)",
                (event, state, turn, HELLO.timestamp.isoformat(), payload),
            )


@pytest.mark.parametrize("version", OLDER)
async def test_a_journal_of_each_older_version_goes_on_where_it_was(
    path: Path, clock: FakeClock, version: int
) -> None:
    older(path, version)
    async with opened(path, clock) as journal:
        left = await journal.leftovers()
        assert [entry.message.event_id for entry in left.entries] == ["m1", "m2"]
        assert [len(entry.steps) for entry in left.entries] == [0, 1]
        assert [unfiled.lines for unfiled in left.unfiled] == ["a line"]
        assert await journal.cursor("fake") == "41"
        assert await journal.receive("fake", (said("m3"),)) == ()
        await journal.complete(done("t1", *left.entries))
        counts = await journal.counts()
        assert (counts.received, counts.working, counts.dead) == (0, 0, 1)
    assert rows(path, "PRAGMA user_version") == [(SCHEMA.version,)]
    tables = {name for (name,) in rows(path, "SELECT name FROM sqlite_master WHERE type = 'table'")}
    assert {"learning", "button", "helper", "spending"} <= tables


async def test_the_file_before_is_kept_whole_and_only_the_last_one(
    path: Path, clock: FakeClock
) -> None:
    older(path, SCHEMA.first)
    path.with_name(f"{path.name}.before-1").write_text("from the upgrade before")
    async with opened(path, clock) as journal:
        await journal.receive("fake", (said("m4"),))
    before = path.with_name(f"{path.name}.before-{SCHEMA.first}")
    assert list(path.parent.glob("*.before-*")) == [before]
    assert before.stat().st_mode & 0o777 == 0o600
    assert rows(before, "PRAGMA user_version") == [(SCHEMA.first,)]
    assert rows(before, "SELECT event_id FROM inbox ORDER BY id") == [("m1",), ("m2",), ("m3",)]


async def test_nothing_is_migrated_that_could_not_be_kept(path: Path, clock: FakeClock) -> None:
    older(path, SCHEMA.first)
    with no_file_may_grow_beyond(8192), pytest.raises(StorageError):
        await SqliteJournal(path, clock).open()
    assert rows(path, "PRAGMA user_version") == [(SCHEMA.first,)]
    assert not list(path.parent.glob("*.before-*"))
    async with opened(path, clock):
        pass
    assert rows(path, "PRAGMA user_version") == [(SCHEMA.version,)]


def test_of_a_backup_helpers_wait_for_a_word_as_well(path: Path) -> None:
    older(path, SCHEMA.version)
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        lost = encode_event(said("task:h1"))
        db.execute("INSERT INTO helper VALUES ('h0', '2026-03-02T08:00:00+00:00', 'broken')")
        db.execute("INSERT INTO helper VALUES ('h1', '2026-03-02T08:00:00+00:00', ?)", (lost,))
    assert fail_open_work(path) == 3
    assert rows(path, "SELECT count(*) FROM helper") == [(0,)]
    assert rows(path, "SELECT state FROM inbox WHERE event_id = 'task:h1'") == [("failed",)]
