"""Consolidation: the oldest part of a conversation leaves the prompt and becomes memory.

This module decides when and how much; `planning` says where to part, `archivist` puts a range away.

Invariants: a message is in the prompt or behind a history entry; the prompt is brought under its
budget before a turn, whatever the model does; there is one consolidation per session at a time, as
a task of its own that survives whoever waits for it. A second caller waits, looks again, and mostly
finds the work done.

A model that is out delays nobody and loses nothing: what can wait stays in the prompt, and when
room must be made for a turn the range is archived raw, for Dream to read. A range of turns that no
person began or spoke in (runs of a schedule) is archived raw as well: it says nothing about the
person and stays searchable. A range without any content is only marked.

Sessions that nobody uses are looked after as well, each minute: those that were left behind, and
those that rest, each once.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import nullcontext
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from loguru import logger

from nanobot.clock import Clock
from nanobot.errors import NanobotError
from nanobot.memory.consolidation.archivist import Archivist, Haste, Patience, PutAway
from nanobot.memory.consolidation.planning import (
    Limits,
    PromptSize,
    newest_turn,
    pick_consolidation_boundary,
    pick_window_boundary,
)
from nanobot.memory.consolidation.summariser import Summariser
from nanobot.memory.gitstore import GitStore
from nanobot.memory.scopes import Memory
from nanobot.messages import Message
from nanobot.providers.counter import TokenCounter
from nanobot.providers.port import Provider
from nanobot.session.manager import SessionManager
from nanobot.session.records import is_own
from nanobot.session.session import Session
from nanobot.tasks import Background

T = TypeVar("T")

OnPutAway = Callable[[str, str], Awaitable[None]]
"""Told the session's key and, in one line for people, what was put away."""

ROUNDS = 5
"""How often at most one call makes room with the model's help."""

_IDLE_AT_ONCE = 20
"""Sessions looked at in one minute."""


