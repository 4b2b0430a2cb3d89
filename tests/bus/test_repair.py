"""The start rebuilds a damaged journal: readable rows are kept, lost rows are reported."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nanobot.bus.damage import SMALL, note_damage
from nanobot.bus.sqlite_journal import SqliteJournal
from nanobot.errors import DatabaseDamaged, HomeMoved, StorageError
from nanobot.testing import FakeClock
from tests.bus.support import end_turn, make_message, open_journal, reply, rows
from tests.files import copy_file, damage_file, read_file
from tests.scratch import scratch

PAGE = 4096
MANY = 60
TEXT = "some words of a person, " * 20


async def fill(path: Path) -> None:
    """Store answered messages, open messages and a document, each on several pages."""
    async with open_journal(path, FakeClock()) as journal:
        journal.state.write("jobs", b'{"jobs": [1]}', 0)
        for number in range(MANY):
            (entry,) = await journal.receive(
                "fake", [make_message(f"done-{number}", TEXT)], f"{number}"
            )
            journal.claim(f"t{number}", "fake:1", [entry.id], at_once=False)
            ended = end_turn(f"t{number}", entry, outgoing=(reply(TEXT),), report='{"model": "m"}')
            for part in (await journal.complete(ended)).parts:
                await journal.mark_sent(part, "1")
        await journal.receive(
            "fake", [make_message(f"open-{number}", TEXT) for number in range(MANY)]
        )


@pytest.fixture(scope="module")
def filled() -> Iterator[Path]:
    """Yield a filled journal that no test changes."""
    with scratch() as folder:
        asyncio.run(fill(folder / "journal.db"))
        yield folder / "journal.db"


@pytest.fixture
def whole(filled: Path, tmp_path: Path) -> Path:
    return copy_journal(filled, tmp_path / "whole")


def copy_journal(whole: Path, place: Path) -> Path:
    """Copy the folder of a journal, for a test to damage."""
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(whole.parent, place, copy_function=copy_file)
    return place / "journal.db"


def zero(path: Path, page: int) -> None:
    damage_file(path, page * PAGE, PAGE)


def overwrite(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def pages(path: Path) -> range:
    return range(path.stat().st_size // PAGE)


def roots(path: Path, kind: str) -> dict[str, int]:
    """Return the first page of each table or index, counted from 0."""
    query = f"SELECT name, rootpage - 1 FROM sqlite_master WHERE type = '{kind}'"
    return {str(name): int(str(page)) for name, page in rows(path, query)}


async def report_of(path: Path, clock: FakeClock) -> tuple[set[str], str]:
    """Open a journal and return its open messages and the report of the losses."""
    async with open_journal(path, clock) as journal:
        (new,) = await journal.receive("fake", [make_message("new")])
        assert new.message.event_id == "new"
        waiting = {entry.message.event_id for entry in (await journal.leftovers()).entries}
        reports = [text for _, text, _ in journal.damages()]
    assert len(reports) <= 1
    return waiting - {"new"}, "".join(reports)


async def test_whichever_page_is_zeroed_it_opens_and_reports_what_was_lost(
    whole: Path, tmp_path: Path, clock: FakeClock
) -> None:
    everything = {f"open-{number}" for number in range(MANY)}
    for page in pages(whole):
        path = copy_journal(whole, tmp_path / "copy")
        zero(path, page)
        waiting, report = await report_of(path, clock)
        assert waiting <= everything
        assert waiting == everything or "messages (" in report or "set aside" in report, page
        assert report.startswith("The journal was damaged ("), page
        documents = rows(path, "SELECT name, content FROM document")
        assert [name for name, _ in documents] == ["jobs"], page


async def test_a_damaged_index_costs_nothing(whole: Path, tmp_path: Path, clock: FakeClock) -> None:
    for name, page in roots(whole, "index").items():
        path = copy_journal(whole, tmp_path / "copy")
        zero(path, page)
        waiting, report = await report_of(path, clock)
        assert (len(waiting), "Nothing was lost." in report) == (MANY, True), name


async def test_rows_on_other_pages_of_the_table_are_kept(
    whole: Path, tmp_path: Path, clock: FakeClock
) -> None:
    with contextlib.closing(sqlite3.connect(whole)) as db:
        (page,) = db.execute(
            "SELECT pageno - 1 FROM dbstat WHERE name = 'inbox' AND pagetype = 'leaf'"
            " ORDER BY pageno LIMIT 1 OFFSET 4"
        ).fetchone()
    path = copy_journal(whole, tmp_path / "copy")
    zero(path, page)
    waiting, report = await report_of(path, clock)
    assert MANY - 10 < len(waiting) < MANY
    assert "messages (some)" in report


def content(path: Path) -> bytes:
    return path.read_bytes()


def flip(path: Path, offset: int, bit: int) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= bit
    path.write_bytes(data)


async def test_a_flipped_bit_of_the_header_or_of_the_list_of_tables_costs_nothing(
    whole: Path, tmp_path: Path, clock: FakeClock
) -> None:
    data = content(whole)
    header = [(at, 1 << bit) for at in (18, 47) for bit in range(8)]
    header += [(at, bit) for at in (60, 61, 62, 63) for bit in (1, 0x80)]
    check = data.index(b"CHECK (state IN ('received'")
    list_of_tables = [(check + at, 1) for at in range(0, 60, 6)]
    for place, bit in header + list_of_tables:
        path = copy_journal(whole, tmp_path / "copy")
        flip(path, place, bit)
        waiting, report = await report_of(path, clock)
        assert len(waiting) == MANY, (place, bit)
        is_used_as_it_is = 60 <= place <= 63 or (place, bit) in {(18, 2), (47, 4)}
        assert "Nothing was lost." in report or is_used_as_it_is, (place, bit)


async def test_a_row_whose_number_was_damaged_does_not_hold_up_the_start(
    whole: Path, clock: FakeClock
) -> None:
    """Between it and the damaged page are millions of unused row numbers."""
    with contextlib.closing(sqlite3.connect(whole)) as db, db:
        db.execute("UPDATE inbox SET id = id + (1 << 60) WHERE id > 90")
        leaves = db.execute(
            "SELECT pageno - 1 FROM dbstat WHERE name = 'inbox' AND pagetype = 'leaf' ORDER BY path"
        ).fetchall()
    for (page,) in leaves[2:-2]:
        zero(whole, page)
    waiting, report = await report_of(whole, clock)
    assert 0 < len(waiting) < MANY
    assert "messages (some)" in report


@pytest.mark.parametrize("content", [b"", b"garbage" * 2000])
async def test_a_journal_without_any_row_begins_anew_with_the_documents(
    whole: Path, clock: FakeClock, content: bytes
) -> None:
    overwrite(whole, content)
    waiting, report = await report_of(whole, clock)
    assert waiting == set()
    assert "messages (all)" in report
    assert "Restored from documents.json: jobs." in report


async def test_a_new_home_reports_no_damage(tmp_path: Path, clock: FakeClock) -> None:
    assert await report_of(tmp_path / "journal.db", clock) == (set(), "")
    async with open_journal(tmp_path / "journal.db", clock) as journal:
        assert list(journal.damages()) == []


async def test_numbers_of_lost_rows_are_not_given_again(whole: Path, clock: FakeClock) -> None:
    highest = int(str(rows(whole, "SELECT max(id) FROM outbox")[0][0]))
    zero(whole, roots(whole, "table")["outbox"])
    zero(whole, roots(whole, "table")["sqlite_sequence"])
    async with open_journal(whole, clock) as journal:
        (part,) = await journal.add_outgoing("later", reply("hello"))
        assert part.id > highest


@pytest.fixture
async def killed(filled: Path, tmp_path: Path, clock: FakeClock) -> Path:
    """Return the journal of a killed process, most of which is in the log."""
    path = tmp_path / "killed" / "journal.db"
    running = copy_journal(filled, tmp_path / "running")
    async with open_journal(running, clock) as journal:
        for number in range(20):
            await journal.receive("fake", [make_message(f"last-{number}")])
        copy_journal(running, path.parent)
    return path


def last_frame(path: Path) -> int:
    return int.from_bytes(path.with_name("journal.db-shm").read_bytes()[16:20], "little")


async def test_the_log_of_a_killed_process_is_no_damage(killed: Path, clock: FakeClock) -> None:
    waiting, report = await report_of(killed, clock)
    assert ("last-19" in waiting, report) == (True, "")


@pytest.mark.parametrize(
    "damage",
    [
        lambda log, _: log.unlink(),
        lambda log, _: log.write_bytes(b""),
        lambda log, _: log.write_bytes(b"garbage" * 2000),
        lambda log, _: zero(log, 0),
        lambda log, last: zero(log, last - 1),
        lambda log, last: os.truncate(log, (last - 1) * (PAGE + 24)),
    ],
    ids=["removed", "emptied", "garbage", "head zeroed", "tail zeroed", "end cut off"],
)
async def test_a_damaged_log_is_reported(
    killed: Path, clock: FakeClock, damage: Callable[[Path, int], object]
) -> None:
    damage(killed.with_name("journal.db-wal"), last_frame(killed))
    _, report = await report_of(killed, clock)
    assert "its log is damaged" in report
    assert "the newest changes" in report


def without_index(log: Path) -> None:
    log.with_name("journal.db-shm").unlink()


async def test_a_log_that_a_power_loss_cut_short_is_no_damage(
    killed: Path, clock: FakeClock
) -> None:
    log, last = killed.with_name("journal.db-wal"), last_frame(killed)
    damage_file(log, 32 + last * (PAGE + 24) - 100, 100)
    without_index(log)
    waiting, report = await report_of(killed, clock)
    assert ("last-18" in waiting, report) == (True, "")


async def test_an_index_from_before_a_power_loss_hides_no_stored_page_from_the_rebuilding(
    tmp_path: Path, clock: FakeClock
) -> None:
    path, running = tmp_path / "copy" / "journal.db", tmp_path / "running" / "journal.db"
    running.parent.mkdir()
    async with open_journal(running, clock) as journal:
        await journal.receive("fake", [make_message("first")])
        older = read_file(running.with_name("journal.db-shm"))
        await journal.receive("fake", [make_message("last")])
        copy_journal(running, path.parent)
    path.with_name("journal.db-shm").write_bytes(older)
    note_damage(path, "another page")
    waiting, report = await report_of(path, clock)
    assert waiting == {"first", "last"}
    assert "Nothing was lost." in report


async def test_a_log_that_is_damaged_before_its_end_is_known_without_its_index(
    killed: Path, clock: FakeClock
) -> None:
    log, last = killed.with_name("journal.db-wal"), last_frame(killed)
    damage_file(log, 32 + (last - 30) * (PAGE + 24) + 100, 100)
    without_index(log)
    _, report = await report_of(killed, clock)
    assert "its log is damaged" in report


async def test_marks_of_replies_that_are_lost_do_not_count_for_what_the_rebuilding_says(
    killed: Path, clock: FakeClock, tmp_path: Path
) -> None:
    async with open_journal(killed, clock) as journal:  # the log so far is kept
        for number in range(30):
            (part,) = await journal.add_outgoing(f"late-{number}", reply("hello"))
            journal.mark_sending(part)
            await journal.mark_sent(part, "1")
        path = copy_journal(killed, tmp_path / "copy")
    path.with_name("journal.db-wal").write_bytes(b"")
    async with open_journal(path, clock) as journal:
        ((_, report, _),) = journal.damages()
        parts = (await journal.leftovers()).parts
    assert "Messages that may be partly done" in report
    assert len(parts) >= MANY  # a notice for each of them


async def test_a_message_that_may_have_been_worked_on_is_not_run_again_by_itself(
    tmp_path: Path, clock: FakeClock
) -> None:
    path = tmp_path / "journal.db"
    async with open_journal(path, clock) as journal:
        working, waiting = await journal.receive(
            "fake", [make_message("working"), make_message("waiting")]
        )
        journal.claim("t1", "fake:1", [working.id], at_once=False)
    zero(path, roots(path, "table")["step"])
    async with open_journal(path, clock) as journal:
        leftovers = await journal.leftovers()
        assert [entry.id for entry in leftovers.entries] == [waiting.id]
        (notice,) = [item.part.content for item in leftovers.parts]
        assert "/retry to run it again" in notice
        failed, _ = await journal.queue_rows()
        assert [row.state for row in failed] == ["failed", "received"]
        (_, report, _) = next(iter(journal.damages()))
        assert "Messages that may be partly done: 1." in report


async def test_an_index_that_says_something_else_than_its_table_is_damaged(
    whole: Path, clock: FakeClock
) -> None:
    page = roots(whole, "index")["inbox_open"]
    damage_file(whole, (page + 1) * PAGE - 40, 1)
    waiting, report = await report_of(whole, clock)
    assert (len(waiting), "Nothing was lost." in report) == (MANY, True)


class Killed(BaseException):
    pass


async def test_a_crash_at_any_sync_of_the_rebuilding_loses_nothing_more(
    whole: Path, tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = roots(whole, "index")["inbox_open"]
    fsync = os.fsync
    for survived in range(20):
        path = copy_journal(whole, tmp_path / "copy")
        zero(path, index)
        left = survived

        def dying(descriptor: int) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise Killed
            fsync(descriptor)

        monkeypatch.setattr(os, "fsync", dying)
        journal = SqliteJournal(path, clock)
        died = False
        try:
            await journal.open()
        except Killed:
            died = True
        await journal.close()
        monkeypatch.setattr(os, "fsync", fsync)
        async with open_journal(path, clock) as again:
            assert len((await again.leftovers()).entries) == MANY
            assert list(again.damages())
        if not died:
            return
    pytest.fail("it never ended")


async def test_damage_that_is_found_later_is_rebuilt_by_the_next_start(
    tmp_path: Path, clock: FakeClock
) -> None:
    path, failures = tmp_path / "journal.db", list[StorageError]()
    async with open_journal(path, clock) as journal:
        journal.watch(failures.append)
        big = [make_message(f"m{number}", TEXT * 100) for number in range(2 * SMALL // 40_000)]
        for at in range(0, len(big), 10):
            await journal.receive("fake", big[at : at + 10])
        with contextlib.closing(sqlite3.connect(path)) as db:
            db.execute("PRAGMA wal_checkpoint(FULL)").fetchall()
        damage_file(path, 200 * PAGE, 400 * PAGE)
        with pytest.raises(DatabaseDamaged):
            await journal.queue_rows()
        assert [type(one) for one in failures] == [DatabaseDamaged]
    waiting, report = await report_of(path, clock)
    assert 0 < len(waiting) < len(big)
    assert "messages (" in report


async def test_the_rest_of_a_large_journal_is_looked_at_while_it_is_used(
    tmp_path: Path, clock: FakeClock
) -> None:
    path, failures = tmp_path / "journal.db", list[StorageError]()
    async with open_journal(path, clock) as journal:
        for number in range(SMALL // 500_000 + 1):
            await journal.receive("fake", [make_message(f"m{number}", "x" * 500_000)])
        await journal.check()
    zero(path, roots(path, "index")["turn_session"])
    async with open_journal(path, clock) as journal:
        journal.watch(failures.append)
        assert list(journal.damages()) == []
        await journal.check()
    assert [type(one) for one in failures] == [DatabaseDamaged]
    _, report = await report_of(path, clock)
    assert "Nothing was lost." in report


async def test_a_journal_that_was_moved_takes_nothing(tmp_path: Path, clock: FakeClock) -> None:
    home, failures = tmp_path / "home", list[StorageError]()
    home.mkdir()
    async with open_journal(home / "journal.db", clock) as journal:
        journal.watch(failures.append)
        home.rename(tmp_path / "elsewhere")
        with pytest.raises(HomeMoved):
            await journal.receive("fake", [make_message("m1")])
        assert {type(one) for one in failures} == {HomeMoved}  # once for each attempt to write
    assert rows(tmp_path / "elsewhere" / "journal.db", "SELECT count(*) FROM inbox") == [(0,)]
    assert not home.exists()


async def test_a_disk_that_damages_it_again_and_again_is_reported_and_not_written_full(
    whole: Path, clock: FakeClock
) -> None:
    index = roots(whole, "index")["inbox_open"]
    for _ in range(5):
        zero(whole, index)
        async with open_journal(whole, clock):
            await clock.advance(60)
    zero(whole, index)
    with pytest.raises(StorageError, match="keeps getting damaged"):
        await SqliteJournal(whole, clock).open()
    for _ in range(3):
        await clock.advance(3_600)
        zero(whole, index)
        async with open_journal(whole, clock):
            pass
    assert len(list(whole.parent.glob("*.damaged-*"))) == 5


async def test_what_was_sent_before_the_damage_is_known_after_it(
    whole: Path, clock: FakeClock
) -> None:
    (before,) = rows(whole, "PRAGMA application_id")
    zero(whole, roots(whole, "table")["prompt"])
    _, report = await report_of(whole, clock)
    assert "system prompts" in report
    assert rows(whole, "PRAGMA application_id") == [before]
    assert before != (0,)
