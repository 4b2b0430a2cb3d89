"""A worker that is restarted after its process died does not wait for its own lease, and has a new
number."""

from __future__ import annotations

from nanobot.team.connection import DatabaseAddress
from nanobot.team.membership import Membership
from tests.team.support import enlist, sql


def test_the_worker_before_is_fenced_at_once(team_database: str) -> None:
    before, other = enlist(team_database), enlist(team_database)
    sql(team_database, "INSERT INTO lease VALUES ('a', %s), ('b', %s)", before, other)
    membership = Membership(DatabaseAddress(team_database), "w")
    number = membership.join(before)
    assert sql(team_database, "SELECT id FROM worker ORDER BY 1") == [(other,), (number,)]
    leases = sql(team_database, "SELECT scope, worker FROM lease ORDER BY 1")
    assert leases == [("a", None), ("b", other)]
    membership.leave()


def test_a_restored_database_gives_out_no_number_again(team_database: str) -> None:
    """A number given out after the dump is close to the start time of its worker."""
    dumped = enlist(team_database)
    ((now,),) = sql(team_database, "SELECT extract(epoch FROM clock_timestamp())::bigint")
    assert dumped < now <= _join(team_database)
    ahead = now + 1_000_000
    sql(team_database, "SELECT setval('worker_id_seq', %s)", ahead)
    assert _join(team_database) == ahead + 1, "the clock went back"


def _join(dsn: str) -> int:
    membership = Membership(DatabaseAddress(dsn), "w")
    number = membership.join()
    membership.leave()
    return number
