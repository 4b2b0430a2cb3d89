"""Measure the cost of a turn: for the database, and for the worker.

The database is measured with `pgbench`, which replays the same statements. The worker is compared
with a gateway without a team in the same conversations.

The server logs the worker's statements while people talk, including looks for work and the renewal
of the worker's row. The log becomes a script: each statement prepared once, and executed with its
values in its transactions. pgbench plays it over one connection, on a copy of the earlier database,
at the original pace: without pauses the processor's caches are warm, and a statement takes two
thirds. Costs are the server's processor time and the bytes of its write-ahead log."""

from __future__ import annotations

import contextlib
import csv
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from bench.team.campaign import run_team
from bench.team.database import NAME, TeamDatabase, team_database
from bench.team.talk import Talk
from nanobot.clock import SystemClock
from nanobot.team import schema
from nanobot.team.connection import DatabaseAddress
from nanobot.team.journal import PostgresJournal
from nanobot.team.leases import Leases
from nanobot.team.postgres import Database
from tests.doubles.postgres import PostgresServer, binary

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
_BARE, _PLAYED = "bare", "played"
_A_WORKER = """
    INSERT INTO worker (id, name, version, until) OVERRIDING SYSTEM VALUE
    VALUES ({}, 'bare', '', 'infinity')
"""
_MANY = """
    DELETE FROM inbox; DELETE FROM lease;
    INSERT INTO inbox (channel, chat_id, event_id, session_key, received_at, payload, scope, state)
    SELECT 'telegram', n, n, 'telegram:' || n, '', repeat('x', 600), 's' || n, 'working'
    FROM generate_series(1, {0}) AS n;
    INSERT INTO lease SELECT 's' || n, 1 FROM generate_series(1, {0}) AS n
"""
_FAILED = """
    INSERT INTO inbox (channel, chat_id, event_id, session_key, received_at, payload, scope, state)
    SELECT 'telegram', n, 'f' || n, 'telegram:' || n, '', repeat('x', 600), 's' || n, 'failed'
    FROM generate_series(1, 100000) AS n
"""
_LOOKS, _TOLD = 200, 1_000
_AS_A_WORKER = "-c enable_seqscan=off -c plan_cache_mode=force_generic_plan -c jit=off"
"""Planner settings of a worker."""
_STATEMENT = re.compile(r"^(?:statement|execute [^:]*): (.*)$", re.DOTALL)
_PARAMETER = re.compile(r"\$\d+ = (NULL|'(?:[^']|'')*')")
_ABORTED = re.compile(r"aborted in command (\d+)")
_DATABASE, _SESSION, _MESSAGE, _DETAIL = 2, 5, 13, 14
"""Columns of the server's log."""

_Asked = tuple[str, str, list[str]]
"""A session of the server, a statement, and its values as literals."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Cost of a number of turns: processor time of the server and of the worker in seconds, and
    bytes of the server's log."""

    turns: int
    processor: float
    wal: int
    seconds: float
    worker: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.turns + other.turns,
            self.processor + other.processor,
            self.wal + other.wal,
            self.seconds + other.seconds,
            self.worker + other.worker,
        )

    @property
    def milliseconds(self) -> float:
        """The server's processor time per turn."""
        return 1000 * self.processor / self.turns

    @property
    def worker_milliseconds(self) -> float:
        """The worker's processor time per turn."""
        return 1000 * self.worker / self.turns

    @property
    def bytes(self) -> float:
        """Write-ahead log per turn."""
        return self.wal / self.turns


