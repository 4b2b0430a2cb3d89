"""The common base of the journal's engines: transactions as generators, and a one-writer queue.

A transaction is a generator. It yields statements and gets their rows, so a blocking connection and
an asynchronous one run the same steps in the same order. It may run several times, each time from a
new generator, until one is stored. Statements have `?` in place of values."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from asyncio import Future
from collections.abc import Callable, Collection, Coroutine, Generator, Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Concatenate, ParamSpec, TypeVar

from loguru import logger
from msgspec import Struct

from nanobot.errors import StorageError

T = TypeVar("T")
P = ParamSpec("P")
Store = TypeVar("Store", bound="SqlStore")

Row = tuple[Any, ...]
Steps = Generator[Any, Any, T]
"""The steps of a transaction. For each `Statement` it gets a handle of the engine, and for each
handle that it yields back, a list of rows."""


class Statement(Struct, frozen=True):
    """A statement with its values, in order. A list is for `SqlStore.AMONG`."""

    text: str
    values: tuple[object, ...]


def send(text: str, *values: object) -> Steps[Any]:
    """Run a statement. Return a handle for `rows_of`, because the engine may not have finished."""
    return (yield Statement(text, values))


def rows_of(sent: Any) -> Steps[list[Row]]:
    """Return the rows of a statement that was sent."""
    rows: list[Row] = yield sent
    return rows


def fetch(text: str, *values: object) -> Steps[list[Row]]:
    """Run a statement and return its rows."""
    return (yield from rows_of((yield Statement(text, values))))


def transaction(
    steps: Callable[Concatenate[Store, P], Steps[T]],
) -> Callable[Concatenate[Store, P], Coroutine[Any, Any, T]]:
    """Run a method's steps as a transaction. It returns once the transaction is durable."""

    async def method(self: Store, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._transact(lambda: steps(self, *args, **kwargs))

    return method


BATCH = 256
"""Jobs per transaction. SQLite's writer also takes the rest of an iteration of the event loop."""
_GATHER_SECONDS = 0.05


class Job(Struct, eq=False):
    """A unit of work and the future of its outcome. The future is None if no caller waits, and
    `work` is None if the caller waits only for earlier jobs. For the rest see `WriteQueue.run`."""

    work: Callable[[Any], Any] | None
    future: Future[Any] | None = None
    retry: bool = True
    until_stored: bool = False
    after_commit: Callable[[Any], None] | None = None
    result: Any = None
    error: BaseException | None = None


Outcome = tuple[Future[Any], object, BaseException | None]


def take_outcomes(jobs: Iterable[Job], refusal: StorageError | None = None) -> list[Outcome]:
    """Return the outcomes of jobs for `resolve`, each once: `refusal`, or their own. Log the
    failure of a job without a caller."""
    outcomes = list[Outcome]()
    for job in jobs:
        if job.future is not None:
            outcomes.append((job.future, job.result, refusal or job.error))
            job.future = None
        elif job.error is not None and refusal is None:
            logger.opt(exception=job.error).error("journal: could not write a marker")
    return outcomes


def resolve(outcomes: Iterable[Outcome]) -> None:
    """Hand outcomes to the callers that wait for them."""
    for future, result, error in outcomes:
        if future.done():
            continue
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)
            future.exception()  # not every caller awaits it, and refusals are logged


def when_stored(stored: Future[T], act: Callable[[T], object]) -> None:
    """Call `act` with the result of `stored`, unless it fails."""

    def act_on_result(future: Future[T]) -> None:
        if not future.cancelled() and future.exception() is None:
            act(future.result())

    stored.add_done_callback(act_on_result)


