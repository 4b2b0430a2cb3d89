"""When Dream runs: at its times, and sooner where much is unread.

The next time counts from the end of the last run, which is remembered; so a time that passed while
the machine was off comes due once, soon after the start. Between times nothing happens at all.

A model that is down is not asked for one scope after the other: a round ends with the first that
could not be served, and whoever failed lets the others go first. The schedule outlives any error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta

from loguru import logger

from nanobot.clock import Clock
from nanobot.memory.dream.dream import Dream
from nanobot.memory.scopes import Memories
from nanobot.tasks import Background

START_DELAY = 60.0
"""Seconds after the start, so that the first messages do not wait for a Dream."""

_LONGEST_WAIT = timedelta(hours=6)
"""Notes of a day become readable at midnight, and clocks are set."""


_PAUSE = timedelta(hours=1)
"""Between runs that do not wait for their time, so that the budget of a run bounds an hour; and at
most so long nobody is served after the model could not be asked."""


@dataclass(frozen=True, slots=True)
class _Wish:
    scope: str
    when: datetime
    trigger: str
    failures: int


class DreamSchedule:
    """`next_due` gives the due time after a moment, None for never again. A scope with
    `max_unread` unread entries is due at once; `nudge` says that there may be one."""

    def __init__(
        self,
        dream: Dream,
        memories: Memories,
        next_due: Callable[[datetime], datetime | None],
        clock: Clock,
        max_unread: int,
        *,
        start_delay: float = START_DELAY,
    ) -> None:
        self._dream = dream
        self._memories = memories
        self._next_due = next_due
        self._clock = clock
        self._max_unread = max_unread
        self._start_delay = start_delay
        self._wake = asyncio.Event()
        self._stopping = False
        self._rest_until: datetime | None = None

    async def run_forever(self) -> None:
        """Run every scope when it is due, one after the other, until `stop`."""
        await self._wait(self._start_delay)
        while not self._stopping:
            nearest = self._clock.now() + _LONGEST_WAIT
            with _surviving("looking for what is due"):
                nearest = min([nearest, *await self._round()])
            await self._wait(max((nearest - self._clock.now()).total_seconds(), 1.0))

    def nudge(self) -> None:
        """There is a new entry."""
        self._wake.set()

    def stop(self) -> None:
        """End after the run under way. Cancelling is safe as well: nothing is lost by it."""
        self._stopping = True
        self._wake.set()

    async def _round(self) -> list[datetime]:
        """Run what is due; return when something may be due again."""
        scopes = await asyncio.to_thread(self._memories.existing)
        wishes = [wish for scope in scopes for wish in await self._wishes(scope)]
        left: list[datetime] = []
        for wish in sorted(wishes, key=lambda wish: wish.failures):
            if self._stopping:
                break
            if self._rested(wish.when) > self._clock.now():
                left.append(wish.when)
            else:
                left += await self._run(wish)
        return [self._rested(when) for when in left]

    async def _run(self, wish: _Wish) -> list[datetime]:
        """Dream for a scope; when it is due again."""
        again: list[_Wish] = []
        with _surviving(wish.scope):
            report = await self._dream.run(wish.scope, trigger=wish.trigger)
            again = await self._wishes(wish.scope)
            if report.is_outage:
                self._rest_until = min([self._clock.now() + _PAUSE, *(one.when for one in again)])
        return [one.when for one in again]

    async def _wishes(self, scope: str) -> list[_Wish]:
        """When `scope` is due, and why; empty where it is not in sight."""
        with _surviving(scope):
            due = await asyncio.to_thread(self._dream.due_from, scope)
            if due.since is None:
                return []
            times = [(when, "schedule")] if (when := self._next_due(due.since)) else []
            if due.unread >= self._max_unread:
                soon = due.last_run + _PAUSE if due.last_run else self._clock.now()
                times.append((soon, "unread"))
            if times:
                when, trigger = min(times)
                when = max(when, due.not_before) if due.not_before else when
                return [_Wish(scope, when, trigger, due.failures)]
        return []

    def _rested(self, when: datetime) -> datetime:
        until = self._rest_until
        if until is None or until > self._clock.now() + _PAUSE:  # the clock was wrong then
            return when
        return max(when, until)

    async def _wait(self, seconds: float) -> None:
        """Until that time, or until someone calls."""
        if self._stopping:
            return
        sleeping = Background()
        sleeping.start(self._sleep(seconds), name="dream schedule")
        try:
            await self._wake.wait()
        finally:
            self._wake.clear()
            sleeping.cancel()
            await sleeping.drain(0.0)

    async def _sleep(self, seconds: float) -> None:
        await self._clock.sleep(seconds)
        self._wake.set()


@contextmanager
def _surviving(what: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # noqa: BLE001 - the boundary: learning goes on another time
        logger.opt(exception=error).error("no Dream ({})", what)