async def cost_of_a_turn(chats: int, messages: int, rounds: int) -> dict[str, object]:
    """Return the figures for one worker."""
    with team_database(*_LOGGING, on_disk=True) as database:
        schema.prepare(DatabaseAddress(database.dsn))
        _ask(database, "postgres", f"CREATE DATABASE {_BARE} TEMPLATE {NAME}")
        logged = await _talk(database, chats, messages, log=True)
        asked = list(_read_statements(database.primary))
        commits = sum(statement == "COMMIT" for _, statement, _ in asked)
        real = alone = bare = fast = Cost(0, 0.0, 0, 0.0)
        left = 0
        for _ in range(rounds):  # alternate, because the machine may be busy
            played, failed = _play(database, asked, logged.turns, logged.seconds / commits)
            bare, left = bare + played, left + failed
            fast += _play(database, asked, logged.turns, 0.0)[0]
            with team_database(on_disk=True) as other:
                real += await _talk(other, chats, messages)
                alone += await _talk(other, chats, messages, alone=True)
    reads = sum(statement.lstrip().startswith("SELECT") for _, statement, _ in asked)
    return {
        "turns": real.turns,
        "statements a turn": len(asked) / logged.turns,
        "of which look for work": reads / logged.turns,
        "commits a turn": commits / logged.turns,
        "write-ahead log a turn [bytes]": round(real.bytes),
        "pgbench with the same statements [bytes]": round(bare.bytes),
        "write-ahead log against pgbench (target <= 1.5)": real.bytes / bare.bytes,
        "processor time of the server, a turn [ms]": real.milliseconds,
        "pgbench with the same statements [ms]": bare.milliseconds,
        "processor time against pgbench (target <= 1.5)": real.milliseconds / bare.milliseconds,
        "pgbench without a pause [ms]": fast.milliseconds,
        "turns a second that it plays": fast.turns / fast.seconds,
        "statements that pgbench could not play (target 0)": left,
        "processor time of the worker, a turn [ms]": real.worker_milliseconds,
        "the same talk with a gateway without a team [ms]": alone.worker_milliseconds,
        "the worker against it": real.worker_milliseconds / alone.worker_milliseconds,
    }


async def cost_of_looks(counts: Sequence[int]) -> dict[str, object]:
    """Measure looking for free scopes while other workers have this many open messages."""
    figures: dict[str, object] = {}
    with team_database() as server:
        database = Database(server.dsn, lambda: None)
        await database.open()
        leases = Leases(database)
        _ask(server, NAME, _A_WORKER.format(1))
        try:
            for count, failed in (*((count, "") for count in counts), (counts[0], _FAILED)):
                _ask(server, NAME, f"{_MANY.format(count)}; {failed}")
                _ask(server, NAME, "ANALYZE")
                beside = ", 100,000 have failed" if failed else ""
                for what, among in (("all", None), ("those of one message", ("s1",))):
                    look = start_measuring(server)
                    for _ in range(_LOOKS):
                        await leases.free((), 64, ("telegram",), among)
                    name = f"a look at {what}, {count} are open{beside} [ms]"
                    figures[name] = look(_LOOKS).milliseconds
                if not failed:
                    figures |= await _cost_of_having(server, database, count)
        finally:
            await database.close()
    return figures


async def _cost_of_having(
    server: TeamDatabase, database: Database, count: int
) -> dict[str, object]:
    """Measure a worker's look at its own `count` scopes. Every fifth has an open message, which the
    worker knows."""
    journal = PostgresJournal(database, SystemClock("UTC"), lambda _: "")
    names = [f"{'resting' if n % 5 else 's'}{n}" for n in range(5, count + 5)]
    known = [row for (row,) in _ask(server, NAME, "SELECT id FROM inbox") if row % 5 == 0]
    look = start_measuring(server)
    for _ in range(_LOOKS):
        await journal.open_work(names, known, (), ("telegram",))
    return {f"a look at {count} that a worker has [ms]": look(_LOOKS).milliseconds}


def cost_of_telling(listeners: int) -> dict[str, object]:
    """Measure a notification without and with listeners."""
    figures: dict[str, object] = {}
    with team_database() as server, contextlib.ExitStack() as stack:
        for count in (0, listeners):
            for _ in range(count):
                db = stack.enter_context(psycopg.connect(server.primary.dsn(NAME), autocommit=True))
                db.execute("LISTEN nanobot_")
            with psycopg.connect(server.primary.dsn(NAME), autocommit=True) as db:
                look = start_measuring(server)
                for number in range(_TOLD):
                    db.execute("SELECT pg_notify('nanobot_', %s)", (str(number),))
                figures[f"a notification, {count} listen [ms]"] = look(_TOLD).milliseconds
    return figures


async def _talk(
    database: TeamDatabase, chats: int, messages: int, *, log: bool = False, alone: bool = False
) -> Cost:
    """Let a worker answer this many messages in each of the chats."""
    rng = random.Random(4)
    with tempfile.TemporaryDirectory() as folder:
        async with run_team(
            Path(folder), rng, workers=1, chats=2 * chats, messages=messages, alone=alone,
            database=database,
        ) as team:  # fmt: skip
            talk = Talk(team.platforms[:1], rng, at_once=chats, effects=0.0, alone=True)
            if log:
                ((number,),) = _ask(database, NAME, "SELECT id FROM worker")
                _ask(database, _BARE, _A_WORKER.format(number))
                _log(database, "all")
            look = start_measuring(database, team.workers.processor_seconds)
            await talk.run(_PATIENCE)
            if log:
                _log(database, "none")
            return look(talk.answered)


