"""How long to wait before something that failed is tried again."""

from __future__ import annotations

from nanobot.clock import Clock

SHORTEST = 1.0


class Pauses:
    """One second, then twice as long each time, at most `longest` seconds."""

    def __init__(self, clock: Clock, longest: float) -> None:
        self._clock, self._longest = clock, longest
        self._next = SHORTEST

    async def wait(self) -> None:
        """Wait after one more failure."""
        pause, self._next = self._next, min(2 * self._next, self._longest)
        await self._clock.sleep(pause)

    def forget(self) -> None:
        """It worked: begin with the shortest again."""
        self._next = SHORTEST
