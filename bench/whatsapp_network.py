"""Python client of the fake WhatsApp of the helper's own tests (see its README).

It runs in Node.js, speaks the encrypted protocol of WhatsApp Web with the unmodified client, and
takes commands as lines of JSON."""

from __future__ import annotations

import asyncio
import json
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import nanobot_whatsapp
from tests.doubles.server import Changes

BRIDGE = Path(nanobot_whatsapp.__file__).parent / "bridge"
TRUST = BRIDGE / "test" / "trust.mjs"
"""Module that a helper loads to find the fake in place of WhatsApp."""

_FAKE = BRIDGE / "test" / "fake" / "main.mjs"
_LONGEST_LINE = 64 * 1024 * 1024


class Network:
    """A running fake. `trust` is the setting with which a helper finds it. `heard` is called with
    each event."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._numbers = count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._changes = Changes()
        self.trust = ""
        self.heard: Callable[[dict[str, Any]], None] = lambda event: None

    async def do(self, name: str, /, **fields: object) -> dict[str, Any]:
        """Run a command and return its answer."""
        assert self._process.stdin is not None
        number = next(self._numbers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        line = json.dumps({"id": number, "do": name, **fields})
        self._process.stdin.write(line.encode() + b"\n")
        said: dict[str, Any] = await answer
        return said

    async def until(self, ready: Callable[[], object]) -> None:
        """Wait for a condition, which is checked after each event."""
        await self._changes.until(ready)

    async def read(self) -> None:
        """Read its output to the end."""
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            said = json.loads(line)
            if "event" not in said:
                self._settle_answer(said)
            elif said["event"] == "ready":
                self.trust = said["trust"]
            else:
                self.heard(said)
            self._changes.tell()

    def _settle_answer(self, said: dict[str, Any]) -> None:
        answer = self._answers.pop(said["id"])
        if said["ok"]:
            answer.set_result(said)
        else:
            answer.set_exception(RuntimeError(said["error"]))


@asynccontextmanager
async def network() -> AsyncIterator[Network]:
    """Run a fake."""
    process = await asyncio.create_subprocess_exec(
        "node", str(_FAKE), stdin=PIPE, stdout=PIPE, limit=_LONGEST_LINE
    )
    fake = Network(process)
    async with asyncio.TaskGroup() as group:
        reading = group.create_task(fake.read())
        await fake.until(lambda: fake.trust)
        try:
            yield fake
        finally:
            reading.cancel()
            process.kill()
            await process.wait()