class Gauge:
    """Measures sessions against the limits: estimates come from the builder of prompts and are
    corrected by the token counter; every threshold is in real tokens."""

    def __init__(self, prompt: PromptSize, counter: TokenCounter, limits: Limits) -> None:
        self._prompt, self._counter, self._limits = prompt, counter, limits

    async def excess(self, session: Session, coming: Sequence[Message], over: int) -> int:
        """By how many tokens the prompt, with the `coming` messages, exceeds `over`; may be less
        than 0."""
        text = partial(self._prompt.text, session, coming)
        estimated = self._prompt.tokens(session, coming)
        return await self._counter.count(text, estimated, self._limits.budget, session.key) - over

    def target(self, session: Session) -> int:
        """What a prompt is brought down to: half of the room for history, above what is fixed."""
        fixed = round(self._prompt.fixed_tokens(session) * self._counter.ratio)
        return fixed + max(0, self._limits.budget - fixed) // 2

    def boundary(self, session: Session, wanted: int) -> int:
        """How many messages go so that `wanted` tokens leave; a tenth of the budget at least."""
        return self._pick(session, wanted, self._limits.budget // 10)

    def half(self, session: Session) -> int:
        """How many messages are the older half of the conversation; 0 where there are none."""
        history = self._prompt.tokens(session) - self._prompt.fixed_tokens(session)
        return self._pick(session, round(history * self._counter.ratio / 2), 1)

    def window_boundary(self, session: Session) -> int:
        """How many messages go because there are too many; mostly 0."""
        limits = self._limits
        if not 0 < limits.window <= len(session.messages):
            return 0
        return pick_window_boundary(session.messages, limits.window, limits.chunk)

    def _pick(self, session: Session, wanted: int, least: int) -> int:
        messages, ratio = session.messages, self._counter.ratio
        costs = [round(self._prompt.cost(session, message) * ratio) for message in messages]
        return pick_consolidation_boundary(messages, costs, wanted, least)


class MemoryConsolidator:
    """Keeps prompts within their budget by turning what is old into memory.

    `memory_of` is the memory that a session belongs to; `memories` lists those on disk, whose
    unfinished changes `recover` carries out. `versions` is None where none are kept. Work runs in
    `background`, which its owner drains.
    """

    def __init__(
        self,
        *,
        provider: Provider,
        memory_of: Callable[[Session], Memory],
        prompt: PromptSize,
        counter: TokenCounter,
        sessions: SessionManager,
        clock: Clock,
        limits: Limits,
        memories: Callable[[], Iterable[Memory]],
        versions: GitStore | None,
        on_put_away: OnPutAway,
        background: Background,
    ) -> None:
        self._sessions, self._clock, self._limits = sessions, clock, limits
        self._memories, self._on_put_away = memories, on_put_away
        self._gauge = Gauge(prompt, counter, limits)
        self._background = background
        self._patience = Patience(clock, background)
        self._summariser = Summariser(
            provider,
            clock,
            budget=limits.budget,
            ratio=lambda: counter.ratio,
            model=limits.model,
        )
        self._archivist = Archivist(
            summariser=self._summariser,
            patience=self._patience,
            sessions=sessions,
            memory_of=memory_of,
            versions=versions,
        )
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._owed: set[str] = set()
        self._rested: dict[str, datetime] = {}

    async def maybe_consolidate_by_tokens(
        self, session: Session, coming: Sequence[Message] = ()
    ) -> None:
        """Make room if the prompt exceeds its budget with the `coming` messages after it.

        With `coming` a turn waits: room is made whatever the model does, and under budget nothing
        happens. Without, it is background work: it also keeps the window's length, and a model that
        is out is waited for. Raises `StorageError`.
        """
        if is_own(session.key):
            return
        if session.last_consolidated < self._archivist.caught_up.get(session, math.inf):
            await self._archivist.catch_up(session)
        too_long = not coming and self._gauge.window_boundary(session) > 0
        if too_long or await self._gauge.excess(session, coming, self._limits.budget) > 0:
            with self._patience.limited(session.key) if coming else nullcontext():
                await self._one_by_one(session, lambda: self._make_room(session, coming))

    async def shrink(self, session: Session) -> bool:
        """Put away the older half whatever the estimate says; False when there is none."""
        if is_own(session.key):
            return False
        before = session.last_consolidated
        with self._patience.limited(session.key):
            return await self._one_by_one(session, lambda: self._shrink(session, before))

    async def compact(self, session: Session) -> str:
        """Put away everything before the newest turn, or that if it is the only one; says in one
        line what was put away, or why nothing was."""
        return await self._one_by_one(session, lambda: self._compact(session))

    async def seal(self, session: Session) -> None:
        """Put away what `/new` sealed, read from disk; where the model is out, `idle` tries on."""
        self._owed.add(session.key)
        try:
            await self._one_by_one(session, lambda: self._seal(session, "patient"))
        except NanobotError as error:
            logger.warning("{}: what was sealed waits: {}", session.key, error)

    async def recover(self) -> None:
        """Finish what a crash cut short; for the start. Turns may run meanwhile.

        Looking for sessions that were left behind goes on in the background, as does what needs the
        model. One that is used before that is caught up then.
        """
        await self._settle()
        self._background.start(self._look_for_sealed(), name="consolidate what was sealed")

    async def idle(self) -> None:
        """Each minute: what was sealed and still waits, changes that wait, sessions that rest."""
        if self._summariser.is_resting:
            return
        await self._settle()
        await self._put_sealed_away()
        if self._limits.idle_minutes > 0:
            await self._put_resting_away()

    async def _one_by_one(self, session: Session, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Do `work` after whatever is being done for a session, and wait for it. Cancelling the
        wait does not stop it. Raises what it raises."""
        lock = self._locks.setdefault(session.key, asyncio.Lock())

        async def locked() -> T | NanobotError:
            async with lock:
                try:
                    await self._archivist.catch_up(session)
                    return await work()
                except NanobotError as error:
                    logger.warning("a consolidation did not get through: {}", error)
                    return error  # for who waits, if anybody still does

        task = self._background.start(locked(), name=f"consolidate {session.key}")
        result = await asyncio.shield(task)
        if isinstance(result, NanobotError):
            raise result
        return result

    async def _make_room(self, session: Session, coming: Sequence[Message]) -> None:
        """In rounds, down to the target; then raw, down to the budget, where a turn waits."""
        haste: Haste = "urgent" if coming else "patient"
        if not (await self._seal(session, haste)).done:
            return
        goal = self._limits.budget
        for _ in range(ROUNDS):
            if (excess := await self._gauge.excess(session, coming, goal)) > 0:
                target = self._gauge.target(session)
                count = self._gauge.boundary(session, excess + goal - target)
                goal = target
            else:
                count = 0 if coming else self._gauge.window_boundary(session)
            if not count or not await self._put_away(session, count, haste):
                break
        if coming:
            await self._make_fit(session, coming)

    async def _make_fit(self, session: Session, coming: Sequence[Message]) -> None:
        """Archive raw until the prompt is within its budget or nothing is left to put away."""
        while session.messages:
            excess = await self._gauge.excess(session, coming, self._limits.budget)
            if excess <= 0:
                return
            before = session.last_consolidated
            await self._put_away(session, self._gauge.boundary(session, excess), "raw")
            if session.last_consolidated == before:
                return

    async def _shrink(self, session: Session, before: int) -> bool:
        if session.last_consolidated > max(before, session.epoch_seq):
            return True  # by what was at work just now
        await self._seal(session, "urgent")
        count = self._gauge.half(session)
        if count:
            await self._put_away(session, count, "urgent")
        return bool(count)

    async def _compact(self, session: Session) -> str:
        result = await self._seal(session, "patient")
        if result.done:
            count = newest_turn(session.messages) or len(session.messages)
            if not count:
                return "There is nothing to put away."
            result = await self._archived(session, count, "patient")
            if result.done or result.notice:
                return result.notice or "There was nothing in it to remember."
        if result.changed:
            return "Nothing was put away: the conversation changed meanwhile. Try again."
        return "Nothing was put away: the model cannot be reached at present. Try again later."

    async def _rest(self, session: Session) -> bool:
        """Whether nothing is left to put away."""
        if not (await self._seal(session, "patient")).done:
            return False
        count = len(session.messages)
        return not count or await self._put_away(session, count, "patient")

    async def _seal(self, session: Session, haste: Haste) -> PutAway:
        """Put away what lies before the newest epoch; not done where that has to wait."""
        result = PutAway(done=True)
        first, last = session.last_consolidated + 1, session.epoch_seq
        if first <= last:
            self._owed.add(session.key)
            messages = await asyncio.to_thread(self._sessions.read_window, session.key, first, last)
            result = await self._archivist.put_away(session, last, messages, haste)
            await self._say(session, result)
        if result.done:
            self._owed.discard(session.key)
        return result

    async def _put_away(self, session: Session, count: int, haste: Haste) -> bool:
        """Put the oldest `count` messages of the window away; whether that is done."""
        result = await self._archived(session, count, haste)
        await self._say(session, result)
        return result.done

    async def _archived(self, session: Session, count: int, haste: Haste) -> PutAway:
        messages = session.messages
        last = messages[count].seq - 1 if count < len(messages) else messages[-1].seq
        return await self._archivist.put_away(session, last, messages[:count], haste)

    async def _say(self, session: Session, result: PutAway) -> None:
        if result.notice:
            try:
                await self._on_put_away(session.key, result.notice)
            except NanobotError as error:
                logger.warning("{}: a notice could not be sent: {}", session.key, error)

    async def _settle(self) -> None:
        """Carry out changes of memory that wait."""
        try:
            for memory in self._memories():
                await self._archivist.settle(memory)
        except NanobotError as error:
            logger.error("changes of memory wait: {} {}", error, error.hint)

    async def _look_for_sealed(self) -> None:
        """Find the sessions that are not consolidated as far as an epoch or a history says, as far
        as can be told without opening them, which would take long."""
        histories = [memory.history for memory in self._memories()]

        def left_behind() -> set[str]:
            return {
                info.key
                for info in self._sessions.list_sessions()
                if not is_own(info.key)
                and info.last_consolidated
                < max([info.epoch_seq, *(history.committed(info.key) for history in histories)])
            }

        self._owed |= await asyncio.to_thread(left_behind)
        await self._put_sealed_away()

    async def _put_sealed_away(self) -> None:
        for key in sorted(self._owed):
            if self._summariser.is_resting:
                return
            try:
                await self.seal(await self._sessions.get_or_create(key))
            except NanobotError as error:
                logger.warning("{}: what was sealed waits: {}", key, error)

    async def _put_resting_away(self) -> None:
        """Sessions in which nothing was said for long enough, each once while it rests."""
        before = self._clock.now() - timedelta(minutes=self._limits.idle_minutes)
        infos = await asyncio.to_thread(self._sessions.list_sessions)
        resting = (info for info in infos if info.updated_at <= before and not is_own(info.key))
        due = [info for info in resting if self._rested.get(info.key) != info.updated_at]
        for info in due[:_IDLE_AT_ONCE]:
            if self._summariser.is_resting:
                return
            try:
                session = await self._sessions.get_or_create(info.key)
                if await self._one_by_one(session, partial(self._rest, session)):
                    self._rested[info.key] = info.updated_at
            except NanobotError as error:
                logger.warning("{}: not put away: {}", info.key, error)
