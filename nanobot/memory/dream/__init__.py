"""Dream turns history entries and daily notes into lasting facts. `DreamSchedule` decides when.

A run (`run`) reads the new entries in batches (`entries`). For each batch the model first extracts
facts, of which code selects possible memories (`extraction`), then proposes edits, of which code
decides what they may change (`integration`). The plan is stored before any of it is written
(`state`). The model never writes a file, and its answers are checked against the raw messages: it
may repeat instructions of a web page.

Invariants, whatever the model answers and wherever the process dies: an entry is either read and
its facts are stored (or need the owner's approval), or it is read again. Nothing is learned twice.
The limits of a run hold. A scope's memory is made only from that scope's entries. Facts that are
forgotten while it thinks are not written."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta
from functools import partial

from loguru import logger

from nanobot.bus.state import StateStore
from nanobot.clock import Clock, pause_after, with_timeout
from nanobot.errors import NanobotError, ProviderError, ProviderRejected
from nanobot.memory.dream.entries import Reader, ReadMessages
from nanobot.memory.dream.state import DreamLimits, DreamReport, DreamState
from nanobot.memory.scopes import OWNER, Memories, Memory
from nanobot.providers.port import Provider
from nanobot.tasks import logging_errors

__all__ = ["Dream", "DreamLimits", "DreamReport", "DreamSchedule"]

OnDigest = Callable[[DreamReport], Awaitable[None]]
OnFailures = Callable[[str], Awaitable[None]]
NextDue = Callable[[datetime], datetime | None]
"""Returns the due time after a moment, or None for never again."""

_FIRST_PAUSE, _LONGEST_PAUSE = 600.0, timedelta(days=1)
_NOTIFY_AFTER = 3
"""Failures in a row after which the owner is notified."""

START_DELAY = 60.0
"""Seconds after the start, so that the first messages do not wait for a Dream."""

_LONGEST_WAIT = timedelta(hours=6)
"""Notes of a day become readable at midnight, and clocks are set."""

_PAUSE = timedelta(hours=1)
"""Pause between runs that start early, so that a run's budget limits an hour."""

_EVERYONE = ""
"""The scope of a failure to reach the model."""


class Dream:
    """Dream for all scopes, one run at a time.

    `read_messages` reads raw messages. `state` stores the runs. `on_digest` is awaited after an
    unrequested run of the owner's scope that learned something. Others get no unrequested messages.
    `on_failures` is awaited with a text for the owner after three failures in a row, which are
    counted in this process only."""

    def __init__(
        self,
        *,
        provider: Provider,
        memories: Memories,
        clock: Clock,
        read_messages: ReadMessages,
        state: StateStore,
        limits: DreamLimits | None = None,
        on_digest: OnDigest | None = None,
        on_failures: OnFailures | None = None,
    ) -> None:
        self._provider, self._memories, self._clock = provider, memories, clock
        self._read_messages, self._state = read_messages, DreamState(state)
        self._limits = limits or DreamLimits()
        self._on_digest, self._on_failures = on_digest, on_failures
        self._running = asyncio.Lock()
        self._failures: dict[str, tuple[int, datetime]] = {}
        self._problem = ""

    def unread(self, scope: str) -> int:
        """Return the number of unread history entries of `scope`. Blocks."""
        reader = Reader(self._memories.of(scope), self._read_messages, self._clock.now())
        self._state.load()
        return sum(key.isdecimal() for key in reader.unread_keys(self._state.of(scope)))

    def next_run(self, scope: str, next_due: NextDue, max_unread: int) -> datetime | None:
        """Return when `scope` is due, or None if there is nothing to read.

        `next_due` counts from the end of the last run, which is stored, or from the first entry. So
        a time that passed while the machine was off comes due once, soon after the start.
        `max_unread` entries make it due sooner. A pause after failures ends first, ten minutes at
        first and a day at most. Times that a wrong clock put far in the future count as unknown.
        Blocks."""
        self._state.load()
        memory, state, now = self._memories.of(scope), self._state.of(scope), self._clock.now()
        reader = Reader(memory, self._read_messages, now)
        waiting = reader.unread_keys(state)
        if not waiting and not state.plan and not reader.due_months(state):
            return None
        cursors = [*map(int, filter(str.isdecimal, waiting))]
        ended = datetime.fromisoformat(state.last_run) if state.last_run else None
        last_run = _credible(ended, now)
        times = [next_due(last_run or _find_first_time(memory, cursors, now))]
        if len(cursors) >= max_unread:
            times.append(last_run + _PAUSE if last_run else now)
        due = min(filter(None, times), default=None)
        return max([due, *self._pauses(scope, now)]) if due else None

    def _pauses(self, scope: str, now: datetime) -> list[datetime]:
        """Return the ends of the pauses after failures."""
        known = (self._failures[name][1] for name in (scope, _EVERYONE) if name in self._failures)
        return [end for end in known if _credible(end, now)]

    @asynccontextmanager
    async def pause_for_forgetting(self) -> AsyncIterator[None]:
        """Stop writing while something is being forgotten. Drop all plans and unfinished requests,
        which may contain it. Their entries are read again.

        Waits for a running write, not for the model. Raise `StorageError`."""
        async with self._state.lock:
            await asyncio.to_thread(self._state.drop_plans, self._memories.is_held)
            try:
                yield
            finally:
                self._state.forgotten += 1

    async def run(self, scope: str, *, asked: bool = False) -> DreamReport:
        """Read and learn, as far as the limits allow. A person who `asked` gets the report and no
        digest.

        Failures are in the report (`problem`), not raised. They leave the cursor in place."""
        from nanobot.memory.dream.run import DreamRun  # seldom needed, and large

        report, whom = DreamReport(scope), scope
        async with self._running, self._memories.holding(scope):
            try:
                memory = self._memories.of(scope)
                reader = Reader(memory, self._read_messages, self._clock.now())
                run = DreamRun(memory, reader, self._provider, self._limits, self._state, report)
                await run.learn()
                await asyncio.to_thread(memory.recall.refresh)
                async with self._state.lock:
                    await run.remember(last_run=self._clock.now().isoformat())
            except NanobotError as error:
                report.problem, whom = str(error), _whom(error, scope)
            except Exception as error:  # noqa: BLE001 - the boundary: a failed run changes nothing
                logger.opt(exception=error).error("Dream for {} crashed", scope)
                report.problem = f"internal error ({type(error).__name__}): {error}"
            if report.problem:
                await self._record_failure(report, whom)
            else:
                self._failures.pop(scope, None)
                if report.entries:  # the model answered
                    self._failures.pop(_EVERYONE, None)
                logger.info("Dream for {}: {} entries", scope, report.entries)
        if self._on_digest is not None and report.is_news and scope == OWNER and not asked:
            await self._on_digest(report)
        return report

    def problem(self) -> str:
        """Return why it failed three times in a row or more, or ""."""
        most = max((failures for failures, _ in self._failures.values()), default=0)
        failed = f"Dream failed {most} times in a row: {self._problem}"
        return failed if most >= _NOTIFY_AFTER else ""

    async def _record_failure(self, report: DreamReport, whom: str) -> None:
        """Lengthen the pause. The third time in a row, notify the owner."""
        self._problem = report.problem
        logger.warning("Dream for {} failed: {}", report.scope, report.problem)
        failures = self._failures.get(whom, (0, self._clock.now()))[0] + 1
        seconds = pause_after(failures, _FIRST_PAUSE, _LONGEST_PAUSE.total_seconds())
        self._failures[whom] = (failures, self._clock.now() + timedelta(seconds=seconds))
        if failures == _NOTIFY_AFTER and self._on_failures is not None:
            name = "you" if report.scope == OWNER else report.scope
            await self._on_failures(
                f"Dream has failed {failures} times in a row for {name}: {report.problem}\n"
                "Nothing has been lost. I'll keep trying at least once a day."
            )


