"""Invariants between two real workers: requests of programs, conversations, retries.

Starting two takes seconds, so the tests share them, and each has its own conversations. A test that
kills a worker leaves the restart to its keeper, and the next test waits until it serves again."""

from __future__ import annotations

import asyncio
import contextlib
import select
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from bench.team.model import author
from nanobot.bus.events import InboundMessage, Origin
from nanobot.bus.rows import encode_event
from nanobot.cli.client import Client
from nanobot.clock import SystemClock
from nanobot_cli.wire import Reply
from tests.doubles.openai.answers import Answer, ChatRequest
from tests.doubles.openai.faults import HeldStep, Late
from tests.doubles.openai.server import Scripted
from tests.doubles.postgres import PostgresServer
from tests.scratch import scratch
from tests.team.pair import Pair, pair
from tests.team.support import sql

pytestmark = pytest.mark.asyncio(loop_scope="module")


class Model:
    """The model of both workers. A test may replace its `author`."""

    def __init__(self) -> None:
        self.author: Callable[[ChatRequest], Scripted] = author

    def __call__(self, request: ChatRequest) -> Scripted:
        return self.author(request)

    def slow(self, seconds: float) -> asyncio.Event:
        """Answer after this many seconds from now on. Return an event that is set once the model is
        asked."""
        asked = asyncio.Event()

        def late(request: ChatRequest) -> Scripted:
            asked.set()
            said = author(request)
            return Late(seconds, Answer(said) if isinstance(said, str) else said)

        self.author = late
        return asked


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def _shared(postgres: PostgresServer) -> AsyncIterator[tuple[Pair, Model, Path]]:
    model = Model()
    with scratch() as folder:
        dsn = postgres.dsn(postgres.create_prepared())
        async with pair(folder, dsn, model, people=("ann", "bob")) as team:
            yield team, model, folder


@pytest_asyncio.fixture(loop_scope="module")
async def team(_shared: tuple[Pair, Model, Path]) -> Pair:
    """Both workers, running."""
    team, model, _ = _shared
    model.author = author
    for worker in team.both:
        await team.until_reached(worker)
    return team


@pytest.fixture
def model(_shared: tuple[Pair, Model, Path]) -> Model:
    return _shared[1]


@pytest.fixture
def folder(_shared: tuple[Pair, Model, Path]) -> Path:
    """The folder of all data."""
    return _shared[2]


async def test_a_request_is_answered_once_though_its_worker_dies(team: Pair, model: Model) -> None:
    asked = model.slow(0.5)
    one, two = team.both
    first = asyncio.create_task(team.ask(one, "m1: hello", name="a"))
    await asked.wait()
    one.signal(signal.SIGKILL)
    await asyncio.gather(first, return_exceptions=True)
    assert await team.ask(two, "m1: hello", name="a") == "answer to m1"
    before = len(team.model.requests)
    assert await team.ask(two, "m1: hello", name="a") == "answer to m1"
    await team.until_reached(one)
    assert await team.ask(one, "m1: hello", name="a") == "answer to m1"
    assert len(team.model.requests) == before


async def test_a_repetition_elsewhere_gets_the_answer_of_the_worker_that_is_at_work(
    team: Pair, model: Model
) -> None:
    asked, before = model.slow(1.0), len(team.model.requests)
    one, two = team.both
    first = asyncio.create_task(team.ask(one, "m1: hello", name="b", talk="repeated"))
    await asked.wait()
    assert await team.ask(two, "m1: hello", name="b", talk="repeated") == "answer to m1"
    assert await first == "answer to m1"
    assert len(team.model.requests) == before + 1


async def test_requests_at_both_workers_of_one_person_are_all_answered_in_order(
    team: Pair, model: Model
) -> None:
    model.slow(0.05)

    async def talk(number: int) -> list[str]:
        name = f"talk{number}"
        worker = team.both[number % 2]
        said = [await team.ask(worker, f"m{n}: hello", talk=name) for n in (1, 2)]
        return [*said, await team.ask(team.both[1 - number % 2], "m3: hello", talk=name)]

    said = await asyncio.gather(*(talk(number) for number in range(10)))
    assert said == [["answer to m1", "answer to m2", "answer to m3"]] * 10
    for number in range(10):
        lines = await team.lines(f"api:ann:talk{number}")
        assert [line["seq"] for line in lines if "seq" in line] == list(range(1, 7))