def start_measuring(
    database: TeamDatabase, worker: Callable[[], float] = lambda: 0.0
) -> Callable[[int], Cost]:
    """Record the processor times of the server and the worker. The returned function gives the cost
    since then, for a number of turns."""

    def state() -> Cost:
        (wal,) = _ask(database, "postgres", "SELECT pg_current_wal_insert_lsn() - '0/0'")[0]
        used = _processor_seconds(database.primary)
        return Cost(0, used, int(wal), time.monotonic(), worker())

    began = state()

    def since(turns: int) -> Cost:
        now = state()
        return Cost(
            turns,
            now.processor - began.processor,
            now.wal - began.wal,
            now.seconds - began.seconds,
            now.worker - began.worker,
        )

    return since


def _processor_seconds(server: PostgresServer) -> float:
    """Return the processor time of all processes of a server."""
    main = (server.data / "postmaster.pid").read_text().split()[0]
    ticks = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        used = [int(field) for field in fields[11:15]]  # its own, and its ended children's
        if path.parent.name == main:
            ticks += sum(used)
        elif fields[1] == main:
            ticks += sum(used[:2])
    return ticks / os.sysconf("SC_CLK_TCK")


def _read_statements(server: PostgresServer) -> Iterator[_Asked]:
    """Yield the logged statements."""
    with (server.data / "log" / "asked.csv").open(newline="") as file:
        for row in csv.reader(file):
            found = _STATEMENT.match(row[_MESSAGE])
            if found is not None and row[_DATABASE] == NAME:
                yield row[_SESSION], found[1].strip(), _PARAMETER.findall(row[_DETAIL])


def _play(
    database: TeamDatabase, asked: Sequence[_Asked], turns: int, pause: float
) -> tuple[Cost, int]:
    """Run the statements with pgbench on a copy of the copy, with a pause in seconds after each
    transaction. Return the number of failed ones."""
    _ask(database, "postgres", f"DROP DATABASE IF EXISTS {_PLAYED}")
    _ask(database, "postgres", f"CREATE DATABASE {_PLAYED} TEMPLATE {_BARE}")
    commands = _script(asked)
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as script:
        rest = f"\\sleep {round(1000 * pause)} ms\n" if pause else ""
        script.write("".join(f"{one};\n{rest if one == 'COMMIT' else ''}" for one in commands))
        script.flush()
        options = f"-n -M simple -c 1 -t 1 -U nanobot -h {database.primary.sockets}".split()
        look = start_measuring(database)
        done = subprocess.run(
            [binary("pgbench"), *options, "-f", script.name, _PLAYED],
            env=os.environ | {"PGOPTIONS": _AS_A_WORKER},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        cost = look(turns)
    if done.returncode == 0:
        return cost, 0
    print(done.stderr, file=sys.stderr)
    aborted = _ABORTED.search(done.stderr)
    return cost, len(commands) - (int(aborted[1]) if aborted else 0)


def _script(asked: Sequence[_Asked]) -> list[str]:
    """Return the commands for one connection.

    Statements that ran during another session's transaction come before it. A session's settings
    apply to it only."""
    prepared: dict[str, str] = {}
    commands: list[str] = []
    under_way: dict[str, list[str]] = {}
    for session, statement, values in asked:
        command = re.sub("^SET ", "SET LOCAL ", statement)
        if values:
            name = prepared.setdefault(statement, f"s{len(prepared)}")
            command = f"EXECUTE {name} ({', '.join(map(_literal, values))})"
        if statement == "BEGIN":
            under_way[session] = []
        under_way.get(session, commands).append(command)
        if statement in ("COMMIT", "ROLLBACK"):
            commands += under_way.pop(session, [])
    return [*(f"PREPARE {name} AS {text}" for text, name in prepared.items()), *commands]


def _literal(value: str) -> str:
    """Convert a value of the log for a script. pgbench treats a backslash as an escape."""
    return "E" + value.replace("\\", "\\\\") if "\\" in value else value


def _log(database: TeamDatabase, what: str) -> None:
    _ask(database, "postgres", f"ALTER SYSTEM SET log_statement = '{what}'")
    _ask(database, "postgres", "SELECT pg_reload_conf()")
    time.sleep(_RELOAD_SECONDS)


def _ask(database: TeamDatabase, name: str, statement: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(database.primary.dsn(name), autocommit=True) as db:
        cursor = db.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []
