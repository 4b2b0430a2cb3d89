"""What turns cost, by conversation and by time."""

from __future__ import annotations

import json
from datetime import date, timedelta, timezone

from nanobot.bus.journal import Usage
from nanobot.bus.sqlite_journal import SqliteJournal
from nanobot.testing import FakeClock
from tests.bus.support import done, said


async def turn(journal: SqliteJournal, name: str, report: str, *, session: str = "fake:1") -> None:
    (entry,) = await journal.receive("fake", (said(name),))
    journal.claim(name, session, (entry.id,), at_once=True)
    await journal.complete(done(name, entry, session_key=session, report=report))


def report(prompt: int, cached: int = 0, completion: int = 0) -> str:
    return json.dumps(
        {"prompt_tokens": prompt, "cached_tokens": cached, "completion_tokens": completion}
    )


async def test_the_reports_of_a_conversation_or_of_all_are_summed(journal: SqliteJournal) -> None:
    await turn(journal, "a", report(100, 40, 10))
    await turn(journal, "b", report(50, 0, 5))
    await turn(journal, "c", report(7, 0, 1), session="fake:2")
    used = journal.reports
    assert await used.usage(session="fake:1") == Usage(2, 150, 40, 15)
    assert await used.usage() == Usage(3, 157, 40, 16)
    assert await used.usage(session="fake:9") == Usage()


async def test_only_turns_from_a_moment_on_count_whatever_its_offset(
    journal: SqliteJournal, clock: FakeClock
) -> None:
    await turn(journal, "a", report(100))
    await clock.advance(3_600)
    await turn(journal, "b", report(10))
    used = journal.reports
    since = clock.now() - timedelta(minutes=1)
    assert (await used.usage(since=since)).prompt == 10
    elsewhere = since.astimezone(timezone(timedelta(hours=5)))
    assert (await used.usage(since=elsewhere)).prompt == 10
    assert (await used.usage(since=since - timedelta(hours=2))).prompt == 110


async def test_turns_without_a_report_and_damaged_ones_do_not_count(
    journal: SqliteJournal,
) -> None:
    await turn(journal, "a", report(100))
    await turn(journal, "b", "")
    await turn(journal, "c", report(5))
    await journal.database.run(
        lambda db: db.execute("UPDATE turn SET report = '{broken' WHERE id = 'c'") and None
    )
    assert await journal.reports.usage() == Usage(1, 100, 0, 0)


async def test_what_memory_itself_used_is_counted_by_day(journal: SqliteJournal) -> None:
    used = journal.reports
    first, second = date(2026, 3, 31), date(2026, 4, 1)
    used.add_learning(first, Usage(1, 100, 40, 10))
    used.add_learning(second, Usage(1, 5, 0, 1))
    used.add_learning(second, Usage(1, 6, 2, 1))
    assert await used.learning(second) == Usage(2, 11, 2, 2)
    assert await used.learning(first) == Usage(3, 111, 42, 12)
    assert await used.usage() == Usage()
