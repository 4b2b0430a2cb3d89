"""An adapter's reports and pauses: once per problem, a few warnings an hour."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from nanobot.channel.health import HealthReporter
from nanobot.clock import Backoff, with_timeout
from nanobot.testing.clock import FakeClock
from tests.channels.telegram.support import RecordingHost, WatchedClock


def test_a_problem_is_reported_once_and_so_is_its_end(tmp_path: Path) -> None:
    host = RecordingHost(tmp_path, FakeClock())
    health = HealthReporter("telegram", host)
    health.resolve("connection")
    for text in ("no network", "no network", "logged out"):
        health.report("connection", text)
        assert health.problems == text
    health.resolve("connection")
    health.resolve("connection")
    assert host.reports == ["no network", "logged out", ""]


def test_problems_with_different_causes_come_and_go_independently(tmp_path: Path) -> None:
    host = RecordingHost(tmp_path, FakeClock())
    health = HealthReporter("telegram", host)
    health.report("connection", "no network")
    health.report("disk", "no space")
    health.resolve("connection")
    health.resolve("disk")
    assert host.reports == ["no network", "no network; no space", "no space", ""]


def test_pauses_double_up_to_a_limit_and_are_never_shorter_than_asked_for() -> None:
    backoff = Backoff(FakeClock(), longest=5.0)
    assert [backoff.next() for _ in range(5)] == [1.0, 2.0, 4.0, 5.0, 5.0]
    assert backoff.next(at_least=7.0) == 7.0
    backoff.reset()
    assert backoff.next() == 1.0


async def test_work_beyond_its_deadline_is_cancelled_and_what_it_raises_comes_through() -> None:
    clock, never = WatchedClock(), asyncio.Event()
    late = asyncio.create_task(with_timeout(clock, 5.0, never.wait()))
    await clock.until_asked(5.0)
    await clock.advance(5.0)
    with pytest.raises(TimeoutError):
        await late

    async def fail() -> None:
        raise LookupError("nothing there")

    with pytest.raises(LookupError, match="nothing there"):
        await with_timeout(clock, 5.0, fail())


async def test_a_cancellation_is_not_lost_where_the_work_fails_at_that_moment() -> None:
    clock, failing = WatchedClock(), asyncio.get_running_loop().create_future()

    async def work() -> None:
        await failing

    waiting = asyncio.create_task(with_timeout(clock, 5.0, work()))
    await clock.until_asked(5.0)
    failing.set_exception(LookupError("nothing there"))
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
