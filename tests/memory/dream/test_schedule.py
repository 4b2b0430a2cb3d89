"""When a Dream runs by itself: at its times, sooner if much is unread, and never for nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

from nanobot.errors import ProviderUnavailable
from nanobot.memory.dream import Dream, DreamSchedule
from nanobot.memory.scopes import Memories
from nanobot.security.paths import Root
from nanobot.tasks import Background
from nanobot.testing import fails
from nanobot.testing.model import Line
from tests.memory.dream.support import World, finds

HOUR = 3_600.0


def daily(moment: datetime) -> datetime:
    return moment + timedelta(days=1)


@asynccontextmanager
async def running(world: World, dream: Dream, max_unread: int = 20) -> AsyncIterator[DreamSchedule]:
    schedule = DreamSchedule(dream, world.memories, daily, world.clock, max_unread)
    tasks = Background()
    tasks.start(schedule.run_forever())
    await world.clock.until_sleeping()
    yield schedule
    schedule.stop()
    await tasks.wait(5.0)
    assert len(tasks) == 0


class CountingDream:
    """A Dream that counts its requests to the model."""

    def __init__(self, world: World, *script: Line, **limits: Any) -> None:
        self._world = world
        self._questions: asyncio.Queue[None] = asyncio.Queue()
        self.dream, self.model = world.dream(
            *script, author=lambda _: finds(), hold=self._hear, **limits
        )

    async def passes(self, hours: float, *, asked: int) -> None:
        """Advance the time. Check that so many more requests were made."""
        await self._world.clock.advance(hours * HOUR)
        for _ in range(asked):
            await self._questions.get()
        await self._world.clock.until_sleeping()
        assert self._questions.empty()

    async def _hear(self) -> None:
        self._questions.put_nowait(None)


async def test_a_scope_is_read_a_day_after_its_first_entry_and_then_daily(world: World) -> None:
    world.remembers("One.")
    watched = CountingDream(world)
    async with running(world, watched.dream):
        await watched.passes(23, asked=0)
        await watched.passes(1.1, asked=1)
        world.remembers("Two.")
        await watched.passes(20, asked=0)
        await watched.passes(5, asked=1)


async def test_a_time_that_passed_while_it_was_off_comes_due_once_soon_after_the_start(
    world: World,
) -> None:
    world.remembers("One.")
    world.clock.jump(5 * 24 * HOUR)
    watched = CountingDream(world)
    async with running(world, watched.dream):
        assert watched.model.prompts == []
        await watched.passes(0.1, asked=1)
        await watched.passes(20, asked=0)


async def test_much_that_is_unread_is_read_at_once(world: World) -> None:
    watched = CountingDream(world)
    async with running(world, watched.dream, max_unread=2) as schedule:
        await watched.passes(0.1, asked=0)
        world.remembers("One.")
        schedule.wake()
        await watched.passes(0.01, asked=0)
        world.remembers("Two.")
        schedule.wake()
        await watched.passes(0.01, asked=1)
        assert watched.dream.unread("owner") == 0


async def test_a_clock_that_was_a_year_ahead_silences_nothing(world: World) -> None:
    world.clock.jump(365 * 24 * HOUR)
    world.remembers("One.")
    dream, _ = world.dream(author=lambda _: finds())
    await dream.run("owner")
    world.remembers("Two.")
    world.clock.jump(-365 * 24 * HOUR)
    watched = CountingDream(world)
    async with running(world, watched.dream):
        await watched.passes(0.1, asked=1)
        world.remembers("Three.")
        await watched.passes(20, asked=0)
        await watched.passes(5, asked=1)


async def test_a_failure_while_the_clock_was_ahead_is_waited_out_no_longer_than_any(
    world: World,
) -> None:
    world.remembers("One.")
    world.clock.jump(365 * 24 * HOUR)
    watched = CountingDream(world, fails(ProviderUnavailable("down")))
    async with running(world, watched.dream) as schedule:
        await watched.passes(0.02, asked=1)
        world.clock.jump(-365 * 24 * HOUR)
        world.clock.jump(24 * HOUR)
        schedule.wake()
        await watched.passes(0.02, asked=1)


async def test_a_run_that_failed_is_not_hammered(world: World) -> None:
    world.remembers("One.")
    world.clock.jump(2 * 24 * HOUR)
    watched = CountingDream(world, fails(ProviderUnavailable("down")))
    async with running(world, watched.dream, max_unread=1) as schedule:
        await watched.passes(0.02, asked=1)
        schedule.wake()
        await watched.passes(0.1, asked=0)
        await watched.passes(0.1, asked=1)


async def test_every_scope_has_its_turn(world: World) -> None:
    world.remembers("One.")
    world.remembers("Two.", scope="people/telegram_7", session="telegram:7")
    world.clock.jump(2 * 24 * HOUR)
    watched = CountingDream(world)
    async with running(world, watched.dream):
        await watched.passes(0.1, asked=2)
    assert watched.dream.unread("owner") == watched.dream.unread("people/telegram_7") == 0


async def test_with_nothing_to_read_it_only_sleeps(world: World) -> None:
    watched = CountingDream(world)
    async with running(world, watched.dream):
        before = len(world.clock.slept)
        await world.clock.advance(24 * HOUR)
        assert len(world.clock.slept) - before <= 6
    assert watched.model.prompts == []


async def test_much_that_is_unread_at_the_start_is_read_soon_after_it(world: World) -> None:
    world.remembers("One.")
    world.remembers("Two.")
    watched = CountingDream(world)
    async with running(world, watched.dream, max_unread=2):
        await watched.passes(0.02, asked=1)


async def test_a_run_for_much_that_is_unread_is_tried_again_when_it_failed(world: World) -> None:
    watched = CountingDream(world, fails(ProviderUnavailable("down")))
    async with running(world, watched.dream, max_unread=1) as schedule:
        await watched.passes(0.02, asked=0)
        world.remembers("One.")
        schedule.wake()
        await watched.passes(0.01, asked=1)
        await watched.passes(0.1, asked=0)
        await watched.passes(0.1, asked=1)
    assert watched.dream.unread("owner") == 0


async def test_what_a_run_had_no_budget_for_waits_an_hour(world: World) -> None:
    for number in range(6):
        world.remembers(f"Number {number}.")
    watched = CountingDream(world, batch=2, max_calls=2)
    async with running(world, watched.dream, max_unread=2):
        await watched.passes(0.02, asked=2)
        await watched.passes(0.9, asked=0)
        await watched.passes(0.1, asked=1)


async def test_notes_of_past_days_are_read_without_any_new_entry(world: World) -> None:
    world.write("memory/2026-03-10.md", "# 2026-03-10\n\n- 10:00 bought paint\n")
    watched = CountingDream(world)
    async with running(world, watched.dream):
        await watched.passes(0.1, asked=0)
        await watched.passes(12.1, asked=1)
        await watched.passes(48, asked=0)


async def test_a_model_that_is_down_is_not_asked_once_for_each_scope(world: World) -> None:
    scopes = [f"people/telegram_{number}" for number in range(4)]
    for scope in scopes:
        world.remembers("One.", scope=scope)
    world.clock.jump(2 * 24 * HOUR)
    watched = CountingDream(world, *[fails(ProviderUnavailable("down"))] * 2)
    async with running(world, watched.dream):
        await watched.passes(0.02, asked=1)
        await watched.passes(0.1, asked=0)
        await watched.passes(0.1, asked=1)
        await watched.passes(0.2, asked=0)
        await watched.passes(0.2, asked=4)
    assert not any(watched.dream.unread(scope) for scope in scopes)


async def test_the_schedule_outlives_an_unexpected_error(world: World) -> None:
    world.remembers("One.")

    class Breaking(Memories):
        broken = 2

        def list_scopes(self) -> list[str]:
            Breaking.broken -= 1
            if Breaking.broken > 0:
                raise KeyError("something that no code expects")
            return super().list_scopes()

    world.memories = Breaking(Root(world.workspace), world.workspace.parent / "state", world.clock)
    world.clock.jump(2 * 24 * HOUR)
    watched = CountingDream(world)
    async with running(world, watched.dream):
        await watched.passes(0.02, asked=0)
        await watched.passes(6.1, asked=1)
