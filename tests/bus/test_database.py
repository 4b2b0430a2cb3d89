"""One writer, shared fsyncs, and a disk that may reject writes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sqlite3
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from nanobot.bus.sqlite import Database, Schema, Work, open_cache
from nanobot.errors import DatabaseDamaged, StorageError
from tests.bus.support import change, no_file_may_grow_beyond, rows
from tests.files import damage_file
from tests.privileges import without_privileges

SCHEMA = Schema("CREATE TABLE note (text TEXT NOT NULL UNIQUE)")


@contextlib.asynccontextmanager
async def open_database(path: Path) -> AsyncIterator[Database]:
    database = Database(path, SCHEMA)
    database.open()
    try:
        yield database
    finally:
        await database.close()


@pytest.fixture
async def database(path: Path) -> AsyncIterator[Database]:
    async with open_database(path) as database:
        yield database


def add(text: str) -> Work[None]:
    def work(db: sqlite3.Connection) -> None:
        db.execute("INSERT INTO note VALUES (?)", (text,))

    return work


def texts(db: sqlite3.Connection) -> list[str]:
    return [text for (text,) in db.execute("SELECT text FROM note ORDER BY rowid")]


def limit_pages(spare: int) -> Work[None]:
    """Make the disk full: the file may grow only by `spare` pages."""

    def work(db: sqlite3.Connection) -> None:
        (pages,) = db.execute("PRAGMA page_count").fetchone()
        db.execute(f"PRAGMA max_page_count = {pages + spare}")

    return work


def no_limit(db: sqlite3.Connection) -> None:
    db.execute("PRAGMA max_page_count = 1000000")


async def test_what_concurrent_callers_write_shares_commits(database: Database) -> None:
    blocker = asyncio.Event()
    loop = asyncio.get_running_loop()
    commits: list[str] = []

    def trace(db: sqlite3.Connection) -> None:
        db.set_trace_callback(lambda sql: commits.append(sql) if sql == "COMMIT" else None)
        asyncio.run_coroutine_threadsafe(blocker.wait(), loop).result()

    first = database.run(trace)
    others = [database.run(add(str(number))) for number in range(100)]
    await asyncio.sleep(0)
    blocker.set()
    await asyncio.gather(first, *others)
    assert 1 <= len(commits) <= 3
    assert len(await database.run(texts)) == 100


async def test_a_failing_job_undoes_only_itself(database: Database) -> None:
    def insert_and_fail(db: sqlite3.Connection) -> None:
        db.execute("INSERT INTO note VALUES ('half')")
        raise LookupError("mine")

    outcomes = await asyncio.gather(
        database.run(add("one")),
        database.run(insert_and_fail),
        database.run(add("one")),
        database.run(lambda db: db.execute("SELECT nothing FROM nowhere")),
        database.run(add("two")),
        return_exceptions=True,
    )
    assert [type(outcome) for outcome in outcomes] == [
        type(None),
        LookupError,
        sqlite3.IntegrityError,
        sqlite3.OperationalError,
        type(None),
    ]
    assert await database.run(texts) == ["one", "two"]


async def test_jobs_run_in_the_order_they_were_queued(database: Database) -> None:
    database.post(add("a"), can_wait=True)
    database.post(add("b"))
    await database.run(add("c"))
    assert await database.run(texts) == ["a", "b", "c"]


async def test_a_patient_mark_is_written_without_further_work(path: Path) -> None:
    async with open_database(path) as database:
        written = asyncio.Event()
        loop = asyncio.get_running_loop()
        database.post(lambda _: loop.call_soon_threadsafe(written.set), can_wait=True)
        await asyncio.wait_for(written.wait(), 5)


async def test_closing_writes_what_is_queued(path: Path) -> None:
    async with open_database(path) as database:
        for number in range(300):
            database.post(add(str(number)), can_wait=True)
    assert len(rows(path, "SELECT * FROM note")) == 300


async def test_a_cancelled_caller_does_not_disturb_the_writer(database: Database) -> None:
    caller = database.run(add("kept"))
    await asyncio.sleep(0)
    caller.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await caller
    await database.run(add("next"))
    assert await database.run(texts) == ["kept", "next"]


async def test_work_before_opening_and_after_closing_is_refused(path: Path) -> None:
    database = Database(path, SCHEMA)
    with pytest.raises(StorageError, match="not open"):
        await database.run(texts)
    database.open()
    await database.close()
    await database.close()
    with pytest.raises(StorageError, match="not open"):
        await database.run(texts)


async def test_what_run_reported_survives_a_kill(path: Path) -> None:
    program = (
        "import asyncio, os, signal, sys; from pathlib import Path\n"
        "from nanobot.bus.sqlite import Database, Schema\n"
        "async def main():\n"
        "    database = Database(Path(sys.argv[1]), Schema(sys.argv[2]))\n"
        "    database.open()\n"
        "    await database.run(lambda db: db.execute(\"INSERT INTO note VALUES ('kept')\"))\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "asyncio.run(main())\n"
    )
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", program, path, SCHEMA.tables)
    assert await child.wait() == -signal.SIGKILL
    async with open_database(path) as database:
        assert await database.run(texts) == ["kept"]


async def test_a_full_disk_is_a_storage_error_and_the_next_job_works_when_it_has_room(
    database: Database,
) -> None:
    await database.run(limit_pages(1))
    with pytest.raises(StorageError, match="full") as caught:
        await database.run(add("x" * 100_000))
    assert "space" in caught.value.hint
    await database.run(no_limit)
    await database.run(add("small"))
    assert await database.run(texts) == ["small"]


async def test_a_write_that_the_system_refuses_is_a_storage_error(database: Database) -> None:
    await database.run(add("before"))
    with no_file_may_grow_beyond(200_000), pytest.raises(StorageError):
        await database.run(add("x" * 1_000_000))
    await database.run(add("after"))
    assert await database.run(texts) == ["before", "after"]


async def test_marks_that_a_full_disk_refused_are_made_before_what_comes_later(
    database: Database,
) -> None:
    with no_file_may_grow_beyond(200_000):
        database.post(add("1" + "x" * 1_000_000))
        with pytest.raises(StorageError):
            await database.run(add("2, whose caller was told"), retry=True)
        with pytest.raises(StorageError):
            await database.run(add("4, whose caller tries again by itself"))
    await database.run(add("5"))
    assert [text[0] for text in await database.run(texts)] == ["1", "2", "5"]


async def test_insisting_work_waits_until_the_disk_takes_it(database: Database) -> None:
    with no_file_may_grow_beyond(200_000):
        insisting = database.run(add("1" + "x" * 1_000_000), until_stored=True)
        await asyncio.sleep(0)
        with pytest.raises(StorageError):
            await database.run(add("2"))
        assert not insisting.done()
    await database.run(add("3"))
    await asyncio.wait_for(insisting, 5)
    assert [text[0] for text in await database.run(texts)] == ["1", "3"]


async def test_insisting_work_is_told_when_the_database_closes_without_it(path: Path) -> None:
    async with open_database(path) as database:
        with no_file_may_grow_beyond(200_000):
            insisting = database.run(add("x" * 1_000_000), until_stored=True)
            await asyncio.sleep(0)
            await database.close()
        with pytest.raises(StorageError, match="closed"):
            await asyncio.wait_for(insisting, 5)


def test_garbage_in_place_of_the_file_is_named_with_a_way_out(path: Path) -> None:
    path.write_bytes(b"this is not a database" * 1000)
    with pytest.raises(DatabaseDamaged, match="damaged") as caught:
        Database(path, SCHEMA).open()
    assert "Restart nanobot" in caught.value.hint


def overwrite_from(path: Path, offset: int) -> None:
    damage_file(path, offset, path.stat().st_size - offset)


async def test_damage_found_later_is_a_storage_error(path: Path) -> None:
    async with open_database(path) as database:
        for number in range(50):
            await database.run(add(f"{number} {'x' * 1000}"))
    overwrite_from(path, 4096)
    async with open_database(path) as database:
        with pytest.raises(StorageError, match="damaged"):
            await database.run(texts)


async def test_a_text_with_broken_bytes_does_not_fail_the_query(database: Database) -> None:
    await database.run(lambda db: db.execute("INSERT INTO note VALUES (CAST(x'61ff62' AS TEXT))"))
    assert await database.run(texts) == ["a�b"]


async def test_a_missing_folder_is_a_storage_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError):
        Database(tmp_path / "nowhere" / "journal.db", SCHEMA).open()


@pytest.fixture
def protected() -> Iterator[Path]:
    """Yield a read-only journal, even if the tests run as root."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "journal.db"
        change(path, SCHEMA.tables)
        path.chmod(0o444)
        path.parent.chmod(0o555)
        with without_privileges():
            yield path
        path.parent.chmod(0o755)


