"""The log of sends: the next process knows about sends that the journal had not stored yet."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from nanobot.bus.journal import MOST_DOUBTS, OutboxPart
from nanobot.bus.sqlite_journal import SqliteJournal
from nanobot.testing.clock import FakeClock
from tests.bus.support import no_file_may_grow_beyond, open_journal, reply, rows
from tests.files import copy_file

NAME = "sends.log"


@contextlib.contextmanager
def a_slow_disk(path: Path) -> Iterator[None]:
    """Make the journal's writer wait, as for a slow disk."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("BEGIN IMMEDIATE")
        yield
        db.execute("ROLLBACK")


def copy_as_killed(path: Path, place: Path) -> Path:
    """Copy the journal to another folder, in the state of a process killed now."""
    place.mkdir()
    for file in (*path.parent.glob("journal.db*"), path.with_name(NAME)):
        copy_file(file, place / file.name)
    return place / path.name


@contextlib.asynccontextmanager
async def sending(path: Path, clock: FakeClock) -> AsyncIterator[tuple[SqliteJournal, OutboxPart]]:
    """Open a journal with a stored part."""
    async with open_journal(path, clock) as journal:
        (part,) = await journal.add_outgoing("t1", reply("hello"))
        yield journal, part


async def parts_left(path: Path, clock: FakeClock) -> tuple[OutboxPart, ...]:
    async with open_journal(path, clock) as journal:
        return (await journal.leftovers()).parts


async def test_an_accepted_part_is_not_sent_again_though_the_disk_did_not_have_its_mark(
    path: Path, clock: FakeClock, tmp_path: Path
) -> None:
    async with sending(path, clock) as (journal, part):
        journal.mark_sending(part)
        with a_slow_disk(path):
            marking = asyncio.ensure_future(journal.mark_sent(part, "wamid.HBgL+/=="))
            await asyncio.sleep(0)
            left = copy_as_killed(path, tmp_path / "next")
        await marking
    assert rows(left, "SELECT state FROM outbox") != [("sent",)]
    assert await parts_left(left, clock) == ()
    query = "SELECT state, platform_id, payload FROM outbox"
    assert rows(left, query) == [("sent", "wamid.HBgL+/==", None)]


async def test_an_accepted_part_that_the_platform_may_still_drop_keeps_its_text(
    path: Path, clock: FakeClock, tmp_path: Path
) -> None:
    async with sending(path, clock) as (journal, part):
        journal.mark_sending(part)
        with a_slow_disk(path):
            marking = asyncio.ensure_future(journal.mark_sent(part, "p1", keep=True))
            await asyncio.sleep(0)
            left = copy_as_killed(path, tmp_path / "next")
        await marking
    async with open_journal(left, clock) as journal:
        await journal.leftovers()
        assert await journal.mark_undelivered("fake", "p1", "too late") == f"out-{part.id}"


async def test_a_part_counts_each_process_that_died_while_it_was_sent(
    path: Path, clock: FakeClock, tmp_path: Path
) -> None:
    async with sending(path, clock) as (journal, part):
        with a_slow_disk(path):
            journal.mark_sending(part)
            path = copy_as_killed(path, tmp_path / "1")
    for died in range(1, MOST_DOUBTS + 1):
        assert [part.doubts for part in await parts_left(path, clock)] == [died]
        async with open_journal(path, clock) as journal:
            (part,) = (await journal.leftovers()).parts
            with a_slow_disk(path):
                journal.mark_sending(part)
                path = copy_as_killed(path, tmp_path / str(died + 1))


async def test_a_part_that_did_not_arrive_is_in_no_doubt(
    path: Path, clock: FakeClock, tmp_path: Path
) -> None:
    async with sending(path, clock) as (journal, part):
        journal.mark_sending(part)
        await journal.counts()
        with a_slow_disk(path):
            journal.retry_later(part, "no connection")
            left = copy_as_killed(path, tmp_path / "next")
    assert rows(left, "SELECT state FROM outbox") == [("sending",)]
    assert [part.doubts for part in await parts_left(left, clock)] == [0]


def cut(data: bytes) -> bytes:
    return data[:-6]


def flip(data: bytes) -> bytes:
    return data[:-10] + bytes((data[-10] ^ 4,)) + data[-9:]


def zero(data: bytes) -> bytes:
    return data[:30] + bytes(len(data) - 30)


DAMAGE = (cut, flip, zero, lambda _: b"", lambda _: b"\xff" * 5_000)


@pytest.mark.parametrize("damage", DAMAGE, ids=["cut", "flipped", "zeroed", "empty", "garbage"])
async def test_a_line_that_is_damaged_does_not_count(
    path: Path, clock: FakeClock, damage: Callable[[bytes], bytes]
) -> None:
    async with sending(path, clock) as (journal, part):
        journal.mark_sending(part)
    log = path.with_name(NAME)
    log.write_bytes(damage(log.read_bytes()))
    (again,) = await parts_left(path, clock)
    assert (again.part, again.doubts) == (part.part, 1)  # as finally in the journal


async def test_the_log_of_another_journal_does_not_count(
    path: Path, clock: FakeClock, tmp_path: Path
) -> None:
    async with sending(path, clock) as (journal, part):
        with a_slow_disk(path):
            marking = asyncio.ensure_future(journal.mark_sent(part, "p1"))
            await asyncio.sleep(0)
            left = copy_as_killed(path, tmp_path / "next")
        await marking
    for file in left.parent.glob("journal.db*"):
        file.unlink()
    async with sending(left, clock) as (_, part):
        pass
    assert await parts_left(left, clock) == (part,)


async def test_a_part_that_a_person_retries_is_sent_whatever_was_known_of_it(
    path: Path, clock: FakeClock, tmp_path: Path
) -> None:
    async with sending(path, clock) as (journal, part):
        journal.mark_sending(part)
        await journal.mark_sent(part, "p1", keep=True)
        await journal.mark_undelivered("fake", "p1", "dropped")
        await journal.retry_row(f"out-{part.id}")
        left = copy_as_killed(path, tmp_path / "next")
    assert [part.doubts for part in await parts_left(left, clock)] == [0]


async def test_without_a_log_the_journal_alone_counts(path: Path, clock: FakeClock) -> None:
    path.with_name(NAME).mkdir()
    async with sending(path, clock) as (journal, part):
        journal.mark_sending(part)
        await journal.mark_sent(part, "p1")
    assert rows(path, "SELECT state, platform_id FROM outbox") == [("sent", "p1")]
    assert await parts_left(path, clock) == ()


async def test_half_a_line_on_a_full_disk_is_written_over(
    path: Path, clock: FakeClock, tmp_path: Path
) -> None:
    async with sending(path, clock) as (journal, part):
        with no_file_may_grow_beyond(path.with_name(NAME).stat().st_size + 10):
            journal.mark_sending(part)
        with a_slow_disk(path):
            marking = asyncio.ensure_future(journal.mark_sent(part, "p1"))
            await asyncio.sleep(0)
            left = copy_as_killed(path, tmp_path / "next")
        await marking
    assert await parts_left(left, clock) == ()


async def test_the_log_stays_small(path: Path, clock: FakeClock) -> None:
    async with sending(path, clock) as (journal, part):
        journal.mark_sending(part)
        for number in range(3_000):
            (other,) = await journal.add_outgoing(f"t2-{number}", reply("hello"))
            journal.mark_sending(other)
            await journal.mark_sent(other, f"p{number}")
        assert path.with_name(NAME).stat().st_size < 200_000
    assert [left.doubts for left in await parts_left(path, clock)] == [1]
