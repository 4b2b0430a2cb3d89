"""Return of unused memory to the system, so that a process does not grow over months.

Objects in a cycle (an exception and its frames, a message and its quote) wait for full runs of the
garbage collector, which become rarer with more long-lived objects. Until then the heap grows and
fragments. So after every few seconds with enough new objects, a full collection runs and free pages
are returned to the kernel. An idle process is not touched."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc

from nanobot.clock import Clock
from nanobot.tasks import Periodic

EVERY_SECONDS = 10.0

NEW_OBJECTS = 5_000
"""New objects per young collection, instead of the default 700: almost all are freed by reference
counting."""

_MUCH = 7  # young collections that make a full one worthwhile

_FREEZES = 10  # rounds that freeze objects: later nothing long-lived is loaded

_MMAP_THRESHOLD, _ARENA_MAX = -3, -8
"""Options in glibc's `malloc.h`. Large blocks get their own pages, and threads share one heap
(Python lets one thread at a time make objects), so less is left over in each."""
_LARGE = 8 * 1024


class Heap(Periodic):
    """The memory of a process that we own. Create it before any threads."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock, EVERY_SECONDS, EVERY_SECONDS)
        self._libc = ctypes.CDLL(None)
        self._seen = _young_collections()
        self._freezes = _FREEZES
        with contextlib.suppress(AttributeError):  # not glibc
            self._libc.mallopt(_MMAP_THRESHOLD, _LARGE)
            self._libc.mallopt(_ARENA_MAX, 1)

    async def run_once(self) -> None:
        """Collect garbage, and return pages if enough was collected."""
        if self.release_memory():
            with contextlib.suppress(AttributeError):  # not glibc
                await asyncio.to_thread(self._libc.malloc_trim, 0)

    def release_memory(self) -> bool:
        """Collect cycles, if there are enough new objects. Return True if it did."""
        if _young_collections() - self._seen < _MUCH:
            return False
        gc.collect()
        # The first rounds freeze all objects (mostly modules), so that later ones stop the process
        # only for milliseconds.
        if self._freezes:
            gc.freeze()
            self._freezes -= 1
        self._seen = _young_collections()
        return True


def _young_collections() -> int:
    return int(gc.get_stats()[0]["collections"])
