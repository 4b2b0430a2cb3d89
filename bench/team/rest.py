"""A team at rest: isolated messages, each from another person, so that each takes a lease.

PostgreSQL counts the statements (`pg_stat_statements`, which is part of the server). A look at all
pending messages is the query for free leases without a scope. Each lease is given back 20 seconds
after its answer. Counting starts once as many are given back as taken."""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import psycopg

from bench.team.campaign import RunningTeam, run_team
from bench.team.cost import Cost, start_measuring
from bench.team.database import NAME, team_database
from bench.team.talk import Talk
from nanobot.team.connection import DatabaseAddress
from nanobot.team.notifications import Notifications
from tests.doubles.postgres import PostgresServer, binary

_LIBRARY = Path(binary("postgres") or "/no/bin/postgres").parents[1] / "lib/pg_stat_statements.so"
MISSING = PostgresServer.missing or ("" if _LIBRARY.exists() else f"there is no {_LIBRARY}")
"""Reason why nothing can be counted here, if any."""
_COUNTING = ("shared_preload_libraries=pg_stat_statements", "pg_stat_statements.max=5000")
_COUNTED = """
    SELECT query, sum(calls)::bigint FROM pg_stat_statements
    JOIN pg_database ON pg_database.oid = dbid WHERE datname = %s GROUP BY query
"""
_LOOK = re.compile(r"AS wanted.*?(?P<named>AND scope = ANY\(\$\d+\))? GROUP BY scope ORDER", re.S)
_ALL, _SINGLE = "looks at all", "looks at single scopes"
_WRITES, _NOTIFIES, _STATEMENTS = "transactions that write", "notifications", "statements"
_PATIENCE = 60.0


async def at_rest(
    *, workers: int, rate: float, warm: float, window: float, frees: float = 0.0
) -> dict[str, object]:
    """Return the figures at `rate` messages a second, counted for `window` seconds after `warm`.
    In addition another worker gives back `frees` leases a second, which it never had."""
    rng, gap = random.Random(5), 1.0 / rate
    count = round(rate * (warm + window))
    with tempfile.TemporaryDirectory() as folder, team_database(*_COUNTING) as database:
        with psycopg.connect(database.primary.dsn("postgres"), autocommit=True) as db:
            db.execute("CREATE EXTENSION pg_stat_statements")
        async with run_team(
            Path(folder), rng, workers=workers, chats=count * 10 // 9 + 1, messages=1,
            database=database,
        ) as team:  # fmt: skip
            talk = Talk(team.platforms[:2], rng, at_once=1)
            idle, idle_cost = await _count(team, window / 2)
            people = [(one, chat) for one in talk.platforms for chat in one.chats.values()]
            rng.shuffle(people)
            async with talk.listening(), _others(database.dsn, frees):
                began, sent, before = time.monotonic(), 0, 0
                for platform, chat in people[:count]:
                    await asyncio.sleep(max(0.0, began + sent * gap - time.monotonic()))
                    if sent == round(rate * warm):
                        counts = asyncio.create_task(_count(team, window))
                        before = sent
                    chat.sent["m1"] = time.monotonic()
                    await platform.say(chat, "m1: hello")
                    sent += 1
                counted, cost = await counts
                async with asyncio.timeout(_PATIENCE):
                    for _, chat in people[:count]:
                        await talk.until_answered(chat)
    waits = [chat.answered["m1"] - chat.sent["m1"] for _, chat in people[:count]]
    return _figures(workers, sent - before, waits, (idle, idle_cost), (counted, cost))


def _figures(
    workers: int,
    messages: int,
    waits: list[float],
    idle: tuple[Mapping[str, int], Cost],
    busy: tuple[Mapping[str, int], Cost],
) -> dict[str, object]:
    """Return the costs of a message beyond the idle time."""
    (quiet, quiet_cost), (counted, cost) = idle, busy
    share = cost.seconds / quiet_cost.seconds

    def beyond(kind: str) -> float:
        return (counted[kind] - quiet[kind] * share) / messages

    idle_server = 1000 * quiet_cost.processor / quiet_cost.seconds / workers
    return {
        "messages a second": messages / cost.seconds,
        "looks at all, a second and worker (target <= 2.1)": counted[_ALL] / cost.seconds / workers,
        "the same without messages": quiet[_ALL] / quiet_cost.seconds / workers,
        "looks at single scopes, a message": beyond(_SINGLE),
        "transactions that write, a message": beyond(_WRITES),
        "notifications, a message": beyond(_NOTIFIES),
        "statements, a message": beyond(_STATEMENTS),
        "processor time of PostgreSQL, a worker without messages [ms/s]": idle_server,
        "processor time of PostgreSQL, a message beyond that [ms]": 1000
        * (cost.processor - quiet_cost.processor * share)
        / messages,
        "write-ahead log, a message [bytes]": round((cost.wal - quiet_cost.wal * share) / messages),
        "processor time of the workers, a message [ms]": 1000
        * (cost.worker - quiet_cost.worker * share)
        / messages,
        "an answer, median [s]": statistics.median(waits),
        "slowest answer [s]": max(waits),
    }


async def _count(team: RunningTeam, seconds: float) -> tuple[Counter[str], Cost]:
    """Count for `seconds`."""
    look = start_measuring(team.database, team.workers.processor_seconds)
    before = await asyncio.to_thread(_counts, team)
    await asyncio.sleep(seconds)
    cost = look(0)
    return await asyncio.to_thread(_counts, team) - before, cost


def _counts(team: RunningTeam) -> Counter[str]:
    counts: Counter[str] = Counter()
    with psycopg.connect(team.database.primary.dsn("postgres")) as db:
        for query, calls in db.execute(_COUNTED, (NAME,)):
            counts[_STATEMENTS] += calls
            if "INTO stamp" in query:  # once in each transaction of a worker
                counts[_WRITES] += calls
            elif "pg_notify" in query:
                counts[_NOTIFIES] += calls
            elif found := _LOOK.search(query):
                counts[_SINGLE if found["named"] else _ALL] += calls
    return counts


@contextlib.asynccontextmanager
async def _others(dsn: str, frees: float) -> AsyncIterator[None]:
    """Give back leases like another worker. No worker was refused these."""

    async def give_back() -> None:
        while True:
            await asyncio.sleep(1.0 / frees)
            waking.tell("free", f"people/nobody_{time.monotonic()}")

    waking = Notifications(DatabaseAddress(dsn), lambda _, __: None)
    waking.channel = "nanobot_"  # this team was started without `init`, so it has no word
    giving = asyncio.create_task(give_back()) if frees else None
    try:
        yield
    finally:
        if giving is not None:
            giving.cancel()
            await asyncio.gather(giving, return_exceptions=True)
        await waking.close()
