"""`MemoryService` by name, as the command line calls it: on a running gateway or on the files.

Whoever reaches these is the owner of the home. Arguments and results are JSON; every result has a
`text` for people beside its fields.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import date

from nanobot.errors import NanobotError
from nanobot.memory.scopes import OWNER
from nanobot.memory.search import Source
from nanobot.memory.service.answers import Report
from nanobot.memory.service.service import Filters, MemoryService
from nanobot.session.records import JsonValue

Arguments = Mapping[str, object]
Answered = dict[str, JsonValue]

_SOURCES: tuple[Source, ...] = ("message", "history", "note", "memory", "library")
_MOST_HITS = 100


class MemoryOperations:
    """The operations named `memory.…`."""

    def __init__(self, service: MemoryService) -> None:
        self._service = service

    def table(self) -> Mapping[str, Callable[[Arguments], Awaitable[object]]]:
        """By name, as they are called over the socket."""
        operations: dict[str, Callable[[Arguments], Awaitable[Report]]] = {
            "memory.show": self.show,
            "memory.search": self.search,
            "memory.why": self.why,
            "memory.log": self.log,
            "memory.versions": self.versions,
            "memory.restore": self.restore,
            "memory.forget_plan": self.forget_plan,
            "memory.forget": self.forget,
            "memory.pending": self.pending,
            "memory.accept": self.accept,
            "memory.drop": self.drop,
            "memory.rebuild": self.rebuild,
            "memory.sync": self.sync,
            "memory.dream": self.dream,
        }
        return {name: _answering(operation) for name, operation in operations.items()}

    async def show(self, arguments: Arguments) -> Report:
        """`scope`."""
        return await self._service.show(_scope(arguments))

    async def search(self, arguments: Arguments) -> Report:
        """`text`, `scope`, and what narrows it down: `session`, `since`, `until`, `role`,
        `source`, `limit`."""
        source = _text(arguments, "source", needed=False)
        filters = Filters(
            session=_text(arguments, "session", needed=False),
            since=_day(arguments, "since"),
            until=_day(arguments, "until"),
            role=_text(arguments, "role", needed=False),
            source=next((known for known in _SOURCES if known == source), ""),
            limit=min(_number(arguments, "limit") or Filters().limit, _MOST_HITS),
        )
        return await self._service.search(_text(arguments, "text"), _scope(arguments), filters)

    async def why(self, arguments: Arguments) -> Report:
        """`text`, `scope`."""
        return await self._service.why(_text(arguments, "text"), _scope(arguments))

    async def log(self, arguments: Arguments) -> Report:
        """`version` (the latest where there is none), `scope`."""
        return await self._service.log(_number(arguments, "version"), _scope(arguments))

    async def versions(self, arguments: Arguments) -> Report:
        """`scope`."""
        return await self._service.restore_list(_scope(arguments))

    async def restore(self, arguments: Arguments) -> Report:
        """`version`, the one to undo, or `to`, the one to go back to; `scope`."""
        if (to := _number(arguments, "to")) is not None:
            return await self._service.restore_to(to, _scope(arguments))
        number = _number(arguments, "version")
        if number is None:
            raise _lacks("version", "a number")
        return await self._service.restore(number, _scope(arguments))

    async def forget_plan(self, arguments: Arguments) -> Report:
        """`text`, `scope`, `erase`."""
        return await self._service.forget_plan(
            _text(arguments, "text"), _scope(arguments), erase=arguments.get("erase") is True
        )

    async def forget(self, arguments: Arguments) -> Report:
        """`text`, `scope`, `erase`."""
        return await self._service.forget(
            _text(arguments, "text"), _scope(arguments), erase=arguments.get("erase") is True
        )

    async def pending(self, arguments: Arguments) -> Report:
        """`scope`."""
        return await self._service.pending(_scope(arguments))

    async def accept(self, arguments: Arguments) -> Report:
        """`numbers`, `scope`."""
        return await self._service.accept(_numbers(arguments), _scope(arguments))

    async def drop(self, arguments: Arguments) -> Report:
        """`numbers`, `scope`."""
        return await self._service.drop(_numbers(arguments), _scope(arguments))

    async def rebuild(self, _: Arguments) -> Report:
        """No arguments."""
        return await self._service.rebuild()

    async def sync(self, arguments: Arguments) -> Report:
        """`remote`."""
        return await self._service.sync(_text(arguments, "remote"))

    async def dream(self, arguments: Arguments) -> Report:
        """`scope`."""
        return await self._service.dream(_scope(arguments))


def _answering(
    operation: Callable[[Arguments], Awaitable[Report]],
) -> Callable[[Arguments], Awaitable[object]]:
    async def answer(arguments: Arguments) -> Answered:
        report = await operation(arguments)
        return {**report.data, "text": report.text}

    return answer


def _scope(arguments: Arguments) -> str:
    return _text(arguments, "scope", needed=False) or OWNER


def _text(arguments: Arguments, key: str, *, needed: bool = True) -> str:
    value = arguments.get(key, "")
    if not isinstance(value, str) or (needed and not value.strip()):
        raise _lacks(key, "a text")
    return value


def _number(arguments: Arguments, key: str) -> int | None:
    value = arguments.get(key)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise _lacks(key, "a number from 1")
    return value


def _numbers(arguments: Arguments) -> list[int]:
    values = arguments.get("numbers")
    if not isinstance(values, list) or not values:
        raise _lacks("numbers", "a list of numbers")
    return [number for value in values if (number := _number({"numbers": value}, "numbers"))]


def _day(arguments: Arguments, key: str) -> date | None:
    text = _text(arguments, key, needed=False)
    if not text:
        return None
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise _lacks(key, "a date such as 2026-11-21") from None


def _lacks(key: str, what: str) -> NanobotError:
    return NanobotError(f"the operation needs {what} in {key!r}")
