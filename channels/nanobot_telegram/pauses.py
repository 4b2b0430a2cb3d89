"""How long to wait after a request that failed."""

from __future__ import annotations

from telegram.error import TelegramError

from nanobot_telegram.failures import Flooded

SHORTEST = 1.0
LONGEST = 30.0


class Pauses:
    """Seconds to wait: 1, doubling to 30 while failures follow one another, and never less than
    Telegram asks for."""

    def __init__(self) -> None:
        self._next = SHORTEST

    def after(self, error: TelegramError) -> float:
        """The pause after `error`."""
        pause = self.next()
        return max(pause, error.seconds) if isinstance(error, Flooded) else pause

    def next(self) -> float:
        """The pause after one more failure of any kind."""
        pause, self._next = self._next, min(self._next * 2, LONGEST)
        return pause

    def forget(self) -> None:
        """Something worked: begin with the shortest again."""
        self._next = SHORTEST
