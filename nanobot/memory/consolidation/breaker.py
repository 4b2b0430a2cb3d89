"""A pause for a model that keeps failing, so that it is not asked again and again."""

from __future__ import annotations

from loguru import logger

from nanobot.clock import Clock

_FAILURES = 3
_PAUSE = 300.0
"""Seconds."""


class Breaker:
    """Open for five minutes after three failures in a row; then one failure more opens it again."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failures = 0
        self._open_until = 0.0

    @property
    def is_open(self) -> bool:
        """Whether the model should be left alone now."""
        return self._failures >= _FAILURES and self._clock.monotonic() < self._open_until

    def succeeded(self) -> None:
        """The model did what it was asked for."""
        self._failures = 0

    def failed(self) -> None:
        """It did not."""
        self._failures += 1
        if self._failures >= _FAILURES:
            self._open_until = self._clock.monotonic() + _PAUSE
            logger.warning("consolidation failed {} times; it pauses", self._failures)
