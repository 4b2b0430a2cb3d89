"""The fault campaign of a team (`python -m bench.team`), in its smallest form."""

from __future__ import annotations

import asyncio

import pytest

from bench.team.campaign import Size, campaign
from bench.team.fault_injector import ANSWER, CUT, KILL, STOP
from tests.doubles.postgres import PostgresServer

pytestmark = pytest.mark.team


@pytest.mark.skipif(bool(PostgresServer.missing), reason=PostgresServer.missing)
def test_a_team_keeps_its_promises_while_a_worker_dies_and_connections_are_cut() -> None:
    size = Size(
        workers=2, chats=6, messages=2, at_once=6, faults={KILL: 1, STOP: 1, CUT: 1, ANSWER: 1}
    )
    figures, faults = asyncio.run(campaign(size, seed=1))
    assert faults == []
    assert figures["workers killed with SIGKILL"] == 1
