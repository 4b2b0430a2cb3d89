"""Budgets: no call beyond the day's tokens, a warning before that, and no model call for a
flood."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

import pytest
from msgspec.structs import replace

from nanobot.agent.notifier import failure_text
from nanobot.agent.runner import AgentRunner
from nanobot.bus.events import InboundMessage, Initiator, Origin
from nanobot.bus.journal import Spent
from nanobot.bus.sql_journal import Journal
from nanobot.bus.sqlite_journal import SqliteJournal
from nanobot.errors import BudgetSpent, ProviderUnavailable
from nanobot.gateway.channels import SenderRateLimit
from nanobot.providers.counter import BudgetedProvider, DayBudget, DayLimit
from nanobot.providers.port import CallOptions, Prompt, Toolset, Usage, user_message
from nanobot.tasks import Background
from nanobot.testing import FakeClock, ScriptedModel, calls, fails, says
from nanobot.tooling import TurnContext
from nanobot.tooling.registry import ToolRegistry
from tests.support import Probe

NO_TOOLS = Toolset.of(())
NUMBERS = count()
EVENING = datetime(2026, 11, 21, 23, 0, tzinfo=UTC)


def asking(tokens: int) -> Prompt:
    return Prompt((user_message("hi"),), NO_TOOLS, tokens)


@dataclass
class LimitsKit:
    """A budget on a real journal, and the warnings to its owner."""

    journal: Journal
    clock: FakeClock
    background: Background = field(default_factory=Background)
    told: list[str] = field(default_factory=list)

    def budget(self, tokens: int, warn_at: float = 0.8) -> DayBudget:
        return DayBudget(
            DayLimit(tokens, warn_at), self.journal, self.clock, self.background, self.tell
        )

    def model(self, budget: DayBudget, *used: tuple[int, int]) -> tuple[ScriptedModel, Ask]:
        lines = [says("ok", usage=Usage(prompt, completion)) for prompt, completion in used]
        scripted = ScriptedModel(*lines)
        return scripted, Ask(BudgetedProvider(scripted, budget))

    async def tell(self, text: str) -> None:
        self.told.append(text)


@dataclass
class Ask:
    provider: BudgetedProvider

    async def __call__(self, tokens: int) -> str:
        return (await self.provider.complete(asking(tokens), CallOptions())).text


@pytest.fixture
async def kit(tmp_path: Path) -> AsyncIterator[LimitsKit]:
    journal = SqliteJournal(tmp_path / "journal.db", clock := FakeClock(EVENING))
    await journal.open()
    yield LimitsKit(journal, clock)
    await journal.close()


async def test_no_call_begins_that_would_take_the_day_over_its_limit(kit: LimitsKit) -> None:
    model, ask = kit.model(kit.budget(1_000), (400, 50), (500, 50))
    await ask(400)
    await ask(500)
    with pytest.raises(BudgetSpent, match="today's 1,000 tokens have been used up"):
        await ask(1)
    assert len(model.prompts) == 2


async def test_calls_at_the_same_time_share_what_is_left(kit: LimitsKit) -> None:
    go = asyncio.Event()
    scripted = ScriptedModel(author=lambda _: says("ok", usage=Usage(400, 0)), hold=go.wait)
    ask = Ask(BudgetedProvider(scripted, kit.budget(1_000)))
    asked = [asyncio.ensure_future(ask(400)) for _ in range(5)]
    await asyncio.wait(asked[2:])
    go.set()
    outcomes = await asyncio.gather(*asked, return_exceptions=True)
    assert [isinstance(outcome, BudgetSpent) for outcome in outcomes] == [False] * 2 + [True] * 3


async def test_a_call_that_failed_gives_back_what_was_set_aside_for_it(kit: LimitsKit) -> None:
    scripted = ScriptedModel(fails(ProviderUnavailable("down")), says("ok", usage=Usage(900, 0)))
    ask = Ask(BudgetedProvider(scripted, kit.budget(1_000)))
    with pytest.raises(ProviderUnavailable):
        await ask(900)
    assert await ask(900) == "ok"


async def test_a_new_day_has_new_tokens(kit: LimitsKit) -> None:
    _, ask = kit.model(kit.budget(1_000), (900, 0), (900, 0))
    await ask(900)
    with pytest.raises(BudgetSpent):
        await ask(900)
    await kit.clock.advance(3_600)
    assert await ask(900) == "ok"


async def test_a_restart_forgets_nothing_that_was_used(kit: LimitsKit) -> None:
    _, before = kit.model(kit.budget(1_000, 0.5), (500, 100))
    await before(500)
    await kit.background.drain(5)
    assert await kit.journal.day_tokens(EVENING.date()) == Spent(600, warned=True)
    _, after = kit.model(kit.budget(1_000, 0.5), (300, 0))
    with pytest.raises(BudgetSpent):
        await after(500)
    await after(300)
    assert len(kit.told) == 1


async def test_the_owner_is_warned_once_before_the_end(kit: LimitsKit) -> None:
    _, ask = kit.model(kit.budget(1_000), (700, 0), (100, 0), (100, 0))
    await ask(700)
    await kit.background.drain(5)
    assert kit.told == []
    await ask(100)
    await ask(100)
    await kit.background.drain(5)
    (text,) = kit.told
    assert text.startswith("800 of today's 1,000 tokens")


async def test_a_server_that_counts_nothing_is_counted_for(kit: LimitsKit) -> None:
    _, ask = kit.model(kit.budget(1_000), (0, 0))
    await ask(600)
    assert (await kit.journal.day_tokens(EVENING.date())).tokens > 600


async def test_a_spent_use_refuses_that_use_and_no_other(kit: LimitsKit) -> None:
    model = ScriptedModel(author=lambda _: says("ok", usage=Usage(400, 0)))

    def provider() -> BudgetedProvider:
        jobs = DayLimit(1_000, 0.8, "jobs")
        budget = DayBudget(jobs, kit.journal, kit.clock, kit.background, kit.tell)
        return BudgetedProvider(model, kit.budget(2_000, 1.0), {"jobs": budget})

    before = provider()
    for _ in range(2):
        await before.complete(asking(400), CallOptions(use="jobs"))
    await kit.background.drain(5)
    assert kit.told == [
        "800 of today's 1,000 tokens for jobs (limits.uses.jobs) have been used. At the limit,"
        " only jobs will stop until tomorrow."
    ]
    after = provider()  # as after a restart
    with pytest.raises(BudgetSpent) as spent:
        await after.complete(asking(400), CallOptions(use="jobs"))
    assert str(spent.value) == "today's 1,000 tokens for jobs have been used up"
    assert "limits.uses.jobs" in spent.value.hint
    for _ in range(3):  # a rejected call reserves no tokens
        await after.complete(asking(400), CallOptions())
    with pytest.raises(BudgetSpent, match="today's 2,000 tokens"):
        await after.complete(asking(400), CallOptions())


async def test_without_a_limit_nothing_is_counted(kit: LimitsKit) -> None:
    _, ask = kit.model(kit.budget(0), (10**9, 0))
    await ask(10**9)
    assert await kit.journal.day_tokens(EVENING.date()) == Spent()


def test_a_spent_budget_ends_the_turn_with_what_to_do() -> None:
    error = BudgetSpent(5_000)
    assert failure_text(error, is_owner=True) == (
        "I cannot answer: today's 5,000 tokens have been used up. More tokens are available"
        " tomorrow. To change the limit, set limits.tokens_per_day in config.yaml. Then send /retry"
        " to try again."
    )


async def test_a_turn_that_has_used_its_tokens_answers_with_what_it_has() -> None:
    step = calls("probe", text="a")
    step = type(step)(step.text, step.tool_calls, Usage(500, 100), step.finish)
    model = ScriptedModel(step, step, says("this far"))
    registry = ToolRegistry()
    registry.register(Probe())
    runner = AgentRunner(model, registry, FakeClock(), max_tokens=1_000)
    start = Prompt((user_message("go on and on"),), Toolset.of(registry.specs()))
    turn = await runner.run(start, TurnContext("test", "1", "test:1", "t-1"))
    assert turn.text == "this far"
    assert "the limit of 1,000 tokens for one turn" in model.prompts[-1].messages[-1].text
    assert model.options[-1].tool_choice == "none"


def message(
    sender: str = "7", channel: str = "telegram", by: Initiator = "person"
) -> InboundMessage:
    return InboundMessage(
        channel, "1", sender, "hi", f"e{next(NUMBERS)}", EVENING, origin=Origin(by)
    )


def rate(per_minute: int) -> SenderRateLimit:
    return SenderRateLimit(per_minute, lambda inbound: inbound.sender_id == "owner")


async def test_a_flood_is_turned_away_and_told_so_once_a_minute() -> None:
    limit = rate(3)
    flood = [message() for _ in range(6)]
    verdicts = ["accept", "accept", "accept", "notify", "drop", "drop"]
    assert [await limit.check(one) for one in flood] == verdicts
    assert [await limit.check(one) for one in flood] == verdicts  # delivered again, counted once
    later = replace(message(), timestamp=EVENING + timedelta(minutes=1))
    assert await limit.check(later) == "accept"
    assert await limit.check(replace(flood[0], chat_id="2")) == "drop"


async def test_what_was_written_over_hours_and_comes_at_once_is_not_too_much() -> None:
    limit = rate(2)
    written = [EVENING + timedelta(seconds=seconds) for seconds in (0, 40, 60, 100, 110)]
    backlog = [replace(message(), timestamp=at) for at in written]
    assert [await limit.check(each) for each in backlog] == [*["accept"] * 4, "notify"]


async def test_one_persons_flood_is_nobody_elses() -> None:
    limit = rate(1)
    assert [await limit.check(message("7")) for _ in range(2)] == ["accept", "notify"]
    assert await limit.check(message("8")) == "accept"
    assert await limit.check(message("7", "whatsapp")) == "accept"


@pytest.mark.parametrize("by", ["job", "heartbeat"])
async def test_the_owner_and_what_nanobot_begins_itself_are_never_turned_away(
    by: Initiator,
) -> None:
    limit = rate(1)
    assert {await limit.check(message("owner")) for _ in range(9)} == {"accept"}
    assert {await limit.check(message(by=by)) for _ in range(9)} == {"accept"}


async def test_without_a_limit_everyone_may_send_any_number() -> None:
    limit = rate(0)
    assert {await limit.check(message()) for _ in range(99)} == {"accept"}


async def test_those_kept_in_mind_are_bounded_and_the_one_who_floods_stays_among_them() -> None:
    limit = rate(1)
    await limit.check(message("flood"))
    for number in range(25_000):
        await limit.check(message(str(number)))
        if number % 5_000 == 0:
            assert await limit.check(message("flood")) != "accept"