class WriteQueue(ABC):
    """Queue of jobs for the one writer of an engine, which runs the queued jobs in one transaction
    in FIFO order and commits once. A failed job undoes only itself. All methods belong to the event
    loop."""

    def __init__(self, place: Path | str) -> None:
        self._place = place
        self._gathered: list[Job] = []
        self._later: asyncio.TimerHandle | None = None
        self.refusal: StorageError | None = None
        """Error of the last transaction with changes, if it was rejected."""

    @property
    @abstractmethod
    def is_open(self) -> bool:
        """True if it accepts work."""

    @property
    @abstractmethod
    def has_died(self) -> bool:
        """True if it can store nothing more although it was not closed."""

    @abstractmethod
    def _wake_writer(self) -> None:
        """Pass the gathered jobs to the writer."""

    @abstractmethod
    async def close(self) -> None:
        """Finish the queued jobs, then close."""

    def run(
        self,
        work: Callable[[Any], Any] | None,
        *,
        retry: bool = False,
        until_stored: bool = False,
        can_wait: bool = False,
        after_commit: Callable[[Any], None] | None = None,
    ) -> Future[Any]:
        """Run `work` in a transaction, even if the future is not awaited. Its result follows once
        it is durable. `work` may run several times, until a transaction is stored.

        The future raises an error of `work`, or `StorageError` if the disk or the database rejected
        the transaction. With `retry`, rejected work runs again later. With `until_stored`, the
        future also waits for that, or until the database is closed. For `can_wait` see `post`.
        `after_commit` runs once, between this transaction and the next, for statements that SQLite
        rejects inside one. Raise `StorageError` if the database is not open."""
        if not self.is_open:
            raise self._not_open()
        loop = asyncio.get_running_loop()
        future: Future[Any] = loop.create_future()
        self._gather(Job(work, future, retry or until_stored, until_stored, after_commit), can_wait)
        if not can_wait:
            loop.call_soon(self._hand_over)
        return future

    def post(self, work: Callable[[Any], Any], *, can_wait: bool = False) -> None:
        """Run `work` in the order of the queue, without waiting for it.

        Use it for marks whose loss in a crash only costs a repetition. A failure is logged, and
        rejected work runs again later. With `can_wait`, it waits briefly to share a commit with
        other work."""
        self._gather(Job(work), can_wait)
        if not can_wait:
            self._hand_over()

    def _gather(self, job: Job, can_wait: bool) -> None:
        if can_wait and not self._gathered:
            self._later = asyncio.get_running_loop().call_later(_GATHER_SECONDS, self._hand_over)
        self._gathered.append(job)

    def _hand_over(self) -> None:
        if self._later is not None:
            self._later.cancel()
            self._later = None
        self._wake_writer()

    def _not_open(self) -> StorageError:
        hint = "nanobot is starting or shutting down. Try again."
        return StorageError(self._place, "it is not open", hint=hint)


class SqlStore(ABC):
    """Base of the engines: how statements run, and the dialect of each engine."""

    database: WriteQueue

    AMONG: ClassVar[str]
    """Condition after a column: its value is in a list."""
    SCOPE: ClassVar[str]
    """Expression for the scope of a row."""
    TURN_NUMBER: ClassVar[str]
    """Column that numbers turns in the order of their start."""
    BEGAN_SINCE: ClassVar[str]
    """Condition: the turn began at a time in ISO format, or later."""
    NOBODY_WAITS: ClassVar[str] = "true"
    """Condition: no process waits for the answer to a question in the outbox."""
    IS_LOST: ClassVar[str] = "true"
    """Condition: the process of a subagent has ended."""

    @property
    def has_died(self) -> bool:
        """True if it can store nothing more until the process is restarted."""
        return self.database.has_died

    @property
    def refusal(self) -> StorageError | None:
        """Error of the last write, if it was rejected."""
        return self.database.refusal

    @abstractmethod
    def _work(self, steps: Callable[[], Steps[Any]]) -> Callable[[Any], Any]:
        """Return the work that runs these steps for `database`."""

    def _transact(
        self, steps: Callable[[], Steps[T]], *, retry: bool = False, until_stored: bool = False
    ) -> Future[T]:
        """See `WriteQueue.run`."""
        return self.database.run(self._work(steps), retry=retry, until_stored=until_stored)

    def _post_steps(self, steps: Callable[[], Steps[Any]], *, can_wait: bool = False) -> None:
        """See `WriteQueue.post`."""
        self.database.post(self._work(steps), can_wait=can_wait)

    @abstractmethod
    async def _read(self, text: str, *values: object) -> list[Row]:
        """Return the rows of a query, which includes everything queued before."""

    @abstractmethod
    def _report_value(self, name: str) -> str:
        """Return the expression for a number in a turn's report, or for its `model`."""

    async def _run(self, text: str, *values: object) -> None:
        """Run one statement. Return once it is durable."""
        await self._transact(lambda: send(text, *values))

    def _post(self, text: str, *values: object, can_wait: bool = False) -> None:
        self._post_steps(lambda: send(text, *values), can_wait=can_wait)

    def _within(self, scopes: Collection[str] | None) -> tuple[str, tuple[object, ...]]:
        """Return an additional condition for rows of `scopes`, and its values."""
        return "", ()

    def _may_begin(self) -> tuple[str, tuple[object, ...]]:
        """Return a condition for messages that this process may handle, and its values."""
        return "", ()

    def _whose(
        self,
        *,
        chat: tuple[str, str] | None = None,
        turn_id: str = "",
        entry_ids: Sequence[int] = (),
        session_key: str = "",
    ) -> tuple[str, str, tuple[object, ...]]:
        """Return the column, the expression and its values for the scope of a new row, taken from
        the first of these that has a scope."""
        return "", "", ()

    def _report_columns(self, report: str) -> dict[str, object]:
        """Return the columns of a turn that hold its report."""
        return {"report": report}
