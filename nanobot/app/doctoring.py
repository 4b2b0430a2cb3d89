"""The operation `doctor`: the findings of `nanobot doctor`, for a page.

The checks take seconds, block, and load what a gateway does not need: they run in a process of
their own, one at a time.
"""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from nanobot.channel import Operation
from nanobot.errors import NanobotError

_SECONDS = 120.0


class Doctoring:
    """Examines `home`."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._running = asyncio.Lock()

    def table(self) -> Mapping[str, Operation]:
        """By name, as it is called over the socket."""
        return {"doctor": self.doctor}

    async def doctor(self, _: Mapping[str, object]) -> dict[str, object]:
        """What the checks find, in order: `check`, `state` (`ok`, `warn` or `fail`), `text` and
        `hint`. Raises `NanobotError` where they do not end."""
        command = (sys.executable, "-m", "nanobot", "--home", str(self._home), "doctor", "--json")
        async with self._running:
            process = await asyncio.create_subprocess_exec(
                *command, stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL
            )
            try:
                async with asyncio.timeout(_SECONDS):
                    output = (await process.communicate())[0]
                return {"findings": json.loads(output)}
            except (TimeoutError, ValueError) as error:
                hint = "Run `nanobot doctor` in a terminal."
                raise NanobotError("the checks did not end as they should", hint=hint) from error
            finally:
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
