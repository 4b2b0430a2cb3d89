"""One run of Dream for one scope: batch by batch, then the digests that are due.

A plan is remembered before its first write and gone after its last. See `dream` for what always
holds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from datetime import date, datetime

from loguru import logger
from msgspec.structs import replace

from nanobot.errors import PathRefused, ProviderRejected, WriteConflict
from nanobot.memory.digests import digest_path
from nanobot.memory.dream.learning import Planner, carry_out
from nanobot.memory.dream.reading import Reader, ReadMessages
from nanobot.memory.dream.state import (
    DreamLimits,
    DreamPlan,
    DreamReport,
    DreamState,
    RunBudgetSpent,
    ScopeState,
    Unintelligible,
    Writing,
)
from nanobot.memory.scopes import Memory
from nanobot.memory.version import Change
from nanobot.providers.port import Provider


class DreamRun:
    """Reads and learns for the scope of `memory`; `report` grows."""

    def __init__(
        self,
        memory: Memory,
        provider: Provider,
        limits: DreamLimits,
        read_messages: ReadMessages,
        now: datetime,
        state: DreamState,
        writing: Writing,
        report: DreamReport,
    ) -> None:
        self._memory, self._most, self._state = memory, limits.batch, state
        self._writing, self._report = writing, report
        self._reader = Reader(memory, read_messages, now)
        self._planner = Planner(memory, provider, limits, self._reader.forgotten, now)
        self._name = f"dream {now.isoformat()}"

    async def learn(self) -> None:
        """Carry out what a crash cut short, then read on to the end, or as far as may be asked.
        Raises what asking the model raises."""
        async with self._writing.lock:
            await asyncio.to_thread(self._state.load)
            if plan := self._known().plan:
                self._name = plan.run or self._name
                await self._finish(plan, again=True)
        try:
            await self._read_on()
            await self._condense()
        except RunBudgetSpent as spent:
            logger.info("Dream for {} is postponed: {}", self._memory.scope, spent)

    async def remember(self, **changes: object) -> None:
        """Store what is known of the scope, with these changes."""
        state = replace(self._known(), **changes)
        await asyncio.to_thread(self._state.put, self._memory.scope, state)

    def _known(self) -> ScopeState:
        return self._state.of(self._memory.scope)

    async def _read_on(self) -> None:
        """Read batch by batch until nothing is left."""
        refused, most = set[str](), self._most
        refusal: ProviderRejected | None = None
        while True:
            forgotten, state = self._writing.forgotten, self._known()
            entries, empty = await asyncio.to_thread(self._reader.next_batch, state, most, refused)
            if not entries:
                break
            try:
                plan = await self._planner.plan(entries)
            except ProviderRejected as error:
                if not error.blames_content:
                    raise
                most, refusal = max(1, len(entries) // 2), error
                if len(entries) == 1:
                    refused.add(entries[0].key)
                continue
            most = self._most
            plan = replace(plan, done=plan.done | empty | refused)
            if await self._commit(plan, forgotten):
                refused.clear()
        if refusal and not self._planner.is_answered:
            raise refusal
        if left := empty | refused:
            await self._commit(DreamPlan(done=frozenset(left)), forgotten)

    async def _condense(self) -> None:
        """Write the digests that are due, each by one question, and learn what recurs in them. One
        that a person wrote stays as it is. A month that the model refuses twice is left without."""
        store = self._memory.store
        for month in await asyncio.to_thread(self._reader.due_months, self._known()):
            forgotten, plan, path = self._writing.forgotten, DreamPlan(), digest_path(month)
            try:
                if month not in store.digest_months():
                    notes = await asyncio.to_thread(self._reader.notes_of, month)
                    text = await self._digest(month, notes)
                    async with self._writing.lock:
                        if forgotten != self._writing.forgotten:
                            return  # the digest may hold forgotten text
                        await self._write_digest(path, text)
                if entry := await asyncio.to_thread(self._reader.digest_of, month):
                    plan = await self._planner.plan([entry])
            except (ProviderRejected, Unintelligible) as error:
                refused = isinstance(error, Unintelligible) or error.blames_content
                if not refused or not self._planner.is_answered:
                    raise
                logger.warning("{} is not written or read: {}", path, error)
            except PathRefused as error:  # a link or a folder is there
                logger.warning("{} is not written: {}", path, error)
            await self._commit(replace(plan, done=frozenset({month})), forgotten)

    async def _digest(self, month: str, notes: Mapping[date, str]) -> str:
        """Return the digest of a month, asked for twice if the model refuses it once."""
        try:
            return await self._planner.digest(month, notes)
        except ProviderRejected as error:
            if not error.blames_content:
                raise
        return await self._planner.digest(month, notes)

    async def _write_digest(self, path: str, text: str) -> None:
        with suppress(WriteConflict):
            if text:
                store, made = self._memory.store, Change("dream")
                await store.replace(path, text, expected=None, change=made)
                self._report.digests += (path,)

    async def _commit(self, plan: DreamPlan, forgotten: int) -> bool:
        """Store a plan, carry it out, and move on. Return False, with nothing done, if something
        was forgotten since: the plan may hold it."""
        async with self._writing.lock:
            if forgotten != self._writing.forgotten:
                return False
            plan = replace(plan, run=self._name)
            await self.remember(plan=plan)
            await self._finish(plan)
            return True

    async def _finish(self, plan: DreamPlan, *, again: bool = False) -> None:
        """Carry out a plan that is remembered, then move on."""
        await carry_out(self._memory, plan, self._report, again=again)
        state = await asyncio.to_thread(self._reader.move_on, self._known(), plan.done)
        await asyncio.to_thread(self._state.put, self._memory.scope, state)
