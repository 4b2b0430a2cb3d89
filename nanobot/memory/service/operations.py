"""`MemoryService` by name, as the command line calls it: on a running gateway or on the files.

All callers are the owner of the home. Arguments and results are JSON; every result has a
`text` for people beside its fields.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import date

from nanobot.errors import NanobotError
from nanobot.memory.scopes import OWNER
from nanobot.memory.search import Query, Source
from nanobot.memory.service.service import MemoryService
from nanobot.memory.service.views import Report

_SOURCES: tuple[Source, ...] = ("message", "history", "note", "memory", "library")
_HITS, _MOST_HITS = 10, 100


@dataclass(frozen=True, slots=True)
class _Arguments:
    """What an operation is called with. Raises `NanobotError` for a value of another kind."""

    values: Mapping[str, object]

    @property
    def scope(self) -> str:
        return self.text("scope", needed=False) or OWNER

    @property
    def erase(self) -> bool:
        return self.values.get("erase") is True

    def text(self, key: str, *, needed: bool = True) -> str:
        value = self.values.get(key, "")
        if not isinstance(value, str) or (needed and not value.strip()):
            raise _lacks(key, "a text")
        return value

    def number(self, key: str) -> int | None:
        value = self.values.get(key)
        return None if value is None else _number(key, value)

    def numbers(self) -> list[int]:
        values = self.values.get("numbers")
        if not isinstance(values, list) or not values:
            raise _lacks("numbers", "a list of numbers")
        return [_number("numbers", value) for value in values]

    def day(self, key: str) -> date | None:
        text = self.text(key, needed=False)
        try:
            return date.fromisoformat(text) if text else None
        except ValueError:
            raise _lacks(key, "a date such as 2026-11-21") from None

    def query(self) -> Query:
        source = self.text("source", needed=False)
        return Query(
            self.text("text"),
            (),
            session=self.text("session", needed=False),
            since=self.day("since"),
            until=self.day("until"),
            role=self.text("role", needed=False),
            source=next((known for known in _SOURCES if known == source), ""),
            limit=min(self.number("limit") or _HITS, _MOST_HITS),
        )


def memory_operations(
    service: MemoryService,
) -> Mapping[str, Callable[[Mapping[str, object]], Awaitable[object]]]:
    """The operations named `memory.…`, as they are called over the socket."""
    operations: dict[str, Callable[[_Arguments], Awaitable[Report]]] = {
        "memory.show": lambda given: service.show(given.scope),
        "memory.search": lambda given: service.search(given.query(), given.scope),
        "memory.why": lambda given: service.why(given.text("text"), given.scope),
        "memory.log": lambda given: service.log(given.number("version"), given.scope),
        "memory.versions": lambda given: service.versions(given.scope),
        "memory.restore": lambda given: _restore(service, given),
        "memory.forget_plan": lambda given: service.forget_plan(
            given.text("text"), given.scope, erase=given.erase
        ),
        "memory.forget": lambda given: service.forget(
            given.text("text"), given.scope, erase=given.erase
        ),
        "memory.pending": lambda given: service.pending(given.scope),
        "memory.accept": lambda given: service.accept(given.numbers(), given.scope),
        "memory.drop": lambda given: service.drop(given.numbers(), given.scope),
        "memory.rebuild": lambda given: service.rebuild(),
        "memory.sync": lambda given: service.sync(given.text("remote")),
        "memory.dream": lambda given: service.dream(given.scope),
    }

    def answering(
        operation: Callable[[_Arguments], Awaitable[Report]],
    ) -> Callable[[Mapping[str, object]], Awaitable[object]]:
        async def answer(arguments: Mapping[str, object]) -> object:
            report = await operation(_Arguments(arguments))
            return {**report.data, "text": report.text}

        return answer

    return {name: answering(operation) for name, operation in operations.items()}


async def _restore(service: MemoryService, given: _Arguments) -> Report:
    """`version` is the one to undo, `to` the one to go back to."""
    if (to := given.number("to")) is not None:
        return await service.restore_to(to, given.scope)
    if (number := given.number("version")) is None:
        raise _lacks("version", "a number")
    return await service.restore(number, given.scope)


def _number(key: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise _lacks(key, "a number from 1")
    return value


def _lacks(key: str, what: str) -> NanobotError:
    return NanobotError(f"the operation needs {what} in {key!r}")
