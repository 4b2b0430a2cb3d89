"""Says where the event loop is stuck: a thread that watches whether it still turns.

A loop that something holds up answers nobody and cannot say why; this writes what it is doing into
the log, once each time. Whoever started the process sees to the rest: without a sign of life its
watchdog ends it, and what was under way is taken up by the next one.
"""

from __future__ import annotations

import sys
import threading
import time
import traceback

from loguru import logger

_LIMIT = 30.0


class StallWatch:
    """Watches the thread that calls `start`, which is to call `beat` from then on. `limit` seconds
    without are too long."""

    def __init__(self, limit: float = _LIMIT) -> None:
        self._limit = limit
        self._beaten = threading.Event()
        self._over = False
        self._watched = 0

    def start(self) -> None:
        """Begin to watch."""
        self._watched = threading.get_ident()
        threading.Thread(target=self._watch, name="stall watch", daemon=True).start()

    def beat(self) -> None:
        """The event loop turns."""
        self._beaten.set()

    def stop(self) -> None:
        """Watch no longer."""
        self._over = True
        self._beaten.set()

    def _watch(self) -> None:
        while not self._over:
            since = time.monotonic()
            if not self._beaten.wait(self._limit):
                self._tell(time.monotonic() - since)
                self._beaten.wait()
            self._beaten.clear()

    def _tell(self, seconds: float) -> None:
        frame = sys._current_frames().get(self._watched)
        where = "".join(traceback.format_stack(frame)) if frame else "its thread has ended"
        logger.error("the event loop has not turned for {:.0f} s; it is at\n{}", seconds, where)
