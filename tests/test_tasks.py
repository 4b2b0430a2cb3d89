"""Background work: registered, drained, with visible failures."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest
from loguru import logger

from nanobot.tasks import Background, is_cancelled, pace


@pytest.fixture
def logged() -> Iterator[list[str]]:
    lines: list[str] = []
    number = logger.add(lines.append, level="WARNING", format="{message}")
    yield lines
    logger.remove(number)


async def fails() -> None:
    raise LookupError("broken")


async def test_a_failure_is_logged_with_the_name_of_the_task(logged: list[str]) -> None:
    background = Background()
    background.start(fails(), name="sweeping")
    await background.drain(5)
    assert "background task sweeping failed" in "".join(logged)
    assert len(background) == 0


async def test_drain_waits_for_work_and_for_the_work_it_starts() -> None:
    background, done = Background(), []

    async def inner() -> None:
        await asyncio.sleep(0)
        done.append("inner")

    async def outer() -> None:
        await asyncio.sleep(0)
        background.start(inner())
        done.append("outer")

    background.start(outer())
    await background.drain(5)
    assert done == ["outer", "inner"]


async def test_drain_cancels_what_outlasts_the_grace() -> None:
    background = Background()
    task = background.start(asyncio.Event().wait())
    await background.drain(0.01)
    assert task.cancelled()
    assert len(background) == 0


async def test_drain_lets_cancelled_work_clean_up() -> None:
    background, cleaned = Background(), asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.set()

    background.start(work())
    await asyncio.sleep(0)
    await background.drain(0)
    assert cleaned.is_set()


async def test_cancel_ends_a_drain_at_once() -> None:
    background = Background()
    background.start(asyncio.Event().wait())
    background.cancel()
    await asyncio.wait_for(background.drain(3600), 5)


async def test_a_task_can_tell_its_own_cancellation_from_one_that_came_out_of_a_future() -> None:
    answers = []

    async def waits(future: asyncio.Future[None]) -> None:
        try:
            await future
        except asyncio.CancelledError:
            answers.append(is_cancelled())

    loop = asyncio.get_running_loop()
    first: asyncio.Future[None] = loop.create_future()
    first.cancel()
    await waits(first)
    task = loop.create_task(waits(loop.create_future()))
    await asyncio.sleep(0)
    task.cancel()
    await task
    assert answers == [False, True]


@pytest.fixture
def busy_thread() -> Iterator[None]:
    """Another thread that always uses the processor."""
    stopping = threading.Event()

    def work() -> None:
        while not stopping.is_set():
            pass

    thread = threading.Thread(target=work)
    thread.start()
    yield
    stopping.set()
    thread.join()


@pytest.mark.usefixtures("busy_thread")
def test_long_work_in_a_thread_gives_way_to_others() -> None:
    pauses: list[float] = []
    items = pace(range(5_000_000), pauses.append)
    next(number for number in items if pauses)
    assert min(pauses) > 0


@pytest.mark.usefixtures("busy_thread")
async def test_work_on_the_event_loop_never_pauses_it() -> None:
    pauses: list[float] = []
    assert list(pace(range(300_000), pauses.append)) == list(range(300_000))
    assert not pauses
