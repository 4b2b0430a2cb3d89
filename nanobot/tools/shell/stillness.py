"""Times in which nothing runs for a scope, and whether anything has changed in a folder since one.

What a command will read cannot be known before it runs, so all of its folder counts. The time of a
file's last change (ctime) is the kernel's word: no program can set it, unlike that of its content.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager


class Stillness:
    """Who runs, and who needs that nobody does."""

    def __init__(self) -> None:
        self._running: defaultdict[str, list[Callable[[], None]]] = defaultdict(list)
        self._still: Counter[str] = Counter()
        self._changed = asyncio.Event()

    @asynccontextmanager
    async def running(self, scope: str, end: Callable[[], None]) -> AsyncIterator[None]:
        """Run, once nobody needs stillness; `end` is called where somebody comes to need it."""
        while self._still[scope]:
            await self._changed.wait()
        self._running[scope].append(end)
        try:
            yield
        finally:
            self._running[scope].remove(end)
            self._tell()

    @asynccontextmanager
    async def still(self, scope: str) -> AsyncIterator[None]:
        """Begins when everything that ran for `scope` is over, and lets nothing new begin."""
        self._still[scope] += 1
        try:
            for end in self._running[scope]:
                end()
            while self._running[scope]:
                await self._changed.wait()
            yield
        finally:
            self._still[scope] -= 1
            self._tell()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


_LAST_TICK = 5  # CLOCK_REALTIME_COARSE
_PAUSE = 0.001


def begin() -> int:
    """The time, in nanoseconds as the kernel notes them with files: what was changed before this
    call has an earlier one. Blocks for some milliseconds: the kernel notes either the exact time or
    that of its last tick, so this waits for the next tick."""
    before = time.clock_gettime_ns(time.CLOCK_REALTIME)
    while (now := time.clock_gettime_ns(_LAST_TICK)) <= before:
        time.sleep(_PAUSE)
    return now


def changed_since(folder: str, begun: int) -> str:
    """The path in `folder` of something that was made, changed or removed since `begin`; nothing if
    there is none. Links are not followed. Blocks: about a second for 200,000 files."""
    waiting = [folder]
    while waiting:
        inner = waiting.pop()
        if os.lstat(inner).st_ctime_ns >= begun:
            return os.path.relpath(inner, folder)
        with os.scandir(inner) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                elif entry.stat(follow_symlinks=False).st_ctime_ns >= begun:
                    return os.path.relpath(entry.path, folder)
    return ""
