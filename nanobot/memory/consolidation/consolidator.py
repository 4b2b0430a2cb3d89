"""Consolidation: the oldest part of a conversation leaves the prompt and becomes memory.

This module decides when and how much; `planning` says where to part, `archivist` puts a range away,
`limits` bounds what it costs whoever waits.

Invariants: a message is in the prompt or behind a history entry; the prompt is brought under its
budget before a turn, whatever the model does; there is one consolidation per session at a time, as
a task of its own that survives whoever waits for it. A second caller waits, looks again, and mostly
finds the work done.

A model that is out delays nobody and loses nothing: what can wait stays in the prompt, and when
room must be made for a turn the range is archived raw, for Dream to read. A range of turns that no
person began or spoke in (runs of a schedule) is archived raw as well: it says nothing about the
person and stays searchable. A range without any content is only marked.

Sessions that nobody uses are looked after as well (`Resting`): those that were left behind, and
those that rest, each once. One that could not be put away is tried again after 1, 2, 4 … 60
minutes, and keeps no others from their turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import nullcontext
from datetime import datetime, timedelta
from functools import partial

from loguru import logger

from nanobot.clock import Clock
from nanobot.errors import NanobotError
from nanobot.memory.consolidation.archivist import Archivist, Haste, Ledger, PutAway
from nanobot.memory.consolidation.limits import OneByOne, Patience
from nanobot.memory.consolidation.planning import Gauge, Limits, PromptSize, newest_turn
from nanobot.memory.consolidation.summariser import Summariser
from nanobot.memory.history.log import HistoryLog
from nanobot.memory.scopes import Memory
from nanobot.memory.versions.gitstore import GitStore
from nanobot.messages import Message
from nanobot.providers.counter import TokenCounter
from nanobot.providers.port import Provider
from nanobot.session.catalogue import SessionInfo
from nanobot.session.manager import SessionManager
from nanobot.session.records import is_own
from nanobot.session.session import Session
from nanobot.tasks import Background

_LONGEST = 60


def behind(
    listed: Callable[[], Iterable[SessionInfo]], histories: Sequence[HistoryLog]
) -> list[str]:
    """The keys of sessions that are not consolidated as far as an epoch or one of the histories
    says, as far as can be told without opening them, which would take long. Blocks."""
    return [
        info.key
        for info in listed()
        if not is_own(info.key)
        and info.last_consolidated
        < max([info.epoch_seq, *(history.committed(info.key) for history in histories)])
    ]


class Resting:
    """Remembers which sessions were seen to, as they were last used."""

    def __init__(self) -> None:
        self._done: dict[str, datetime] = {}
        self._failed: dict[str, tuple[int, datetime]] = {}

    def due(self, infos: Iterable[SessionInfo], unused_since: datetime, now: datetime) -> list[str]:
        """The keys of those to be seen to."""
        return [
            info.key
            for info in infos
            if not is_own(info.key)
            and info.updated_at <= unused_since
            and self._done.get(info.key) != info.updated_at
            and (info.key not in self._failed or self._failed[info.key][1] <= now)
        ]

    def done(self, key: str, used: datetime) -> None:
        """A session that was last used then is put away."""
        self._done[key] = used
        self._failed.pop(key, None)

    def failed(self, key: str, now: datetime) -> None:
        """It could not be put away for now."""
        times = self._failed.get(key, (0, now))[0]
        pause = timedelta(minutes=min(2**times, _LONGEST))
        self._failed[key] = (min(times + 1, _LONGEST), now + pause)


OnPutAway = Callable[[str, str], Awaitable[None]]
"""Told the session's key and, in one line for people, what was put away."""

ROUNDS = 5
"""How often at most one call makes room with the model's help."""

