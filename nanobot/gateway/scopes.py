"""What a worker of a team knows of its scopes: what is under way in each, in threads as well; and
the repair of their files when it takes them over.

A scope's last worker may have died while it changed a file, or it was only stopped and may continue
at any time.
"""

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
"""How long the end waits for calls in threads, and then for the database."""

_LONGEST_PAUSE = 300.0
_HEARD_SECONDS = 1.0
"""How long an answer that another worker got may take to be heard here."""


class Single(Struct, frozen=True):
    """What only one worker runs at a time: how it begins here, and ends."""

    start: Callable[[], None]
    stop: Callable[[], Awaitable[None]]


class ScopedThreads(ThreadPoolExecutor):
    """Those of the event loop. A call in one goes on when the task is cancelled that waits for it:
    `calls` are those under way, each with the scopes that it works on."""

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
        """The scopes that some call works on."""
        return {scope for scopes in list(self.calls.values()) for scope in scopes}


class ScopeState(Struct):
    """A scope that this worker has. `entries` and `parts` are what was delivered of it and has not
    ended; `used` counts who holds it for something else; `leaving`: nothing more is delivered."""

    entries: set[int] = field(default_factory=set)
    parts: set[int] = field(default_factory=set)
    used: int = 0
    leaving: bool = False
    asked_at: float = 0.0
    stays_until: float = 0.0
    rests_since: float = 0.0

    @property
    def is_busy(self) -> bool:
        """Whether something of it is under way here."""
        return bool(self.entries or self.parts or self.used)


async def ended(calls: Iterable[Future[Any]]) -> None:
    """Return when these have ended, or after `CLOSE_SECONDS`. Takes no thread: all may be busy."""
    with suppress(TimeoutError):
        async with asyncio.timeout(CLOSE_SECONDS):
            await asyncio.gather(*map(asyncio.wrap_future, calls), return_exceptions=True)


def is_fresh(entry: InboxEntry) -> bool:
    """Whether a message was not handled at all yet."""
    return not (entry.turn_id or entry.attempts or entry.runs or entry.not_before or entry.joined)


def order(entry: InboxEntry) -> tuple[object, ...]:
    """The platform's order, as far as it tells one."""
    number = entry.message.message_id
    return entry.message.timestamp, int(number) if number.isdecimal() else 0, entry.id


class Takeover:
    """Of all scopes of this worker; `is_over` once it ends. `shared` is the team's folder."""

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
        """Scopes of this worker whose files a dead worker left half done, as they still are: when
        each is tried again, and the pause before that."""
        self._known: tuple[int, Collection[int]] = 0, ()
        """The newest worker, and those alive, when files of all others were cleared away."""

    async def end_changes_of_the_dead(self) -> None:
        """See to it that no dead worker changes a file that is this worker's now."""
        alive = await self._leases.alive()
        if alive == self._known:
            return
        await self.clear_temporaries(everywhere=False)
        FENCE.made.clear()  # what the dead one made since may have the number of one of these
        self._known = alive

    async def open_questions(self) -> Sequence[tuple[OutboxPart, str]]:
        """Return the questions of workers that are gone, once all answers have been heard."""
        await self._clock.sleep(_HEARD_SECONDS)
        with suppress(StorageError):  # the next takeover looks again
            return await self._journal.open_questions()
        return ()

    async def clear_temporaries(self, *, everywhere: bool) -> None:
        """Remove those of dead workers: see `temporaries`."""
        left = await asyncio.to_thread(
            temporaries, self._shared, self._is_over, everywhere=everywhere
        )
        if left:
            _, alive = await self._leases.alive()
            dead = [path for path, number in left.items() if number not in alive]
            await asyncio.to_thread(clear, dead)

    def recover(self, scopes: Mapping[str, bool]) -> None:
        """Finish changes of the files of `scopes`, by whether their last worker died. What belongs
        to no scope has none. Blocks."""
        for scope, died in scopes.items():
            if not is_scope(scope):
                continue
            try:
                self._memories.recover_scope(scope, died)
                self._unrecovered.pop(scope, None)
            except Exception as error:  # noqa: BLE001 - writing reports it; a chat need not
                pause = 2 * self._unrecovered.get(scope, (0.0, 1.0))[1]
                again = self._clock.monotonic() + pause
                self._unrecovered[scope] = again, min(pause, _LONGEST_PAUSE)
                logger.opt(exception=error).error("{} cannot be recovered right now", scope)

    @property
    def due(self) -> list[str]:
        """The scopes that could not be recovered and are to be tried again."""
        now = self._clock.monotonic()
        return [scope for scope, (at, _) in self._unrecovered.items() if at <= now]

    async def release(self, scopes: Collection[str]) -> None:
        """Let others have these; whoever takes one that could not be recovered tries it too."""
        damaged = [scope for scope in scopes if self._unrecovered.pop(scope, None)]
        if damaged:
            await self._leases.put_back(damaged)
        await self._leases.release([scope for scope in scopes if scope not in damaged])

    async def file(self, unfiled: Iterable[Unfiled]) -> set[str]:
        """Put lines into their conversations' files that may not be there; the scopes where one
        cannot be written."""
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
