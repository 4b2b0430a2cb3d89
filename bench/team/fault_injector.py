"""The faults of the campaign, spread over its duration: the next one comes after a further share of
the messages was answered."""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from dataclasses import dataclass, field

from bench.team.database import TeamDatabase
from bench.team.talk import Talk
from bench.team.workers import Worker, Workers
from nanobot.team.membership import TTL

KILL, PAUSE, STOP, FAILOVER = "kill", "pause", "stop", "failover"
HANG, CUT, ANSWER = "hang", "cut", "answer"

LABELS = {
    KILL: "workers killed with SIGKILL",
    PAUSE: "workers stopped beyond their lease and continued",
    STOP: "immediate stops of PostgreSQL",
    FAILOVER: "failovers to the standby",
    HANG: "failovers while the primary hung, which came back or not",
    CUT: "times that connections were cut",
    ANSWER: "commits whose answer was cut off",
}
_LOOK_SECONDS = 0.2
_LONGEST_AWAY = 2.5


@dataclass
class FaultInjector:
    """`plan` is the planned number of each fault, and `done` the actual one. `paused` has the
    intervals in which a worker was stopped, and `away` the database's."""

    workers: Workers
    database: TeamDatabase
    talk: Talk
    plan: Mapping[str, int]
    rng: random.Random
    done: Counter[str] = field(default_factory=Counter)
    paused: list[tuple[float, float]] = field(default_factory=list)
    away: list[tuple[float, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._database_is_free = asyncio.Lock()
        self._kinds: dict[str, Callable[[], Coroutine[None, None, None]]] = {
            KILL: self._kill,
            PAUSE: self._pause,
            STOP: self._stop,
            FAILOVER: self._fail_over,
            HANG: self._hang,
            CUT: self._cut,
            ANSWER: self._cut_answer,
        }

    async def run(self) -> None:
        """Cause all faults, until cancelled."""
        faults = [kind for kind, count in self.plan.items() for _ in range(count)]
        self.rng.shuffle(faults)
        async with asyncio.TaskGroup() as group:
            for number, kind in enumerate(faults, 1):
                due = self.talk.total * 0.97 * number / (len(faults) + 1)
                while self.talk.answered < due:  # noqa: ASYNC110 - it is counted, not told
                    await asyncio.sleep(_LOOK_SECONDS)
                group.create_task(self._kinds[kind]())

    async def _worker(self) -> Worker:
        while True:
            if worker := self.workers.idle(self.rng):
                worker.busy = True
                return worker
            await asyncio.sleep(_LOOK_SECONDS)

    async def _kill(self) -> None:
        worker = await self._worker()
        worker.signal(signal.SIGKILL)
        self.done[KILL] += 1
        await asyncio.sleep(0.5)
        await self._again(worker)

    async def _pause(self) -> None:
        worker = await self._worker()
        worker.signal(signal.SIGSTOP)
        began = time.monotonic()
        try:
            await asyncio.sleep(TTL + self.rng.uniform(2.0, 5.0))
        finally:
            worker.signal(signal.SIGCONT)
        self.paused.append((began, time.monotonic()))
        self.done[PAUSE] += 1
        await asyncio.sleep(1.0)
        await self._again(worker)

    async def _again(self, worker: Worker) -> None:
        await self.workers.until_ready(worker)
        worker.busy = False

    async def _stop(self) -> None:
        async with self._database_is_free:
            began = time.monotonic()
            await asyncio.to_thread(self.database.stop)
            try:
                await asyncio.sleep(self.rng.uniform(0.0, _LONGEST_AWAY))
            finally:
                await asyncio.to_thread(self.database.restart)
            self.away.append((began, time.monotonic()))
            self.done[STOP] += 1

    async def _fail_over(self) -> None:
        async with self._attach_standby() as began:
            await asyncio.to_thread(self.database.stop)
            await asyncio.to_thread(self.database.fail_over)
            self.away.append((began, time.monotonic()))
            self.done[FAILOVER] += 1

    async def _hang(self) -> None:
        """Hang the primary during a failover. In half of the cases it continues when the standby
        has taken its place, and is stopped then. It is always stopped in the end."""
        async with self._attach_standby() as began:
            old = self.database.primary
            old.signal(signal.SIGSTOP)
            try:
                await asyncio.sleep(self.rng.uniform(0.0, _LONGEST_AWAY))
                await asyncio.to_thread(self.database.fail_over)
                await asyncio.sleep(self.rng.uniform(0.0, 3 * TTL))
                old.signal(signal.SIGCONT)
                await asyncio.sleep(self.rng.choice((0.0, 2 * TTL)))
            finally:
                old.signal(signal.SIGCONT)
                await asyncio.to_thread(old.stop, signal.SIGQUIT)
            self.away.append((began, time.monotonic()))
            self.done[HANG] += 1

    @contextlib.asynccontextmanager
    async def _attach_standby(self) -> AsyncIterator[float]:
        """Attach a standby, and exclude other faults of the database. Yield the time."""
        async with self._database_is_free:
            if self.database.standby is None:
                await asyncio.to_thread(self.database.attach_standby)
            await asyncio.sleep(1.0)
            yield time.monotonic()

    async def _cut(self) -> None:
        async with self._database_is_free:
            await asyncio.to_thread(self.database.cut, self.rng)
            self.done[CUT] += 1

    async def _cut_answer(self) -> None:
        async with self._database_is_free:
            cut = await self.database.cut_answer()
            self.done[ANSWER] += cut
