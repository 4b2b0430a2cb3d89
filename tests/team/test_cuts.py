"""Connections that are cut repeatedly, at any point: everything confirmed is stored once, and
nothing rejected is stored."""

from __future__ import annotations

import asyncio
import random

import pytest

from nanobot.errors import StorageError
from nanobot.team.connection import Connection, execute
from nanobot.team.postgres import Database, Work
from tests.doubles.postgres import PostgresServer, Relay, run_relay
from tests.team.support import enlist, open_database, sql

_PLACES = (b"COMMIT", b"BEGIN", b"INSERT INTO note", b"stamp")
_CUTS = 25


def add(number: int, *, asks: bool) -> Work[int]:
    async def work(db: Connection) -> int:
        put = "INSERT INTO note (text) VALUES (%s) RETURNING text"
        cursor = await execute(db, put, str(number))
        rows = await cursor.fetchall() if asks else [(str(number),)]
        return int(rows[0][0])

    return work


async def attempt(database: Database, number: int, chance: random.Random) -> str:
    """Return the result for a number: `stored`, `refused`, or `later`."""
    work, kind = add(number, asks=chance.random() < 0.5), chance.randrange(4)
    if kind == 0:
        database.post(work, can_wait=chance.random() < 0.5)
        return "later"
    try:
        stored = await database.run(work, retry=kind == 1, until_stored=kind == 2)
    except StorageError:
        return "later" if kind == 1 else "refused"
    assert stored == number
    return "stored"


async def cut(relay: Relay, database: Database, chance: random.Random) -> None:
    """Cut one connection after the other, or now and then all at once. Usually there is enough time
    in between to store something."""

    async def nothing(db: Connection) -> None:
        await execute(db, "SELECT 1")

    for _ in range(_CUTS):
        relay.cut_at(chance.choice(_PLACES), pass_on=chance.random() < 0.5)
        await relay.cut.wait()
        if chance.random() < 0.2:
            relay.cut_now()
        if chance.random() < 0.8:
            await database.run(nothing, until_stored=True)


@pytest.mark.parametrize("seed", range(6))
async def test_nothing_is_lost_or_stored_twice(
    postgres: PostgresServer, team_database: str, seed: int
) -> None:
    chance = random.Random(seed)
    sql(team_database, "CREATE TABLE note (number bigserial, text text NOT NULL)")
    worker = enlist(team_database)
    async with run_relay(postgres) as (relay, sockets):
        away = team_database.replace(str(postgres.sockets), sockets)
        async with open_database(away, worker) as database:
            cutting = asyncio.create_task(cut(relay, database, chance))
            said: list[str] = []
            for first in range(0, 200, 20):
                tries = [attempt(database, number, chance) for number in range(first, first + 20)]
                said += await asyncio.gather(*tries)
            cutting.cancel()
            relay.cut_at(b"", pass_on=True)
            assert not database.has_died
            await database.run(add(200, asks=True), until_stored=True)
    rows = [int(text) for (text,) in sql(team_database, "SELECT text FROM note ORDER BY text")]
    kept = [number for number, what in enumerate(said) if what != "refused"]
    assert sorted(rows) == [*kept, 200]
    assert "stored" in said
