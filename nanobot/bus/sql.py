"""What the SQL stores of the journal share: transactions as generators, and how the engines differ.

A transaction is a generator. It yields statements and gets their rows, so a blocking connection and
an asynchronous one run the same steps in the same order. It may be run several times, each time
from a new generator, until one is stored. Statements have `?` in place of values.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from asyncio import Future
from collections.abc import Callable, Collection, Coroutine, Generator, Sequence
from typing import Any, ClassVar, Concatenate, ParamSpec, TypeVar

from msgspec import Struct

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


class SqlStore(ABC):
    """How an engine runs statements, and in which words it differs from the others."""

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

    @abstractmethod
    def _transact(
        self, steps: Callable[[], Steps[T]], *, retry: bool = False, until_stored: bool = False
    ) -> Future[T]:
        """See `run` of the engine's `Database`."""

    @abstractmethod
    def _post_steps(self, steps: Callable[[], Steps[Any]], *, can_wait: bool = False) -> None:
        """See `post` of the engine's `Database`."""

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
