"""Queries and repairs of the journal by people."""

from __future__ import annotations

from pathlib import Path

import pytest

from nanobot.bus.journal import Completion, InboxEntry, OutboxPart
from nanobot.bus.sqlite_journal import SqliteJournal
from nanobot.errors import NanobotError
from tests.bus.support import change, end_turn, give_up, make_message, reply


async def in_trouble(journal: SqliteJournal) -> tuple[InboxEntry, OutboxPart]:
    """Return a failed message and a dead reply."""
    failed, answered = await journal.receive(
        "fake", (make_message("m1", "do it"), make_message("m2"))
    )
    await journal.complete(
        Completion("t1", "fake:1", (failed.id,), "failed", reason="it broke", report="{}")
    )
    committed = await journal.complete(end_turn("t2", answered, outgoing=(reply("answer"),)))
    await give_up(journal, committed.parts[0])
    return failed, committed.parts[0]


async def test_rows_that_cannot_be_read_are_shown_and_can_only_be_dropped(
    journal: SqliteJournal, path: Path
) -> None:
    await in_trouble(journal)
    change(path, "UPDATE inbox SET payload = '{'")
    change(path, "UPDATE outbox SET payload = '{'")
    inbox, outbox = await journal.queue_rows()
    assert [row.text for row in (*inbox, *outbox)] == ["(unreadable)", "(unreadable)"]
    for row in ("in-1", "out-1"):
        with pytest.raises(NanobotError, match="cannot be read") as caught:
            await journal.retry_row(row)
        assert f"queue drop {row}" in caught.value.hint
    assert (await journal.counts()).failed == 1


async def test_a_damaged_report_does_not_hide_the_turn(journal: SqliteJournal, path: Path) -> None:
    journal.claim("t1", "fake:1", (), at_once=True)
    await journal.complete(end_turn("t1", report="{}"))
    change(path, "UPDATE turn SET report = '{'")
    turn = await journal.turn_record("t1")
    assert (turn.id, turn.report) == ("t1", {})
