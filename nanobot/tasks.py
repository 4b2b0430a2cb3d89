"""Background work with an owner: every task is known, its failure is logged, and it can be drained.

The event loop keeps only weak references to tasks, and an exception in a task that is not awaited
is easily missed. So a bare `asyncio.create_task` is banned everywhere else."""

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
"""The turn id of the current task, for log lines. Tasks and threads inherit it."""

SCOPES: ContextVar[tuple[str, ...]] = ContextVar("scopes", default=())
"""In a team, the memory scopes of the current task. Inherited too."""

SWITCH_SECONDS = 0.002
"""Python's switch interval in a gateway. The event loop waits this long, several times in a turn,
for a computing thread that does not `pace` itself."""

_SLICE_SECONDS = 0.0003
_PAUSE, _LONGEST_PAUSE = 4.0, 0.02
"""Length of a pause, as a multiple of the work before it, and its maximum in seconds."""

_BUSY = 0.1
"""Other threads are busy if they use at least this share of this thread's time."""

_ROUNDS = 3
_CANCEL_SECONDS = 3.0
"""Seconds for cancelled work to clean up before it is abandoned."""


def end_at_once(text: str, code: int) -> NoReturn:
    """Log a line and end this process at once, whatever other threads do."""
    logging = threading.Thread(target=logger.critical, args=("{}", text), daemon=True)
    logging.start()
    logging.join(1.0)  # the log's disk may hang
    os._exit(code)  # no exit handlers, which could block


class Background:
    """Owns tasks that are not awaited."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, T], *, name: str = "") -> asyncio.Task[T]:
        """Run `work` as a task. A failure is logged, never raised."""
        task = asyncio.create_task(work, name=name or None)
        self._tasks.add(task)
        task.add_done_callback(self._note_end)
        return task

    async def wait(self, grace: float) -> None:
        """Wait up to `grace` seconds for the running tasks and their new ones."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + grace
        while self._tasks and (left := deadline - loop.time()) > 0:
            await asyncio.wait(self._tasks, timeout=left)

    async def drain(self, grace: float) -> None:
        """Wait up to `grace` seconds for the running tasks, then cancel the rest."""
        await self.wait(grace)
        for _ in range(_ROUNDS):  # cancelled tasks may start others
            leftover = [task for task in self._tasks if not task.done()]
            if not leftover:
                return
            for task in leftover:
                task.cancel()
            _, stubborn = await asyncio.wait(leftover, timeout=_CANCEL_SECONDS)
            for task in stubborn:
                logger.warning("{} was cancelled but has not ended", task.get_name())
            if stubborn:
                return

    def cancel(self) -> None:
        """Cancel all tasks, so that `drain` returns at once."""
        for task in self._tasks:
            task.cancel()

    def __len__(self) -> int:
        return len(self._tasks)

    def _note_end(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.opt(exception=error).error("background task {} failed", task.get_name())


class Routine(Protocol):
    """Work with a schedule."""

    async def run_forever(self) -> None:
        """Run until `stop`."""
        ...

    def stop(self) -> None:
        """Start nothing more."""
        ...


class Periodic(ABC):
    """Recurring background work: first after `first` seconds, then every `every`."""

    def __init__(self, clock: Clock, every: float, first: float = 0.0) -> None:
        self._clock, self._every, self._first = clock, every, first
        self._running: asyncio.Task[None] | None = None

    @abstractmethod
    async def run_once(self) -> None:
        """Do the work. Errors are logged, and the next time is tried as usual."""

    async def run_forever(self) -> None:
        """Run until `stop`."""
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
        """Start nothing more. A running thread ends by itself."""
        if self._running is not None:
            self._running.cancel()


class Repeated(Periodic):
    """A recurring call."""

    def __init__(
        self, clock: Clock, every: float, work: Callable[[], Awaitable[None]], first: float = 0.0
    ) -> None:
        super().__init__(clock, every, first)
        self._work = work

    async def run_once(self) -> None:
        await self._work()


_ONE_AFTER_ANOTHER = threading.Lock()


def pace(items: Iterable[T], pause: Callable[[float], None] = time.sleep) -> Iterator[T]:
    """Yield the same items, with pauses, so that a thread with many of them hardly slows down
    turns.

    Python runs one thread at a time. While other threads of this process use the processor, this
    one pauses for four fifths of the time. Such threads pause one after another, so several
    together take hardly more than one. Never pauses on an event loop. `pause` sleeps for some
    seconds."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        pass
    else:
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
            with _ONE_AFTER_ANOTHER:  # several threads together pause as much as one
                pause(min(_PAUSE * worked, _LONGEST_PAUSE))
        looked = time.perf_counter()


@contextmanager
def logging_errors(what: str) -> Iterator[None]:
    """Log errors inside, as the next attempt may succeed."""
    try:
        yield
    except NanobotError as error:
        logger.error("{} is pending: {} {}", what, error, error.hint)
    except Exception as error:  # noqa: BLE001 - the boundary: one piece of work must not stop others
        logger.opt(exception=error).error("{} failed", what)


def is_cancelled() -> bool:
    """Return True if the current task was cancelled. Otherwise a `CancelledError` came from an
    awaited object, and is an ordinary failure."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
