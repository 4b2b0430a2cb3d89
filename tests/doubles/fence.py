"""The fence of files while a worker has lost contact with its team."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from nanobot.io import FENCE


class ClosedFence:
    """Blocks changes of files until `opened`. Waiting for it on an event loop is a failure."""

    def __init__(self) -> None:
        self.opened, self._waited = threading.Event(), threading.Event()

    def wait(self) -> None:
        """See `Fence.wait`."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            self._waited.set()
            self.opened.wait()
        else:
            assert self.opened.is_set(), "the event loop waits to change a file"

    async def until_waited(self) -> None:
        """Return when a thread waits."""
        assert await asyncio.to_thread(self._waited.wait, 30), "nobody waits"


@contextmanager
def closed_fence() -> Iterator[ClosedFence]:
    """Replace the open fence of this process, and open it at the end."""
    fence, wait, is_open = ClosedFence(), FENCE.wait, FENCE.is_open
    FENCE.wait, FENCE.is_open = fence.wait, fence.opened.is_set
    try:
        yield fence
    finally:
        fence.opened.set()
        FENCE.wait, FENCE.is_open = wait, is_open
