"""`Dream`: learns from what a scope has that it has not read yet.

Invariants, whatever the model says and wherever the process dies: an entry is either read and what
it taught stands (or waits for the owner's word), or it is read again; nothing is learned twice; no
more is asked than the limits of a run allow; a scope's memory is made from that scope's entries
alone. A run that fails leaves the cursor where it is, and the next ones wait, ten minutes at first
and a day at most. What is forgotten while it thinks is not written.

An entry that the model refuses to read (a content filter, a small window) holds up no others. What
is refused together is asked about in halves, down to the entry that is to blame, which is left out
of the run and given up after two. But only where the model answered to something else: one that
refuses everything is set up wrongly, then the run fails and nothing is given up.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from loguru import logger

from nanobot.bus.state import StateStore
from nanobot.clock import Clock
from nanobot.errors import ContextTooLong, NanobotError, ProviderError, ProviderRejected
from nanobot.memory.dream.phase1 import Batch, Evidence, Reader, Unread
from nanobot.memory.dream.state import DreamReport, DreamState, Plan, ScopeState, settled, succeeded
from nanobot.memory.dream.thinking import BudgetSpent, DreamLimits, Questions, Thinker
from nanobot.memory.dream.writing import Writer
from nanobot.memory.scopes import OWNER, Memories, Memory
from nanobot.memory.versions.gitstore import GitStore
from nanobot.providers.port import Provider


class Refusals:
    """Those of one run; `most` is how many entries may be asked about next."""

    def __init__(self, most: int) -> None:
        self.most = self._whole = most
        self._aside: frozenset[str] = frozenset()
        self._uncounted: frozenset[str] = frozenset()
        self._last: ProviderRejected | None = None
        self._answered = False

    def beyond(self, state: ScopeState) -> ScopeState:
        """`state` as if what was refused by itself had been read."""
        return replace(state, done=state.done | self._aside)

    def refused(self, error: ProviderRejected, batch: Batch) -> None:
        """A question about `batch` was refused. Raises `error` if not for what stands in it."""
        if not error.blames_content:
            raise error
        if len(batch.entries) > 1:
            self.most = len(batch.entries) // 2
            return
        alone = {entry.key for entry in batch.entries}
        self._aside |= alone
        self._uncounted |= alone
        self._last = error

    def answered(self, plan: Plan) -> Plan:
        """`plan`, which the model answered with, with what it refused before as skipped."""
        self._answered = self._answered or plan.entries > 0
        self.most = min(self._whole, self.most * 2)
        return self._counting(plan, self._uncounted) if self._answered else plan

    def left(self, state: ScopeState, plan: Plan) -> Plan | None:
        """`plan`, which reads nothing more, with what is still to be counted; None where nothing
        is. Raises the error where nothing but refusals came of the run."""
        known = self._uncounted & state.skipped.keys()  # others were answered at that time
        counted = self._uncounted if self._answered else known
        if self._last is not None and not self._answered and not counted:
            raise self._last
        return self._counting(plan, counted) if counted else None

    def _counting(self, plan: Plan, keys: frozenset[str]) -> Plan:
        self._uncounted -= keys
        return replace(plan, skipped=plan.skipped | keys)


OnDigest = Callable[[DreamReport], Awaitable[None]]
OnTrouble = Callable[[str, str], Awaitable[None]]

_FIRST_PAUSE, _LONGEST_PAUSE = timedelta(minutes=10), timedelta(days=1)
_TROUBLE = 3
"""Failures in a row after which the owner is told."""

COMMAND = "command"
"""The trigger of a run that a person asked for: they get the report as the answer."""


@dataclass(frozen=True, slots=True)
class Due:
    """What a schedule goes by. Since when the next run is awaited: the end of the last run, or the
    time of the first entry where there was none; None where there is nothing to read. `last_run`
    is when one came to its end, `unread` counts history entries, and before `not_before` none is
    tried, after so many `failures` in a row."""

    since: datetime | None = None
    last_run: datetime | None = None
    unread: int = 0
    not_before: datetime | None = None
    failures: int = 0


class Dream:
    """One for all scopes; one run at a time.

    `evidence` reads raw messages. `state` is where runs are remembered. `on_digest` is awaited
    after a run of the owner's scope that nobody asked for and that learned something; nobody else
    gets messages that they did not ask for. `on_trouble` is awaited with the scope and a text for
    the owner after three failures in a row, once while the model cannot be asked at all.
    """

    def __init__(
        self,
        *,
        provider: Provider,
        memories: Memories,
        clock: Clock,
        evidence: Evidence,
        versions: GitStore | None,
        limits: DreamLimits,
        state: StateStore,
        on_digest: OnDigest | None = None,
        on_trouble: OnTrouble | None = None,
    ) -> None:
        self._provider = provider
        self._memories = memories
        self._clock = clock
        self._evidence = evidence
        self._versions = versions
        self._limits = limits
        self._state = DreamState(state)
        self._on_digest = on_digest
        self._on_trouble = on_trouble
        self._running, self._writing = asyncio.Lock(), asyncio.Lock()
        self._forgotten = 0
        self._told_of_outage = False

    def unread(self, scope: str) -> int:
        """How many history entries of `scope` it has not read. Blocks."""
        return len(_cursors(self._waiting(scope)))

    def due_from(self, scope: str) -> Due:
        """What a schedule needs to know of `scope`. Times that a clock which was wrong left far in
        the future count as unknown. Blocks."""
        state = self._state.of(scope)
        now = self._clock.now()
        last_run, retry_at = (_credible(when, now) for when in (state.last_run, state.retry_at))
        waiting = self._waiting(scope)
        unread = _cursors(waiting)
        since = None
        if waiting or state.plan:
            since = last_run or _credible(self._first_of(scope, unread), now)
            since = since or now - timedelta(days=1)
        return Due(since, last_run, len(unread), retry_at, state.failures)

    @asynccontextmanager
    async def forgetting(self) -> AsyncIterator[None]:
        """While something is being forgotten: nothing is written, and what was about to be written
        or is being thought is dropped, since it may hold it; its entries are read again.

        Waits for the writing under way, not for the model. Raises `StorageError`.
        """
        async with self._writing:
            await asyncio.to_thread(self._state.drop_plans)
            try:
                yield
            finally:
                self._forgotten += 1

    async def run(self, scope: str, *, trigger: str) -> DreamReport:
        """Read and learn, as far as the limits allow. `trigger` says who wants it: `command` for a
        person, who then gets no digest.

        Failures are in the report (`problem`), not raised.
        """
        async with self._running:
            report = await self._run_once(self._memories.of(scope), trigger)
        unasked = trigger != COMMAND and scope == OWNER
        if self._on_digest is not None and report.is_news and unasked:
            await self._on_digest(report)
        return report

    async def _run_once(self, memory: Memory, trigger: str) -> DreamReport:
        report = DreamReport(memory.scope)
        try:
            async for part in self._batches(memory):
                report = report.plus(part)
            async with self._writing:
                await self._remember(memory, succeeded(self._of(memory), self._clock.now()))
            await asyncio.to_thread(memory.history.rotate)
        except NanobotError as error:
            logger.warning("Dream ({}) of {} failed: {}", trigger, memory.scope, error)
            # A prompt that is too long is that scope's own matter.
            is_outage = isinstance(error, ProviderError) and not isinstance(error, ContextTooLong)
            report = replace(report, problem=str(error), is_outage=is_outage)
            await self._failed(report)
        except Exception as error:  # noqa: BLE001 - the boundary: a run that fails leaves all as it was
            logger.opt(exception=error).error("Dream ({}) of {} broke", trigger, memory.scope)
            report = replace(report, problem=f"an error of mine, {type(error).__name__}: {error}")
            await self._failed(report)
        else:
            self._told_of_outage = self._told_of_outage and not report.entries
            logger.info("Dream ({}) of {}: {} entries", trigger, memory.scope, report.entries)
        return report

    async def _batches(self, memory: Memory) -> AsyncIterator[DreamReport]:
        """What each batch came to, done and remembered."""
        now = self._clock.now()
        reader = Reader(memory, self._evidence, now)
        async with self._writing:
            plan = self._of(memory).plan
            done = await self._finish(memory, reader, plan, again=True) if plan else None
        run = plan.run if plan and plan.run else f"dream {now.isoformat()}"
        if done is not None:  # a run was cut short
            yield done
        questions = Questions(self._provider, self._limits)
        thinker = Thinker(memory, questions, reader.forgotten, now)
        refusals = Refusals(self._limits.batch)
        while True:
            known, began = self._forgotten, self._clock.now()
            state = refusals.beyond(self._of(memory))
            batch = await asyncio.to_thread(reader.batch, state, refusals.most)
            if not batch.entries and not batch.empty:
                break
            try:
                plan = await thinker.plan(batch, began)
            except BudgetSpent as spent:
                logger.info("Dream of {} goes on another time: {}", memory.scope, spent)
                return
            except ProviderRejected as refusal:
                refusals.refused(refusal, batch)
                continue
            async with self._writing:
                if known != self._forgotten:
                    continue  # it may hold what was forgotten meanwhile
                plan = replace(refusals.answered(plan), run=run)
                await self._remember(memory, replace(self._of(memory), plan=plan))
                done = await self._finish(memory, reader, plan, again=False)
            yield done
        async with self._writing:
            if left := refusals.left(self._of(memory), Plan(since=began, run=run)):
                await self._finish(memory, reader, left, again=False)

    async def _finish(
        self, memory: Memory, reader: Reader, plan: Plan, *, again: bool
    ) -> DreamReport:
        """Carry out a plan that is remembered, then move on."""
        writer = Writer(memory, self._versions, reader.forgotten)
        report = await writer.carry_out(plan, again=again)
        if writer.held:
            await memory.pending.tell(writer.held, "")
        state = self._of(memory)
        done, skipped = settled(state, plan)
        position = await asyncio.to_thread(reader.position, state, done)
        if position.cursor > memory.history.dream_cursor():
            await asyncio.to_thread(memory.history.set_dream_cursor, position.cursor)
        moved = replace(state, note=position.note, done=position.done, skipped=skipped, plan=None)
        await self._remember(memory, moved)
        return report

    async def _failed(self, report: DreamReport) -> None:
        async with self._writing:
            state = self._state.of(report.scope)
            failures = state.failures + 1
            pause = min(_FIRST_PAUSE * 2 ** min(failures - 1, 10), _LONGEST_PAUSE)
            failed = replace(state, failures=failures, retry_at=self._clock.now() + pause)
            try:
                await asyncio.to_thread(self._state.put, report.scope, failed)
            except NanobotError as error:  # the disk, most likely, which is why it failed at all
                logger.warning("that Dream failed could not be remembered: {}", error)
                self._state.put_for_now(report.scope, failed)
        if failures == _TROUBLE and self._on_trouble is not None and not self._is_told(report):
            self._told_of_outage = self._told_of_outage or report.is_outage
            await self._on_trouble(
                report.scope,
                f"I have tried to dream {failures} times in a row for {_whom(report.scope)} and "
                f"could not: {report.problem}\n"
                "Nothing is lost; I go on trying, once a day at the least.",
            )

    def _is_told(self, report: DreamReport) -> bool:
        return report.is_outage and self._told_of_outage

    def _waiting(self, scope: str) -> list[Unread]:
        reader = Reader(self._memories.of(scope), self._evidence, self._clock.now())
        return reader.waiting(self._state.of(scope))

    def _first_of(self, scope: str, cursors: Sequence[int]) -> datetime | None:
        entry = self._memories.of(scope).history.get(cursors[0]) if cursors else None
        return entry.timestamp if entry else None

    def _of(self, memory: Memory) -> ScopeState:
        return self._state.of(memory.scope)

    async def _remember(self, memory: Memory, state: ScopeState) -> None:
        await asyncio.to_thread(self._state.put, memory.scope, state)


def _cursors(unread: Iterable[Unread]) -> list[int]:
    return [one for one in unread if isinstance(one, int)]


def _credible(when: datetime | None, now: datetime) -> datetime | None:
    return None if when is None or when > now + _LONGEST_PAUSE else when


def _whom(scope: str) -> str:
    return "you" if scope == OWNER else scope
