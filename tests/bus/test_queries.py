"""What people see of the journal, and how they mend it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from nanobot.bus.journal import Completion, InboxEntry, OutboxPart, QueueCounts
from nanobot.bus.sqlite_journal import SqliteJournal
from nanobot.errors import NanobotError
from tests.bus.support import change, done, give_up, reply, said


async def in_trouble(journal: SqliteJournal) -> tuple[InboxEntry, OutboxPart]:
    """A failed message and a dead reply."""
    failed, answered = await journal.receive("fake", (said("m1", "do it"), said("m2")))
    await journal.complete(
        Completion("t1", "fake:1", (failed.id,), "failed", reason="it broke", report="{}")
    )
    committed = await journal.complete(done("t2", answered, outgoing=(reply("answer"),)))
    await give_up(journal, committed.parts[0])
    return failed, committed.parts[0]


async def test_counts_name_every_state_that_is_not_an_end(journal: SqliteJournal) -> None:
    await in_trouble(journal)
    (working, _) = await journal.receive("fake", (said("m3"), said("m4")))
    journal.claim("t3", "fake:1", (working.id,), at_once=True)
    await journal.send("t3", reply("wait", call="waiting"))
    counts = await journal.reports.counts()
    assert counts == QueueCounts(received=1, working=1, failed=1, outbox_pending=1, dead=1)


async def test_a_message_that_waits_for_the_model_is_counted_as_waiting(
    journal: SqliteJournal,
) -> None:
    (entry, _) = await journal.receive("fake", (said("m1"), said("m2")))
    journal.claim("t1", "fake:1", (entry.id,), at_once=True)
    await journal.postpone((entry.id,), 1234.5, "the model is out")
    counts = await journal.reports.counts()
    assert counts == QueueCounts(received=2, put_off=1)


async def test_the_queue_shows_what_waits_and_what_is_in_trouble(journal: SqliteJournal) -> None:
    await in_trouble(journal)
    told = replace(said("m4", ""), notes=("location: 1, 2",))
    await journal.receive("fake", (said("m3", "many  words\n" * 40), told))
    inbox, outbox = await journal.reports.queue()
    assert [(row.id, row.state, row.reason) for row in inbox] == [
        ("in-1", "failed", "it broke"),
        ("in-3", "received", ""),
        ("in-4", "received", ""),
    ]
    assert (inbox[0].text, inbox[2].text) == ("do it", "location: 1, 2")
    assert len(inbox[1].text) == 81
    assert "\n" not in inbox[1].text
    assert [(row.id, row.place, row.state, row.text, row.reason) for row in outbox] == [
        ("out-1", "fake:1", "dead", "answer", "blocked")
    ]


async def test_retry_makes_a_failed_message_new_but_for_its_runs(journal: SqliteJournal) -> None:
    failed, _ = await in_trouble(journal)
    again = await journal.reports.retry(f"in-{failed.id}")
    assert isinstance(again, InboxEntry)
    assert (again.id, again.message, again.attempts) == (failed.id, failed.message, 0)
    assert [entry.id for entry in (await journal.leftovers()).entries] == [failed.id]


async def test_retry_makes_a_dead_reply_pending(journal: SqliteJournal) -> None:
    _, dead = await in_trouble(journal)
    again = await journal.reports.retry(f"out-{dead.id}")
    assert again == dead
    assert (await journal.leftovers()).parts == (dead,)


async def test_dropped_rows_are_gone_for_good_and_still_known(journal: SqliteJournal) -> None:
    failed, dead = await in_trouble(journal)
    for row in (f"in-{failed.id}", f"out-{dead.id}"):
        await journal.reports.drop(row)
        with pytest.raises(NanobotError, match="not waiting for a decision"):
            await journal.reports.drop(row)
    assert await journal.reports.queue() == ([], [])
    assert await journal.receive("fake", (said("m1"),)) == ()


@pytest.mark.parametrize(
    "row", ["", "7", "in-", "in-x", "out--1", "turn-1", "in-²", f"in-{'9' * 30}"]
)
async def test_an_id_that_is_none_is_refused_with_an_example(
    journal: SqliteJournal, row: str
) -> None:
    with pytest.raises(NanobotError, match="in the queue") as caught:
        await journal.reports.retry(row)
    assert "in-12" in caught.value.hint


async def test_what_is_under_way_can_be_neither_retried_nor_dropped(journal: SqliteJournal) -> None:
    await journal.receive("fake", (said("m1"),))
    await journal.send("t1", reply("on its way"))
    for row in ("in-1", "out-1", "in-99", "out-99"):
        for operation in (journal.reports.retry, journal.reports.drop):
            with pytest.raises(NanobotError, match="not waiting for a decision"):
                await operation(row)


async def test_rows_that_cannot_be_read_are_shown_and_can_only_be_dropped(
    journal: SqliteJournal, path: Path
) -> None:
    await in_trouble(journal)
    change(path, "UPDATE inbox SET payload = '{'")
    change(path, "UPDATE outbox SET payload = '{'")
    inbox, outbox = await journal.reports.queue()
    assert [row.text for row in (*inbox, *outbox)] == ["(unreadable)", "(unreadable)"]
    for row in ("in-1", "out-1"):
        with pytest.raises(NanobotError, match="cannot be read") as caught:
            await journal.reports.retry(row)
        assert f"queue drop {row}" in caught.value.hint
    assert (await journal.reports.counts()).failed == 1


async def test_a_turn_is_shown_with_the_prompt_it_was_asked_with(journal: SqliteJournal) -> None:
    (entry,) = await journal.receive("fake", (said("m1"),))
    journal.claim("t1", "fake:1", (entry.id,), at_once=True)
    journal.remember_prompt("abc", "You are nanobot.")
    running = await journal.reports.turn("t1")
    assert (running.state, running.report, running.system_prompt) == ("running", {}, "")
    await journal.complete(done("t1", entry, report='{"system_id": "abc", "milliseconds": 3}'))
    turn = await journal.reports.turn("t1")
    assert (turn.session_key, turn.state) == ("fake:1", "done")
    assert turn.report["milliseconds"] == 3
    assert turn.system_prompt == "You are nanobot."


async def test_a_damaged_report_does_not_hide_the_turn(journal: SqliteJournal, path: Path) -> None:
    journal.claim("t1", "fake:1", (), at_once=True)
    await journal.complete(done("t1", report="{}"))
    change(path, "UPDATE turn SET report = '{'")
    turn = await journal.reports.turn("t1")
    assert (turn.id, turn.report) == ("t1", {})


@pytest.mark.parametrize("turn", ["nope", "caf\udce9"])
async def test_an_unknown_turn_is_refused(journal: SqliteJournal, turn: str) -> None:
    with pytest.raises(NanobotError, match=r"no turn '(nope|caf)"):
        await journal.reports.turn(turn)
