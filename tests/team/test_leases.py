"""The owners of scopes, questions answered at another worker, and the remains of a dead worker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from nanobot.bus.events import OutboundMessage
from nanobot.bus.journal import QUESTION, Outgoing
from nanobot.clock import SystemClock
from nanobot.errors import NanobotError
from nanobot.team.connection import DatabaseAddress
from nanobot.team.folder import clear, temporaries
from nanobot.team.journal import PostgresJournal
from nanobot.team.leases import Leases
from nanobot.team.notifications import Answer, Notifications, SharedQuestions
from nanobot.team.postgres import Database
from nanobot.tooling import OWNER
from tests.team.support import enlist, open_database, sql


@pytest.fixture
async def first(team_database: str) -> AsyncIterator[Database]:
    async with open_database(team_database, enlist(team_database)) as database:
        yield database


@pytest.fixture
async def second(team_database: str) -> AsyncIterator[Database]:
    async with open_database(team_database, enlist(team_database)) as database:
        yield database


async def test_a_scope_has_one_worker(first: Database, second: Database) -> None:
    one, other = Leases(first), Leases(second)
    both = await asyncio.gather(one.claim(("a", "b")), other.claim(("b", "a")))
    assert sorted([*both[0], *both[1]]) == ["a", "b"]
    assert await one.claim(both[1]) == {}
    await one.release(("a", "b"))  # of the other's it gives nothing back
    assert await one.free(("a", "b"), 0) == sorted(both[0])


async def test_nothing_is_stored_for_no_scopes(first: Database, team_database: str) -> None:
    leases, query = Leases(first), "SELECT number FROM stamp WHERE worker = %s"
    await leases.claim(("a",))
    before = sql(team_database, query, first.worker)
    await leases.release(())
    await leases.put_back(())
    assert sql(team_database, query, first.worker) == before


async def test_who_claims_learns_whether_the_last_worker_died(
    first: Database, second: Database, team_database: str
) -> None:
    one, other = Leases(first), Leases(second)
    assert await one.claim(("a", "b")) == {"a": False, "b": False}
    await one.release(("a",))
    sql(team_database, "DELETE FROM worker WHERE id = %s", first.worker)
    assert await other.claim(("a", "b")) == {"a": False, "b": True}
    newest, alive = await other.alive()
    assert [newest, *alive] == [second.worker] * 2
    sql(team_database, "DELETE FROM worker WHERE id = %s", enlist(team_database))
    assert (await other.alive())[0] > newest  # a worker that started and died since


async def test_what_a_dead_worker_left_is_told_until_somebody_has_put_it_right(
    first: Database, second: Database, team_database: str
) -> None:
    sql(team_database, "INSERT INTO lease VALUES ('a', NULL)")
    one, other = Leases(first), Leases(second)
    assert await one.claim(("a",)) == {"a": True}
    await one.put_back(("a",))
    assert await other.claim(("a",)) == {"a": True}
    await one.put_back(("a",))  # it is the other's
    assert await one.claim(("a",)) == {}


async def test_parts_for_channels_that_are_on_are_work_also_where_one_worker_served_them_before(
    first: Database, team_database: str
) -> None:
    sql(
        team_database,
        "INSERT INTO outbox (scope, turn_id, call, part, channel, chat_id, created_at) VALUES"
        " ('channel:telegram', 't', 'reply', 0, 'telegram', '1', '2026')",
    )
    leases = Leases(first)
    assert await leases.free((), 10, ("whatsapp",)) == []
    assert await leases.free((), 10, ("telegram", "whatsapp")) == ["channel:telegram"]


async def _ask(database: Database, code: str) -> None:
    """Ask a question in the owner's chat."""
    journal = PostgresJournal(database, SystemClock("UTC"), lambda _: OWNER)
    question = OutboundMessage("telegram", "7", "May I?")
    await journal.add_outgoing(f"{QUESTION}{code}", Outgoing("reply", (question,)))


async def test_an_answer_reaches_the_worker_that_asks(first: Database, second: Database) -> None:
    given: list[tuple[str, Answer]] = []

    async def settle(code: str, answer: Answer) -> str:
        given.append((code, answer))
        if answer.answer == "always":
            raise NanobotError("To be approved once only.")
        return "Approved: run it."

    asking = SharedQuestions(first, settle, lambda *_: None)
    answering = SharedQuestions(second, settle, lambda _, number: asking.take_answer(number))
    yes = Answer("once", "telegram:7", "telegram", "7")
    with pytest.raises(NanobotError, match="No such question is pending"):
        await answering.answer("AB12", yes)
    await _ask(first, "AB12")
    with pytest.raises(NanobotError, match="once only"):
        await answering.answer("AB12", Answer("always", "telegram:7"))
    assert await answering.answer("AB12", yes) == "Approved: run it."
    assert given[-1] == ("AB12", yes)
    asking.remove("AB12")
    await first.read("SELECT 1")  # earlier writes are stored
    with pytest.raises(NanobotError, match="No such question is pending"):
        await answering.answer("AB12", yes)
    assert len(given) == 2


