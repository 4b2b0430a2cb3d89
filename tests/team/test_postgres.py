"""One writer on PostgreSQL, shared commits, lost answers, and a server that stops."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Iterator

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from nanobot.errors import StorageError
from nanobot.gateway.health import HealthMonitor
from nanobot.tasks import Background
from nanobot.team import schema
from nanobot.team.connection import (
    END_SESSIONS_OF_THE_DEAD,
    Connection,
    DatabaseAddress,
    execute,
)
from nanobot.team.journal import PostgresJournal
from nanobot.team.postgres import Database, Work
from nanobot.testing import FakeClock
from tests.doubles.postgres import PostgresServer, run_relay
from tests.team.support import enlist, open_database, sql


@pytest.fixture
def dsn(team_database: str) -> str:
    sql(team_database, "CREATE TABLE note (number bigserial, text text NOT NULL UNIQUE)")
    return team_database


@pytest.fixture
def worker(dsn: str) -> int:
    return enlist(dsn)


@pytest.fixture
async def database(dsn: str, worker: int) -> AsyncIterator[Database]:
    async with open_database(dsn, worker) as database:
        yield database


def add(text: str) -> Work[str]:
    async def work(db: Connection) -> str:
        await execute(db, "INSERT INTO note (text) VALUES (%s)", text)
        return text

    return work


def notes(dsn: str) -> list[str]:
    return [text for (text,) in sql(dsn, "SELECT text FROM note ORDER BY number")]


async def test_what_concurrent_callers_write_shares_commits(database: Database, dsn: str) -> None:
    jobs = [database.run(add(str(number))) for number in range(100)]
    assert await asyncio.gather(*jobs) == [str(number) for number in range(100)]
    assert sql(dsn, "SELECT number FROM stamp") == [(1,)]
    assert len(notes(dsn)) == 100


async def test_a_failing_job_undoes_only_itself(database: Database, dsn: str) -> None:
    async def fail(db: Connection) -> None:
        await execute(db, "INSERT INTO note (text) VALUES ('half')")
        raise LookupError("mine")

    outcomes = await asyncio.gather(
        database.run(add("one")),
        database.run(fail),
        database.run(add("one")),
        database.run(lambda db: execute(db, "SELECT nothing FROM nowhere")),
        database.run(add("two")),
        return_exceptions=True,
    )
    assert [type(outcome) for outcome in outcomes] == [
        str,
        LookupError,
        psycopg.errors.UniqueViolation,
        psycopg.errors.UndefinedTable,
        str,
    ]
    assert notes(dsn) == ["one", "two"]


async def test_jobs_run_in_the_order_they_were_queued(database: Database, dsn: str) -> None:
    database.post(add("a"), can_wait=True)
    database.post(add("b"))
    await database.run(add("c"))
    assert notes(dsn) == ["a", "b", "c"]


async def test_a_patient_mark_is_written_without_further_work(database: Database) -> None:
    written = asyncio.Event()

    async def work(db: Connection) -> None:
        written.set()

    database.post(work, can_wait=True)
    await asyncio.wait_for(written.wait(), 5)


async def test_what_was_posted_is_read(database: Database) -> None:
    database.post(add("a"), can_wait=True)
    assert await database.read("SELECT text FROM note") == [("a",)]


async def test_reading_changes_nothing(database: Database) -> None:
    with pytest.raises(StorageError, match="read-only"):
        await database.read("INSERT INTO note (text) VALUES ('x') RETURNING text")


async def test_closing_stores_what_is_queued(dsn: str, worker: int) -> None:
    async with open_database(dsn, worker) as database:
        database.post(add("a"), can_wait=True)
    assert notes(dsn) == ["a"]
    with pytest.raises(StorageError, match="it is not open"):
        database.run(add("b"))


async def test_workers_that_are_in_each_others_way_both_get_through(
    dsn: str, database: Database
) -> None:
    sql(dsn, "INSERT INTO note (text) VALUES ('x'), ('y')")

    def both(first: str, second: str, mine: asyncio.Event, yours: asyncio.Event) -> Work[None]:
        async def work(db: Connection) -> None:
            for text in (first, second):
                change = "UPDATE note SET number = number + 10 WHERE text = %s RETURNING 1"
                await (await execute(db, change, text)).fetchall()
                mine.set()
                await yours.wait()

        return work

    one, two = asyncio.Event(), asyncio.Event()
    async with open_database(dsn, enlist(dsn)) as other:
        await asyncio.gather(
            database.run(both("x", "y", one, two)), other.run(both("y", "x", two, one))
        )
    assert sql(dsn, "SELECT number FROM note ORDER BY 1") == [(21,), (22,)]


@pytest.mark.parametrize("pass_on", [True, False])
async def test_a_commit_whose_answer_is_lost_is_stored_once(
    postgres: PostgresServer, dsn: str, worker: int, *, pass_on: bool
) -> None:
    async with (
        run_relay(postgres) as (relay, sockets),
        open_database(dsn.replace(str(postgres.sockets), sockets), worker) as database,
    ):
        await database.run(add("before"))
        relay.cut_at(b"COMMIT", pass_on=pass_on)
        database.post(add("posted"))
        kept = database.run(add("kept"), retry=True)
        assert await database.run(add("mine")) == "mine"
        assert (await kept, relay.cut.is_set()) == ("kept", True)
        assert await database.run(add("after")) == "after"
        assert (database.refusal, database.has_died) == (None, False)
    assert notes(dsn) == ["before", "posted", "kept", "mine", "after"]


async def test_without_a_worker_nobody_knows_whether_it_was_stored(
    postgres: PostgresServer, dsn: str
) -> None:
    async with (
        run_relay(postgres) as (relay, sockets),
        open_database(dsn.replace(str(postgres.sockets), sockets), None) as database,
    ):
        relay.cut_at(b"COMMIT", pass_on=False)
        database.post(add("posted"))
        with pytest.raises(StorageError, match="it is unknown whether"):
            await database.run(add("mine"))
    assert notes(dsn) == ["posted"]


@pytest.fixture
def mortal(postgres: PostgresServer) -> Iterator[PostgresServer]:
    """The server, for tests that stop it."""
    yield postgres
    postgres.start()


@contextlib.contextmanager
def refusing(server: PostgresServer) -> Iterator[None]:
    """Let the server reject all passwords, and end all connections."""
    rules = server.data / "pg_hba.conf"
    before = rules.read_text()
    rules.write_text(f"local all nanobot scram-sha-256\n{before}")
    server.stop()
    server.start(expects="password")
    try:
        yield
    finally:
        rules.write_text(before)
        server.stop()
        server.start()


@pytest.mark.parametrize("password", ["", "&password=wrong"])
async def test_a_password_that_is_refused_is_told_with_a_hint_that_fits(
    mortal: PostgresServer, dsn: str, password: str
) -> None:
    journal = PostgresJournal(Database(f"{dsn}{password}", lambda: None), FakeClock(), str)
    await journal.open()
    background = Background()
    monitor = HealthMonitor({}, journal, FakeClock(), background)
    with refusing(mortal):
        health = await monitor.check_health()
    await journal.close()
    await background.drain(1)
    assert [one.level for one in health.concerns] == ["failing"]
    assert "Check the user, password, and database in team.database" in health.concerns[0].hint
    assert "disk" not in health.concerns[0].hint


async def test_a_server_that_dies_takes_nothing_along_that_was_stored(
    mortal: PostgresServer, dsn: str, worker: int
) -> None:
    async with open_database(dsn, worker) as database:
        await asyncio.gather(*(database.run(add(str(number))) for number in range(20)))
        assert len(await database.read("SELECT 1 FROM note")) == 20
        await asyncio.to_thread(mortal.stop, signal.SIGQUIT)
        with pytest.raises(StorageError) as refused:
            await database.run(add("refused"))
        assert "when it responds" in refused.value.hint
        assert str(database.refusal) == str(refused.value)
        with pytest.raises(StorageError):
            await database.read("SELECT 1")
        kept = database.run(add("kept"), until_stored=True)
        with pytest.raises(StorageError):
            await database.run(add("later"), retry=True)
        await asyncio.to_thread(mortal.start)
        assert await kept == "kept"
        assert len(await database.read("SELECT 1 FROM note")) == 22
        assert (database.refusal, database.has_died) == (None, False)
    assert notes(dsn) == [*map(str, range(20)), "kept", "later"]


async def test_a_server_that_is_back_is_noticed_with_nothing_to_write(
    mortal: PostgresServer, dsn: str, worker: int
) -> None:
    async with open_database(dsn, worker) as database:
        await asyncio.to_thread(mortal.stop, signal.SIGQUIT)
        with pytest.raises(StorageError):
            await database.run(add("refused"))
        await asyncio.to_thread(mortal.start)
        async with asyncio.timeout(10):
            while database.refusal:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.05)


@pytest.mark.parametrize("pass_on", [True, False])
async def test_a_server_that_dies_with_a_commit_under_way_tells_whether_it_was_stored(
    mortal: PostgresServer, dsn: str, worker: int, *, pass_on: bool
) -> None:
    """It reuses the ids of lost transactions."""

    def crash() -> None:
        mortal.stop(signal.SIGQUIT)
        mortal.start()
        for other in ("x", "y", "z"):
            sql(dsn, "INSERT INTO note (text) VALUES (%s)", other)

    async with (
        run_relay(mortal) as (relay, sockets),
        open_database(dsn.replace(str(mortal.sockets), sockets), worker) as database,
    ):
        relay.on_cut = crash
        relay.cut_at(b"COMMIT", pass_on=pass_on)
        assert await database.run(add("mine")) == "mine"
        assert relay.cut.is_set()
    assert sorted(notes(dsn)) == ["mine", "x", "y", "z"]


async def test_what_was_never_taken_is_refused_when_the_database_is_closed(
    postgres: PostgresServer, dsn: str, worker: int
) -> None:
    async with run_relay(postgres) as (relay, sockets):
        away = dsn.replace(str(postgres.sockets), sockets)
        async with open_database(away, worker) as database:
            relay.close()
            waits = database.run(add("a"), until_stored=True)
            with pytest.raises(StorageError):
                await database.run(add("b"))
        with pytest.raises(StorageError, match="it was closed before everything was stored"):
            await waits
    assert notes(dsn) == []


async def test_a_fenced_worker_stores_nothing(dsn: str, worker: int) -> None:
    said: list[str] = []
    async with open_database(dsn, worker, lambda: said.append("fenced")) as database:
        await database.run(add("before"))
        sql(dsn, "DELETE FROM worker WHERE id = %s", worker)
        database.post(add("posted"))
        for _ in range(2):
            with pytest.raises(StorageError, match="other workers are taking over its work"):
                await database.run(add("late"), until_stored=True)
        assert (said, database.has_died) == (["fenced"], True)
    assert notes(dsn) == ["before"]
    assert sql(dsn, "SELECT * FROM stamp") == []


async def test_one_that_is_fenced_while_a_commit_is_in_doubt_ends(
    postgres: PostgresServer, dsn: str, worker: int
) -> None:
    said: list[str] = []
    async with (
        run_relay(postgres) as (relay, sockets),
        open_database(
            dsn.replace(str(postgres.sockets), sockets), worker, lambda: said.append("fenced")
        ) as database,
    ):
        relay.on_cut = lambda: sql(dsn, "DELETE FROM worker WHERE id = %s", worker)
        relay.cut_at(b"COMMIT", pass_on=False)
        with pytest.raises(StorageError, match="other workers are taking over its work"):
            await database.run(add("mine"))
        assert said == ["fenced"]
    assert notes(dsn) == []


async def test_fencing_waits_for_the_transaction_under_way(
    database: Database, dsn: str, worker: int
) -> None:
    begun, goes_on = asyncio.Event(), asyncio.Event()

    async def slow(db: Connection) -> None:
        await (await execute(db, "SELECT 1")).fetchall()
        begun.set()
        await goes_on.wait()
        await execute(db, "INSERT INTO note (text) VALUES ('slow')")

    stored = database.run(slow)
    await begun.wait()
    fence = "SET lock_timeout = '50ms'; DELETE FROM worker"
    with pytest.raises(psycopg.errors.LockNotAvailable):
        await asyncio.to_thread(sql, dsn, fence)
    # A heartbeat does not wait.
    beat = "UPDATE worker SET until = now() + '6 s' WHERE id = %s RETURNING id"
    assert await asyncio.to_thread(sql, dsn, beat, worker) == [(worker,)]
    goes_on.set()
    await stored
    sql(dsn, fence)
    assert notes(dsn) == ["slow"]


def database_of(dsn: str) -> str:
    return str(conninfo_to_dict(dsn)["dbname"])


async def test_what_a_stopped_process_has_under_way_is_ended(dsn: str, worker: int) -> None:
    """Otherwise its locks would stay until it continues, and it could not be fenced."""
    said: list[str] = []

    async def stops(db: Connection) -> None:
        await (await execute(db, "INSERT INTO note (text) VALUES ('mine') RETURNING 1")).fetchall()
        if not said:
            # In this thread, so that the process does nothing else.
            assert sql(dsn, END_SESSIONS_OF_THE_DEAD) == []
            sql(dsn, "UPDATE worker SET until = now() - interval '1 s'")
            assert sql(dsn, END_SESSIONS_OF_THE_DEAD) == [(True,)]
            sql(dsn, "DELETE FROM worker WHERE id = %s", worker)
            said.append("deleted")

    async with open_database(dsn, worker, lambda: said.append("fenced")) as database:
        with pytest.raises(StorageError, match="other workers are taking over its work"):
            await database.run(stops, until_stored=True)
    assert (notes(dsn), said) == ([], ["deleted", "fenced"])


async def test_a_way_that_is_gone_without_a_word_holds_up_nobody(
    postgres: PostgresServer, dsn: str, worker: int
) -> None:
    async with (
        run_relay(postgres) as (relay, sockets),
        open_database(dsn.replace(str(postgres.sockets), sockets), worker) as database,
    ):
        for number in range(3):
            relay.cut_at(b"COMMIT", pass_on=False, hang_up=False)
            assert await database.run(add(str(number))) == str(number)
            assert relay.cut.is_set()
    assert notes(dsn) == ["0", "1", "2"]


async def opens(dsn: str) -> None:
    async with open_database(dsn, None):
        pass


@pytest.mark.parametrize("setting", ["off", "local"])
async def test_commits_that_a_crash_may_lose_are_refused(dsn: str, setting: str) -> None:
    sql(dsn, f"ALTER DATABASE {database_of(dsn)} SET synchronous_commit = {setting}")
    with pytest.raises(StorageError, match=f"synchronous_commit is {setting}") as refused:
        await opens(dsn)
    assert "ALTER ROLE CURRENT_USER SET synchronous_commit = on" in refused.value.hint


async def test_a_server_that_does_not_sync_is_refused(dsn: str) -> None:
    sql(dsn, "ALTER SYSTEM SET fsync = off")
    sql(dsn, "SELECT pg_reload_conf()")
    try:
        with psycopg.connect(dsn, autocommit=True) as connection:
            while connection.execute("SHOW fsync").fetchone() == ("on",):
                pass  # the server reads its settings soon
        with pytest.raises(StorageError, match="fsync is off"):
            await opens(dsn)
    finally:
        sql(dsn, "ALTER SYSTEM RESET fsync")
        sql(dsn, "SELECT pg_reload_conf()")


async def test_a_database_of_another_encoding_is_refused(dsn: str) -> None:
    sql(dsn, "CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0")
    with pytest.raises(StorageError, match="LATIN1"):
        await opens(dsn.replace(f"/{database_of(dsn)}?", "/latin?"))
    sql(dsn, "DROP DATABASE latin")


async def test_tables_of_another_version_are_left_alone(dsn: str) -> None:
    sql(dsn, "UPDATE schema_version SET version = %s", schema.VERSION + 1)
    with pytest.raises(StorageError, match=r"version \(2\) belongs to another") as refused:
        await opens(dsn)
    assert "Install the same version" in refused.value.hint


async def test_the_tables_are_made_once_whoever_comes_first(postgres: PostgresServer) -> None:
    address = DatabaseAddress(postgres.dsn(postgres.create()))
    await asyncio.gather(*(asyncio.to_thread(schema.prepare, address) for _ in range(3)))
    assert sql(address.conninfo, "SELECT version FROM schema_version") == [(schema.VERSION,)]


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://me:s3cret%2Fx@127.0.0.1:1/nanobot?connect_timeout=2",
        "host=/nowhere user=me password='s3cret/x' dbname=nanobot",
        "postgresql://me:s3cret/x@[/nanobot",
        "s3cret/x",
    ],
)
async def test_no_error_says_the_password(address: str) -> None:
    with pytest.raises(StorageError) as refused:
        await opens(address)
    text = f"{refused.value} {refused.value.hint} {refused.value.__cause__}"
    assert "s3cret" not in text
