"""Workers of different versions of nanobot, side by side as in an update of one after the other.

The next version is this one with more migrations: a folder in which all of the package is linked,
and the module of the tables is another one.
"""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import psycopg
import pytest

import nanobot
from bench.team.memory import Held
from bench.team.model import author
from bench.team.workers import Worker
from nanobot.errors import StorageError
from nanobot.team import schema
from nanobot.team.connection import DatabaseAddress
from tests.doubles.openai.answers import Answer, ChatRequest
from tests.doubles.openai.server import Scripted
from tests.team.pair import Pair, pair
from tests.team.support import sql

_STEPS = (
    """
        CREATE TABLE novelty (id bigint PRIMARY KEY, scope TEXT NOT NULL);
        CREATE INDEX outbox_created ON outbox (created_at);
    """
    + "".join(
        f"ALTER TABLE {name} ADD COLUMN novelty TEXT NOT NULL DEFAULT '';\n"
        for name in schema.TABLES
    ),
    "ALTER TABLE inbox ADD COLUMN again TEXT NOT NULL DEFAULT '';",
)
"""Each adds to every table that there is, in another order than workers use them in."""


def _version(folder: Path, ahead: int) -> Path:
    """The folder of a nanobot whose tables are so many versions ahead of this one's."""
    package = Path(nanobot.__file__).parent
    (folder / "nanobot" / "team").mkdir(parents=True)
    (folder / "workspace").symlink_to(package.parent / "workspace")
    for place in ("", "team"):
        for path in (package / place).iterdir():
            if path.name not in ("team", "schema.py", "__pycache__"):
                (folder / "nanobot" / place / path.name).symlink_to(path)
    text = (package / "team" / "schema.py").read_text()
    steps = f"_MIGRATIONS += {_STEPS[:ahead]!r}\n\nTABLES ="
    (folder / "nanobot" / "team" / "schema.py").write_text(text.replace("\nTABLES =", steps, 1))
    return folder


async def _say(team: Pair, worker: Worker, number: int) -> None:
    assert await team.ask(worker, f"m{number}: hello") == f"answer to m{number}"


async def _start(team: Pair, worker: Worker) -> None:
    worker.may_run.set()
    await team.until_reached(worker)


async def _end(team: Pair, worker: Worker) -> None:
    worker.may_run.clear()
    worker.signal(signal.SIGTERM)
    await team.workers.until_gone(worker)


async def _until_refused(worker: Worker, reason: str) -> None:
    """Wait until a worker has said at its start why it does not."""
    while reason not in worker.log.read_text():  # noqa: ASYNC110 - another process says it
        await asyncio.sleep(0.05)


async def test_workers_one_version_apart_work_side_by_side_and_no_others(
    team_database: str, tmp_path: Path
) -> None:
    """The new one brings the tables forward while the old one has a turn under way; they hand over
    to each other; the old one starts anew and ends; then it is one version too old."""
    asked, answer = asyncio.Event(), asyncio.Event()

    def model(request: ChatRequest) -> Scripted:
        asked.set()
        return author(request) if answer.is_set() else Held(Answer("answer to m1"), answer)

    later = {"two": _version(tmp_path / "next", 1), "three": _version(tmp_path / "last", 2)}
    async with pair(tmp_path, team_database, model, later=later) as team:
        one, two, three = team.workers.all
        first = asyncio.create_task(team.ask(one, "m1: hello"))
        await asked.wait()
        await _start(team, two)
        assert _tables(team) == schema.VERSION + 1
        answer.set()
        assert await first == "answer to m1"
        for number in range(2, 6):
            await _say(team, (one, two)[number % 2], number)
        await team.lines("api:ann:talk")
        for worker in (one, two):
            assert "answer to m5" in str(await team.call(worker, "memory.search", text="m5"))
            assert "ann:talk" in str(await team.call(worker, "figures"))
            assert "ann:talk" in str(await team.call(worker, "turns.list"))

        three.may_run.set()
        await _until_refused(three, f"know version {schema.VERSION} of its tables")
        three.may_run.clear()
        assert _tables(team) == schema.VERSION + 1
        one.signal(signal.SIGTERM)
        await _say(team, two, 6)
        await team.until_reached(one)
        await _say(team, one, 7)
        await _end(team, one)
        await _say(team, two, 8)

        await _start(team, three)
        assert _tables(team) == schema.VERSION + 2
        await _say(team, three, 9)
        await _say(team, two, 10)
        one.may_run.set()
        await _until_refused(one, f"brought to version {schema.VERSION + 2} by a newer nanobot")
        one.may_run.clear()
        said = [line["content"] for line in await team.lines("api:ann:talk") if "seq" in line]
        texts = ("m{}: hello", "answer to m{}")
        assert said == [text.format(number) for number in range(1, 11) for text in texts]


def _tables(team: Pair) -> int:
    """The version that they have."""
    ((found,),) = sql(team.dsn, "SELECT version FROM schema_version")
    return int(found)


def test_tables_that_are_in_use_keep_nobody_waiting_for_long(team_database: str) -> None:
    """A dump holds them for minutes, and all who use a table wait behind who wants to change it."""
    address, steps = DatabaseAddress(team_database), ("",) * schema.VERSION + _STEPS[:1]
    with psycopg.connect(team_database) as dump:
        dump.execute("SELECT FROM inbox")
        with pytest.raises(StorageError, match="uses them all the time"):
            schema.prepare(address, steps, tries=1)
    assert schema.prepare(address, steps) == schema.VERSION + 1
