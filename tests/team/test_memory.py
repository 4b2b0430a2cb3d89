"""Memory while scopes move between workers (`python -m bench.team --memory`), in its smallest form:
a worker dies, one is stopped for too long, and one is asked to end, while Dream learns."""

from __future__ import annotations

import asyncio

import pytest

from bench.team.memory import FORGETTING, HARMS, MemoryCampaign, remember

pytestmark = pytest.mark.team


def test_what_is_remembered_stays_whole_while_workers_change_hands(team_database: str) -> None:
    harms = dict.fromkeys((*HARMS, FORGETTING), 1)
    size = MemoryCampaign(2, rounds=1, harms=harms, share=1.0, erases=False)
    figures, faults = asyncio.run(remember(size, seed=1, dsn=team_database))
    # A worker that is killed at the very end leaves its temporary file to the next start. The whole
    # campaign goes on for longer and checks that they go.
    assert [fault for fault in faults if not fault.endswith("was left")] == []
    assert figures["workers stopped beyond their lease and continued"] == 1
