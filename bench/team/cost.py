"""What a turn costs the database, beside the bare cost of the same statements and commits.

The server writes down what a worker asks of it while people talk. The same statements, looking for
work and renewing the worker's row included, are then played again in their transactions, one after
the other, by a plain loop on a copy of the database as it was before. Costs are the server's
processor time and the bytes of its write-ahead log.
"""

from __future__ import annotations

import asyncio
import csv
import os
import random
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from bench.team.campaign import staged
from bench.team.database import NAME, TeamDatabase, team_database
from bench.team.talk import Talk
from nanobot.team import schema
from nanobot.team.connection import DatabaseAddress
from tests.doubles.postgres import PostgresServer

_LOGGING = (
    "logging_collector=on",
    "log_destination=csvlog",
    "log_directory=log",
    "log_filename=asked",
    "log_min_messages=log",
    "log_rotation_age=0",
)
_PATIENCE = 60.0
_RELOAD_SECONDS = 0.5
_BARE = "bare"
_A_WORKER = """
    INSERT INTO worker (name, version, until) VALUES ('bare', '', 'infinity')
"""
_STATEMENT = re.compile(r"^(?:statement|execute [^:]*): (.*)$", re.DOTALL)
_PARAMETER = re.compile(r"\$\d+ = (NULL|'(?:[^']|'')*')")
_DATABASE, _SESSION, _MESSAGE, _DETAIL = 2, 5, 13, 14
"""Columns of the server's log."""

_Asked = tuple[str, str, list[str | None]]
"""A session of the server, a statement, and its values."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What the server did for so many turns: processor time in seconds, and bytes of its log."""

    turns: int
    processor: float
    wal: int
    seconds: float

    @property
    def milliseconds(self) -> float:
        """Of processor time, a turn."""
        return 1000 * self.processor / self.turns

    @property
    def bytes(self) -> float:
        """Of write-ahead log, a turn."""
        return self.wal / self.turns


async def cost_of_a_turn(chats: int, messages: int) -> dict[str, object]:
    """The figures, for one worker."""
    with team_database(*_LOGGING, on_disk=True) as database:
        schema.prepare(DatabaseAddress(database.dsn))
        _ask(database, "postgres", f"CREATE DATABASE {_BARE} TEMPLATE {NAME}")
        logged = await _talk(database, chats, messages, log=True)
        asked = list(_asked(database.primary))
        bare, failed = await asyncio.to_thread(_play, database, asked, logged.turns)
    with team_database(on_disk=True) as database:
        real = await _talk(database, chats, messages, log=False)
    commits = sum(statement == "COMMIT" for _, statement, _ in asked)
    reads = sum(statement.lstrip().startswith("SELECT") for _, statement, _ in asked)
    return {
        "turns": real.turns,
        "statements a turn": len(asked) / logged.turns,
        "of which look for work": reads / logged.turns,
        "commits a turn": commits / logged.turns,
        "write-ahead log a turn [bytes]": round(real.bytes),
        "the same statements alone [bytes]": round(bare.bytes),
        "write-ahead log against them (target <= 1.5)": real.bytes / bare.bytes,
        "processor time of the server, a turn [ms]": real.milliseconds,
        "the same statements alone [ms]": bare.milliseconds,
        "processor time against them (target <= 1.5)": real.milliseconds / bare.milliseconds,
        "turns a second, one worker": real.turns / real.seconds,
        "turns a second, the same statements alone": bare.turns / bare.seconds,
        "statements that could not be played again (target 0)": failed,
    }


async def _talk(database: TeamDatabase, chats: int, messages: int, *, log: bool) -> Cost:
    """A worker answers so many messages in each of the chats."""
    rng = random.Random(4)
    with tempfile.TemporaryDirectory() as folder:
        async with staged(
            Path(folder), rng, workers=1, chats=2 * chats, messages=messages, database=database
        ) as stage:
            talk = Talk(stage.platforms[:1], rng, at_once=chats, effects=0.0, alone=True)
            if log:
                _log(database, "all")
            look = _looking(database)
            await talk.run(_PATIENCE)
            if log:
                _log(database, "none")
            return look(talk.answered)


def _looking(database: TeamDatabase) -> Callable[[int], Cost]:
    """Look at the server now; what is returned says what it did since, for so many turns."""

    def state() -> tuple[float, int, float]:
        (wal,) = _ask(database, "postgres", "SELECT pg_current_wal_insert_lsn() - '0/0'")[0]
        return _processor_seconds(database.primary), int(wal), time.monotonic()

    processor, wal, began = state()

    def since(turns: int) -> Cost:
        now = state()
        return Cost(turns, now[0] - processor, now[1] - wal, now[2] - began)

    return since


def _processor_seconds(server: PostgresServer) -> float:
    """What all processes of a server have used."""
    main = (server.data / "postmaster.pid").read_text().split()[0]
    ticks = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        used = [int(field) for field in fields[11:15]]  # of itself, and of children that ended
        if path.parent.name == main:
            ticks += sum(used)
        elif fields[1] == main:
            ticks += sum(used[:2])
    return ticks / os.sysconf("SC_CLK_TCK")


def _asked(server: PostgresServer) -> Iterator[_Asked]:
    """What the server has written down."""
    with (server.data / "log" / "asked.csv").open(newline="") as file:
        for row in csv.reader(file):
            found = _STATEMENT.match(row[_MESSAGE])
            if found is None or row[_DATABASE] != NAME:
                continue
            values = [
                None if value == "NULL" else value[1:-1].replace("''", "'")
                for value in _PARAMETER.findall(row[_DETAIL])
            ]
            yield row[_SESSION], found[1], values


def _play(database: TeamDatabase, asked: Sequence[_Asked], turns: int) -> tuple[Cost, int]:
    """Run the statements on the copy, one after the other, each session's on a connection of its
    own; how many failed."""
    failed = 0
    with ExitStack() as stack:
        dsn = database.primary.dsn(_BARE)
        sessions = {
            session: psycopg.RawCursor(stack.enter_context(psycopg.connect(dsn, autocommit=True)))
            for session in {session for session, _, _ in asked}
        }
        next(iter(sessions.values())).execute(_A_WORKER)
        look = _looking(database)
        for session, statement, values in asked:
            try:
                sessions[session].execute(statement.encode(), values or None)
            except psycopg.Error:
                failed += 1
        return look(turns), failed


def _log(database: TeamDatabase, what: str) -> None:
    _ask(database, "postgres", f"ALTER SYSTEM SET log_statement = '{what}'")
    _ask(database, "postgres", "SELECT pg_reload_conf()")
    time.sleep(_RELOAD_SECONDS)


def _ask(database: TeamDatabase, name: str, statement: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(database.primary.dsn(name), autocommit=True) as db:
        cursor = db.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []
