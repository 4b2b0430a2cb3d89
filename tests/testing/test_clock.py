"""The clock moved by tests."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from nanobot.testing import FakeClock


async def test_sleepers_wake_in_order_each_at_its_own_time() -> None:
    clock = FakeClock()
    woken: list[tuple[float, float]] = []

    async def sleeper(seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append((seconds, clock.monotonic()))

    async with asyncio.TaskGroup() as group:
        for seconds in (30, 10, 20, 99):
            group.create_task(sleeper(seconds))
        await clock.until_sleeping(4)
        await clock.advance(30)
        assert woken == [(10, 10), (20, 20), (30, 30)]
        assert len(woken) == 3
        await clock.advance(100)
    assert woken[3:] == [(99, 99)]
    assert clock.slept == [30, 10, 20, 99]


async def test_a_loop_that_sleeps_again_is_woken_again_within_one_advance() -> None:
    clock = FakeClock()
    ticks: list[float] = []

    async def ticking() -> None:
        while len(ticks) < 5:
            await clock.sleep(10)
            ticks.append(clock.monotonic())

    async with asyncio.TaskGroup() as group:
        group.create_task(ticking())
        await clock.advance(50)
    assert ticks == [10, 20, 30, 40, 50]


async def test_a_cancelled_sleeper_does_not_hold_up_the_others() -> None:
    clock = FakeClock()
    task = asyncio.get_running_loop().create_task(clock.sleep(5))
    await clock.until_sleeping()
    task.cancel()
    await clock.advance(10)
    assert task.cancelled()
    assert clock.sleeping == 0


async def test_an_automatic_clock_moves_itself() -> None:
    clock = FakeClock(auto=True)
    start = clock.now()
    await clock.sleep(90)
    assert clock.now() - start == timedelta(seconds=90)
    assert clock.monotonic() == 90


async def test_civil_time_keeps_its_zone_over_a_change_to_summer_time() -> None:
    clock = FakeClock(datetime(2026, 3, 29, 1, 30, tzinfo=ZoneInfo("Europe/Berlin")))
    await clock.advance(3600)
    assert clock.now().isoformat() == "2026-03-29T03:30:00+02:00"


async def test_a_jump_moves_civil_time_only_and_wakes_nobody() -> None:
    clock = FakeClock(datetime(2026, 1, 1, tzinfo=UTC))
    task = asyncio.get_running_loop().create_task(clock.sleep(5))
    await clock.until_sleeping()
    clock.jump(-3600)
    assert clock.now() == datetime(2025, 12, 31, 23, tzinfo=UTC)
    assert clock.monotonic() == 0
    assert clock.sleeping == 1
    await clock.advance(5)
    await task


def test_a_start_without_a_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="aware"):
        FakeClock(datetime(2026, 1, 1))  # noqa: DTZ001
