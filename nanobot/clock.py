"""The clock: all code gets the time from here, so tests can control it and never really sleep. Also
finds the system's time zone."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol, TypeVar
from zoneinfo import ZoneInfo

_ETC = Path("/etc")
_ZONES = "zoneinfo/"


def find_zone(name: str) -> ZoneInfo | None:
    """Return the zone with this IANA name, or None if there is no such zone."""
    try:
        return ZoneInfo(name)
    except (KeyError, OSError, ValueError):
        return None


def system_zone_name(environ: Mapping[str, str], etc: Path = _ETC) -> str:
    """Return the IANA name of the system's time zone, or an empty string if it has no name."""
    zone = system_zone(environ, etc)
    return (zone.key or "") if zone is not None else ""


def system_zone(environ: Mapping[str, str], etc: Path = _ETC) -> ZoneInfo | None:
    """Return the zone that the C library uses, with its clock changes. Return None if it is set
    neither by name nor by file."""
    if "TZ" in environ:
        return find_zone(environ["TZ"].removeprefix(":"))  # POSIX allows a colon
    try:
        linked = str((etc / "localtime").readlink()).partition(_ZONES)[2]
    except OSError:
        linked = ""
    if linked:
        return find_zone(linked)
    try:
        with (etc / "localtime").open("rb") as rules:
            return ZoneInfo.from_file(rules)
    except (OSError, ValueError):
        return None


class Clock(Protocol):
    """Source of time."""

    def now(self) -> datetime:
        """Return the aware civil time in the user's time zone."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never go backwards, for durations and deadlines."""
        ...

    async def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """The real clock. `zone` is an IANA name. Empty means the system's current zone."""

    def __init__(self, zone: str = "") -> None:
        self._zone = ZoneInfo(zone) if zone else system_zone(os.environ)

    def now(self) -> datetime:
        moment = datetime.fromtimestamp(time.time(), self._zone or UTC)
        return moment if self._zone else moment.astimezone()  # the C library's zone

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def pause_after(failures: int, first: float, longest: float) -> float:
    """Return the pause in seconds after `failures` in a row: `first`, doubled per failure up to
    `longest`."""
    return min(first * 2.0 ** min(failures - 1, 60), longest)  # 60: no overflow


class Backoff:
    """Pauses between attempts: one second, doubled after each failure up to `longest` seconds."""

    def __init__(self, clock: Clock, longest: float = 30.0) -> None:
        self._clock, self._longest = clock, longest
        self._failures = 0

    def next(self, at_least: float = 0.0) -> float:
        """Count a failure and return the pause in seconds. `at_least` is the pause that the
        platform requests."""
        self._failures += 1
        return max(pause_after(self._failures, 1.0, self._longest), at_least)

    async def wait(self, at_least: float = 0.0) -> None:
        """Count a failure and sleep for its pause."""
        await self._clock.sleep(self.next(at_least))

    def reset(self) -> None:
        """Note a success: the next pause is the shortest again."""
        self._failures = 0


T = TypeVar("T")


async def with_timeout(clock: Clock, seconds: float, work: Awaitable[T]) -> T:
    """Return the result of `work`. Cancel it after `seconds` of this clock.

    Raises `TimeoutError` on timeout, or the error of `work`. If the caller is cancelled, it gets
    `CancelledError` even if `work` fails at that moment. A task group of Python 3.11 would raise
    the failure and lose the cancellation."""
    task: asyncio.Future[T] = asyncio.ensure_future(work)
    alarm = asyncio.ensure_future(clock.sleep(seconds))
    try:
        await asyncio.wait((task, alarm), return_when=asyncio.FIRST_COMPLETED)
    finally:
        task.cancel()
        alarm.cancel()
        await asyncio.gather(task, alarm, return_exceptions=True)
    if task.cancelled():
        raise TimeoutError
    return task.result()


def first_error(error: BaseException) -> BaseException:
    """Return the error that ended a task group, unwrapped from nested groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
