"""Gives memory back that nobody uses, so that a process that has run for months is no larger.

What refers to itself in a circle (an exception and the frames that it came through, a message and
what it quotes) waits for the collector of circles, whose full runs become rarer the more lasting
objects there are. Meanwhile the heap grows around it, and what it leaves is full of holes. So every
few seconds in which much was made, everything is looked through, and whole free pages go back to
the kernel. What is there after the first rounds stays for ever (the modules, above all): it is set
aside, so that looking through the rest takes milliseconds, in which nothing else happens.

Where nothing happens, nothing is done. The second half needs glibc; elsewhere it does nothing.
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
