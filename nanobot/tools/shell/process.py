"""One command that runs: its output is read, its time is limited, and nothing of it is left.

Invariant: the command and what it starts are a process group of their own. When the command ends,
in whatever way, the rest of its group is killed, and so is all of it when this is cancelled.

What it prints becomes plain text, without colours, cursor movements and other orders to a terminal.
However much that is, what is kept in memory stays small, and whoever watches sees it at a pace that
a screen can follow. All commands share one measure of how fast they are read, so that there is time
left for everything else: a flood makes its program wait.
"""

from __future__ import annotations

import asyncio
import codecs
import os
import re
import signal
from asyncio.subprocess import DEVNULL
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Literal

from nanobot.clock import Clock
from nanobot.security.sandbox import Launch
from nanobot.tasks import Background

KEPT = 100_000
"""Characters that are kept of the beginning of an output, and as many of its end."""

_LAST_WORD = re.compile(r"(?<=\s)\S{0,4000}\Z")
_FIRST_WORD = re.compile(r"\A\S{0,4000}(?=\s)")
"""What is longer is no secret."""

_SHOWN_PER_SECOND = 4_000
_LONGEST_LINE = 2_000


class Output:
    """The beginning and the end of what was printed since it was last taken."""

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._head = self._tail = ""
        self._gone = 0

    def add(self, text: str) -> None:
        """More was printed."""
        room = self._kept - len(self._head)
        self._head += text[:room]
        tail = self._tail + text[room:]
        excess = max(0, len(tail) - self._kept)
        self._tail, self._gone = tail[excess:], self._gone + excess

    def take(self) -> str:
        """What came since the last time; a note stands where the middle is left out. It begins
        and ends between words where there are any near: half of a secret would not be found."""
        head, tail, gone = self._head, self._tail, self._gone
        self._head, self._tail, self._gone = "", "", 0
        if not gone:
            return head + tail
        total = len(head) + gone + len(tail)
        head, tail = _LAST_WORD.sub("", head), _FIRST_WORD.sub("", tail)
        left_out = total - len(head) - len(tail)
        return f"{head}\n[… {left_out:,} characters are left out here …]\n{tail}"

    def __bool__(self) -> bool:
        return bool(self._head)


class Showing:
    """Shows output as it comes, in whole lines: a secret that is cut in two would not be found."""

    def __init__(self, show: Callable[[str], None], clock: Clock) -> None:
        self._show, self._clock = show, clock
        self._begun = ""
        self._skipped = 0
        self._since, self._room = clock.monotonic(), _SHOWN_PER_SECOND

    def add(self, text: str) -> None:
        """More was printed."""
        lines, newline, rest = text.rpartition("\n")
        if newline:
            self._lines(f"{self._begun}{lines}\n")
            self._begun = rest
        else:
            self._begun += rest
        if len(self._begun) > _LONGEST_LINE:
            self.end()

    def end(self) -> None:
        """Nothing more will come, or none that belongs to the line."""
        begun, self._begun = self._begun, ""
        if begun:
            self._lines(begun)

    def _lines(self, text: str) -> None:
        now = self._clock.monotonic()
        if now - self._since >= 1.0:
            self._since, self._room = now, _SHOWN_PER_SECOND
        fits = len(text) <= self._room
        shown = text if fits else text[: text.rfind("\n", 0, self._room) + 1]
        left_out = len(text) - len(shown)
        if shown and self._skipped:
            shown = f"[… {self._skipped:,} characters are not shown …]\n{shown}"
            self._skipped = 0
        self._skipped += left_out
        self._room = 0 if left_out else self._room - len(shown)
        if shown:
            self._show(shown)


_PER_SECOND = 2_000_000
_AT_ONCE = 4_000_000


class ReadRate:
    """`per_second` bytes, of which `at_once` may come together after a rest."""

    def __init__(
        self, clock: Clock, per_second: int = _PER_SECOND, at_once: int = _AT_ONCE
    ) -> None:
        self._clock = clock
        self._per_second, self._at_once = per_second, at_once
        self._since, self._left = clock.monotonic(), float(at_once)

    async def keep(self, size: int) -> None:
        """So many bytes were read: wait until there may be more."""
        now = self._clock.monotonic()
        rested = (now - self._since) * self._per_second
        self._since, self._left = now, min(self._at_once, self._left + rested) - size
        if self._left < 0:
            await self._clock.sleep(-self._left / self._per_second)


_ORDERS = re.compile(
    "\x1b\\[[0-?]*[ -/]*[@-~]"  # colours, cursor movements
    "|\x1b[\\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\\\)"  # titles, links and other strings
    "|\x1b[ -/]*[0-OQ-WYZ\\\\`-~]"
)
_BEGUN = re.compile("(?:\x1b(?:\\[[0-?]*[ -/]*|[\\]PX^_][^\x07\x1b]*\x1b?|[ -/]*)?|\r)\\Z")
_HIGH = re.compile("[\x80-\x9f]+")
_LOW = dict.fromkeys((*range(9), *range(11, 32), 127))
_LONGEST_ORDER = 1_000
"""Characters for which the end of an order is waited for."""


class PlainText:
    """Reads bytes as they come, wherever they were cut; what is no UTF-8 becomes U+FFFD."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""

    def feed(self, chunk: bytes) -> str:
        """The text that is complete with `chunk`; every end of a line is a newline."""
        return self._plain(self._decoder.decode(chunk))

    def end(self) -> str:
        """The text that was still waited with."""
        text = self._plain(self._decoder.decode(b"", final=True))
        rest, self._held = self._held, ""
        return text + _cleaned(rest)

    def _plain(self, text: str) -> str:
        text = self._held + text
        begun = _BEGUN.search(text, max(0, len(text) - _LONGEST_ORDER))
        end = begun.start() if begun else len(text)
        self._held = text[end:]
        return _cleaned(text[:end])


def _cleaned(text: str) -> str:
    text = _ORDERS.sub("", text) if "\x1b" in text else text
    text = text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text
    if text.isascii():
        return text.translate(_LOW)
    return _HIGH.sub("", text).translate(_LOW)


async def first_of(
    clock: Clock, seconds: float | None, *tasks: asyncio.Future[Any]
) -> asyncio.Future[Any] | None:
    """The first of `tasks` that is done, None where `seconds` pass before (None: without end).

    Cancelling it cancels none of them.
    """
    timer = Background()
    waited = set(tasks)
    if seconds is not None:
        waited.add(timer.start(clock.sleep(seconds), name="a time limit"))
    try:
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
    finally:
        timer.cancel()
        await timer.drain(0)
    return next((task for task in tasks if task.done()), None)


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
    """A command, from its launch to its end. `rate` is how fast its output is read; `show` is given
    what it prints, as far as a screen can follow."""

    def __init__(
        self, clock: Clock, rate: ReadRate, show: Callable[[str], None] | None = None
    ) -> None:
        self.output = Output()
        self._clock, self._rate = clock, rate
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
            await self._rate.keep(len(chunk))
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
        try:
            child = await launch.spawn(stdin=DEVNULL, stdout=write, stderr=write)
        except BaseException:
            transport.close()
            raise
    finally:
        os.close(write)
    try:
        yield child, reader
    finally:
        _signal(child, signal.SIGKILL)
        transport.close()


def _signal(child: asyncio.subprocess.Process, number: signal.Signals) -> None:
    """To the whole group, which is named after its first process and outlives it."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, number)


def _named(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
