"""A process as a worker: its row, the fence, and its waits."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator

import psycopg
import pytest

from nanobot.errors import StorageError
from nanobot.team.connection import DatabaseAddress
from nanobot.team.membership import TTL, Membership
from tests.team.support import enlist, sql


class Clock:
    """A clock whose seconds a test sets."""

    now = 1_000.0

    def __call__(self) -> float:
        return self.now


class Worker:
    """A worker that renews often, and whose end is only recorded."""

    def __init__(self, dsn: str) -> None:
        self.clock, self.ended = Clock(), queue.SimpleQueue[str]()
        self.membership = Membership(
            DatabaseAddress(dsn), "w", fenced=self.ended.put, now=self.clock, renew_seconds=0.01
        )
        self.id = self.membership.join()

    def why_it_ended(self) -> str:
        return self.ended.get(timeout=30)


@pytest.fixture
def worker(team_database: str) -> Iterator[Worker]:
    worker = Worker(team_database)
    yield worker
    worker.membership.leave()


def until_renewed(dsn: str, id: int) -> None:
    """Return when a worker's row was renewed since."""
    sql(dsn, "UPDATE worker SET until = now() + interval '1 s' WHERE id = %s", id)
    while not sql(dsn, "SELECT 1 FROM worker WHERE until > now() + interval '2 s' AND id = %s", id):
        pass


def test_a_worker_has_a_row_for_as_long_as_it_lives(worker: Worker, team_database: str) -> None:
    assert worker.membership.is_valid
    assert sql(team_database, "SELECT id, name FROM worker") == [(worker.id, "w")]
    until_renewed(team_database, worker.id)
    worker.membership.leave()
    assert sql(team_database, "SELECT id FROM worker") == []
    assert worker.ended.empty()


def test_each_process_has_a_number_of_its_own(worker: Worker, team_database: str) -> None:
    other = Worker(team_database)
    assert other.id > worker.id
    other.membership.leave()


def test_a_worker_whose_row_is_gone_ends(worker: Worker, team_database: str) -> None:
    sql(team_database, "DELETE FROM worker WHERE id = %s", worker.id)
    assert "assumed that it was dead" in worker.why_it_ended()


def test_a_worker_that_gives_no_sign_of_life_is_fenced_and_loses_its_leases(
    worker: Worker, team_database: str
) -> None:
    dead = enlist(team_database)
    sql(team_database, "INSERT INTO lease VALUES ('people/a', %s)", dead)
    sql(team_database, "UPDATE worker SET until = now() - interval '1 s' WHERE id = %s", dead)
    for _ in range(4):  # the other worker is there all along
        worker.clock.now += TTL / 3
        until_renewed(team_database, worker.id)
    while sql(team_database, "SELECT 1 FROM worker WHERE id = %s", dead):
        pass
    assert sql(team_database, "SELECT scope, worker FROM lease") == [("people/a", None)]


def test_who_was_away_itself_fences_nobody(worker: Worker, team_database: str) -> None:
    other = enlist(team_database)
    sql(team_database, "UPDATE worker SET until = now() - interval '1 s' WHERE id = %s", other)
    for _ in range(3):
        until_renewed(team_database, worker.id)  # it is there for less than that time by now
    assert sql(team_database, "SELECT id FROM worker WHERE id = %s", other) == [(other,)]


def test_who_lost_touch_waits_until_the_row_is_renewed(worker: Worker, team_database: str) -> None:
    returned = threading.Event()

    def act() -> None:
        worker.membership.wait_until_valid()
        returned.set()

    with_lock = "SELECT pg_advisory_lock(1); LOCK TABLE worker IN EXCLUSIVE MODE"

    with psycopg.connect(team_database) as holding:
        holding.execute(with_lock.encode())  # nothing can be renewed
        worker.clock.now += TTL
        assert not worker.membership.is_valid
        acting = threading.Thread(target=act)
        acting.start()
        assert not returned.is_set()
    acting.join(30)
    assert returned.is_set()
    assert worker.membership.is_valid


def test_at_the_end_of_the_process_nobody_waits_any_more(worker: Worker) -> None:
    worker.membership.end_waits()
    worker.membership.wait_until_valid()
    worker.clock.now += TTL
    with pytest.raises(StorageError, match="nanobot is stopping"):
        worker.membership.wait_until_valid()
