"""Time comes in through this door, so that tests own it and nothing sleeps for real in them. The
system's time zone is found here, too."""

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
    """The zone with this IANA name; None where there is none, or it is no name of one."""
    try:
        return ZoneInfo(name)
    except (KeyError, OSError, ValueError):
        return None


def system_zone_name(environ: Mapping[str, str], etc: Path = _ETC) -> str:
    """The IANA name of the system's time zone; empty where it tells none."""
    zone = system_zone(environ, etc)
    return (zone.key or "") if zone is not None else ""


def system_zone(environ: Mapping[str, str], etc: Path = _ETC) -> ZoneInfo | None:
    """The zone that the C library goes by, which knows when its clocks change; None where it is
    given in another way than by a name or a file."""
    if "TZ" in environ:
        return find_zone(environ["TZ"].removeprefix(":"))
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
    """What the code may know about time."""

    def now(self) -> datetime:
        """The civil time, aware, in the person's time zone."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go backwards; for durations and deadlines."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after that many seconds."""
        ...


class SystemClock:
    """The real one. `zone` is an IANA name; empty means the system's zone, as it is now."""

    def __init__(self, zone: str = "") -> None:
        self._zone = ZoneInfo(zone) if zone else system_zone(os.environ)

    def now(self) -> datetime:
        moment = datetime.fromtimestamp(time.time(), self._zone or UTC)
        return moment if self._zone else moment.astimezone()  # as the C library has it

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def pause_after(failures: int, first: float, longest: float) -> float:
    """The seconds to wait after so many failures in a row: `first` after one, doubled with each
    further one up to `longest`."""
    return min(first * 2.0 ** min(failures - 1, 60), longest)


class Backoff:
    """Pauses between attempts: one second, doubled after each failure up to `longest` seconds."""

    def __init__(self, clock: Clock, longest: float = 30.0) -> None:
        self._clock, self._longest = clock, longest
        self._failures = 0

    def next(self, at_least: float = 0.0) -> float:
        """The pause in seconds after one more failure. `at_least`: what the platform asks for."""
        self._failures += 1
        return max(pause_after(self._failures, 1.0, self._longest), at_least)

    async def wait(self, at_least: float = 0.0) -> None:
        """Sleep for that pause."""
        await self._clock.sleep(self.next(at_least))

    def reset(self) -> None:
        """An attempt succeeded: start with the shortest pause again."""
        self._failures = 0


T = TypeVar("T")


async def with_timeout(clock: Clock, seconds: float, work: Awaitable[T]) -> T:
    """The result of `work`, which is cancelled after `seconds` of this clock.

    Raises `TimeoutError` then, and otherwise what `work` raises. Whoever is cancelled meanwhile
    gets `CancelledError`, also where `work` fails at that moment; a task group of Python 3.11 would
    raise the failure and lose the cancellation.
    """
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
    """The error that ended a task group, unwrapped from nested groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
