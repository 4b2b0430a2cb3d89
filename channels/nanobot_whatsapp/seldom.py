"""Warnings that anybody can cause as often as they like: a few an hour, so that they do not bury in
the log what matters."""

from __future__ import annotations

from collections import deque

from loguru import logger

from nanobot.clock import Clock

_MOST = 5
_SECONDS = 3600.0


class Seldom:
    """One kind of warning."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._said: deque[float] = deque(maxlen=_MOST)

    def warn(self, words: str) -> None:
        """Say it; what is too much for a warning is there at the level `debug`."""
        now = self._clock.monotonic()
        is_rare = len(self._said) < _MOST or now - self._said[0] >= _SECONDS
        if is_rare:
            self._said.append(now)
        logger.log("WARNING" if is_rare else "DEBUG", "whatsapp: {}", words)
