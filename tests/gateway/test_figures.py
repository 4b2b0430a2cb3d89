"""Usage over days: sums, weeks, days without a turn, and prices."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from nanobot.bus.sql_journal import Journal
from nanobot.errors import NanobotError
from nanobot.gateway.operations import figures
from nanobot.providers.port import Usage
from nanobot.providers.retry import Prices
from nanobot.testing import FakeClock
from tests.bus.support import end_turn, make_message, open_journal

PRICES = Prices(input=2.0, cached_input=0.5, output=8.0)


class Past:
    """A journal with turns of several days."""

    def __init__(self, journal: Journal, clock: FakeClock) -> None:
        self.clock, self.journal = clock, journal
        self._count = 0

    async def turn(
        self, session: str, prompt: int, cached: int, completion: int, prices: Prices = PRICES
    ) -> None:
        """Record a turn that took 100 ms."""
        self._count += 1
        name = f"t{self._count}"
        (entry,) = await self.journal.receive("fake", (make_message(name),))
        self.journal.claim(name, session, (entry.id,), at_once=True)
        used = {"prompt_tokens": prompt, "cached_tokens": cached, "completion_tokens": completion}
        cost = prices.cost(Usage(prompt, completion, cached))
        priced = {} if cost is None else {"cost": cost}
        report = json.dumps({**used, **priced, "milliseconds": 100})
        await self.journal.complete(end_turn(name, entry, session_key=session, report=report))

    async def figures(self, days: int) -> Mapping[str, Any]:
        """Return the operation's result."""
        return await figures(self.journal, self.clock, {"days": days})


@pytest.fixture
async def past(tmp_path: Path) -> AsyncIterator[Past]:
    clock = FakeClock()
    async with open_journal(tmp_path / "journal.db", clock) as journal:
        yield Past(journal, clock)


async def test_days_and_chats_are_summed_and_empty_days_are_there(past: Past) -> None:
    first = past.clock.now().date()
    await past.turn("fake:1", 1000, 400, 10)
    await past.turn("fake:2", 5000, 0, 20)
    await past.clock.advance(2 * 86_400)
    await past.turn("fake:1", 100, 0, 5)
    found = await past.figures(30)
    assert len(found["periods"]) == 30
    days = {one["day"]: one for one in found["periods"]}
    assert days[first.isoformat()]["prompt"] == 6000
    assert days[(first + timedelta(days=1)).isoformat()]["turns"] == 0
    assert [(one["session"], one["turns"]) for one in found["chats"]] == [
        ("fake:2", 1),
        ("fake:1", 2),
    ]
    assert found["total"]["cost"] == pytest.approx((5700 * 2 + 400 * 0.5 + 35 * 8) / 1e6)
    assert [one["p50"] for one in found["times"]] == [100, 100]


async def test_a_year_is_shown_by_weeks_from_mondays(past: Past) -> None:
    for _ in range(10):
        await past.turn("fake:1", 10, 0, 1)
        await past.clock.advance(86_400)
    found = await past.figures(365)
    assert found["by"] == "week"
    assert len(found["periods"]) in (53, 54)
    assert sum(one["turns"] for one in found["periods"]) == 10
    assert (await past.figures(90))["by"] == "day"


async def test_the_chats_beyond_twenty_are_put_together_and_no_price_is_no_cost(
    past: Past,
) -> None:
    for number in range(23):
        await past.turn(f"fake:{number}", 100 + number, 0, 1, Prices())
    found = await past.figures(30)
    assert (len(found["chats"]), found["more_chats"], found["others"]["prompt"]) == (20, 3, 303)
    assert found["total"]["cost"] is None
    with pytest.raises(NanobotError, match="30, 90, 365"):
        await past.figures(7)
