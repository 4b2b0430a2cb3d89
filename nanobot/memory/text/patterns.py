"""Patterns that are compiled when they are first used.

One with ranges of many scripts takes milliseconds to compile, and a start needs none of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache


def late(pattern: str, flags: int = 0) -> Callable[[], re.Pattern[str]]:
    """What gives the compiled pattern, always the same one. Raises `re.error` at the first use."""

    def compiled() -> re.Pattern[str]:
        return re.compile(pattern, flags)

    return cache(compiled)