def _whom(error: NanobotError, scope: str) -> str:
    """Return the scope that a failure concerns."""
    blames_content = isinstance(error, ProviderRejected) and error.blames_content
    return _EVERYONE if isinstance(error, ProviderError) and not blames_content else scope


def _find_first_time(memory: Memory, cursors: Sequence[int], now: datetime) -> datetime:
    """Return when the first of these entries was written, or a day ago if that is unknown."""
    first = memory.history.get(cursors[0]) if cursors else None
    return _credible(first.timestamp if first else None, now) or now - timedelta(days=1)


def _credible(when: datetime | None, now: datetime) -> datetime | None:
    return when if when is not None and when <= now + _LONGEST_PAUSE else None


MAX_UNREAD = 20
"""Unread entries that make a run due: as many as one request to the model holds."""


class DreamSchedule:
    """Runs every scope when it is due. A scope with `max_unread` unread entries is due at once,
    after `wake`. It survives any error."""

    def __init__(
        self,
        dream: Dream,
        memories: Memories,
        next_due: NextDue,
        clock: Clock,
        max_unread: int = MAX_UNREAD,
    ) -> None:
        self._dream, self._memories = dream, memories
        self._next_due, self._clock, self._max_unread = next_due, clock, max_unread
        self._wake = asyncio.Event()
        self._stopping = False

    async def run_forever(self) -> None:
        """Run due scopes one after the other, until `stop`."""
        seconds = START_DELAY
        while not self._stopping:
            with suppress(TimeoutError):
                await with_timeout(self._clock, max(seconds, 1.0), self._wake.wait())
            self._wake.clear()
            nearest = self._clock.now() + _LONGEST_WAIT
            with logging_errors("finding entries for Dream"):
                for scope in await asyncio.to_thread(self._memories.list_scopes):
                    due = partial(self._dream.next_run, scope, self._next_due, self._max_unread)
                    with logging_errors(f"Dream for {scope}"):
                        when = await asyncio.to_thread(due)
                        if when and when <= self._clock.now() and not self._stopping:
                            await self._dream.run(scope)
                            when = await asyncio.to_thread(due)
                        nearest = min(nearest, when or nearest)
            seconds = (nearest - self._clock.now()).total_seconds()

    def wake(self) -> None:
        """Check again, because there may be a new entry."""
        self._wake.set()

    def stop(self) -> None:
        """End after the current run. Cancelling is safe as well and loses nothing."""
        self._stopping = True
        self._wake.set()