_IDLE_AT_ONCE = 20
"""Sessions looked at in one minute."""


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
        memories: Callable[[], Iterable[Memory]] = tuple,
        versions: GitStore | None = None,
        on_put_away: OnPutAway | None = None,
        background: Background | None = None,
    ) -> None:
        self._sessions, self._clock, self._limits = sessions, clock, limits
        self._memories, self._tell = memories, on_put_away
        self._gauge = Gauge(prompt, counter, limits)
        self._background = Background() if background is None else background
        self._patience = Patience(clock, self._background)
        self._ledger = Ledger(versions)
        self._summariser = Summariser(
            provider,
            clock,
            budget=limits.budget,
            ratio=lambda: counter.ratio,
            model=limits.model,
        )
        self._archivist = Archivist(
            summariser=self._summariser,
            ledger=self._ledger,
            sessions=sessions,
            clock=clock,
            memory_of=memory_of,
            patience=self._patience,
        )
        self._one_by_one = OneByOne(self._background)
        self._owed: set[str] = set()
        self._resting = Resting()

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
        await self._archivist.catch_up(session)
        if not await self._is_due(session, coming):
            return
        work = partial(self._make_room, session, coming)
        with self._patience.limited(session.key) if coming else nullcontext():
            await self._one_by_one.do(session.key, work)

    async def shrink(self, session: Session) -> bool:
        """Put away the older half whatever the estimate says; False when there is none."""
        if is_own(session.key):
            return False
        work = partial(self._shrink, session, session.last_consolidated)
        with self._patience.limited(session.key):
            return await self._one_by_one.do(session.key, work)

    async def compact(self, session: Session) -> str:
        """Put away everything before the newest turn, or that if it is the only one; says in one
        line what was put away, or why nothing was."""
        return await self._one_by_one.do(session.key, partial(self._compact, session))

    async def seal(self, session: Session) -> None:
        """Put away what `/new` sealed, read from disk; where the model is out, `idle` tries on."""
        self._owed.add(session.key)
        try:
            await self._archivist.catch_up(session)
            await self._one_by_one.do(session.key, partial(self._seal, session, "patient"))
        except NanobotError as error:
            logger.warning("{}: what was sealed waits: {}", session.key, error)

    async def recover(self) -> None:
        """Finish what a crash cut short; for the start. Turns may run meanwhile.

        Looking for sessions that were left behind goes on in the background, as does what needs the
        model. One that is used before that is caught up then.
        """
        try:
            for memory in self._memories():
                await self._ledger.settle(memory)
        except NanobotError as error:
            logger.error("what a crash cut short waits: {} {}", error, error.hint)
        self._background.start(self._look_for_sealed(), name="consolidate what was sealed")

    async def idle(self) -> None:
        """Each minute: what was sealed and still waits, changes that wait, sessions that rest."""
        if self._summariser.is_resting:
            return
        await self._pay_owed()
        if self._limits.idle_minutes > 0:
            await self._put_resting_away()

    async def _is_due(self, session: Session, coming: Sequence[Message]) -> bool:
        if not coming and self._gauge.window_boundary(session):
            return True
        return await self._gauge.excess(session, coming, self._limits.budget) > 0

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
        await self._archivist.catch_up(session)
        if session.last_consolidated > max(before, session.epoch_seq):
            return True  # by whoever was at work just now
        await self._seal(session, "urgent")
        count = self._gauge.half(session)
        if count:
            await self._put_away(session, count, "urgent")
        return bool(count)

    async def _compact(self, session: Session) -> str:
        await self._archivist.catch_up(session)
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

    async def _seal(self, session: Session, haste: Haste) -> PutAway:
        """Put away what lies before the newest epoch; not done where that has to wait."""
        first, last = session.last_consolidated + 1, session.epoch_seq
        if first > last:
            self._owed.discard(session.key)
            return PutAway(done=True)
        messages = await asyncio.to_thread(self._sessions.read_window, session.key, first, last)
        self._owed.add(session.key)
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
        if result.notice and self._tell is not None:
            try:
                await self._tell(session.key, result.notice)
            except NanobotError as error:
                logger.warning("{}: a notice could not be sent: {}", session.key, error)

    async def _look_for_sealed(self) -> None:
        histories = [memory.history for memory in self._memories()]
        for key in await asyncio.to_thread(behind, self._sessions.list_sessions, histories):
            try:
                session = await self._sessions.get_or_create(key)
                await self._archivist.catch_up(session)
            except NanobotError as error:
                logger.warning("{}: not looked at: {}", key, error)
            else:
                if session.epoch_seq > session.last_consolidated:
                    self._owed.add(key)
        await self._pay_owed()

    async def _pay_owed(self) -> None:
        """Try again with what was sealed and could not be put away."""
        for memory in self._memories():
            await self._ledger.settle(memory)
        for key in sorted(self._owed):
            if self._summariser.is_resting:
                return
            try:
                await self.seal(await self._sessions.get_or_create(key))
            except NanobotError as error:
                logger.warning("{}: what was sealed waits: {}", key, error)

    async def _put_resting_away(self) -> None:
        """Sessions in which nothing was said for long enough, each once while it rests."""
        now = self._clock.now()
        infos = await asyncio.to_thread(self._sessions.list_sessions)
        used = {info.key: info.updated_at for info in infos}
        before = now - timedelta(minutes=self._limits.idle_minutes)
        for key in self._resting.due(infos, before, now)[:_IDLE_AT_ONCE]:
            try:
                session = await self._sessions.get_or_create(key)
                done = await self._one_by_one.do(key, partial(self._rest, session))
            except NanobotError as error:
                logger.warning("{}: not put away: {}", key, error)
                done = False
            if done:
                self._resting.done(key, used[key])
            else:
                self._resting.failed(key, now)
            if self._summariser.is_resting:
                return

    async def _rest(self, session: Session) -> bool:
        """Whether nothing is left to put away."""
        await self._archivist.catch_up(session)
        if not (await self._seal(session, "patient")).done:
            return False
        count = len(session.messages)
        return not count or await self._put_away(session, count, "patient")
