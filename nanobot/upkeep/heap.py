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
import ctypes
import gc
from collections.abc import Callable

from nanobot.clock import Clock
from nanobot.tasks import Periodic

EVERY_SECONDS = 10.0

_MUCH = 50
"""Young collections, one for each 700 objects more: with fewer there is nothing to be gained."""

_SETTLING = 10
"""So many times what is there is set aside. After that nothing lasting is loaded any more."""

_MMAP_THRESHOLD, _ARENA_MAX = -3, -8
"""Names of options in glibc's `malloc.h`."""

_LARGE = 8 * 1024
_ARENAS = 1
"""Python lets one thread at a time make objects, so more than one heap is only more to be left over
in."""


class Heap(Periodic):
    """Looks after the memory of a process that is ours alone; made before its threads are."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock, EVERY_SECONDS, EVERY_SECONDS)
        self._trim = _give_back()
        self._seen = _young_collections()
        self._set_aside = 0

    async def once(self) -> None:
        """Tidy up, and give pages back if that was worth it."""
        if self.tidy():
            await asyncio.to_thread(self._trim)

    def tidy(self) -> bool:
        """Collect what is in circles, if enough was made since the last time; whether it was."""
        if _young_collections() - self._seen < _MUCH:
            return False
        gc.collect()
        if self._set_aside < _SETTLING:
            gc.freeze()
            self._set_aside += 1
        self._seen = _young_collections()
        return True


def _young_collections() -> int:
    return int(gc.get_stats()[0]["collections"])


def _give_back() -> Callable[[], object]:
    """What returns free pages to the kernel. From here on large blocks are pages of their own, and
    threads share heaps: less is left over in each."""
    library = ctypes.CDLL(None)
    try:
        trim, option = library.malloc_trim, library.mallopt
    except AttributeError:  # not glibc
        return lambda: None
    option(_MMAP_THRESHOLD, _LARGE)
    option(_ARENA_MAX, _ARENAS)
    return lambda: trim(0)
