"""The journal's promises about messages, turns and their ends."""

from __future__ import annotations

import sqlite3
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from nanobot.bus.events import OutboundMessage
from nanobot.bus.journal import Completion, InboxEntry, Outgoing, Step
from nanobot.bus.journal_file import SCHEMA, fail_open_work
from nanobot.bus.rows import encode_event
from nanobot.bus.sqlite_journal import SqliteJournal
from nanobot.errors import StorageError
from nanobot.testing import FakeClock
from tests.bus.support import (
    change,
    end_turn,
    make_message,
    no_file_may_grow_beyond,
    open_journal,
    reply,
    rows,
)


def claim(journal: SqliteJournal, turn_id: str, *entries: InboxEntry) -> None:
    """Begin a turn for these messages."""
    journal.claim(turn_id, "fake:1", [entry.id for entry in entries], at_once=True)


async def attempts_after(path: Path, clock: FakeClock) -> list[int]:
    """Return the messages' attempts as the next process reads them."""
    async with open_journal(path, clock) as journal:
        return [entry.attempts for entry in (await journal.leftovers()).entries]


async def test_where_the_messages_cannot_be_stored_the_cursor_stays(journal: SqliteJournal) -> None:
    await journal.receive("fake", (), "7")
    await journal.database.run(limit_pages)
    with pytest.raises(StorageError):
        await journal.receive("fake", (make_message("m1", "x" * 200_000),), "8")
    assert await journal.cursor("fake") == "7"


def limit_pages(db: sqlite3.Connection) -> None:
    (pages,) = db.execute("PRAGMA page_count").fetchone()
    db.execute(f"PRAGMA max_page_count = {pages}")


async def test_a_message_that_could_not_join_a_turn_goes_on_waiting(
    path: Path, clock: FakeClock
) -> None:
    async with open_journal(path, clock) as journal:
        first, second = await journal.receive("fake", (make_message("m1"), make_message("m2")))
        claim(journal, "t1", first)
        await journal.database.run(limit_pages)
        long = (Step("message", "x" * 200_000),)
        with pytest.raises(StorageError):
            await journal.add_steps("t1", 0, long, joined=(second.id,))
        await journal.database.run(lambda db: db.execute("PRAGMA max_page_count = 1000000"))
        await journal.add_steps("t1", 0, (Step("message", "{}"),))
    async with open_journal(path, clock) as journal:
        left = await journal.leftovers()
    assert [(entry.id, entry.joined) for entry in left.entries] == [(first.id, ()), (second.id, ())]


async def test_a_completion_is_all_or_nothing(path: Path, clock: FakeClock) -> None:
    async with open_journal(path, clock) as journal:
        (entry,) = await journal.receive("fake", (make_message("m1"),))
        claim(journal, "t1", entry)
        await journal.add_steps("t1", 0, (Step("message", "{}"),))
        completion = end_turn("t1", entry, lines="line\n", outgoing=(reply("a", "b"),), report="{}")
        nowhere = Outgoing("other", (OutboundMessage(None, "1", "c"),))  # type: ignore[arg-type]
        broken = replace(completion, outgoing=(*completion.outgoing, nowhere))
        with pytest.raises(sqlite3.IntegrityError):
            await journal.complete(broken)
        left = await journal.leftovers()
        assert [entry.steps for entry in left.entries] == [(Step("message", "{}"),)]
        assert (left.unfiled, left.parts) == ((), ())

        committed = await journal.complete(completion)
    assert [item.part.content for item in committed.parts] == ["a", "b"]
    async with open_journal(path, clock) as journal:
        left = await journal.leftovers()
    assert left.entries == ()
    assert [item.part.content for item in left.parts] == ["a", "b"]
    assert [(item.session_key, item.lines) for item in left.unfiled] == [("fake:1", "line\n")]
    assert rows(path, "SELECT * FROM step") == []
    assert rows(path, "SELECT state, payload FROM inbox") == [("done", None)]


async def test_a_failed_message_keeps_its_payload_and_is_not_left_over(
    path: Path, clock: FakeClock
) -> None:
    async with open_journal(path, clock) as journal:
        (entry,) = await journal.receive("fake", (make_message("m1", "precious"),))
        await journal.complete(
            Completion("t1", "fake:1", (entry.id,), "failed", reason="lone \ud83d surrogate")
        )
        assert (await journal.leftovers()).entries == ()
    ((state, payload, reason),) = rows(path, "SELECT state, payload, reason FROM inbox")
    assert state == "failed"
    assert "precious" in str(payload)
    assert "lone" in str(reason)


async def test_a_clean_end_goes_on_where_the_disk_refuses_or_nothing_was_opened(
    path: Path, clock: FakeClock, tmp_path: Path
) -> None:
    await SqliteJournal(tmp_path / "never.db", clock).release()
    async with open_journal(path, clock) as journal:
        (entry,) = await journal.receive("fake", (make_message("m1"),))
        claim(journal, "t1", entry)
        await journal.receive("fake", (make_message("m2", "x" * 500_000),))
        with no_file_may_grow_beyond(200_000):
            await journal.release()
    assert await attempts_after(path, clock) == [1, 0]


