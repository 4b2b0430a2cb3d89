"""How fast output is read: all commands share one measure, so that however many print at once, and
whatever they print, there is time left for everything else. A flood makes its program wait.
"""

from __future__ import annotations

from nanobot.clock import Clock

_PER_SECOND = 2_000_000
_AT_ONCE = 4_000_000


class Pace:
    """`per_second` bytes, of which `at_once` may come together after a rest."""

    def __init__(
        self, clock: Clock, per_second: int = _PER_SECOND, at_once: int = _AT_ONCE
    ) -> None:
        self._clock = clock
        self._per_second, self._at_once = per_second, at_once
        self._since, self._left = clock.monotonic(), float(at_once)

    async def keep(self, size: int) -> None:
        """So many bytes were read: wait until there may be more."""
        now = self._clock.monotonic()
        rested = (now - self._since) * self._per_second
        self._since, self._left = now, min(self._at_once, self._left + rested) - size
        if self._left < 0:
            await self._clock.sleep(-self._left / self._per_second)
