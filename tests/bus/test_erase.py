"""Erasing leaves no byte of a text in the journal's files."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from msgspec.structs import replace

from nanobot.bus.journal import Step
from nanobot.bus.journal_file import redact_rows
from nanobot.bus.rows import TEXTS
from nanobot.bus.sqlite_journal import SqliteJournal
from nanobot.testing import FakeClock
from tests.bus.support import end_turn, make_message, open_journal, reply, rows
from tests.files import read_file

SECRET = "walrus-4711"


def redact(text: str) -> str:
    return text.replace(SECRET, "[erased]")


def bytes_of(path: Path) -> bytes:
    return b"".join(read_file(file) for file in sorted(path.parent.iterdir()))


async def fill(journal: SqliteJournal) -> None:
    """Put the text into every place that holds texts, live and freed."""
    gone, open_one = await journal.receive(
        "fake",
        [make_message("m1", f"old {SECRET} " * 300), make_message("m2", f"keep the {SECRET} safe")],
    )
    journal.claim("t1", "fake:1", [gone.id], at_once=True)
    await journal.add_steps("t1", 1, [Step("reply", f'{{"content":"{SECRET}"}}')])
    journal.remember_prompt("p1", f"You know {SECRET}.")
    await journal.postpone([open_one.id], 0.0, f"about {SECRET}")
    completion = end_turn("t1", gone, report=f'{{"tools":["{SECRET}"]}}', outgoing=(reply(SECRET),))
    await journal.complete(replace(completion, lines=f'{{"role":"user","content":"{SECRET}"}}\n'))
    journal.claim("t2", "fake:1", [open_one.id], at_once=True)
    await journal.add_steps("t2", 1, [Step("reply", f'{{"content":"again {SECRET}"}}')])


async def test_no_byte_of_the_files_holds_an_erased_text(
    journal: SqliteJournal, path: Path
) -> None:
    await fill(journal)
    assert SECRET.encode() in bytes_of(path)
    assert await journal.erase(redact) == 7

    assert SECRET.encode() not in bytes_of(path)
    assert await journal.erase(redact) == 0


async def test_everything_else_goes_on_as_if_nothing_had_been(
    journal: SqliteJournal, path: Path
) -> None:
    await fill(journal)
    before = rows(path, "SELECT id, event_id, state, turn_id FROM inbox")
    await journal.erase(redact)

    assert rows(path, "SELECT id, event_id, state, turn_id FROM inbox") == before
    left = await journal.leftovers()
    assert [entry.message.content for entry in left.entries] == ["keep the [erased] safe"]
    assert [part.part.content for part in left.parts] == ["[erased]"]
    (entry,) = await journal.receive("fake", [make_message("m3")])
    assert entry.id == 3


async def test_a_crash_before_the_file_is_made_anew_is_mended_by_doing_it_again(
    path: Path, clock: FakeClock
) -> None:
    async with open_journal(path, clock) as journal:
        await fill(journal)
        await journal.database.run(lambda db: redact_rows(db, redact))
        assert SECRET.encode() in bytes_of(path)
    async with open_journal(path, clock) as journal:
        assert await journal.erase(redact) == 0
        assert SECRET.encode() not in bytes_of(path)


async def test_every_text_column_is_either_searched_or_known_to_hold_none(
    journal: SqliteJournal, path: Path
) -> None:
    no_text = {
        "inbox": {"channel", "chat_id", "event_id", "session_key", "state", "group_id",
                  "turn_id", "received_at"},
        "cursor": {"channel", "value"},
        "turn": {"id", "session_key", "state", "started_at"},
        "step": {"turn_id", "kind"},
        "prompt": {"id", "used_at"},
        "unfiled": {"session_key"},
        "outbox": {"turn_id", "call", "channel", "chat_id", "state", "platform_id", "created_at"},
        "button": {"id", "channel", "chat_id", "sender_id", "created_at"},
        "helper": {"id", "started_at"},
        "spending": {"day"},
        "used": {"day", "session_key"},
        "document": {"name"},
    }  # fmt: skip
    columns = rows(
        path,
        "SELECT m.name, c.name FROM sqlite_master m, pragma_table_info(m.name) c"
        " WHERE m.type = 'table' AND c.type = 'TEXT'",
    )
    searched = set(TEXTS)
    unknown = {(t, c) for t, c in columns if c not in no_text.get(str(t), ())} - searched
    assert not unknown


async def test_work_that_comes_after_a_transaction_reports_its_own_failure(
    journal: SqliteJournal,
) -> None:
    def fail(db: sqlite3.Connection) -> None:
        db.execute("SELECT nonsense")

    with pytest.raises(Exception, match="nonsense"):
        await journal.database.run(lambda _: 1, after_commit=fail)
    assert await journal.database.run(lambda _: 2) == 2
