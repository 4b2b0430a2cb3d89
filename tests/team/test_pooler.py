"""A team's database behind a real PgBouncer."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from nanobot.errors import StorageError
from nanobot.team import schema
from nanobot.team.connection import DatabaseAddress
from nanobot.team.membership import Membership
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


@pytest.mark.parametrize("mode", ["session", "transaction"])
def test_a_pooler_is_refused(postgres: PostgresServer, name: str, mode: str) -> None:
    with (
        pgbouncer(postgres, mode) as folder,
        pytest.raises(StorageError, match="a pooler is in between") as refused,
    ):
        schema.prepare(DatabaseAddress(through(folder, name)))
    assert "PostgreSQL itself" in refused.value.hint
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
