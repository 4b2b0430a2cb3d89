"""What the engines of the journal share: transactions as generators, and the queue of one writer.

A transaction is a generator. It yields statements and gets their rows, so a blocking connection and
an asynchronous one run the same steps in the same order. It may be run several times, each time
from a new generator, until one is stored. Statements have `?` in place of values.
"""

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
"""The steps of a transaction. It gets what the engine has for each `Statement`, and a list of rows
for what it yields back of that."""


class Statement(Struct, frozen=True):
    """A statement with its values, in order. A list is for `SqlStore.AMONG`."""

    text: str
    values: tuple[object, ...]


def send(text: str, *values: object) -> Steps[Any]:
    """Run a statement. Return what `rows_of` takes; an engine may still be at work on it."""
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
    """Run a method's steps as a transaction. It returns once that is durable."""

    async def method(self: Store, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._transact(lambda: steps(self, *args, **kwargs))

    return method


BATCH = 256
"""The jobs that a writer takes at once; SQLite's takes the rest of an iteration of the loop too."""
_GATHER_SECONDS = 0.05


class Job(Struct, eq=False):
    """One piece of work and where its outcome goes; no future for work that is not waited for, and
    no work for what only waits for its turn. See `WriteQueue.run` and `post` for the rest."""

    work: Callable[[Any], Any] | None
    future: Future[Any] | None = None
    retry: bool = True
    until_stored: bool = False
    after_commit: Callable[[Any], None] | None = None
    result: Any = None
    error: BaseException | None = None


Outcome = tuple[Future[Any], object, BaseException | None]


def take_outcomes(jobs: Iterable[Job], refusal: StorageError | None = None) -> list[Outcome]:
    """Return the outcomes of jobs for `resolve`, each once: `refusal`, or their own. Log why a job
    failed that is not waited for."""
    outcomes = list[Outcome]()
    for job in jobs:
        if job.future is not None:
            outcomes.append((job.future, job.result, refusal or job.error))
            job.future = None
        elif job.error is not None and refusal is None:
            logger.opt(exception=job.error).error("journal: could not write a mark")
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
            future.exception()  # not everybody awaits it; the log has what was refused


class WriteQueue(ABC):
    """Pieces of work for the one writer of an engine, which takes what has queued up, runs it in
    one transaction in FIFO order and commits once. A piece that fails undoes only itself. All
    methods belong to the event loop."""

    def __init__(self, place: Path | str) -> None:
        self._place = place
        self._gathered: list[Job] = []
        self._later: asyncio.TimerHandle | None = None
        self.refusal: StorageError | None = None
        """Why nothing was stored the last time that there was something to write, if so."""

    @property
    @abstractmethod
    def is_open(self) -> bool:
        """Whether it takes work."""

    @property
    @abstractmethod
    def has_died(self) -> bool:
        """Whether nothing is stored any more, although it was not closed."""

    @abstractmethod
    def _wake_writer(self) -> None:
        """Let the writer take what was gathered."""

    @abstractmethod
    async def close(self) -> None:
        """Finish what is queued, then close."""

    def run(
        self,
        work: Callable[[Any], Any] | None,
        *,
        retry: bool = False,
        until_stored: bool = False,
        after_commit: Callable[[Any], None] | None = None,
    ) -> Future[Any]:
        """Run `work` in a transaction, whether or not that is awaited; its result once that is
        durable. It may be run several times, until one is.

        The future raises what `work` raised, or `StorageError` when the disk or the database
        refused. With `retry` it is run again then, when something is taken again; with
        `until_stored` the future also waits for that, or until the database is closed.
        `after_commit` runs once, between this transaction and the next, for what SQLite refuses
        inside of one. Raises `StorageError` when the database is not open.
        """
        if not self.is_open:
            raise self._not_open()
        loop = asyncio.get_running_loop()
        future: Future[Any] = loop.create_future()
        self._gathered.append(Job(work, future, retry or until_stored, until_stored, after_commit))
        loop.call_soon(self._hand_over)
        return future

    def post(self, work: Callable[[Any], Any], *, can_wait: bool = False) -> None:
        """Run `work` after what was queued before and before what is queued later; do not wait.

        For marks whose loss in a crash costs nothing but a repetition. A failure is logged, and
        what is refused is run again later. What `can_wait` waits a moment for other work to share
        a commit with.
        """
        if can_wait and not self._gathered:
            self._later = asyncio.get_running_loop().call_later(_GATHER_SECONDS, self._hand_over)
        self._gathered.append(Job(work))
        if not can_wait:
            self._hand_over()

    def _hand_over(self) -> None:
        if self._later is not None:
            self._later.cancel()
            self._later = None
        self._wake_writer()

    def _not_open(self) -> StorageError:
        hint = "nanobot is starting or shutting down. Try again."
        return StorageError(self._place, "it is not open", hint=hint)


class SqlStore(ABC):
    """How an engine runs statements, and in which words it differs from the others."""

    database: WriteQueue

    AMONG: ClassVar[str]
    """Follows a column whose value is in a list."""
    SCOPE: ClassVar[str]
    """The scope of a row, in a list of columns."""
    TURN_NUMBER: ClassVar[str]
    """The column that numbers turns in the order they began."""
    BEGAN_SINCE: ClassVar[str]
    """Whether a turn began at a time, in ISO format, or later."""
    NOBODY_WAITS: ClassVar[str] = "true"
    """Whether no process waits for the answer to a question in the outbox."""
    IS_LOST: ClassVar[str] = "true"
    """Whether a helper's process has ended."""

    @property
    def has_died(self) -> bool:
        """Whether it can store nothing any more until the process is started again."""
        return self.database.has_died

    @property
    def refusal(self) -> StorageError | None:
        """Why the last write was refused, if it was."""
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
        """Return the rows of a query, which sees what was queued before."""

    @abstractmethod
    def _reported(self, name: str) -> str:
        """Return the expression for a number in a turn's report, or for its `model`."""

    async def _run(self, text: str, *values: object) -> None:
        """Run one statement. It returns once that is durable."""
        await self._transact(lambda: send(text, *values))

    def _post(self, text: str, *values: object, can_wait: bool = False) -> None:
        self._post_steps(lambda: send(text, *values), can_wait=can_wait)

    def _within(self, scopes: Collection[str] | None) -> tuple[str, tuple[object, ...]]:
        """Return a condition for rows of `scopes`, to be added to others, and its values."""
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
        """Return what a new row has in addition for the scope of these, of the first that has one:
        the column, the expression, and its values."""
        return "", "", ()

    def _report_columns(self, report: str) -> dict[str, object]:
        """Return the columns of a turn that hold its report."""
        return {"report": report}
