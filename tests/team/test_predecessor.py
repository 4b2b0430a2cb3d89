"""A worker that is started again after its process died does not wait for its own lease."""

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