async def test_a_worker_that_missed_an_answer_is_told_again_and_settles_it_once(
    first: Database, second: Database
) -> None:
    settled: list[str] = []
    notified: list[str] = []

    async def settle(code: str, _: Answer) -> str:
        settled.append(code)
        return "Approved: run it."

    def tell(_: str, number: str) -> None:
        notified.append(number)
        if len(notified) > 1:  # the first notification is lost, and the second arrives twice
            asking.take_answer(number)
            asking.take_answer(number)

    asking = SharedQuestions(first, settle, tell)
    await _ask(first, "AB12")
    answering = SharedQuestions(second, settle, tell)
    assert await answering.answer("AB12", Answer("once", "telegram:7")) == "Approved: run it."
    assert settled == ["AB12"]


async def test_the_question_of_a_dead_worker_waits_no_more(
    first: Database, second: Database, team_database: str
) -> None:
    async def settle(_: str, __: Answer) -> str:
        raise AssertionError

    await _ask(first, "AB12")
    sql(team_database, "DELETE FROM worker WHERE id = %s", first.worker)
    with pytest.raises(NanobotError, match="No such question is pending"):
        await SharedQuestions(second, settle, lambda *_: None).answer("AB12", Answer("no", "x"))


async def test_workers_hear_what_others_say_and_not_themselves(team_database: str) -> None:
    heard = {"first": asyncio.Queue[tuple[str, str]](), "second": asyncio.Queue[tuple[str, str]]()}
    address = DatabaseAddress(team_database)
    first = Notifications(address, lambda *said: heard["first"].put_nowait(said))
    second = Notifications(address, lambda *said: heard["second"].put_nowait(said))
    for one in (first, second):
        one.start()
    for queue in heard.values():
        assert await queue.get() == ("gone", "")  # it listens
    names = {f"people/{'x' * 200}_{number}" for number in range(100)}  # more than one can carry
    for name in names:
        first.tell("work", name)
    told = {await heard["second"].get() for _ in names}
    assert told == {("work", name) for name in names}
    assert heard["first"].empty()
    for one in (first, second):
        await one.close()


def test_temporary_files_are_found_with_their_workers(tmp_path: Path) -> None:
    """This includes the newest worker, which may have died. Files of memory, which another worker
    is about to use, come before others."""
    names = ("sessions", "state/versions/x.git", "workspace", "workspace/memory/notes",
             "workspace/people/x", "workspace/people/x/memory")  # fmt: skip
    kept = {tmp_path / name for name in names}
    ordinary = {tmp_path / name for name in ("workspace/site", "workspace/people/x/site")}
    objects = tmp_path / "state" / "versions" / "x.git" / "objects"  # no objects are made there
    ours, alone = [f".{'a' * 16}.{n}.nanobot-tmp" for n in (7, 9)], f".{'b' * 16}.nanobot-tmp"
    for place in (*kept, *ordinary, objects):
        place.mkdir(parents=True, exist_ok=True)
        for name in (*ours, alone, "notes.md"):
            (place / name).touch()
    found = temporaries(tmp_path)
    assert {path.parent for path in found} == kept
    assert sorted(found.values()) == sorted([7, 9] * len(kept))
    assert {path.parent for path in temporaries(tmp_path, everywhere=True)} == kept | ordinary
    assert temporaries(tmp_path, lambda: True) == {}
    clear(path for path, number in found.items() if number == 9)
    for place in kept:
        left = {one.name for one in place.iterdir() if one.is_file()}
        assert left == {ours[0], alone, "notes.md"}


async def test_what_cannot_be_read_ends_no_listening(team_database: str) -> None:
    """Any connected client can notify."""
    heard = asyncio.Queue[tuple[str, str]]()
    address = DatabaseAddress(team_database)
    listening = Notifications(address, lambda kind, name: heard.put_nowait((kind, name.strip())))
    telling = Notifications(address, lambda *_: None)
    listening.start()
    assert await heard.get() == ("gone", "")
    for payload in ('["stop", 1]', '[["stop", 1]]', "[" * 7_900, "", "{}"):
        sql(team_database, "SELECT pg_notify('nanobot', %s)", payload)
    telling.tell("erased", "\U0001f600" * 1_000)
    assert await heard.get() == ("erased", "\U0001f600" * 1_000)
    for one in (listening, telling):
        await one.close()
