"""A gateway in its own process that measures how long its event loop was blocked.

It is started with the home's folder. For each line on standard input it prints, as JSON, the
longest pause of the loop in milliseconds since the previous line, and the position of the loop
then."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
import traceback
from pathlib import Path

from loguru import logger

from nanobot.app.gateway import Gateway
from nanobot.config.load import load_settings

TICK = 0.005
"""Seconds between two heartbeats of the loop."""
_STUCK = 0.05
"""Seconds without a heartbeat after which the loop's stack is recorded."""


class Meter:
    """The longest pause of the loop that `beat` runs in. A thread records its position."""

    def __init__(self) -> None:
        self._last = time.monotonic()
        self._longest, self._where = 0.0, ""
        self._loop_thread = threading.get_ident()
        self._lock = threading.Lock()

    async def beat(self) -> None:
        """Give heartbeats until cancelled."""
        while True:
            self._note()
            await asyncio.sleep(TICK)

    def _note(self) -> None:
        with self._lock:
            now = time.monotonic()
            self._longest = max(self._longest, now - self._last - TICK)
            self._last = now

    def watch(self) -> None:
        """Record the loop's position during pauses. Runs forever in a thread."""
        while True:
            time.sleep(0.02)
            silent = time.monotonic() - self._last
            with self._lock:
                longest = self._longest
            if silent > max(_STUCK, longest):
                frame = sys._current_frames().get(self._loop_thread)
                lines = traceback.extract_stack(frame)[-6:] if frame else []
                self._where = " < ".join(
                    f"{Path(one.filename).name}:{one.lineno} {one.name}" for one in reversed(lines)
                )

    def take(self) -> dict[str, object]:
        """Return the longest pause since the last call, and the position of the loop."""
        self._note()
        with self._lock:
            taken = {"milliseconds": round(self._longest * 1000, 1), "where": self._where}
            self._longest, self._where = 0.0, ""
        return taken


async def serve(home: Path) -> None:
    """Run a gateway on `home` until standard input ends."""
    meter = Meter()
    settings = load_settings(home, {"NANOBOT_AGENT__SHUTDOWN_GRACE_SECONDS": "0"})
    gateway = Gateway(settings, chores=False)
    logger.remove()
    logger.add(home / "gateway.log", level="INFO")
    ready = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        life = group.create_task(gateway.run(on_ready=ready.set, signals=False))
        await ready.wait()
        beats = group.create_task(meter.beat())
        threading.Thread(target=meter.watch, daemon=True).start()
        meter.take()
        print("ready", flush=True)
        while await asyncio.to_thread(sys.stdin.readline):
            print(json.dumps(meter.take()), flush=True)
        beats.cancel()
        gateway.request_stop()
        await life


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1])))
