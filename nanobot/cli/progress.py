"""How far something has come: on standard error where somebody watches, and nowhere else."""

from __future__ import annotations

import sys
import time
from types import TracebackType

from nanobot.cli.show import size

_EVERY = 0.2


class Progress:
    """Says how much is done, on one line that is gone at the end. Call it with bytes: how many
    more, and how many it will be in all."""

    def __init__(self, done: str) -> None:
        self._done, self._bytes = done, 0
        self._shows = sys.stderr.isatty()
        self._next = time.monotonic()
        self._shown = False

    def __call__(self, more: int, total: int) -> None:
        self._bytes += more
        if self._shows and time.monotonic() >= self._next:
            self._next = time.monotonic() + _EVERY
            self._shown = True
            sys.stderr.write(f"\r{self._done} {size(self._bytes)} of {size(total)} …\x1b[K")
            sys.stderr.flush()

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
