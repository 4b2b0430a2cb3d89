"""Questions that wait for a yes: a code is given out, and holds for ten minutes, once.

They live in memory only: after a restart a code is worth nothing, and the question is asked again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from nanobot.clock import Clock

T = TypeVar("T")

PATIENCE = 600.0
"""Seconds for which a code holds."""

_MOST = 1_000
"""Open questions; the oldest make room, so that nobody can fill the memory with them."""


@dataclass(frozen=True, slots=True)
class _Question(Generic[T]):
    asked: T
    of: str
    deadline: float


class Questions(Generic[T]):
    """Open questions about `T`, by code. `new_code` makes codes: short, and hard to guess."""

    def __init__(self, clock: Clock, new_code: Callable[[], str]) -> None:
        self._clock, self._new_code = clock, new_code
        self._open: dict[str, _Question[T]] = {}

    def ask(self, about: T, of: str) -> str:
        """Remember what was asked of whom; the code that says yes to it."""
        self._drop_old()
        code = self._new_code()
        while code in self._open:
            code = self._new_code()
        self._open[code] = _Question(about, of, self._clock.monotonic() + PATIENCE)
        return code

    def confirmed(self, code: str, of: str) -> T | None:
        """What `code` says yes to; None where it is unknown, old, used, or somebody else's."""
        self._drop_old()
        question = self._open.get(code.strip().lower())
        if question is None or question.of != of:
            return None
        del self._open[code.strip().lower()]
        return question.asked

    def _drop_old(self) -> None:
        now = self._clock.monotonic()
        fresh = {code: asked for code, asked in self._open.items() if asked.deadline > now}
        surplus = max(0, len(fresh) - _MOST + 1)
        self._open = dict(list(fresh.items())[surplus:])
