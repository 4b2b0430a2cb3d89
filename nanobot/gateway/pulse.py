"""The beat of a gateway: looks at its health, feeds the watchdog, and says when that changes.

The watchdog is fed as long as the event loop turns and nothing is stuck (`Health.stuck`). What a
new process would not mend, such as a full disk, keeps nobody from feeding it.
"""

from __future__ import annotations

import asyncio
import re

from loguru import logger

from nanobot.clock import Clock
from nanobot.gateway.health import Health
from nanobot.gateway.notify import Notifier
from nanobot.gateway.stall import StallWatch
from nanobot.gateway.vitals import Vitals

BEAT_SECONDS = 10.0
_FEEDINGS = 3
"""The watchdog is fed so many times in the time that it allows."""
_NUMBER = re.compile(r"\d+")
_NUMBERS_SECONDS = 60.0
"""The manager is told of other numbers so often at most: a slow one would hold us up each time."""


class Pulse:
    """Beats until stopped."""

    def __init__(
        self, vitals: Vitals, notifier: Notifier, clock: Clock, stall: StallWatch | None = None
    ) -> None:
        self._vitals, self._notifier, self._clock = vitals, notifier, clock
        self._stall = stall or StallWatch()
        self._status = self._told = ""
        self._status_due = 0.0
        allowed = notifier.watchdog_seconds
        self._seconds = min(BEAT_SECONDS, allowed / _FEEDINGS) if allowed else BEAT_SECONDS
        self._running: asyncio.Task[None] | None = None

    async def run_forever(self) -> None:
        """Until `stop`."""
        self._running = asyncio.current_task()
        self._stall.start()
        try:
            while True:
                self._stall.beat()
                await self._beat()
                await self._clock.sleep(self._seconds)
        finally:
            self._stall.stop()

    def stop(self) -> None:
        """Beat no more."""
        if self._running is not None:
            self._running.cancel()

    async def _beat(self) -> None:
        try:
            look = await self._vitals.look()
        except Exception as error:  # noqa: BLE001 - the boundary: the next look may go well
            logger.opt(exception=error).error("nobody can see how nanobot is: {}", error)
            return
        if not look.health.stuck:
            self._notifier.alive()
        self._tell(look.health)

    def _tell(self, health: Health) -> None:
        told = "; ".join(concern.text for concern in health.concerns)
        status = f"{health.state}: {told}" if told else health.state
        saying = _NUMBER.sub("", status)  # how long it has been is no news for the log
        is_news, now = saying != self._told, self._clock.monotonic()
        if is_news or (status != self._status and now >= self._status_due):
            self._notifier.status(status)
            self._status, self._status_due = status, now + _NUMBERS_SECONDS
        if not is_news:
            return
        if health.state == "failing":
            logger.error("health: failing: {}", told)
        elif health.state == "degraded":
            logger.warning("health: degraded: {}", told)
        elif self._told:
            logger.info("health: ok again")
        self._told = saying
