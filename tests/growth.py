"""Holding work to linear time without a stopwatch: by how it grows, never by how long it takes."""

from __future__ import annotations

import time
from collections.abc import Callable

_FACTOR = 16
_GENEROUS = 8


def assert_linear(work: Callable[[int], object], size: int) -> None:
    """Fail where `work(16 * size)` costs over 8 times what linear growth from `work(size)` allows.

    Quadratic work costs 16 times that. Processor time is compared with processor time and the best
    of three runs counts, so neither a slow machine nor a busy one makes a difference.
    """
    small, large = _best(work, size), _best(work, _FACTOR * size)
    assert large < _FACTOR * _GENEROUS * small, f"{large / small:.0f} times for {_FACTOR}"


def _best(work: Callable[[int], object], size: int) -> float:
    return min(_seconds(work, size) for _ in range(3))


def _seconds(work: Callable[[int], object], size: int) -> float:
    begun = time.process_time()
    work(size)
    return max(time.process_time() - begun, 1e-4)
