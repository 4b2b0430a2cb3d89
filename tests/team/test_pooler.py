"""A team's database behind a real PgBouncer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import psycopg
import pytest

from nanobot.errors import StorageError
from nanobot.team import schema
from nanobot.team.connection import DatabaseAddress
from nanobot.team.membership import Membership
from nanobot.team.notifications import Notifications
from nanobot.team.postgres import Database
from tests.doubles.pgbouncer import missing, pgbouncer, through
from tests.doubles.postgres import PostgresServer
from tests.team.support import sql

pytestmark = pytest.mark.skipif(bool(missing), reason=missing)


@pytest.fixture
def name(postgres: PostgresServer) -> Iterator[str]:
    """A database without tables."""
    name = postgres.create()
    yield name
    postgres.drop(name)


async def test_a_pooler_of_sessions_is_no_hindrance(postgres: PostgresServer, name: str) -> None:
    with pgbouncer(postgres, "session", "default_pool_size = 20") as folder:
        heard = asyncio.Queue[tuple[str, str]]()
        database = Database(through(folder, name), lambda: None)
        await database.open()
        membership = Membership(database.address, "w", renew_seconds=0.01)
        database.worker = await asyncio.to_thread(membership.join)
        listeners = [
            Notifications(database.address, lambda *got: heard.put_nowait(got)) for _ in "ab"
        ]
        for listener in listeners:
            listener.start()
            await heard.get()  # it listens
        listeners[0].tell("work", "people/a")
        assert await heard.get() == ("work", "people/a")
        listeners[1].tell("work", "people/b")
        assert await heard.get() == ("work", "people/b")
        assert await database.read("SELECT name FROM worker") == [("w",)]
        for listener in listeners:
            await listener.close()
        assert heard.empty(), "who says something does not hear it"
        await asyncio.to_thread(membership.leave)
        await database.close()


@pytest.mark.parametrize(
    ("mode", "more"),
    [
        ("transaction", ()),
        ("transaction", ("server_round_robin = 1", "min_pool_size = 2")),
        ("statement", ("default_pool_size = 1",)),
    ],
)
def test_a_pooler_of_transactions_is_refused(
    postgres: PostgresServer, name: str, mode: str, more: tuple[str, ...]
) -> None:
    with pgbouncer(postgres, mode, *more) as folder:
        idle = [psycopg.connect(through(folder, name), autocommit=True) for _ in range(3)]
        for connection in idle:
            connection.execute("SELECT 1")
        with pytest.raises(StorageError, match="does not keep one server connection") as refused:
            schema.prepare(DatabaseAddress(through(folder, name)))
        assert "pool_mode = session" in refused.value.hint
        for connection in idle:
            connection.close()
    assert sql(postgres.dsn(name), "SELECT to_regclass('worker')") == [(None,)]


def test_the_options_of_the_address_hold_for_every_connection(
    postgres: PostgresServer, name: str
) -> None:
    sql(postgres.dsn(name), "CREATE SCHEMA ours")
    address = DatabaseAddress(f"{postgres.dsn(name)}&options=-csearch_path%3Dours")
    schema.prepare(address)
    membership = Membership(address, "w")
    membership.join()
    assert sql(postgres.dsn(name), "SELECT name FROM ours.worker") == [("w",)]
    membership.leave()