async def test_a_message_that_failed_is_tried_again_once_wherever_that_is_asked(
    team: Pair,
) -> None:
    one, two = team.both
    assert await team.ask(one, "m1: hello", talk="failed") == "answer to m1"
    for number, worker in ((2, one), (3, two), (4, one)):
        now = SystemClock("UTC").now()
        text = f"m{number}: hello"
        failed = InboundMessage("api", "ann:failed", "telegram:1", text, f"once-{number}", now)
        ((row,),) = await asyncio.to_thread(
            sql, team.dsn, _FAILED, failed.event_id, now.isoformat(), encode_event(failed)
        )
        await team.call(worker, "queue.retry", id=f"in-{row}")
        await team.until_empty(two)
    talk = [line["content"] for line in await team.lines("api:ann:failed") if "seq" in line]
    texts = ("m{}: hello", "answer to m{}")
    assert talk == [text.format(number) for number in range(1, 5) for text in texts]


async def test_what_is_erased_at_one_worker_leaves_all_of_them(team: Pair, folder: Path) -> None:
    secret = "-".join(["märzipan"] * 200)
    one, two = team.both
    await team.ask(one, f"m1: my word is {secret}")
    await team.ask(two, f"m1: my word is {secret} too", person="bob")
    await team.call(two, "memory.search", text=secret)
    log = two.home / "logs" / "other.log"
    log.write_text(f"somebody said {secret}\n")
    erased = await team.call(one, "memory.forget", text=secret, erase=True)
    assert isinstance(erased, dict)
    assert erased["complete"], erased["text"]
    assert "standbys" in erased["text"]
    while secret in log.read_text() or secret.encode() in b"".join(_contents(folder)):
        await team.ask(two, "m2: hello", person="bob")
    stored = await asyncio.to_thread(sql, team.dsn, _STORED)
    assert secret not in str(stored)


async def test_no_change_of_memory_is_lost_while_scopes_change_hands(team: Pair) -> None:
    people = {"ann": "owner", "bob": "people/telegram_2"}
    scopes = {**people, "all": "groups/telegram_-3"}
    facts = "memory/MEMORY.md"
    workspace = team.shared / "workspace"

    async def talk(person: str) -> None:
        for number in range(1, 5):
            worker = team.both[(number + len(person)) % 2]
            wish = f"{person}wish{number}"
            await team.ask(worker, f"m{number}: please do {wish}", person=person, name=wish)

    async def add_facts(person: str) -> None:
        for number in range(4):
            new = f"{person} has cat number {number}"
            worker = team.both[number % 2]
            await team.call(worker, "memory.edit", scope=scopes[person], path=facts, new=new)
            await team.call(team.both[1 - number % 2], "memory.dream", scope=scopes[person])

    def edit_by_hand() -> None:
        for folder in (workspace, workspace / people["bob"]):
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "USER.md").write_text(f"- typed by hand into {folder.name}\n")

    await asyncio.gather(
        *map(talk, people), *map(add_facts, scopes), asyncio.to_thread(edit_by_hand)
    )
    forget = {"scope": people["bob"], "text": "bob has cat number 2"}
    await team.call(team.both[0], "memory.forget", **forget)
    for person, scope in scopes.items():
        folder = workspace if scope == "owner" else workspace / scope
        notes = "".join(one.read_text() for one in (folder / "memory").glob("2*.md"))
        known = (folder / facts).read_text()
        cats = [n for n in range(4) if f"{person} has cat number {n}" in known]
        assert cats == ([0, 1, 3] if person == "bob" else [0, 1, 2, 3])
        done = [notes.count(f"did {person}wish{n}") for n in range(1, 5)]
        assert done == [int(person in people)] * 4
        assert not any(f"{other} has" in known for other in scopes if other != person)
        assert not any(f"did {other}" in notes for other in scopes if other != person)
        for worker in team.both:
            shown = await team.call(worker, "memory.versions", scope=scope, limit=50)
            assert isinstance(shown, dict)
            assert len(shown["versions"]) == shown["total"] >= len(cats)
    repositories = [*(team.shared / "state").rglob("*.git")]
    assert len(repositories) == len(scopes)
    for repository in repositories:
        checking = await asyncio.create_subprocess_exec(
            "git", "-C", str(repository), "fsck", "--strict"
        )
        assert await checking.wait() == 0


