"""When something was forgotten: whoever keeps what it has read of memory must read it anew then."""

from __future__ import annotations


class Occasions:
    """Counts the times at which something left memory for good."""

    def __init__(self) -> None:
        self._count = 0

    def add(self) -> None:
        """It has just left memory; what was read before is not to be told any more."""
        self._count += 1

    def count(self) -> int:
        """A number that was another one before the last time."""
        return self._count