def test_whose_a_file_is_that_may_not_be_written_is_said(protected: Path) -> None:
    with pytest.raises(StorageError, match=r"journal\.db") as caught:
        Database(protected, SCHEMA).open()
    assert f"uid {os.geteuid()}" in caught.value.hint
    assert str(protected) in caught.value.hint


async def test_a_file_with_other_tables_is_left_alone(path: Path) -> None:
    async with open_database(path):
        pass
    other = Schema(f"{SCHEMA.tables}; CREATE TABLE more (a)", version=2)
    with pytest.raises(StorageError, match=r"another version of nanobot \(format 1\)") as caught:
        Database(path, other).open()
    assert "NANOBOT_HOME" in caught.value.hint


async def test_a_file_with_the_same_tables_and_another_number_is_used(path: Path) -> None:
    async with open_database(path) as database:
        await database.run(add("kept"))
    change(path, "PRAGMA user_version = 9")
    async with open_database(path) as database:
        assert await database.run(texts) == ["kept"]
    assert rows(path, "PRAGMA user_version") == [(1,)]


async def test_the_file_is_readable_by_its_owner_only(path: Path) -> None:
    async with open_database(path):
        for file in path.parent.glob(f"{path.name}*"):
            assert file.stat().st_mode & 0o077 == 0


async def test_whatever_follows_a_transaction_and_fails_the_writer_goes_on(
    database: Database,
) -> None:
    def fail(_: sqlite3.Connection) -> None:
        raise RecursionError("too deep")

    with pytest.raises(RecursionError):
        await asyncio.wait_for(database.run(add("a"), after_commit=fail), 5)
    await asyncio.wait_for(database.run(add("b")), 5)


def test_a_cache_that_several_processes_create_at_once_opens_in_each(tmp_path: Path) -> None:
    def open_new(path: Path) -> None:
        open_cache(path, f"{SCHEMA.tables};".replace("TABLE", "TABLE IF NOT EXISTS"), 1).close()

    with ThreadPoolExecutor(4) as threads:
        for number in range(100):
            list(threads.map(open_new, [tmp_path / f"{number}.db"] * 4))
