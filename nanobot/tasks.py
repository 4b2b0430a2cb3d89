"""Background work with an owner: every task is known, its failure is logged, and it can be drained.

The event loop keeps only weak references to tasks, and an exception in one that nobody awaits is
easily never seen; that is why a bare `asyncio.create_task` is banned everywhere else.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NoReturn, Protocol, TypeVar

from loguru import logger

from nanobot.clock import Clock
from nanobot.errors import NanobotError

T = TypeVar("T")

TURN: ContextVar[str] = ContextVar("turn", default="")
"""The id of the turn that a task works for; lines in the log carry it. Tasks and threads inherit
it from what starts them."""

SCOPES: ContextVar[tuple[str, ...]] = ContextVar("scopes", default=())
"""In a team, the scopes of memory that a task works on; inherited likewise."""

SWITCH_SECONDS = 0.002
"""Python's switch interval while a gateway runs: how long the event loop waits, several times in a
turn, for a thread that computes and is not `pace`."""

_SLICE_SECONDS = 0.0003
_PAUSE, _LONGEST_PAUSE = 4.0, 0.02
"""Pauses last so many times as long as the work before them, and so many seconds at most."""

_BUSY = 0.1
"""Other threads are busy where they use at least this share of the time that one uses itself."""

_ROUNDS = 3
_CANCEL_SECONDS = 3.0
"""How long cancelled work may take to clean up before it is left alone."""


def end_at_once(text: str, code: int) -> NoReturn:
    """End this process with a line in the log, whatever other threads are about to do."""
    logging = threading.Thread(target=logger.critical, args=("{}", text), daemon=True)
    logging.start()
    logging.join(1.0)  # the log's disk may hang
    os._exit(code)


class Background:
    """Owns tasks that nobody awaits."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, T], *, name: str = "") -> asyncio.Task[T]:
        """Run `work` as a task of its own; a failure is logged, never raised."""
        task = asyncio.create_task(work, name=name or None)
        self._tasks.add(task)
        task.add_done_callback(self._finished)
        return task

    async def wait(self, grace: float) -> None:
        """Wait up to `grace` seconds for the work under way, and for what it starts."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + grace
        while self._tasks and (left := deadline - loop.time()) > 0:
            await asyncio.wait(self._tasks, timeout=left)

    async def drain(self, grace: float) -> None:
        """Wait up to `grace` seconds for the work under way, then cancel what is left."""
        await self.wait(grace)
        for _ in range(_ROUNDS):  # what is cancelled may start something on its way out
            leftover = [task for task in self._tasks if not task.done()]
            if not leftover:
                return
            for task in leftover:
                task.cancel()
            _, stubborn = await asyncio.wait(leftover, timeout=_CANCEL_SECONDS)
            for task in stubborn:
                logger.warning("{} was cancelled but does not end", task.get_name())
            if stubborn:
                return

    def cancel(self) -> None:
        """Cancel all of it; `drain` then returns at once."""
        for task in self._tasks:
            task.cancel()

    def __len__(self) -> int:
        return len(self._tasks)

    def _finished(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.opt(exception=error).error("background task {} failed", task.get_name())


class Routine(Protocol):
    """What does something at its own times."""

    async def run_forever(self) -> None:
        """Until `stop`."""
        ...

    def stop(self) -> None:
        """Begin nothing more."""
        ...


class Periodic(ABC):
    """Work that is done again and again beside everything else: first after `first` seconds, then
    every `every`."""

    def __init__(self, clock: Clock, every: float, first: float = 0.0) -> None:
        self._clock, self._every, self._first = clock, every, first
        self._running: asyncio.Task[None] | None = None

    @abstractmethod
    async def run_once(self) -> None:
        """Do it. What it raises is logged: the next time may go well."""

    async def run_forever(self) -> None:
        """Until `stop`."""
        self._running = asyncio.current_task()
        if self._first:
            await self._clock.sleep(self._first)
        while True:
            try:
                await self.run_once()
            except Exception as error:  # noqa: BLE001 - the boundary: the next time may go well
                logger.opt(exception=error).warning("{} failed: {}", type(self).__name__, error)
            await self._clock.sleep(self._every)

    def stop(self) -> None:
        """Begin nothing more; a thread that works for it ends by itself."""
        if self._running is not None:
            self._running.cancel()


class Repeated(Periodic):
    """A call that is made again and again."""

    def __init__(
        self, clock: Clock, every: float, work: Callable[[], Awaitable[None]], first: float = 0.0
    ) -> None:
        super().__init__(clock, every, first)
        self._work = work

    async def run_once(self) -> None:
        await self._work()


_ONE_AFTER_ANOTHER = threading.Lock()


def pace(items: Iterable[T], pause: Callable[[float], None] = time.sleep) -> Iterator[T]:
    """The same items, for a thread that works through many of them, so that turns hardly notice it.

    Python runs one thread at a time. So while other threads of this process use the processor, this
    one pauses for four fifths of the time; else it goes on without a pause. Such threads pause one
    after another, so that several together take hardly more than one. Never pauses on an event
    loop. `pause` sleeps for some seconds.
    """
    if _is_on_event_loop():
        yield from items
        return
    looked, own = time.perf_counter(), time.thread_time()
    others = time.process_time() - own
    for item in items:
        yield item
        if time.perf_counter() - looked < _SLICE_SECONDS:
            continue
        now = time.thread_time()
        all_others = time.process_time() - now
        worked, worked_by_others = now - own, all_others - others
        own, others = now, all_others
        if worked_by_others > _BUSY * worked:
            with _ONE_AFTER_ANOTHER:
                pause(min(_PAUSE * worked, _LONGEST_PAUSE))
        looked = time.perf_counter()


def _is_on_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


@contextmanager
def logging_errors(what: str) -> Iterator[None]:
    """Log what goes wrong inside: the next time it may go well."""
    try:
        yield
    except NanobotError as error:
        logger.error("{} is pending: {} {}", what, error, error.hint)
    except Exception as error:  # noqa: BLE001 - the boundary: one piece of work must not stop others
        logger.opt(exception=error).error("{} failed", what)


def is_cancelled() -> bool:
    """Whether somebody cancelled the current task. Otherwise a `CancelledError` came out of
    something that it awaited, and is a failure like any other."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
