"""Documents shared by all workers, with interrupted connections."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from nanobot.bus.state import Stored
from nanobot.errors import StorageError, WriteConflict
from nanobot.team.connection import DatabaseAddress
from nanobot.team.state import PostgresState
from tests.doubles.postgres import PostgresServer, run_relay
from tests.team.support import sql


async def test_a_write_whose_answer_is_lost_is_made_once(
    postgres: PostgresServer, team_database: str
) -> None:
    for pass_on in (True, False):
        async with run_relay(postgres) as (relay, sockets):
            away = team_database.replace(str(postgres.sockets), sockets)
            with contextlib.closing(PostgresState(DatabaseAddress(away))) as state:
                before = await asyncio.to_thread(state.read, "jobs")
                revision = before.revision if before else 0
                relay.cut_at(b"document", pass_on=pass_on)
                written = await asyncio.to_thread(state.write, "jobs", b"[1]", revision)
                assert (written, relay.cut.is_set()) == (revision + 1, True)
                assert await asyncio.to_thread(state.read, "jobs") == Stored(b"[1]", revision + 1)
                with pytest.raises(WriteConflict):
                    await asyncio.to_thread(state.write, "jobs", b"[2]", revision)


async def test_a_connection_that_died_is_made_again(team_database: str) -> None:
    with contextlib.closing(PostgresState(DatabaseAddress(team_database))) as state:
        state.write("jobs", b"[1]", 0)
        sql(
            team_database,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid != pg_backend_pid()",
        )
        assert state.read("jobs") == Stored(b"[1]", 1)


async def test_while_the_database_is_away_it_says_what_to_do(
    postgres: PostgresServer, team_database: str
) -> None:
    async with run_relay(postgres) as (relay, sockets):
        away = team_database.replace(str(postgres.sockets), sockets)
        with contextlib.closing(PostgresState(DatabaseAddress(away))) as state:
            await asyncio.to_thread(state.write, "jobs", b"[1]", 0)
            relay.close()
            with pytest.raises(StorageError) as refused:
                await asyncio.to_thread(state.write, "jobs", b"[2]", 1)
            assert "Check that PostgreSQL is running" in refused.value.hint


async def test_what_is_set_aside_can_be_looked_at(team_database: str) -> None:
    with contextlib.closing(PostgresState(DatabaseAddress(team_database))) as state:
        state.write("jobs", b"odd", 0)
        said = state.set_aside("jobs")
        query = said.partition("(")[2].partition(" shows it")[0]
        assert sql(team_database, query) == [("odd",)]
        assert state.set_aside("jobs") == "nothing"
