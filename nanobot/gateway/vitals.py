"""Looking at a gateway that runs: its health, without ever waiting for what hangs."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from nanobot.bus.sqlite_reports import QueueCounts, queue_counts
from nanobot.clock import Clock
from nanobot.errors import StorageError
from nanobot.gateway.health import Concern, Health, JournalSeen, judge
from nanobot.gateway.supervisor import ChannelState
from nanobot.tasks import Background

T = TypeVar("T")

_PATIENCE = 3.0
"""Seconds that a look waits for the journal, which otherwise answers in one of them a thousand
times."""


class JournalDatabase(Protocol):
    """The journal's database."""

    @property
    def refusal(self) -> str:
        """Why the disk took nothing the last time that there was something to write, if so."""
        ...

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """The result of `work` in a transaction."""
        ...


@dataclass(frozen=True, slots=True)
class Look:
    """What was seen; `queue` is as of the last time that the journal answered."""

    health: Health
    queue: QueueCounts
    journal_answers: bool


class Vitals:
    """`others` tell what else is wrong, each with one concern at most."""

    def __init__(
        self,
        channels: Callable[[], Iterable[ChannelState]],
        database: JournalDatabase,
        clock: Clock,
        background: Background,
        others: Sequence[Callable[[], Concern | None]] = (),
    ) -> None:
        self._channels, self._database, self._clock = channels, database, clock
        self._background, self._others = background, others
        self._asking: asyncio.Task[QueueCounts] | None = None
        self._asked_at = 0.0
        self._queue = QueueCounts()

    async def look(self) -> Look:
        """How things stand now. Returns within seconds, whatever hangs."""
        journal = await self._ask_journal()
        concerns = [concern for other in self._others if (concern := other()) is not None]
        channels = list(self._channels())
        health = judge(channels, self._clock.monotonic(), journal, self._queue, concerns)
        return Look(health, self._queue, not journal.waiting and not journal.refusal)

    async def _ask_journal(self) -> JournalSeen:
        if self._asking is None:
            self._asked_at = self._clock.monotonic()
            counting = self._database.run(queue_counts)
            self._asking = self._background.start(counting, name="look at the journal")
        asking = self._asking
        alarm = self._background.start(self._clock.sleep(_PATIENCE), name="look no longer")
        await asyncio.wait((asking, alarm), return_when=asyncio.FIRST_COMPLETED)
        alarm.cancel()
        if not asking.done():
            return JournalSeen(waiting=self._clock.monotonic() - self._asked_at)
        if self._asking is asking:
            self._asking = None
        try:
            self._queue = asking.result()
        except StorageError as error:
            return JournalSeen(refusal=str(error))
        return JournalSeen(refusal=self._database.refusal)
