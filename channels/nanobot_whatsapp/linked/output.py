"""What a helper prints: little, since it says all else over its connection.

It comes through a pipe of our own, not one of `asyncio`'s process: there the end of a process would
only be noticed once all that it printed is read.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from loguru import logger

_MOST_LOGGED = 100
_MOST_CHARACTERS = 300
_LAST_LINES = 5


class Output:
    """`inlet` is the descriptor to print to; give it to a process, then close ours."""

    def __init__(self, reader: asyncio.StreamReader, inlet: int) -> None:
        self._reader, self.inlet = reader, inlet
        self._last: deque[str] = deque(maxlen=_LAST_LINES)
        self._ended = asyncio.Event()

    def close_inlet(self) -> None:
        """Only the process prints from now on; again is nothing."""
        if self.inlet >= 0:
            os.close(self.inlet)
            self.inlet = -1

    async def log(self) -> None:
        """Log it, to its end. What is too much is read all the same, so that nothing stalls."""
        rest, logged = b"", 0
        while chunk := await self._reader.read(4096):
            *lines, rest = (rest + chunk).split(b"\n")
            rest = rest[:_MOST_CHARACTERS]
            for line in lines:
                self._last.append(_printable(line))
                if (logged := logged + 1) <= _MOST_LOGGED:
                    logger.warning("whatsapp helper: {}", self._last[-1])
        self._ended.set()

    async def last(self) -> Sequence[str]:
        """The last lines, once there are no more."""
        await self._ended.wait()
        return [line for line in self._last if line]


@asynccontextmanager
async def printed() -> AsyncIterator[Output]:
    """A pipe to print to. Raises `OSError` where there are no descriptors left."""
    outlet, inlet = os.pipe2(os.O_CLOEXEC)
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(outlet, "rb", buffering=0)
    )
    output = Output(reader, inlet)
    try:
        yield output
    finally:
        output.close_inlet()
        transport.close()


def _printable(line: bytes) -> str:
    text = line[:_MOST_CHARACTERS].decode(errors="replace").rstrip()
    return "".join(char if char.isprintable() else "?" for char in text)
