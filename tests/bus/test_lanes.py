"""Lanes: order within a key, independence between keys, a limit for all, and a complete end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from nanobot.agent.session_queue import Lanes
from nanobot.tasks import SCOPES


class Work:
    """Jobs that record when they run and wait for their release."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.ended: list[str] = []
        self.running = 0
        self.most = 0
        self.gates: dict[str, asyncio.Event] = {}

    def job(self, name: str, *, waits: bool = False) -> Callable[[], Awaitable[None]]:
        if waits:
            self.gates[name] = asyncio.Event()

        async def run() -> None:
            self.begun.append(name)
            self.running += 1
            self.most = max(self.most, self.running)
            try:
                if waits:
                    await self.gates[name].wait()
                self.ended.append(name)
            finally:
                self.running -= 1

        return run


async def settle() -> None:
    """Run everything that is ready."""
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.fixture
def work() -> Work:
    return Work()


async def test_one_job_at_a_time_per_key_in_order(work: Work) -> None:
    lanes = Lanes(10)
    for name in ("a1", "a2", "a3"):
        lanes.submit("a", work.job(name, waits=True))
    await settle()
    assert work.begun == ["a1"]
    for name in ("a1", "a2", "a3"):
        work.gates[name].set()
    await lanes.drain(5)
    assert work.ended == ["a1", "a2", "a3"]
    assert work.most == 1


async def test_a_job_works_on_no_scope_of_who_began_its_lane() -> None:
    lanes, seen = Lanes(), list[tuple[str, ...]]()

    async def job() -> None:
        seen.append(SCOPES.get())
        SCOPES.set(("people/fake_7",))

    before = SCOPES.set(("owner",))
    for _ in range(2):
        lanes.submit("a", job)
    SCOPES.reset(before)
    await lanes.drain(5)
    assert seen == [(), ()]


async def test_keys_do_not_wait_for_each_other(work: Work) -> None:
    lanes = Lanes(10)
    lanes.submit("slow", work.job("slow", waits=True))
    lanes.submit("slow", work.job("behind"))
    lanes.submit("quick", work.job("quick"))
    await settle()
    assert work.ended == ["quick"]
    await lanes.drain(0)


async def test_the_limit_holds_over_all_keys(work: Work) -> None:
    lanes = Lanes(2)
    for number in range(6):
        lanes.submit(str(number), work.job(str(number), waits=True))
    await settle()
    assert work.begun == ["0", "1"]
    for number in range(6):
        work.gates[str(number)].set()
    await lanes.drain(5)
    assert work.most == 2
    assert len(work.ended) == 6


async def test_without_a_limit_all_run(work: Work) -> None:
    lanes = Lanes()
    for number in range(300):
        lanes.submit(str(number), work.job(str(number), waits=True))
    await settle()
    assert work.most == 300
    await lanes.drain(0)


async def test_a_lane_is_gone_when_empty_and_comes_back(work: Work) -> None:
    lanes = Lanes(10)
    lanes.submit("a", work.job("1", waits=True))
    lanes.submit("a", work.job("2"))
    await settle()
    assert lanes.count_waiting("a") == 1
    work.gates["1"].set()
    await settle()
    assert lanes.count_waiting("a") == 0
    await asyncio.wait_for(lanes.run("a"), 1)
    lanes.submit("a", work.job("3"))
    await settle()
    assert work.ended == ["1", "2", "3"]


async def test_a_failing_job_does_not_stop_its_lane(work: Work) -> None:
    async def fails() -> None:
        raise LookupError("broken")

    async def is_cancelled_from_inside() -> None:
        inner = asyncio.get_running_loop().create_future()
        inner.cancel()
        await inner

    lanes = Lanes(1)
    lanes.submit("a", fails)
    lanes.submit("a", is_cancelled_from_inside)
    lanes.submit("a", work.job("next"))
    await lanes.drain(5)
    assert work.ended == ["next"]


async def test_drain_waits_for_jobs_and_for_what_they_submit(work: Work) -> None:
    lanes = Lanes(10)

    async def submits() -> None:
        await asyncio.sleep(0)
        lanes.submit("b", work.job("late"))

    lanes.submit("a", submits)
    await lanes.drain(5)
    assert work.ended == ["late"]


async def test_drain_cancels_what_outlasts_the_grace_and_takes_nothing_more(work: Work) -> None:
    lanes = Lanes(10)
    lanes.submit("a", work.job("endless", waits=True))
    lanes.submit("a", work.job("behind"))
    await settle()
    await lanes.drain(0.01)
    lanes.submit("a", work.job("too late"))
    await settle()
    assert (work.begun, work.ended, work.running) == (["endless"], [], 0)
    await asyncio.wait_for(lanes.run("a"), 1)


async def test_cancel_ends_a_drain_at_once(work: Work) -> None:
    lanes = Lanes(10)
    lanes.submit("a", work.job("endless", waits=True))
    await settle()
    draining = asyncio.get_running_loop().create_task(lanes.drain(3600))
    await settle()
    lanes.cancel()
    await asyncio.wait_for(draining, 5)
    assert work.running == 0


async def test_a_job_that_waits_for_a_person_leaves_its_place_to_others(work: Work) -> None:
    lanes, answered = Lanes(1), asyncio.Event()

    async def asks() -> None:
        async with lanes.pausing("a"), lanes.pausing("a"):
            await answered.wait()
        work.begun.append("a goes on")

    lanes.submit("a", asks)
    lanes.submit("b", work.job("b", waits=True))
    await settle()
    assert work.begun == ["b"]
    answered.set()
    await settle()
    assert work.begun == ["b"]
    work.gates["b"].set()
    lanes.submit("c", work.job("c"))
    await lanes.drain(1.0)
    assert work.begun == ["b", "a goes on", "c"]


async def test_a_job_cancelled_while_it_waits_for_a_person_takes_no_place_along(
    work: Work,
) -> None:
    lanes = Lanes(1)

    async def asks() -> None:
        async with lanes.pausing("a"):
            raise ValueError("stopped")

    lanes.submit("a", asks)
    lanes.submit("b", work.job("b", waits=True))
    lanes.submit("c", work.job("c", waits=True))
    await settle()
    assert work.running == 1
    work.gates["b"].set()
    work.gates["c"].set()
    await lanes.drain(1.0)
    assert work.most == 1