async def test_a_turn_is_stopped_from_the_terminal_of_any_worker(team: Pair, model: Model) -> None:
    asked, never = asyncio.Event(), asyncio.Event()

    def hang(_: ChatRequest) -> Scripted:
        asked.set()
        return HeldStep(never, Answer("too late"))

    model.author = hang
    first = asyncio.create_task(team.ask(team.both[0], "m1: hello", talk="stopped"))
    await asked.wait()
    said = await asyncio.to_thread(_answer, team.both[1].home, "/stop", "api:ann:stopped")
    assert said == "Stopped."
    with pytest.raises(AssertionError, match="turn_stopped"):
        await first
    never.set()


async def test_a_key_is_moved_into_the_file_of_one_worker_and_that_is_said(team: Pair) -> None:
    key = "sk-proj-" + "aB3dE5" * 6
    one, two = team.both
    await asyncio.to_thread(_answer, one.home, f"m1: my key is {key}")
    told = await asyncio.to_thread(_answer, one.home, "/secret move")
    secrets = one.home / "secrets.env"
    assert f"{secrets} on that worker to secrets.env in every other worker's home" in told
    assert key in secrets.read_text()
    assert not (two.home / "secrets.env").exists()


def _answer(home: Path, text: str, session: str = "cli:direct") -> str:
    with Client(home) as client:
        client.send_message(text, session)
        while select.select([client], [], []):
            for event in client.read_events():
                if isinstance(event, Reply):
                    return event.text
    raise AssertionError


async def test_a_helper_that_went_with_its_worker_is_reported(team: Pair, model: Model) -> None:
    reported = asyncio.Event()

    def noting(request: ChatRequest) -> Scripted:
        if "the helper is lost" in str(request.messages):
            reported.set()
        return author(request)

    model.author = noting
    await team.ask(team.both[0], "m1: hello", talk="helped")
    now = SystemClock("UTC").now()
    lost = InboundMessage(
        "api", "ann:helped", "nanobot", "[the helper is lost]", "task:h", now,
        session_override="api:ann:helped", origin=Origin("report"),
    )  # fmt: skip
    row = "INSERT INTO helper (id, scope, started_at, if_lost, worker)"
    row += " VALUES ('h', 'owner', %s, %s, 999)"
    await asyncio.to_thread(sql, team.dsn, row, now.isoformat(), encode_event(lost))
    team.both[0].signal(signal.SIGKILL)
    await reported.wait()
    await team.until_empty(team.both[1])
    assert await asyncio.to_thread(sql, team.dsn, "SELECT id FROM helper") == []


async def test_who_is_full_leaves_what_waits_to_another(team_database: str, tmp_path: Path) -> None:
    people = {"ann": "owner", "bob": "people/telegram_2"}
    async with pair(
        tmp_path, team_database, author, people=tuple(people), latency=1e6, turns=1
    ) as team:
        now, rows = SystemClock("UTC").now(), list[str]()
        for number, (person, scope) in enumerate(people.items(), 1):
            said = InboundMessage("api", f"{person}:talk", f"telegram:{number}", "hello", "m", now)
            rows += said.chat_id, said.session_key, now.isoformat(), encode_event(said), scope
        await asyncio.to_thread(sql, team.dsn, _WAITING, *rows)
        while True:
            workers = await asyncio.to_thread(sql, team.dsn, _HAVE, list(people.values()))
            if len(workers) == len(people):
                break
            await asyncio.sleep(0.1)


def _contents(folder: Path) -> Iterator[bytes]:
    """Return the contents of all files in the shared folder and the workers' homes."""
    for name in ("shared", "one", "two"):
        for path in (folder / name).rglob("*"):
            with contextlib.suppress(OSError):
                yield path.read_bytes() if path.is_file() else b""


_STORED = """SELECT payload FROM inbox UNION ALL SELECT payload FROM outbox
    UNION ALL SELECT report FROM turn UNION ALL SELECT text FROM prompt
    UNION ALL SELECT lines FROM unfiled UNION ALL SELECT content FROM document"""
_FAILED = """INSERT INTO inbox
    (channel, chat_id, event_id, session_key, received_at, payload, scope, state)
    VALUES ('api', 'ann:failed', %s, 'api:ann:failed', %s, %s, 'owner', 'failed') RETURNING id"""
_WAITING = """INSERT INTO inbox
    (channel, chat_id, event_id, session_key, received_at, payload, scope)
    VALUES ('api', %s, 'm', %s, %s, %s, %s), ('api', %s, 'm', %s, %s, %s, %s)"""
_HAVE = "SELECT DISTINCT worker FROM lease WHERE scope = ANY(%s)"