async def test_what_ended_is_forgotten_after_thirty_days_and_open_rows_never(
    path: Path, clock: FakeClock
) -> None:
    async with open_journal(path, clock) as journal:
        entries = await journal.receive("fake", [make_message(f"m{n}") for n in range(4)])
        await journal.complete(end_turn("t0", entries[0], outgoing=(reply("late"),), report="{}"))
        await journal.complete(Completion("t1", "fake:1", (entries[1].id,), "failed"))
        claim(journal, "t2", entries[2])
        journal.remember_prompt("p", "You are nanobot.")
    clock.jump(timedelta(days=29).total_seconds())
    async with open_journal(path, clock) as journal:
        assert await journal.receive("fake", (make_message("m0"),)) == ()
    clock.jump(timedelta(days=2).total_seconds())
    async with open_journal(path, clock) as journal:
        left = await journal.leftovers()
        assert [entry.message.event_id for entry in left.entries] == ["m2", "m3"]
        assert [item.part.content for item in left.parts] == ["late"]
        assert len(await journal.receive("fake", (make_message("m0"),))) == 1
    assert rows(path, "SELECT state FROM inbox ORDER BY id") == [
        ("failed",),
        ("working",),
        ("received",),
        ("received",),
    ]
    assert rows(path, "SELECT id FROM turn") == [("t2",)]
    assert rows(path, "SELECT id FROM prompt") == []


async def test_a_process_that_runs_for_months_forgets_too(path: Path, clock: FakeClock) -> None:
    async with open_journal(path, clock) as journal:
        (entry,) = await journal.receive("fake", (make_message("m1"),))
        await journal.complete(end_turn("t1", entry))
        clock.jump(timedelta(days=31).total_seconds())
        await journal.receive("fake", (make_message("m2"),))
    assert rows(path, "SELECT event_id FROM inbox") == [("m2",)]


async def test_of_a_backup_helpers_wait_for_a_word_as_well(path: Path, clock: FakeClock) -> None:
    async with open_journal(path, clock) as journal:
        await journal.receive("fake", (make_message("m1"),))
    lost = encode_event(make_message("task:h1"))
    change(path, "INSERT INTO helper VALUES ('h0', '2026-03-02T08:00:00+00:00', 'broken')")
    change(path, "INSERT INTO helper VALUES ('h1', '2026-03-02T08:00:00+00:00', ?)", lost)
    assert fail_open_work(path) == 2
    assert rows(path, "SELECT count(*) FROM helper") == [(0,)]
    assert rows(path, "SELECT state FROM inbox WHERE event_id = 'task:h1'") == [("failed",)]


async def test_a_new_file_gets_the_current_format(path: Path, clock: FakeClock) -> None:
    async with open_journal(path, clock):
        pass
    assert rows(path, "PRAGMA user_version") == [(SCHEMA.version,)]
    assert rows(path, "PRAGMA journal_mode") == [("wal",)]


@pytest.mark.parametrize(
    "payload",
    ["{", "[]", '"text"', '{"content": 5}', '{"event_id": "m1", "timestamp": "noon"}'],
)
async def test_a_message_that_cannot_be_read_is_set_aside_and_its_person_told(
    path: Path, clock: FakeClock, payload: str
) -> None:
    async with open_journal(path, clock) as journal:
        await journal.receive("fake", (make_message("m1"), make_message("m2")))
    change(path, f"UPDATE inbox SET payload = '{payload}' WHERE event_id = 'm1'")
    async with open_journal(path, clock) as journal:
        left = await journal.leftovers()
        assert [entry.message.event_id for entry in left.entries] == ["m2"]
        (item,) = left.parts
        assert "send it again" in item.part.content
        assert item.part.event_ids == ("m1",)
        assert len((await journal.leftovers()).parts) == 1
    ((state, reason),) = rows(path, "SELECT state, reason FROM inbox WHERE event_id = 'm1'")
    assert state == "failed"
    assert "cannot be read" in str(reason)


async def test_a_reply_that_cannot_be_read_is_dead_and_the_others_go_out(
    path: Path, clock: FakeClock
) -> None:
    async with open_journal(path, clock) as journal:
        await journal.add_outgoing("t1", reply("a", "b"))
    change(path, "UPDATE outbox SET payload = '{\"media\": 5}' WHERE part = 0")
    async with open_journal(path, clock) as journal:
        left = await journal.leftovers()
    assert [item.part.content for item in left.parts] == ["b"]
    assert rows(path, "SELECT state FROM outbox ORDER BY id") == [("dead",), ("pending",)]


async def test_no_statement_of_a_turn_or_a_start_reads_what_was_answered_long_ago(
    journal: SqliteJournal,
) -> None:
    statements = set[str]()
    await journal.database.run(lambda db: db.set_trace_callback(statements.add))
    (entry,) = await journal.receive("fake", (make_message("m1"),))
    claim(journal, "t1", entry)
    journal.mark_filed((1,))
    completion = end_turn("t1", entry, lines="line\n", outgoing=(reply("a"),), report="{}")
    committed = await journal.complete(replace(completion, replaces_turn="t0"))
    journal.mark_sending(committed.parts[0])
    await journal.mark_sent(committed.parts[0], "1")
    assert not await journal.is_busy("fake:1")
    await journal.leftovers()
    await journal.queue_rows()
    await journal.counts()
    await journal.release()

    def plans(db: sqlite3.Connection) -> list[tuple[str, str]]:
        db.set_trace_callback(None)
        planned = [one for one in statements if one.split()[0] in {"SELECT", "UPDATE", "DELETE"}]
        rows = [(one, row) for one in planned for row in db.execute(f"EXPLAIN QUERY PLAN {one}")]
        return [(str(row[3]), statement) for statement, row in rows]

    read = await journal.database.run(plans)
    assert len(read) > 10
    grows = ("SCAN inbox", "SCAN outbox", "SCAN turn", "SCAN step")
    assert [one for one in read if one[0].startswith(grows)] == []
