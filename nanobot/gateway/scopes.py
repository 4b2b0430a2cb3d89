"""What a worker of a team knows of its scopes: what is under way in each, in threads as well."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, ParamSpec, TypeVar

from msgspec import Struct, field

from nanobot.bus.events import InboundMessage
from nanobot.bus.journal import InboxEntry
from nanobot.tasks import SCOPES

P = ParamSpec("P")
T = TypeVar("T")

CLOSE_SECONDS = 3.0
"""How long the end waits for calls in threads, and then for the database."""


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
    message: InboundMessage = entry.message
    number = message.message_id
    return message.timestamp, int(number) if number.isdecimal() else 0, entry.id
