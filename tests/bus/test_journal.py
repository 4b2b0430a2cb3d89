"""What the journal promises about messages, turns and their ends."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from nanobot.bus.events import Media, OutboundMessage, Quote
from nanobot.bus.journal import Completion, InboxEntry, Outgoing, Step
from nanobot.bus.sqlite_journal import SCHEMA, SqliteJournal
from nanobot.errors import StorageError
from nanobot.testing import FakeClock
from tests.bus.support import (
    HELLO,
    change,
    done,
    no_file_may_grow_beyond,
    opened,
    reply,
    rows,
    said,
)


def claim(journal: SqliteJournal, turn_id: str, *entries: InboxEntry) -> None:
    """A turn begins for these messages."""
    journal.claim(turn_id, "fake:1", [entry.id for entry in entries], at_once=True)


async def attempts_after(path: Path, clock: FakeClock) -> list[int]:
    """The attempts that the next process finds, by message."""
    async with opened(path, clock) as journal:
        return [entry.attempts for entry in (await journal.leftovers()).entries]


async def test_a_message_comes_back_as_it_was(path: Path, clock: FakeClock) -> None:
    message = replace(
        HELLO,
        content="line\u2028 \ud83d lone, \x00 null",
        media=(Media("ref", "image", "image/png", "a.png", 7),),
        thread_id="t",
        reply_to=Quote("m0", "someone", "earlier"),
        forwarded_from="elsewhere",
        group_id="album",
        session_override="cron:job",
        answers="m0",
        sender_name="Ann",
        edits="m0",
        notes=("location: 1, 2", "x"),
    )
    bare = replace(HELLO, event_id="m2", content="", sender_id="", begun_by="report", is_group=True)
    async with opened(path, clock) as journal:
        await journal.receive("fake", (message, bare))
    async with opened(path, clock) as journal:
        entries = (await journal.leftovers()).entries
    assert [entry.message for entry in entries] == [message, bare]
    assert all(entry.recovered for entry in entries)


async def test_a_message_seen_before_is_dropped_also_by_the_next_process(
    path: Path, clock: FakeClock
) -> None:
    async with opened(path, clock) as journal:
        assert len(await journal.receive("fake", (said("m1"), said("m1")))) == 1
        assert await journal.receive("fake", (said("m1", "other words"),)) == ()
        (entry,) = (await journal.leftovers()).entries
        await journal.complete(done("t1", entry))
    async with opened(path, clock) as journal:
        assert await journal.receive("fake", (said("m1"),)) == ()
        assert (await journal.leftovers()).entries == ()


async def test_an_edit_and_the_same_id_in_another_chat_are_messages_of_their_own(
    journal: SqliteJournal,
) -> None:
    messages = (said("m1"), said("m1:edit1"), said("m1", chat_id="2"))
    assert len(await journal.receive("fake", messages)) == 3


async def test_the_cursor_is_stored_with_the_messages_it_covers(
    path: Path, clock: FakeClock
) -> None:
    async with opened(path, clock) as journal:
        assert await journal.cursor("fake") is None
        await journal.receive("fake", (said("m1"),), "7")
        await journal.receive("fake", (), "8")
        await journal.receive("fake", (said("m2"),))
        assert await journal.cursor("other") is None
    async with opened(path, clock) as journal:
        assert await journal.cursor("fake") == "8"


async def test_where_the_messages_cannot_be_stored_the_cursor_stays(journal: SqliteJournal) -> None:
    await journal.receive("fake", (), "7")
    await journal.database.run(limit_pages)
    with pytest.raises(StorageError):
        await journal.receive("fake", (said("m1", "x" * 200_000),), "8")
    assert await journal.cursor("fake") == "7"


def limit_pages(db: sqlite3.Connection) -> None:
    (pages,) = db.execute("PRAGMA page_count").fetchone()
    db.execute(f"PRAGMA max_page_count = {pages}")


async def test_a_completion_is_all_or_nothing(path: Path, clock: FakeClock) -> None:
    async with opened(path, clock) as journal:
        (entry,) = await journal.receive("fake", (said("m1"),))
        claim(journal, "t1", entry)
        await journal.add_steps("t1", 0, (Step("message", "{}"),))
        completion = done("t1", entry, lines="line\n", outgoing=(reply("a", "b"),), report="{}")
        nowhere = Outgoing("other", (OutboundMessage(None, "1", "c"),))  # type: ignore[arg-type]
        broken = replace(completion, outgoing=(*completion.outgoing, nowhere))
        with pytest.raises(sqlite3.IntegrityError):
            await journal.complete(broken)
        left = await journal.leftovers()
        assert [entry.steps for entry in left.entries] == [(Step("message", "{}"),)]
        assert (left.unfiled, left.parts) == ((), ())

        committed = await journal.complete(completion)
    assert [item.part.content for item in committed.parts] == ["a", "b"]
    async with opened(path, clock) as journal:
        left = await journal.leftovers()
    assert left.entries == ()
    assert [item.part.content for item in left.parts] == ["a", "b"]
    assert [(item.session_key, item.lines) for item in left.unfiled] == [("fake:1", "line\n")]
    assert rows(path, "SELECT * FROM step") == []
    assert rows(path, "SELECT state, payload FROM inbox") == [("done", None)]


async def test_lines_are_left_over_until_they_are_filed(path: Path, clock: FakeClock) -> None:
    async with opened(path, clock) as journal:
        (entry,) = await journal.receive("fake", (said("m1"),))
        committed = await journal.complete(done("t1", entry, lines="line\n"))
        journal.filed((committed.unfiled_id,))
    async with opened(path, clock) as journal:
        assert (await journal.leftovers()).unfiled == ()


async def test_a_completion_republishes_and_reports_only_what_is_new(
    journal: SqliteJournal,
) -> None:
    first, second = await journal.receive("fake", (said("m1"), said("m2")))
    again = (said("m1:again"), said("m2"))
    committed = await journal.complete(done("t1", first, republish=again))
    assert [entry.message.event_id for entry in committed.republished] == ["m1:again"]
    assert [entry.id for entry in (await journal.leftovers()).entries] == [
        second.id,
        committed.republished[0].id,
    ]


async def test_a_failed_message_keeps_its_payload_and_is_not_left_over(
    path: Path, clock: FakeClock
) -> None:
    async with opened(path, clock) as journal:
        (entry,) = await journal.receive("fake", (said("m1", "precious"),))
        await journal.complete(
            Completion("t1", "fake:1", (entry.id,), "failed", reason="lone \ud83d surrogate")
        )
        assert (await journal.leftovers()).entries == ()
    ((state, payload, reason),) = rows(path, "SELECT state, payload, reason FROM inbox")
    assert state == "failed"
    assert "precious" in str(payload)
    assert "lone" in str(reason)


async def test_leftovers_come_in_the_order_they_came(path: Path, clock: FakeClock) -> None:
    async with opened(path, clock) as journal:
        entries = await journal.receive("fake", [said(f"m{n}") for n in range(6)])
        claim(journal, "late", entries[4], entries[5])
        claim(journal, "early", entries[1])
    async with opened(path, clock) as journal:
        left = await journal.leftovers()
    assert [entry.message.event_id for entry in left.entries] == ["m0", "m1", "m2", "m3", "m4"]
    assert [entry.turn_id for entry in left.entries] == ["", "early", "", "", "late"]


async def test_a_turn_comes_back_with_its_steps_and_what_joined_it(
    path: Path, clock: FakeClock
) -> None:
    async with opened(path, clock) as journal:
        first, second = await journal.receive("fake", (said("m1"), said("m2")))
        claim(journal, "t1", first)
        journal.post_steps("t1", 0, (Step("message", "0"),))
        await journal.add_steps("t1", 1, (Step("start", "1"), Step("message", "2")))
        await journal.add_steps("t1", 3, (Step("message", "3"),), joined=(second.id,))
    async with opened(path, clock) as journal:
        (entry,) = (await journal.leftovers()).entries
    assert (entry.id, entry.turn_id) == (first.id, "t1")
    assert [step.payload for step in entry.steps] == ["0", "1", "2", "3"]
    assert [joined.id for joined in entry.joined] == [second.id]


async def test_only_an_unclean_end_without_progress_counts_as_an_attempt(
    path: Path, clock: FakeClock
) -> None:
    async with opened(path, clock) as journal:
        claimed, moved, waiting = await journal.receive("fake", [said(f"m{n}") for n in range(3)])
        claim(journal, "t1", claimed)
        claim(journal, "t2", moved)
        await journal.add_steps("t2", 0, (Step("message", "{}"),))
        assert waiting.attempts == 0
    assert await attempts_after(path, clock) == [1, 0, 0]


async def test_a_turn_that_was_not_begun_again_is_not_blamed_for_the_next_end(
    path: Path, clock: FakeClock
) -> None:
    async with opened(path, clock) as journal:
        guilty, innocent = await journal.receive("fake", (said("m1"), said("m2")))
        claim(journal, "t1", guilty)
        claim(journal, "t2", innocent)
    assert await attempts_after(path, clock) == [1, 1]
    async with opened(path, clock) as journal:
        claim(journal, "t1", guilty)
    assert await attempts_after(path, clock) == [2, 1]


async def test_progress_of_an_earlier_process_does_not_excuse_the_next_end(
    path: Path, clock: FakeClock
) -> None:
    async with opened(path, clock) as journal:
        (entry,) = await journal.receive("fake", (said("m1"),))
        claim(journal, "t1", entry)
        await journal.add_steps("t1", 0, (Step("message", "{}"),))
    async with opened(path, clock) as journal:
        await journal.leftovers()
        claim(journal, "t1", entry)
    assert await attempts_after(path, clock) == [1]


async def test_a_clean_end_counts_no_attempt(path: Path, clock: FakeClock) -> None:
    async with opened(path, clock) as journal:
        (entry,) = await journal.receive("fake", (said("m1"),))
        claim(journal, "t1", entry)
        await journal.release()
    assert await attempts_after(path, clock) == [0]


async def test_a_clean_end_goes_on_where_the_disk_refuses_or_nothing_was_opened(
    path: Path, clock: FakeClock, tmp_path: Path
) -> None:
    await SqliteJournal(tmp_path / "never.db", clock).release()
    async with opened(path, clock) as journal:
        (entry,) = await journal.receive("fake", (said("m1"),))
        claim(journal, "t1", entry)
        await journal.receive("fake", (said("m2", "x" * 500_000),))
        with no_file_may_grow_beyond(200_000):
            await journal.release()
    assert await attempts_after(path, clock) == [1, 0]


async def test_a_message_that_waits_for_the_model_is_not_blamed_for_a_crash(
    path: Path, clock: FakeClock
) -> None:
    async with opened(path, clock) as journal:
        (entry,) = await journal.receive("fake", (said("m1"),))
        claim(journal, "t1", entry)
        await journal.postpone((entry.id,), 1234.5, "the model is out")
    async with opened(path, clock) as journal:
        (entry,) = (await journal.leftovers()).entries
    assert (entry.not_before, entry.reason, entry.attempts) == (1234.5, "the model is out", 0)


async def test_runs_are_counted_once_per_turn(path: Path, clock: FakeClock) -> None:
    async with opened(path, clock) as journal:
        (entry,) = await journal.receive("fake", (said("m1"),))
        claim(journal, "t1", entry)
        claim(journal, "t1", entry)
    async with opened(path, clock) as journal:
        (entry,) = (await journal.leftovers()).entries
    assert entry.runs == 1


async def test_a_reply_is_stored_once_per_call_of_a_turn(journal: SqliteJournal) -> None:
    assert len(await journal.send("t1", reply("please wait", call="waiting"))) == 1
    assert await journal.send("t1", reply("please wait", call="waiting")) == ()
    assert len(await journal.send("t1", reply("done"))) == 1


async def test_what_ended_is_forgotten_after_thirty_days_and_open_rows_never(
    path: Path, clock: FakeClock
) -> None:
    async with opened(path, clock) as journal:
        entries = await journal.receive("fake", [said(f"m{n}") for n in range(4)])
        await journal.complete(done("t0", entries[0], outgoing=(reply("late"),), report="{}"))
        await journal.complete(Completion("t1", "fake:1", (entries[1].id,), "failed"))
        claim(journal, "t2", entries[2])
        journal.remember_prompt("p", "You are nanobot.")
    clock.jump(timedelta(days=29).total_seconds())
    async with opened(path, clock) as journal:
        assert await journal.receive("fake", (said("m0"),)) == ()
    clock.jump(timedelta(days=2).total_seconds())
    async with opened(path, clock) as journal:
        left = await journal.leftovers()
        assert [entry.message.event_id for entry in left.entries] == ["m2", "m3"]
        assert [item.part.content for item in left.parts] == ["late"]
        assert len(await journal.receive("fake", (said("m0"),))) == 1
    assert rows(path, "SELECT state FROM inbox ORDER BY id") == [
        ("failed",),
        ("working",),
        ("received",),
        ("received",),
    ]
    assert rows(path, "SELECT id FROM turn") == [("t2",)]
    assert rows(path, "SELECT id FROM prompt") == []


async def test_a_process_that_runs_for_months_forgets_too(path: Path, clock: FakeClock) -> None:
    async with opened(path, clock) as journal:
        (entry,) = await journal.receive("fake", (said("m1"),))
        await journal.complete(done("t1", entry))
        clock.jump(timedelta(days=31).total_seconds())
        await journal.receive("fake", (said("m2"),))
    assert rows(path, "SELECT event_id FROM inbox") == [("m2",)]


async def test_a_new_file_gets_the_current_format(path: Path, clock: FakeClock) -> None:
    async with opened(path, clock):
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
    async with opened(path, clock) as journal:
        await journal.receive("fake", (said("m1"), said("m2")))
    change(path, f"UPDATE inbox SET payload = '{payload}' WHERE event_id = 'm1'")
    async with opened(path, clock) as journal:
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
    async with opened(path, clock) as journal:
        await journal.send("t1", reply("a", "b"))
    change(path, "UPDATE outbox SET payload = '{\"media\": 5}' WHERE part = 0")
    async with opened(path, clock) as journal:
        left = await journal.leftovers()
    assert [item.part.content for item in left.parts] == ["b"]
    assert rows(path, "SELECT state FROM outbox ORDER BY id") == [("dead",), ("pending",)]


async def test_ids_with_lone_surrogates_are_known_again(journal: SqliteJournal) -> None:
    odd = said("m\udcff", chat_id="\udcff")
    assert len(await journal.receive("fake", (odd,))) == 1
    assert await journal.receive("fake", (odd,)) == ()
