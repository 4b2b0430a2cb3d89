"""One command that runs: its output is read, its time is limited, and nothing of it is left.

What always holds: the command and what it starts are a process group of their own. When the command
ends, in whatever way, the rest of its group is killed, and so is all of it when this is cancelled.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Literal

from nanobot.clock import Clock
from nanobot.security.sandbox import Launch
from nanobot.tools.shell.output import Output, Showing
from nanobot.tools.shell.pace import Pace
from nanobot.tools.shell.plain import PlainText
from nanobot.tools.shell.waiting import first_of

GRACE = 2.0
"""Seconds between the request to end and the end."""

_CHUNK = 64 * 1024
_DRAIN = 5.0
"""Seconds in which the pipe of a command that is gone must close: until then the sandbox clears
away what the command left, and has its say."""

How = Literal["exited", "timed out", "killed"]


@dataclass(frozen=True, slots=True)
class Ending:
    """How a command ended. `code` is its exit code, the negative number of a signal that ended it.
    `seconds` is the time limit."""

    how: How
    code: int
    seconds: float | None = None

    def __str__(self) -> str:
        if self.how == "timed out":
            return f"timed out after {self.seconds:g} s and was killed; the outcome is unknown"
        if self.how == "killed":
            return "was killed; the outcome is unknown"
        return f"exit code {self.code}" if self.code >= 0 else f"ended by {_named(-self.code)}"


class Process:
    """A command, from its launch to its end. `pace` is how fast its output is read; `show` is given
    what it prints, as far as a screen can follow."""

    def __init__(self, clock: Clock, pace: Pace, show: Callable[[str], None] | None = None) -> None:
        self.output = Output()
        self._clock, self._pace = clock, pace
        self._showing = Showing(show, clock) if show else None
        self._unwanted = asyncio.Event()

    def kill(self) -> None:
        """Have it end: asked first, and soon without being asked. One that has yet to be launched
        ends at once."""
        self._unwanted.set()

    async def run(self, launch: Launch, seconds: float | None) -> Ending:
        """Run it to its end, or for at most `seconds`. Raises `OSError` where it cannot start."""
        async with _piped(launch) as (child, pipe), asyncio.TaskGroup() as tasks:
            reading = tasks.create_task(self._read(pipe))
            exited = tasks.create_task(child.wait())
            unwanted = tasks.create_task(self._unwanted.wait())
            first = await first_of(self._clock, seconds, exited, unwanted)
            unwanted.cancel()
            if first is not exited:
                _signal(child, signal.SIGTERM)
                await first_of(self._clock, GRACE, exited)
            _signal(child, signal.SIGKILL)
            code = await exited
            await first_of(self._clock, _DRAIN, reading)
            reading.cancel()  # where something that left the group still holds the pipe
        how: How = "timed out" if first is None else "exited" if first is exited else "killed"
        return Ending(how, code, seconds)

    async def _read(self, pipe: asyncio.StreamReader) -> None:
        plain = PlainText()
        while chunk := await pipe.read(_CHUNK):
            self._add(plain.feed(chunk))
            await self._pace.keep(len(chunk))
        self._add(plain.end())
        if self._showing:
            self._showing.end()

    def _add(self, text: str) -> None:
        self.output.add(text)
        if self._showing and text:
            self._showing.add(text)


@asynccontextmanager
async def _piped(
    launch: Launch,
) -> AsyncIterator[tuple[asyncio.subprocess.Process, asyncio.StreamReader]]:
    """A process, and what it prints. Its group is dead afterwards.

    The pipe is ours and not asyncio's, which would wait for it to be closed by whoever inherited
    it, however long that lives.
    """
    reader = asyncio.StreamReader(limit=_CHUNK)
    read, write = os.pipe()
    try:
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(read, "rb", 0)
        )
        child = await _started(launch, write, transport)
    finally:
        os.close(write)
    try:
        yield child, reader
    finally:
        _signal(child, signal.SIGKILL)
        transport.close()


async def _started(
    launch: Launch, output: int, reading: asyncio.BaseTransport
) -> asyncio.subprocess.Process:
    try:
        return await asyncio.create_subprocess_exec(
            *launch.argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=launch.env,
            cwd=launch.cwd,
            pass_fds=launch.pass_fds,
            start_new_session=True,
        )
    except BaseException:
        reading.close()
        raise


def _signal(child: asyncio.subprocess.Process, number: signal.Signals) -> None:
    """To the whole group, which is named after its first process and outlives it."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, number)


def _named(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
