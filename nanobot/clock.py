"""Time comes in through this door, so that tests own it and nothing sleeps for real in them."""

from __future__ import annotations

import asyncio
import os
import time
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Protocol
from zoneinfo import ZoneInfo

from nanobot.zones import system_zone


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


_QUARTER = 900.0
"""Seconds for which a zone's offset holds at least: offsets change at quarters of an hour."""


class SystemClock:
    """The real one. `zone` is an IANA name; empty means the system's zone, as it is now."""

    def __init__(self, zone: str = "") -> None:
        self._zone = ZoneInfo(zone) if zone else system_zone(os.environ)
        self._local: tuple[float, tzinfo] = (-1.0, UTC)

    def now(self) -> datetime:
        stamp = time.time()
        return datetime.fromtimestamp(stamp, self._zone or self._local_zone(stamp))

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def _local_zone(self, stamp: float) -> tzinfo:
        """The system's offset now, where its rules are not to be had; asking the C library each
        time is slow."""
        quarter = stamp // _QUARTER
        if self._local[0] != quarter:
            offset = timedelta(seconds=time.localtime(stamp).tm_gmtoff)
            self._local = (quarter, timezone(offset))
        return self._local[1]
