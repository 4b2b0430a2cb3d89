"""Consolidation: the oldest part of a conversation leaves the prompt and becomes memory.

This module decides when and how much. `planning` picks the boundary, `archivist` consolidates a
range. Invariants: a message is in the prompt or in a history entry. The prompt is brought under its
budget before a turn, whatever the model does. A session has one consolidation at a time, as a task
that survives its caller.

An outage of the model delays no turn and loses nothing: the range stays in the prompt if it can,
and is archived raw, for Dream to read, if a turn needs the room."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeVar
from weakref import WeakSet, WeakValueDictionary

from loguru import logger

from nanobot.clock import Clock, with_timeout
from nanobot.errors import NanobotError, TurnStopped
from nanobot.memory.consolidation.archivist import Archivist, OnTrouble, Urgency
from nanobot.memory.consolidation.planning import PromptGauge, newest_turn
from nanobot.memory.consolidation.summariser import TURN_SECONDS, Summariser
from nanobot.memory.history import LatestEntry
from nanobot.memory.scopes import Memories, Memory, Scopes
from nanobot.messages import Message
from nanobot.providers.port import Provider
from nanobot.session.manager import SessionManager
from nanobot.session.records import is_internal
from nanobot.session.session import Session
from nanobot.tasks import Background

T = TypeVar("T")

OnConsolidated = Callable[[str, str], Awaitable[None]]
"""Receives the session's key and a one-line summary for people. Must not raise."""

_IDLE_AT_ONCE = 20
"""Sessions checked per minute."""


