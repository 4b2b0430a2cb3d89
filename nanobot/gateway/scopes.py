"""The scopes of a team's worker: their work in progress, also in threads, and the repair of their
files after a takeover.

A scope's last worker may have died while it changed a file, or was only stopped and may continue at
any time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from loguru import logger
from msgspec import Struct, field

from nanobot.bus.journal import InboxEntry, OutboxPart, Unfiled
from nanobot.clock import Clock
from nanobot.errors import StorageError
from nanobot.io import FENCE
from nanobot.memory.scopes import Memories, is_scope
from nanobot.session.manager import SessionManager
from nanobot.tasks import SCOPES
from nanobot.team.folder import clear, temporaries
from nanobot.team.journal import PostgresJournal
from nanobot.team.leases import Leases

P = ParamSpec("P")
T = TypeVar("T")

CLOSE_SECONDS = 3.0
"""Timeout at the end, for calls in threads and then for the database."""

_LONGEST_PAUSE = 300.0
_HEARD_SECONDS = 1.0
"""Seconds for an answer at another worker to arrive here."""


class Single(Struct, frozen=True):
    """Work that only one worker does at a time: how it starts and stops here."""

    start: Callable[[], None]
    stop: Callable[[], Awaitable[None]]


class ScopedThreads(ThreadPoolExecutor):
    """The event loop's threads. A call continues even if its task is cancelled. `calls` are the
    running ones, each with its scopes."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: dict[Future[Any], tuple[str, ...]] = {}

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        call = super().submit(fn, *args, **kwargs)
        self.calls[call] = SCOPES.get()
        call.add_done_callback(self.calls.pop)
        return call

    @property
    def scopes(self) -> set[str]:
        """Scopes with a running call."""
        return {scope for scopes in list(self.calls.values()) for scope in scopes}


class ScopeState(Struct):
    """A scope of this worker. `entries` and `parts` are delivered and not ended, `used` counts
    other holders. If `leaving`, nothing more is delivered."""

    entries: set[int] = field(default_factory=set)
    parts: set[int] = field(default_factory=set)
    used: int = 0
    leaving: bool = False
    asked_at: float = 0.0
    stays_until: float = 0.0
    rests_since: float = 0.0

    @property
    def is_busy(self) -> bool:
        """True if this worker has running work of the scope."""
        return bool(self.entries or self.parts or self.used)


async def wait_for_calls(calls: Iterable[Future[Any]]) -> None:
    """Wait for the calls, up to `CLOSE_SECONDS`. Uses no thread, as all may be busy."""
    with suppress(TimeoutError):
        async with asyncio.timeout(CLOSE_SECONDS):
            await asyncio.gather(*map(asyncio.wrap_future, calls), return_exceptions=True)


def is_fresh(entry: InboxEntry) -> bool:
    """Return True if a message was not handled at all yet."""
    return not (entry.turn_id or entry.attempts or entry.runs or entry.not_before or entry.joined)


def order(entry: InboxEntry) -> tuple[object, ...]:
    """Return a sort key for the platform's order, as far as it is known."""
    number = entry.message.message_id
    return entry.message.timestamp, int(number) if number.isdecimal() else 0, entry.id


class Takeover:
    """Takeover of the files of scopes. `shared` is the team's folder. `is_over` returns True once
    this worker ends."""

    def __init__(
        self,
        journal: PostgresJournal,
        leases: Leases,
        shared: Path,
        sessions: SessionManager,
        memories: Memories,
        clock: Clock,
        is_over: Callable[[], bool],
    ) -> None:
        self._journal, self._leases, self._shared = journal, leases, shared
        self._sessions, self._memories, self._clock = sessions, memories, clock
        self._is_over = is_over
        self._unrecovered: dict[str, tuple[float, float]] = {}
        """Scopes with files that a dead worker left half done: the time of the next attempt and the
        pause before it."""
        self._known: tuple[int, Collection[int]] = 0, ()
        """The newest worker, and the living ones, when the files of all others were removed."""

    async def end_changes_of_the_dead(self) -> None:
        """Ensure that no dead worker can still change a file of this worker."""
        alive = await self._leases.alive()
        if alive == self._known:
            return
        await self.clear_temporaries(everywhere=False)
        FENCE.made.clear()  # a dead worker's new file may reuse one of these inodes
        self._known = alive

    async def open_questions(self) -> Sequence[tuple[OutboxPart, str]]:
        """Return the questions of dead workers, once all answers have arrived."""
        await self._clock.sleep(_HEARD_SECONDS)
        with suppress(StorageError):  # the next takeover retries
            return await self._journal.open_questions()
        return ()

    async def clear_temporaries(self, *, everywhere: bool) -> None:
        """Remove the temporary files of dead workers (see `temporaries`)."""
        left = await asyncio.to_thread(
            temporaries, self._shared, self._is_over, everywhere=everywhere
        )
        if left:
            _, alive = await self._leases.alive()
            dead = [path for path, number in left.items() if number not in alive]
            await asyncio.to_thread(clear, dead)

    def recover(self, scopes: Mapping[str, bool]) -> None:
        """Finish file changes of `scopes`, which map to whether their last worker died. Leases that
        are not scopes have no files. Blocks."""
        for scope, died in scopes.items():
            if not is_scope(scope):
                continue
            try:
                self._memories.recover_scope(scope, died)
                self._unrecovered.pop(scope, None)
            except Exception as error:  # noqa: BLE001 - writing reports it; a chat need not
                # The pause doubles after each failure.
                pause = 2 * self._unrecovered.get(scope, (0.0, 1.0))[1]
                again = self._clock.monotonic() + pause
                self._unrecovered[scope] = again, min(pause, _LONGEST_PAUSE)
                logger.opt(exception=error).error("{} cannot be recovered right now", scope)

    @property
    def due(self) -> list[str]:
        """Scopes whose recovery failed and is to be retried."""
        now = self._clock.monotonic()
        return [scope for scope, (at, _) in self._unrecovered.items() if at <= now]

    async def release(self, scopes: Collection[str]) -> None:
        """Release scopes. If a recovery failed, the next holder retries it."""
        damaged = [scope for scope in scopes if self._unrecovered.pop(scope, None)]
        if damaged:
            await self._leases.put_back(damaged)
        await self._leases.release([scope for scope in scopes if scope not in damaged])

    async def file(self, unfiled: Iterable[Unfiled]) -> set[str]:
        """Write lines that may be missing to their conversations' files. Return the scopes that
        failed."""
        stuck, filed = set[str](), list[int]()
        for one in unfiled:
            try:
                await self._sessions.restore(one.session_key, one.lines)
                filed.append(one.id)
            except StorageError as error:
                logger.error("messages of {} are pending: {} {}", one.scope, error, error.hint)
                stuck.add(one.scope)
        if filed:
            self._journal.mark_filed(filed)
        return stuck
