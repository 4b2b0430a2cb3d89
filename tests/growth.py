"""Checks for linear time without a stopwatch: by growth, never by duration."""

from __future__ import annotations

import time
from collections.abc import Callable

_FACTOR = 16
_GENEROUS = 8


def assert_linear(work: Callable[[int], object], size: int) -> None:
    """Fail if `work(16 * size)` costs over 8 times what linear growth from `work(size)` allows.

    Quadratic work costs 16 times that. Processor time is compared with processor time and the best
    of three runs counts, so neither a slow machine nor a busy one makes a difference. After a fast
    enough large run no other can change the verdict, so there is none."""
    small = min(_seconds(work, size) for _ in range(3))
    allowed = _FACTOR * _GENEROUS * small
    large = []
    for _ in range(3):
        large.append(_seconds(work, _FACTOR * size))
        if large[-1] < allowed:
            return
    raise AssertionError(f"{min(large) / small:.0f} times for {_FACTOR}")


def _seconds(work: Callable[[int], object], size: int) -> float:
    begun = time.process_time()
    work(size)
    return max(time.process_time() - begun, 1e-4)