class MemoryConsolidator:
    """Keeps prompts within their budget by moving old messages to memory.

    `scopes` maps a session to one of the `memories`. `on_trouble` reports failures to the owner.
    Work runs in `background`, which its owner drains, while its scope is held (see
    `Memories.holding`)."""

    def __init__(
        self,
        *,
        provider: Provider,
        memories: Memories,
        scopes: Scopes,
        gauge: PromptGauge,
        sessions: SessionManager,
        clock: Clock,
        on_consolidated: OnConsolidated,
        background: Background,
        on_trouble: OnTrouble | None = None,
    ) -> None:
        self._sessions, self._clock, self._gauge = sessions, clock, gauge
        self._memories, self._scopes = memories, scopes
        self._on_consolidated, self._background = on_consolidated, background
        self._summariser = Summariser(provider, clock, gauge, background)
        self._archivist = Archivist(self._summariser, sessions, on_trouble)
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._caught_up: WeakSet[Session] = WeakSet()
        """Sessions that were checked for an earlier process's unfinished work."""
        self._left_behind: set[str] = set()
        self._refused: dict[str, str] = {}
        """Reasons by session, other than the model, why consolidation failed."""
        self._rested: dict[str, datetime] = {}

    async def maybe_consolidate_by_tokens(
        self, session: Session, coming: Sequence[Message] = ()
    ) -> None:
        """Make room if the prompt with the `coming` messages exceeds its budget.

        With `coming` a turn waits: room is made even without the model, and nothing happens under
        budget. Without, it is background work: it also limits the number of messages, and waits for
        a model that is out. Raise `StorageError`."""
        if is_internal(session.key):
            return
        if session not in self._caught_up and session.next_seq > 1:
            memory = self._memory_of(session)
            async with self._memories.holding(memory.scope):
                await self._archivist.catch_up(session, memory)
                # Another worker of a team may have died before it applied them.
                await self._archivist.apply_pending(memory)
        self._caught_up.add(session)
        too_many = not coming and self._gauge.window_boundary(session) > 0
        if too_many or await self._excess(session, coming) > 0:
            work = partial(self._make_room, session, coming)
            await self._one_by_one(session, work, for_turn=bool(coming))

    def problem(self) -> str:
        """Return why conversations are not consolidated, or only without a summary, or ""."""
        for key, why in self._refused.items():
            more = len(self._refused) - 1
            others = f" (and {more} more)" if more else ""
            return f"conversation {key}{others} cannot be consolidated: {why}"
        return self._summariser.problem

    def has_room(self, session: Session, tokens: int, *, at_rest: bool = False) -> bool:
        """Cheap check: return True if nothing has to be consolidated for a prompt of so many
        estimated `tokens`. False may be a false alarm. A session `at_rest` has no turn: then the
        number of its messages is limited too."""
        too_many = at_rest and 0 < self._gauge.limits.window <= len(session.messages)
        if session.next_seq == 1:  # nothing to catch up with
            self._caught_up.add(session)
        if too_many or session not in self._caught_up:
            return False
        return self._gauge.counter.fits(tokens, self._gauge.budget_of(session))

    async def consolidate_half(self, session: Session) -> bool:
        """Consolidate the older half, regardless of the estimate. Return False if there is none."""
        if is_internal(session.key):
            return False
        before = session.last_consolidated

        async def shrink() -> bool:
            if session.last_consolidated > max(before, session.epoch_seq):
                return True  # by the previous work
            await self._seal(session, "urgent")
            if count := self._gauge.half(session):
                await self._consolidate_oldest(session, count, "urgent")
            return bool(count)

        return await self._one_by_one(session, shrink, for_turn=True)

    async def compact(self, session: Session) -> str:
        """Consolidate everything before the newest turn, or that turn if it is the only one. Return
        a line that describes the result."""
        return await self._one_by_one(session, lambda: self._compact(session))

    async def trim(self, session: Session) -> None:
        """Limit the size of a conversation that is not remembered."""
        async with self._memories.holding(self._memory_of(session).scope):
            await self._sessions.trim(session)

    async def consolidate_sealed(self, session: Session) -> None:
        """Consolidate the messages that `/new` sealed, read from disk. `consolidate_idle` retries
        if the model is out."""
        self._left_behind.add(session.key)
        with suppress(NanobotError):  # already logged
            await self._one_by_one(session, lambda: self._seal(session, "patient"))

    async def recover(self) -> None:
        """Finish a crashed process's work. Called at the start, while turns may run.

        Unfinished sessions are searched in the background, as is work that needs the model. One
        that is used before that catches up then."""
        await self._apply_pending()
        self._background.start(self._find_left_behind(), name="find unconsolidated conversations")

    async def consolidate_idle(self) -> None:
        """Each minute, process unfinished sealed ranges, pending changes and resting sessions."""
        if self._summariser.is_resting:
            return
        await self._apply_pending()
        await self._for_each(sorted(self._left_behind), self.consolidate_sealed)
        if self._gauge.limits.idle_minutes > 0:
            await self._consolidate_resting()

    async def _one_by_one(
        self,
        session: Session,
        work: Callable[[], Coroutine[Any, Any, T]],
        *,
        for_turn: bool = False,
    ) -> T:
        """Do `work` after other work on the session, and wait for it. Raise its errors.

        A turn does not wait long for the model. Cancelling the wait does not stop the work, but the
        model's call for a turn ends: the range stays in the prompt."""
        key, has_begun = session.key, False
        lock = self._locks.setdefault(key, asyncio.Lock())

        async def run_locked() -> T | NanobotError:
            nonlocal has_begun
            memory = self._memory_of(session)
            async with lock, self._memories.holding(memory.scope):
                has_begun = True  # a second caller gets here later and mostly finds the work done
                try:
                    await self._sessions.get_or_create(key)  # reloads it if another worker had it
                    await self._archivist.catch_up(session, memory)
                    result = await work()
                except NanobotError as error:
                    if isinstance(error, TurnStopped):
                        logger.debug("{}: not consolidated: {}", key, error)
                    else:
                        self._refused[key] = str(error)
                        logger.warning("{}: not consolidated: {}", key, error)
                    self._caught_up.discard(session)  # the entry may be committed nevertheless
                    return error  # for the caller, if it still waits
                self._refused.pop(key, None)
                return result

        task = self._background.start(run_locked(), name=f"consolidate {key}")
        try:
            while for_turn and not task.done():
                try:
                    await with_timeout(self._clock, TURN_SECONDS, asyncio.shield(task))
                except TimeoutError:
                    self._summariser.end_call(key)
            result = await asyncio.shield(task)
        except asyncio.CancelledError:
            if for_turn and has_begun:
                self._summariser.end_call(key, stopped=True)
            raise
        if isinstance(result, NanobotError):
            raise result
        return result

    def _memory_of(self, session: Session) -> Memory:
        return self._memories.of(self._scopes.of_session(session.key, session.metadata))

    async def _excess(self, session: Session, coming: Sequence[Message]) -> int:
        """Return by how many tokens the prompt with the `coming` messages exceeds the budget. 0 or
        less means that it fits."""
        prompt, budget = self._gauge.prompt, self._gauge.budget_of(session)
        text, estimated = partial(prompt.text, session, coming), prompt.tokens(session, coming)
        return await self._gauge.counter.count(text, estimated, budget, session.key) - budget

    async def _make_room(self, session: Session, coming: Sequence[Message]) -> None:
        """Consolidate the excess. If a turn waits, archive it raw when all else fails."""
        urgencies: tuple[Urgency, ...] = ("urgent", "raw") if coming else ("patient",)
        for urgency in urgencies:
            is_going = await self._seal(session, urgency)
            while is_going:
                if (excess := await self._excess(session, coming)) > 0:
                    count = self._gauge.boundary(session, excess)
                else:
                    count = 0 if coming else self._gauge.window_boundary(session)
                is_going = count > 0 and await self._consolidate_oldest(session, count, urgency)

    async def _compact(self, session: Session) -> str:
        done, notice = await self._seal(session, "patient"), ""
        if done:
            count = newest_turn(session.messages) or len(session.messages)
            if not count:
                return "Nothing to consolidate."
            done, notice = await self._archive(session, count, "patient")
        if done or notice:
            return notice or "Nothing to remember in this conversation."
        why = "the conversation changed. Try again."
        if self._summariser.is_out:
            why = "the model is unavailable. Try again later."
        return f"Nothing was consolidated: {why}"

    async def _seal(self, session: Session, urgency: Urgency) -> bool:
        """Consolidate everything before the newest epoch. Return False if that has to wait."""
        while (first := session.last_consolidated + 1) <= session.epoch_seq:
            self._left_behind.add(session.key)
            last, messages = await asyncio.to_thread(self._read_sealed, session, first)
            memory = self._memory_of(session)
            notice = await self._archivist.consolidate(session, memory, last, messages, urgency)
            if notice:
                await self._on_consolidated(session.key, notice)
            if session.last_consolidated < last:
                return False
        self._left_behind.discard(session.key)
        return True

    def _read_sealed(self, session: Session, first: int) -> tuple[int, Sequence[Message]]:
        """Return the messages from seq `first` to the next `/new`, and its seq. Later messages
        are another conversation, which untrusted content in this one does not taint."""
        epochs = self._sessions.epochs(session.key, first, session.epoch_seq)
        last = epochs[0] if epochs else session.epoch_seq
        return last, self._sessions.read_window(session.key, first, last)

    async def _consolidate_oldest(self, session: Session, count: int, urgency: Urgency) -> bool:
        """Consolidate the oldest `count` messages of the window. Return True if that is done."""
        done, notice = await self._archive(session, count, urgency)
        if notice:
            await self._on_consolidated(session.key, notice)
        return done

    async def _archive(self, session: Session, count: int, urgency: Urgency) -> tuple[bool, str]:
        messages, memory = session.messages, self._memory_of(session)
        last = messages[count].seq - 1 if count < len(messages) else messages[-1].seq
        oldest = messages[:count]
        notice = await self._archivist.consolidate(session, memory, last, oldest, urgency)
        return session.last_consolidated >= last, notice

    async def _apply_pending(self) -> None:
        """Apply pending memory changes."""
        try:
            for memory in self._memories.list_held():
                await self._archivist.apply_pending(memory)
        except NanobotError as error:
            logger.error("memory changes have not been applied: {} {}", error, error.hint)

    async def _find_left_behind(self) -> None:
        """Consolidate sessions that are behind an epoch or a history entry. They are not opened to
        find them, which would take long."""
        memories = self._memories.list_held()

        def find_unfinished() -> set[str]:
            newest: dict[str, list[LatestEntry]] = {}
            for memory in memories:
                for key, entry in memory.history.newest().items():
                    newest.setdefault(key, []).append(entry)
            found = set[str]()
            for info in self._sessions.list_sessions(sealed=not newest):
                entries = newest.get(info.key, ())
                wanted = (info.epoch_seq, *(entry.since(info.created_at) for entry in entries))
                if info.last_consolidated < max(wanted) and not is_internal(info.key):
                    found.add(info.key)
            return found

        self._left_behind |= await asyncio.to_thread(find_unfinished)
        await self._for_each(sorted(self._left_behind), self.consolidate_sealed)

    async def _consolidate_resting(self) -> None:
        """Consolidate sessions without recent messages, each once while it rests."""
        before = self._clock.now() - timedelta(minutes=self._gauge.limits.idle_minutes)

        def find_resting() -> dict[str, datetime]:
            return {
                info.key: info.updated_at
                for info in self._sessions.list_sessions()
                if info.updated_at <= before
                and not 0 < info.last_seq <= info.last_consolidated
                and not is_internal(info.key)
                and self._rested.get(info.key) != info.updated_at
            }

        due = await asyncio.to_thread(find_resting)

        async def consolidate_all(session: Session) -> bool:
            if not await self._seal(session, "patient"):
                return False
            count = len(session.messages)
            return not count or await self._consolidate_oldest(session, count, "patient")

        async def rest(session: Session) -> None:
            if await self._one_by_one(session, lambda: consolidate_all(session)):
                self._rested[session.key] = due[session.key]

        await self._for_each(list(due)[:_IDLE_AT_ONCE], rest)

    async def _for_each(
        self, keys: Iterable[str], work: Callable[[Session], Awaitable[None]]
    ) -> None:
        """Do `work` for each session, until the model fails too often."""
        for key in keys:
            if self._summariser.is_resting:
                return
            try:
                await work(await self._sessions.get_or_create(key))
            except NanobotError as error:
                logger.warning("{}: not consolidated: {}", key, error)
