"""Matching lines against a regular expression that a model wrote, without risk to the daemon.

Python's `re` can take exponential time on thirty characters, and holds the interpreter's lock all
the while: neither a bound on the length of lines nor a look at the clock between them helps. So the
pattern is matched in a process of its own, which is killed when its time is up.
"""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import Process
from collections.abc import Iterator, Sequence
from contextlib import suppress

from nanobot.errors import ToolError
from nanobot.tools import matching
from nanobot.tools.matching import Answer, Request, Source

_AT_ONCE = 64 * 1024
"""Bytes that wait for the process at most, beside the portion that they are of."""


class Matcher:
    """Runs a request in a process of its own, for at most `seconds`."""

    def __init__(self, seconds: float = matching.SECONDS) -> None:
        self._seconds = seconds

    async def match(self, request: Request, portions: Iterator[Sequence[Source]]) -> Answer:
        """The matches. The sources come in `portions`, which are asked for in a thread, one when
        the process has taken the last: so no more is held than that. Raises `ToolError` when the
        pattern takes too long, and what `portions` raises."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-I", "-S", "-B", "-W", "ignore", matching.__file__,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={},
        )  # fmt: skip
        try:
            async with asyncio.timeout(self._seconds):
                with suppress(BrokenPipeError, ConnectionResetError):  # it ended: see below
                    await _feed(process, request, portions)
                assert process.stdout is not None
                output = await process.stdout.read()
                await process.wait()
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


async def _feed(process: Process, request: Request, portions: Iterator[Sequence[Source]]) -> None:
    pipe = process.stdin
    assert pipe is not None
    pipe.write(json.dumps(request).encode() + b"\n")
    while (portion := await asyncio.to_thread(next, portions, None)) is not None:
        for source in portion:
            pipe.write(json.dumps([source.name, len(source.content)]).encode() + b"\n")
            for start in range(0, len(source.content), _AT_ONCE):
                pipe.write(source.content[start : start + _AT_ONCE])
                await pipe.drain()
    pipe.close()  # asyncio logs a broken pipe where waiting for this is cancelled
