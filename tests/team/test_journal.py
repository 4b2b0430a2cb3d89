"""Features of a journal that several workers share: its rows by scope."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import psycopg
import pytest
from msgspec.structs import replace

from nanobot.bus.events import InboundMessage, Origin, OutboundMessage
from nanobot.bus.journal import (
    KEEP_DAYS,
    LEARNING,
    InboxEntry,
    OutboxPart,
    Outgoing,
    Step,
    UsageTotals,
    sum_usage,
)
from nanobot.errors import NanobotError, StorageError
from nanobot.team.journal import PostgresJournal
from nanobot.team.leases import Leases
from nanobot.team.maintenance import prune
from nanobot.team.postgres import Database
from nanobot.testing import FakeClock
from tests.bus.support import HELLO, end_turn, give_up, make_message, reply
from tests.doubles.postgres import PostgresServer, running_postgres
from tests.team.support import enlist, sql

ANNA = replace(HELLO, sender_id="anna", chat_id="a", event_id="a1")
BEN = replace(HELLO, sender_id="ben", chat_id="b", event_id="b1")


def scope_of(message: InboundMessage) -> str:
    return message.origin.scope or f"person:{message.sender_id}"


@contextlib.asynccontextmanager
async def worker(dsn: str, clock: FakeClock) -> AsyncIterator[PostgresJournal]:
    """Open the journal of a new worker."""
    journal = PostgresJournal(Database(dsn, lambda: None), clock, scope_of)
    await journal.open()
    journal.database.worker = enlist(dsn)
    try:
        yield journal
    finally:
        await journal.close()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def journal(team_database: str, clock: FakeClock) -> AsyncIterator[PostgresJournal]:
    async with worker(team_database, clock) as journal:
        yield journal


@pytest.fixture
async def other(team_database: str, clock: FakeClock) -> AsyncIterator[PostgresJournal]:
    async with worker(team_database, clock) as journal:
        yield journal


def claim(journal: PostgresJournal, turn_id: str, *entries: InboxEntry) -> None:
    key = entries[0].message.session_key
    journal.claim(turn_id, key, [entry.id for entry in entries], at_once=True)


def hold(dsn: str, scope: str, worker: int | None) -> None:
    sql(dsn, "INSERT INTO lease VALUES (%s, %s)", scope, worker)


async def waiting(journal: PostgresJournal) -> list[str]:
    """Return the free scopes with pending work."""
    return sorted(await Leases(journal.database).free((), 100, ("fake",)))


async def new_entries(
    journal: PostgresJournal, scopes: Sequence[str], known: Sequence[int]
) -> tuple[InboxEntry, ...]:
    """Return the messages that are new to a worker."""
    return (await journal.open_work(scopes, known, (), ())).entries


async def new_parts(
    journal: PostgresJournal, scopes: Sequence[str], known: Sequence[int]
) -> tuple[OutboxPart, ...]:
    """Return the parts that are new to a worker."""
    return (await journal.open_work(scopes, (), known, ("fake",))).parts


async def test_what_is_left_over_is_found_by_scope(
    journal: PostgresJournal, other: PostgresJournal
) -> None:
    anna, ben = await journal.receive("fake", (ANNA, BEN))
    claim(journal, "t1", anna)
    claim(journal, "t2", ben)
    await journal.add_steps("t2", 0, (Step("message", "{}"),))
    lines = end_turn(
        "t1", session_key="fake:a", lines="line\n", outgoing=(reply("hi", chat_id="a"),)
    )
    await journal.complete(lines)
    left = await other.leftovers(("person:ben",))
    assert [entry.message for entry in left.entries] == [BEN]
    assert (len(left.entries[0].steps), left.unfiled, left.parts) == (1, (), ())
    left = await other.leftovers(("person:anna",))
    assert [(entry.message, entry.attempts) for entry in left.entries] == [(ANNA, 1)]
    assert [unfiled.lines for unfiled in left.unfiled] == ["line\n"]
    assert [part.part.content for part in left.parts] == ["hi"]
    assert (await other.leftovers(())).entries == ()
    assert len((await other.leftovers()).entries) == 2


async def test_lines_of_a_conversation_whose_turn_did_not_begin_belong_to_its_message(
    journal: PostgresJournal, other: PostgresJournal
) -> None:
    await journal.receive("fake", (ANNA, BEN))
    await journal.complete(end_turn("t1", session_key="fake:b", lines="line\n"))
    (unfiled,) = (await other.leftovers(("person:ben",))).unfiled
    assert (unfiled.session_key, unfiled.lines) == ("fake:b", "line\n")


@pytest.mark.team
@pytest.mark.skipif(bool(PostgresServer.missing), reason=PostgresServer.missing)
async def test_nothing_is_done_while_it_could_not_be_recorded(clock: FakeClock) -> None:
    with running_postgres() as server:
        async with worker(server.dsn(server.create_prepared()), clock) as journal:
            await journal.may_act()
            await asyncio.to_thread(server.stop, signal.SIGQUIT)
            with pytest.raises(StorageError):
                await journal.receive("fake", (ANNA,))
            acting = asyncio.create_task(journal.may_act())
            with pytest.raises(StorageError):
                await journal.receive("fake", (BEN,))
            assert not acting.done()
            await asyncio.to_thread(server.start)
            await acting
            assert journal.database.refusal is None


async def test_a_scope_that_is_given_back_is_not_blamed(
    journal: PostgresJournal, other: PostgresJournal
) -> None:
    anna, ben = await journal.receive("fake", (ANNA, BEN))
    claim(journal, "t1", anna)
    claim(journal, "t2", ben)
    await journal.release(("person:anna",))
    entries = (await other.leftovers()).entries
    assert [entry.attempts for entry in entries] == [0, 1]


async def test_helpers_are_lost_with_their_worker(
    journal: PostgresJournal, other: PostgresJournal, team_database: str
) -> None:
    await journal.add_helper("h1", ANNA)
    await journal.add_helper("h2", BEN)
    assert await other.find_lost_helpers() == []
    sql(team_database, "DELETE FROM worker WHERE id = %s", journal.database.worker)
    assert await other.find_lost_helpers(("person:ben",)) == [("h2", BEN)]
    assert len(await other.find_lost_helpers()) == 2


async def test_a_part_belongs_to_the_chat_that_gets_it_else_to_its_turn(
    journal: PostgresJournal, team_database: str
) -> None:
    anna, _ = await journal.receive("fake", (ANNA, BEN))
    claim(journal, "t1", anna)
    told = (
        reply("to ben", chat_id="b", call="1"),
        reply("nobody wrote there", chat_id="new", call="2"),
    )
    await journal.complete(end_turn("t1", anna, outgoing=told))
    rows = sql(team_database, "SELECT scope FROM outbox ORDER BY id")
    assert rows == [("person:ben",), ("person:anna",)]
    job = replace(BEN, chat_id="a", event_id="cron:1", origin=Origin("job", "person:ben"))
    await journal.receive("fake", (job,))  # a job for one chat does not move the chat
    await journal.add_outgoing("t2", reply("hello", chat_id="a"))
    rows = sql(team_database, "SELECT scope FROM outbox ORDER BY id DESC LIMIT 1")
    assert rows == [("person:anna",)]


async def test_a_chat_moves_to_the_scope_of_what_it_says_next(
    journal: PostgresJournal, team_database: str
) -> None:
    await journal.receive("fake", (ANNA,))
    linked = replace(ANNA, event_id="a2", sender_id="anna-of-old")
    await journal.receive("fake", (linked,))
    assert sql(team_database, "SELECT * FROM conversation") == [("fake:a", "person:anna-of-old")]


async def test_scopes_wait_until_a_worker_that_lives_has_them(
    journal: PostgresJournal, team_database: str, clock: FakeClock
) -> None:
    await journal.receive("fake", (ANNA,))
    await clock.advance(1)
    await journal.receive("fake", (BEN,))
    assert await waiting(journal) == ["person:anna", "person:ben"]
    alive = enlist(team_database)
    hold(team_database, "person:anna", alive)
    hold(team_database, "person:ben", None)
    assert await waiting(journal) == ["person:ben"]
    sql(team_database, "DELETE FROM worker WHERE id = %s", alive)
    assert await waiting(journal) == ["person:anna", "person:ben"]


async def test_a_scope_waits_for_parts_lines_and_lost_helpers_as_well(
    journal: PostgresJournal, other: PostgresJournal, team_database: str
) -> None:
    anna, ben = await journal.receive("fake", (ANNA, BEN))
    claim(journal, "t1", anna)
    await journal.complete(end_turn("t1", anna, lines="x\n"))
    committed = await journal.complete(end_turn("t2", ben, outgoing=(reply("hi", chat_id="b"),)))
    assert await waiting(other) == ["person:anna", "person:ben"]
    await journal.mark_sent(committed.parts[0], "1")
    await journal.add_helper("h", replace(HELLO, sender_id="cleo"))
    assert await waiting(other) == ["person:anna"]
    sql(team_database, "DELETE FROM worker WHERE id = %s", journal.database.worker)
    assert await waiting(other) == ["person:anna", "person:cleo"]


async def test_what_another_worker_stored_is_found_once(
    journal: PostgresJournal, other: PostgresJournal
) -> None:
    first, _ = await journal.receive("fake", (ANNA, BEN))
    scopes = ("person:anna",)
    (found,) = await new_entries(other, scopes, ())
    assert (found, found.recovered) == (first, False)
    assert await new_entries(other, scopes, (first.id,)) == ()
    claim(other, "t1", first)
    await other.mark_model_asked("t1")
    assert await new_entries(other, scopes, ()) == ()
    (part,) = await journal.add_outgoing("t9", reply("hi", chat_id="a"))
    assert await new_parts(other, scopes, ()) == (part,)
    assert await new_parts(other, scopes, (part.id,)) == ()
    assert await new_parts(other, ("person:ben",), ()) == ()


async def test_a_failed_message_that_somebody_retries_is_new_again(
    journal: PostgresJournal, other: PostgresJournal
) -> None:
    (entry,) = await journal.receive("fake", (ANNA,))
    claim(journal, "t1", entry)
    await journal.complete(replace(end_turn("t1", entry), state="failed", reason="it broke"))
    again = await other.retry_row(f"in-{entry.id}")
    assert isinstance(again, InboxEntry)
    (found,) = await new_entries(journal, ("person:anna",), ())
    assert (found.previous_turn, found.runs) == (again.previous_turn, again.runs) == ("t1", 1)


async def test_rows_that_cannot_be_read_stop_nobody(
    journal: PostgresJournal, team_database: str
) -> None:
    (entry, _) = await journal.receive("fake", (ANNA, BEN))
    (part,) = await journal.add_outgoing("t1", reply("hi", chat_id="a"))
    sql(team_database, "UPDATE inbox SET payload = '{' WHERE id = %s", entry.id)
    sql(team_database, "UPDATE outbox SET payload = '{'")
    scopes = ("person:anna", "person:ben")
    assert [one.message for one in await new_entries(journal, scopes, ())] == [BEN]
    (notice,) = await new_parts(journal, scopes, ())
    assert "damaged on disk" in notice.part.content
    inbox, outbox = await journal.queue_rows()
    assert [row.text for row in (inbox[0], outbox[0])] == ["(unreadable)", "(unreadable)"]
    for row in (f"in-{entry.id}", f"out-{part.id}"):
        with pytest.raises(NanobotError, match="cannot be read"):
            await journal.retry_row(row)
    left = await journal.leftovers()
    assert ([one.message for one in left.entries], left.parts) == ([BEN], (notice,))


async def test_what_nobody_can_read_is_said_to_its_person_by_the_next_holder(
    journal: PostgresJournal, other: PostgresJournal, team_database: str
) -> None:
    await journal.receive("fake", (ANNA,))
    sql(team_database, "UPDATE inbox SET payload = '{'")
    left = await other.leftovers(("person:anna",))
    assert "damaged on disk" in left.parts[0].part.content


async def test_texts_with_a_null_character_are_known_again(journal: PostgresJournal) -> None:
    odd = make_message("m\x00", chat_id="\x00")
    (entry,) = await journal.receive("fake", (odd,))
    assert await journal.receive("fake", (odd,)) == ()
    assert (await journal.leftovers()).entries[0].message == odd
    completion = end_turn("t\x00", entry, lines="nul \x00\n", report='{"a": "\\u0000"}')
    await journal.complete(completion)
    (part,) = await journal.add_outgoing(
        "t1", Outgoing("reply", (OutboundMessage("fake", "1", "a \x00 b"),))
    )
    assert (await journal.leftovers()).parts == (part,)


async def test_what_all_workers_use_is_summed(
    journal: PostgresJournal, other: PostgresJournal, clock: FakeClock
) -> None:
    day = clock.now().date()
    for one in (journal, other, journal):
        one.add_day_tokens(day, 10)
        one.add_learning_usage(day, UsageTotals(1, 5, 0, 1))
        await one.database.flush()
    assert (await journal.day_tokens(day)).tokens == 30
    other.add_day_tokens(day, 0, warned=True)
    assert (await other.day_tokens(day)).warned
    assert sum_usage(await journal.usage_by_day(day), LEARNING) == UsageTotals(3, 15, 0, 3)


async def test_who_waits_longest_is_next_beside_what_is_needed(journal: PostgresJournal) -> None:
    people = [f"p{number:02}" for number in reversed(range(50))]
    for one in people:
        await journal.receive("fake", (replace(HELLO, sender_id=one, chat_id=one, event_id=one),))
    leases, first = Leases(journal.database), [f"person:{one}" for one in people]
    await leases.claim(("held",))
    assert await leases.free(("held", "zzz"), 0) == ["zzz"]
    assert await leases.free(("held", "zzz"), 2) == ["zzz", *first[:2]]
    some = ("held", first[7], first[3])
    assert await leases.free(("zzz",), 9, among=some) == ["zzz", first[3], first[7]]


async def test_what_is_said_into_a_new_conversation_goes_where_its_first_message_waits(
    journal: PostgresJournal, other: PostgresJournal, team_database: str
) -> None:
    """Its file cannot show its scope yet."""
    (first,) = await journal.receive("fake", (ANNA,))
    report = replace(ANNA, sender_id="nanobot", event_id="1", session_override=ANNA.session_key)
    await journal.add_helper("h1", report)
    assert sql(team_database, "SELECT scope FROM helper") == [("person:anna",)]
    claim(journal, "t1", first)
    assert [one.scope for one in await other.receive("fake", (report,))] == ["person:anna"]
    await journal.complete(end_turn("t1", first, session_key=ANNA.session_key, lines="line\n"))
    sql(team_database, "DELETE FROM inbox")
    later = replace(report, event_id="2")
    assert [one.scope for one in await other.receive("fake", (later,))] == ["person:anna"]


async def test_a_notice_waits_until_something_reaches_its_chat(
    journal: PostgresJournal,
) -> None:
    (part,) = await journal.add_outgoing("t1", reply("hi", chat_id="a"))
    (notice,) = await journal.give_up(part, "blocked")
    await journal.give_up(notice, "blocked")
    (later,) = await journal.add_outgoing("t2", reply("hi again", chat_id="a"))
    assert [one.id for one in await journal.mark_sent(later, "1")] == [notice.id]


async def test_what_is_old_is_forgotten_by_one_worker_at_a_time(
    team_database: str, clock: FakeClock
) -> None:
    old = "SELECT g, 'fake', '1', '', 'v', '2000' FROM generate_series(1, 4500) AS g"
    sql(team_database, f"INSERT INTO button {old}")
    with psycopg.connect(team_database, autocommit=True) as another:
        another.execute("SELECT pg_advisory_lock(hashtext('nanobot prune'))")
        async with worker(team_database, clock):
            assert sql(team_database, "SELECT count(*) FROM button") == [(4500,)]
    async with worker(team_database, clock):
        assert sql(team_database, "SELECT count(*) FROM button") == [(0,)]


async def test_a_process_that_runs_for_days_forgets_as_well(
    journal: PostgresJournal, team_database: str, clock: FakeClock
) -> None:
    (entry,) = await journal.receive("fake", (ANNA,))
    await journal.complete(end_turn("t1", entry))
    await journal.count_message("fake:anna", int(clock.now().timestamp() // 60), "a1")
    await clock.advance((KEEP_DAYS + 1) * 86_400)
    await journal.count_message("fake:ben", int(clock.now().timestamp() // 60), "b1")
    await journal.receive("fake", (BEN,))
    await journal.close()
    assert sql(team_database, "SELECT sender FROM rate") == [("fake:ben",)]
    assert sql(team_database, "SELECT event_id FROM inbox") == [("b1",)]


_FAILED = """INSERT INTO inbox (scope, channel, chat_id, event_id, session_key, state, received_at)
    SELECT 'person:anna', 'fake', 'a', 'f' || n, 'fake:a', 'failed', '2999'
    FROM generate_series(1, 5000) AS n"""
_DEAD = """INSERT INTO outbox (scope, turn_id, call, part, channel, chat_id, state, created_at)
    SELECT 'person:anna', 't' || n, 'c', 0, 'fake', 'a', 'dead', '2999'
    FROM generate_series(1, 5000) AS n"""


async def test_what_failed_is_not_read_by_who_looks_for_work(
    team_database: str, clock: FakeClock
) -> None:
    sql(team_database, _FAILED)
    sql(team_database, _DEAD)
    async with worker(team_database, clock) as journal:
        await journal.receive("fake", (ANNA,))
    before = read_of(team_database)
    async with worker(team_database, clock):
        pass
    opening = read_of(team_database) - before
    async with worker(team_database, clock) as journal:
        assert await waiting(journal) == ["person:anna"]
        assert len(await new_entries(journal, ["person:anna"], ())) == 1
        await journal.leftovers(("person:anna",))
        await journal.is_busy("fake:a")
    assert read_of(team_database) - before < 2 * opening + 100


def read_of(dsn: str) -> int:
    """Return the number of rows of messages and parts, and of index entries, that closed
    connections have read."""
    others = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database()"
    while sql(dsn, f"{others} AND pid != pg_backend_pid()"):
        pass
    query = "SELECT sum(seq_tup_read + idx_tup_fetch) FROM pg_stat_user_tables"
    entries = "SELECT sum(idx_tup_read) FROM pg_stat_user_indexes"
    here = "WHERE relname IN ('inbox', 'outbox')"
    ((rows, indexed),) = sql(dsn, f"SELECT ({query} {here}), ({entries} {here})")
    return int(rows or 0) + int(indexed or 0)


async def test_what_failed_and_nobody_retried_is_kept_as_long_as_what_ended(
    team_database: str, clock: FakeClock
) -> None:
    async with worker(team_database, clock) as journal:
        anna, ben = await journal.receive("fake", (ANNA, BEN))
        await journal.complete(end_turn("t1", anna, state="failed"))
        (part,) = await journal.add_outgoing("t2", reply("hi", chat_id="b"))
        await give_up(journal, part)
        await clock.advance((KEEP_DAYS - 1) * 86_400)
        await prune(journal.database.address, clock.now())
        counts = await journal.counts()
        assert (counts.received, counts.failed, counts.dead) == (1, 1, 1)
        await clock.advance(2 * 86_400)
        await prune(journal.database.address, clock.now())
        counts = await journal.counts()
        assert (counts.received, counts.failed, counts.dead) == (1, 0, 0)
        assert ben.id


async def test_erasing_leaves_no_byte_in_the_tables(
    journal: PostgresJournal, team_database: str, postgres: PostgresServer
) -> None:
    secret = "swordfish" * 3
    first, _ = await journal.receive(
        "fake", (replace(ANNA, content=secret), replace(BEN, content="harmless"))
    )
    claim(journal, "t1", first)
    await journal.add_steps("t1", 0, (Step("message", f'{{"text": "{secret}"}}'),))
    journal.remember_prompt("p1", secret)
    (part,) = await journal.add_outgoing("t1", reply(secret, chat_id="a"))
    await give_up(journal, part)
    assert bytes_of(postgres, team_database, secret)
    assert await journal.erase(lambda text: text.replace(secret, "[erased]")) >= 4
    assert not bytes_of(postgres, team_database, secret)
    assert sql(team_database, "SELECT * FROM rebuild") == []
    entries = (await journal.leftovers()).entries
    assert [entry.message.content for entry in entries] == ["[erased]", "harmless"]
    assert await journal.erase(lambda text: text.replace(secret, "[erased]")) == 0


def bytes_of(postgres: PostgresServer, dsn: str, text: str) -> list[Path]:
    """Return the files of a database's tables that contain a text."""
    sql(dsn, "CHECKPOINT")
    ((oid,),) = sql(dsn, "SELECT oid FROM pg_database WHERE datname = current_database()")
    files = [path for path in (postgres.data / "base" / str(oid)).iterdir() if path.is_file()]
    return [path for path in files if text.encode() in path.read_bytes()]
