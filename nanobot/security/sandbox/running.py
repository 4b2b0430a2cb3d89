"""A command that runs in a sandbox, and what it prints: nothing of it is left afterwards."""

from __future__ import annotations

import asyncio
import os
import signal
from asyncio.subprocess import DEVNULL
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from nanobot.programs import Launch

CHUNK = 64 * 1024
"""Bytes that are read at once."""


@asynccontextmanager
async def running(
    launch: Launch, *, stdin: int = DEVNULL, stdout: int | None = None
) -> AsyncIterator[tuple[asyncio.subprocess.Process, asyncio.StreamReader]]:
    """A process, and what it prints: standard error, and standard output unless that goes to the
    file `stdout`. Its group is dead afterwards. Raises `OSError` where it cannot start.

    The pipe is ours and not asyncio's, which would wait for it to be closed by what inherited
    it, however long that lives.
    """
    reader = asyncio.StreamReader(limit=CHUNK)
    read, write = os.pipe()
    try:
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(read, "rb", 0)
        )
        try:
            printed = write if stdout is None else stdout
            child = await launch.spawn(stdin=stdin, stdout=printed, stderr=write)
        except BaseException:
            transport.close()
            raise
    finally:
        os.close(write)
    try:
        yield child, reader
    finally:
        signal_group(child, signal.SIGKILL)
        transport.close()


def signal_group(child: asyncio.subprocess.Process, number: signal.Signals) -> None:
    """To the whole group, which is named after its first process and outlives it."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, number)
