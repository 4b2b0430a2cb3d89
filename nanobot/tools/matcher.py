"""Matching lines against a regular expression that a model wrote, without risk to the daemon.

Python's `re` can take exponential time on thirty characters, and holds the interpreter's lock all
the while: neither a bound on the length of lines nor a look at the clock between them helps. So the
pattern is matched in a process of its own, which is killed when its time is up.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence

from nanobot.errors import ToolError
from nanobot.tools import matching
from nanobot.tools.matching import Answer, Request, Source


class Matcher:
    """Runs a request in a process of its own, for at most `seconds`."""

    def __init__(self, seconds: float = matching.SECONDS) -> None:
        self._seconds = seconds

    async def match(self, request: Request, sources: Sequence[Source]) -> Answer:
        """The matches. Raises `ToolError` when the pattern takes too long."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-I", "-S", "-B", "-W", "ignore", matching.__file__,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={},
        )  # fmt: skip
        try:
            async with asyncio.timeout(self._seconds):
                output, _ = await process.communicate(_encoded(request, sources))
        except TimeoutError as error:
            raise ToolError(
                f"the pattern took longer than {self._seconds:g} seconds",
                hint="Avoid repeats inside repeats such as (a+)+, or search less.",
            ) from error
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode != 0:
            raise ToolError("the search was stopped: it needed too much time or memory")
        lines, shown, matched, files = json.loads(output)
        return Answer(tuple(lines), shown, matched, files)


def _encoded(request: Request, sources: Sequence[Source]) -> bytes:
    parts = [json.dumps(request).encode(), b"\n"]
    for source in sources:
        header = json.dumps([source.name, len(source.content)]).encode()
        parts += [header, b"\n", source.content]
    return b"".join(parts)
