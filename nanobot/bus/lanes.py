"""Order by structure: one lane per key, each running one job at a time, many lanes at once.

A lane is a queue and a worker. It comes into being with its first job and is gone when empty, so
there is nothing to clean up and no dict of locks to get wrong.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from loguru import logger

from nanobot.tasks import Background, is_cancelled

Job = Callable[[], Awaitable[None]]


class Lanes:
    """Runs jobs in order within a key. At most `limit` run at once over all keys (0: any number,
    for jobs that mostly wait)."""

    def __init__(self, limit: int = 0) -> None:
        self._slots = asyncio.Semaphore(limit) if limit else None
        self._holding: set[str] = set()
        self._waiting: dict[str, deque[Job]] = {}
        self._workers = Background()
        self._closed = False

    def submit(self, key: str, job: Job) -> None:
        """Run `job` after those submitted for `key` before it. A failing job is logged; one that
        comes when the grace of `drain` is over is not run."""
        if self._closed:
            return
        lane = self._waiting.get(key)
        if lane is not None:
            lane.append(job)
            return
        self._waiting[key] = deque((job,))
        self._workers.start(self._work(key), name=f"lane {key}")

    async def wait(self, grace: float) -> None:
        """Wait up to `grace` seconds for the jobs under way and those behind them."""
        await self._workers.wait(grace)

    async def drain(self, grace: float) -> None:
        """Wait up to `grace` seconds for the jobs under way and those behind them, then cancel."""
        await self.wait(grace)
        self._closed = True
        await self._workers.drain(0)
        self._waiting.clear()

    def cancel(self) -> None:
        """Do not wait any longer in `drain`."""
        self._closed = True
        self._workers.cancel()

    def waiting(self, key: str) -> int:
        """How many jobs of a key have not begun."""
        return len(self._waiting.get(key, ()))

    def is_active(self, key: str) -> bool:
        """Whether a key has jobs, waiting or under way."""
        return key in self._waiting

    @asynccontextmanager
    async def pausing(self, key: str) -> AsyncIterator[None]:
        """For the job of `key` that runs: while inside it waits for a person, and another lane's
        job may run in its place."""
        self._release(key)
        try:
            yield
        finally:
            await self._acquire(key)

    async def _work(self, key: str) -> None:
        lane = self._waiting[key]
        try:
            with logger.contextualize(turn=""):  # of the turn that began the lane, nothing sticks
                await self._work_off(key, lane)
        finally:
            self._waiting.pop(key, None)

    async def _work_off(self, key: str, lane: deque[Job]) -> None:
        while lane:
            await self._acquire(key)
            try:
                await self._run(key, lane.popleft())
            finally:
                self._release(key)

    async def _acquire(self, key: str) -> None:
        if self._slots is not None and key not in self._holding:
            await self._slots.acquire()
            if key in self._holding:  # another pause of the same job ended meanwhile
                self._slots.release()
            self._holding.add(key)

    def _release(self, key: str) -> None:
        """Give the slot of `key` back, where it has one: who is cancelled in a pause has none."""
        if self._slots is not None and key in self._holding:
            self._holding.discard(key)
            self._slots.release()

    async def _run(self, key: str, job: Job) -> None:
        try:
            await job()
        except asyncio.CancelledError as error:
            if is_cancelled():
                raise
            logger.opt(exception=error).error("a job of lane {} was cancelled from inside", key)
        except Exception as error:  # noqa: BLE001 - the boundary: a lane outlives its jobs
            logger.opt(exception=error).error("a job of lane {} failed", key)
