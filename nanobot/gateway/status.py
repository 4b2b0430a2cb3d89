"""How a nanobot is, for `nanobot status`, `/status`, `/health` and `/metrics`: one answer for all.

Where a gateway runs it is asked; where none does, the files tell what they can.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol, TypeVar

from nanobot.bus.sqlite_reports import QueueCounts, learning_usage, queue_counts, turn_counts, usage
from nanobot.clock import Clock
from nanobot.gateway.figures import process_figures, sizes
from nanobot.gateway.health import Health
from nanobot.gateway.report import About, Report, SinceStart, Today, Work
from nanobot.gateway.supervisor import ChannelState
from nanobot.gateway.tally import Tally
from nanobot.gateway.vitals import Vitals
from nanobot.providers.prices import Prices
from nanobot.session.manager import SessionManager

T = TypeVar("T")

_SIZES_SECONDS = 60.0
"""For so long the sizes of a home hold: they take a look at every file."""


class Reader(Protocol):
    """Runs a function of the journal's connection, in a transaction."""

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Its result, once durable."""
        ...


@dataclass(frozen=True, slots=True)
class Live:
    """What only a running gateway knows. `logged` counts the errors and the warnings in its log."""

    born: float
    turns_running: Callable[[], int]
    channels: Callable[[], Iterable[ChannelState]]
    vitals: Vitals
    tally: Tally
    logged: Callable[[], tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Brief:
    """The little of it that goes into a chat."""

    uptime_seconds: int
    turns_running: int
    queue: QueueCounts
    health: Health


class Status:
    """The status of one home; `live` is None where no gateway runs."""

    def __init__(
        self,
        about: About,
        reader: Reader,
        sessions: SessionManager,
        prices: Prices,
        clock: Clock,
        live: Live | None,
    ) -> None:
        self._about, self._reader, self._sessions = about, reader, sessions
        self._prices, self._clock, self._live = prices, clock, live
        self._sizes: Mapping[str, int] = {}
        self._sizes_until = -1.0

    def table(self) -> Mapping[str, Callable[[Mapping[str, object]], Awaitable[object]]]:
        """The operation, as it is called over the socket."""
        return {"status": self.status}

    async def status(self, _: Mapping[str, object]) -> dict[str, object]:
        """All of it, for programs. Returns within seconds, whatever hangs."""
        return (await self.report()).as_json()

    async def report(self) -> Report:
        """All of it. Returns within seconds, whatever hangs."""
        look = await self._live.vitals.look() if self._live else None
        answers = look is None or look.journal_answers
        queue = look.queue if look else QueueCounts()
        return Report(
            self._about,
            work=_work(self._live, look.health, self._clock) if self._live and look else None,
            journal_answers=answers,
            queue=await self._reader.run(queue_counts) if answers else queue,
            today=await self._reader.run(self._today) if answers else None,
            sessions=len(await asyncio.to_thread(self._sessions.list_sessions)),
            sizes=await self._sizes_now(),
        )

    async def brief(self) -> Brief:
        """The least of it, while a gateway runs."""
        assert self._live is not None
        look = await self._live.vitals.look()
        uptime = round(self._clock.monotonic() - self._live.born)
        return Brief(uptime, self._live.turns_running(), look.queue, look.health)

    def _today(self, db: sqlite3.Connection) -> Today:
        midnight = _midnight(self._clock.now())
        turns, memory = usage(db, since=midnight), learning_usage(db, midnight.date())
        cost = self._prices.cost(
            prompt=turns.prompt + memory.prompt,
            cached=turns.cached + memory.cached,
            completion=turns.completion + memory.completion,
        )
        return Today(
            turn_counts(db, midnight),
            prompt_tokens=turns.prompt,
            cached_tokens=turns.cached,
            completion_tokens=turns.completion,
            memory_tokens=memory.prompt + memory.completion,
            cost=cost,
        )

    async def _sizes_now(self) -> Mapping[str, int]:
        if self._clock.monotonic() >= self._sizes_until:
            self._sizes = await asyncio.to_thread(sizes, Path(self._about.home))
            self._sizes_until = self._clock.monotonic() + _SIZES_SECONDS
        return self._sizes


def _work(live: Live, health: Health, clock: Clock) -> Work:
    now, tally = clock.monotonic(), live.tally
    errors, warnings = live.logged()
    return Work(
        pid=os.getpid(),
        uptime_seconds=round(now - live.born),
        health=health,
        turns_running=live.turns_running(),
        channels=tuple(state.seen(now) for state in live.channels()),
        since_start=SinceStart(
            dict(tally.turns), tally.prompt_tokens, tally.completion_tokens, errors, warnings
        ),
        process=process_figures(),
    )


def _midnight(now: datetime) -> datetime:
    return now.replace(hour=0, minute=0, second=0, microsecond=0)
