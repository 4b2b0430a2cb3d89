"""Repair the files of scopes that a worker takes over, before it uses them.

The scope's last worker may have died while it changed a file, or it was only stopped and may
continue at any time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from loguru import logger
from msgspec import Struct

from nanobot.bus.journal import OutboxPart, Unfiled
from nanobot.clock import Clock
from nanobot.errors import StorageError
from nanobot.io import FENCE
from nanobot.memory.scopes import Memories, is_scope
from nanobot.session.manager import SessionManager
from nanobot.team.folder import clear, temporaries
from nanobot.team.journal import PostgresJournal
from nanobot.team.leases import Leases

_LONGEST_PAUSE = 300.0
_HEARD_SECONDS = 1.0
"""How long an answer that another worker got may take to be heard here."""


class _Retry(Struct, frozen=True):
    """When something is tried again, and the pause before that."""

    at: float = 0.0
    pause: float = 1.0


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
        self._unrecovered: dict[str, _Retry] = {}
        """Scopes of this worker whose files a dead worker left half done, as they still are."""
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
                pause = 2 * self._unrecovered.get(scope, _Retry()).pause
                again = self._clock.monotonic() + pause
                self._unrecovered[scope] = _Retry(again, min(pause, _LONGEST_PAUSE))
                logger.opt(exception=error).error("{} cannot be recovered for now", scope)

    @property
    def due(self) -> list[str]:
        """The scopes that could not be recovered and are to be tried again."""
        now = self._clock.monotonic()
        return [scope for scope, retry in self._unrecovered.items() if retry.at <= now]

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
                logger.error("messages of {} wait: {} {}", one.scope, error, error.hint)
                stuck.add(one.scope)
        if filed:
            self._journal.mark_filed(filed)
        return stuck
