"""Returns unused memory, so that a process does not grow over months.

Objects that refer to each other in a cycle (an exception and its frames, a message and the one it
quotes) wait for the garbage collector's full runs, which become rarer the more long-lived objects
there are. Until then the heap grows and fragments. So every few seconds in which enough objects
were created, a full collection runs and whole free pages are returned to the kernel. What exists
after the first rounds (mostly modules) is frozen: it stays for good, and a collection of the rest
takes milliseconds, during which the process stands still.

An idle process is left alone. Returning pages needs glibc; elsewhere that part does nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc

from nanobot.clock import Clock
from nanobot.tasks import Periodic

EVERY_SECONDS = 10.0

NEW_OBJECTS = 5_000
"""After so many a young collection runs, not after 700 as is usual: almost all go by themselves
when they are not used."""

_MUCH = 7
"""Young collections: with fewer there is nothing to be gained."""

_FREEZES = 10
"""Rounds after which what is there is frozen; later nothing lasting is loaded any more."""

_MMAP_THRESHOLD, _ARENA_MAX = -3, -8
"""Names of options in glibc's `malloc.h`. Large blocks become pages of their own, and threads share
one heap (Python lets one thread at a time make objects): less is left over in each."""
_LARGE = 8 * 1024


class Heap(Periodic):
    """Looks after the memory of a process that is ours alone; made before its threads are."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock, EVERY_SECONDS, EVERY_SECONDS)
        self._libc = ctypes.CDLL(None)
        self._seen = _young_collections()
        self._freezes = _FREEZES
        with contextlib.suppress(AttributeError):  # not glibc
            self._libc.mallopt(_MMAP_THRESHOLD, _LARGE)
            self._libc.mallopt(_ARENA_MAX, 1)

    async def run_once(self) -> None:
        """Tidy up, and give pages back if that was worth it."""
        if self.release_memory():
            with contextlib.suppress(AttributeError):
                await asyncio.to_thread(self._libc.malloc_trim, 0)

    def release_memory(self) -> bool:
        """Collect what is in cycles, if enough was made since the last time; whether it was."""
        if _young_collections() - self._seen < _MUCH:
            return False
        gc.collect()
        if self._freezes:
            gc.freeze()
            self._freezes -= 1
        self._seen = _young_collections()
        return True


def _young_collections() -> int:
    return int(gc.get_stats()[0]["collections"])
