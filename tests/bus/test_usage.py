"""What turns cost, by conversation and by time."""

from __future__ import annotations

import json

from nanobot.bus.journal import UsageTotals
from nanobot.bus.sqlite_journal import SqliteJournal
from tests.bus.support import done, said


async def turn(journal: SqliteJournal, name: str, report: str, *, session: str = "fake:1") -> None:
    (entry,) = await journal.receive("fake", (said(name),))
    journal.claim(name, session, (entry.id,), at_once=True)
    await journal.complete(done(name, entry, session_key=session, report=report))


def report(prompt: int, cached: int = 0, completion: int = 0) -> str:
    return json.dumps(
        {"prompt_tokens": prompt, "cached_tokens": cached, "completion_tokens": completion}
    )


async def test_turns_without_a_report_and_damaged_ones_do_not_count(
    journal: SqliteJournal,
) -> None:
    await turn(journal, "a", report(100))
    await turn(journal, "b", "")
    await turn(journal, "c", report(5))
    await journal.database.run(
        lambda db: db.execute("UPDATE turn SET report = '{broken' WHERE id = 'c'") and None
    )
    assert await journal.usage() == UsageTotals(1, 100, 0, 0)
