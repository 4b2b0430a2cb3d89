"""One command that runs: its output is read, its time is limited, and nothing of it is left.

Invariant: the command and what it starts are a process group of their own. When the command ends,
in whatever way, the rest of its group is killed, and so is all of it when this is cancelled.

What it prints becomes plain text, without colours, cursor movements and other orders to a terminal.
However much that is, what is kept in memory stays small, and viewers see it at a pace that
a screen can follow. A flood is read slowly, so that there is time left for everything else: it
makes its program wait.
"""

from __future__ import annotations

import asyncio
import codecs
import re
import signal
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Literal

from msgspec import Struct

from nanobot.clock import Clock, with_timeout
from nanobot.programs import Launch
from nanobot.security.sandbox import CHUNK, running, signal_group

KEPT = 100_000
"""Characters that are kept of the beginning of an output, and as many of its end."""

_LAST_WORD = re.compile(r"(?<=\s)\S{0,4000}\Z")
_FIRST_WORD = re.compile(r"\A\S{0,4000}(?=\s)")
"""What is longer is no secret."""

_SHOWN_PER_SECOND = 4_000
_LONGEST_LINE = 2_000

_ORDERS = re.compile(
    "\x1b\\[[0-?]*[ -/]*[@-~]"  # colours, cursor movements
    "|\x1b[\\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\\\)"  # titles, links and other strings
    "|\x1b[ -/]*[0-OQ-WYZ\\\\`-~]"
)
_UNSEEN = dict.fromkeys((*range(9), *range(11, 32), *range(127, 160)))


class Output:
    """What a command prints, as plain text; every end of a line is a newline, and what is no UTF-8
    becomes U+FFFD. The beginning and the end of what came since it was last taken are kept, and
    `show` is given whole lines: a secret that is cut in two would not be found."""

    def __init__(
        self, clock: Clock, show: Callable[[str], None] | None = None, kept: int = KEPT
    ) -> None:
        self._clock, self._show, self._kept = clock, show, kept
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._begun = self._head = self._tail = ""
        self._gone = self._skipped = 0
        self._since, self._room = clock.monotonic(), _SHOWN_PER_SECOND

    def feed(self, chunk: bytes, *, final: bool = False) -> None:
        """More was printed, wherever it was cut."""
        text = self._begun + self._decoder.decode(chunk, final)
        end = 1 + max(text.rfind("\n"), text.rfind("\r", 0, max(0, len(text) - 1)))
        if final or len(text) - end > _LONGEST_LINE:
            end = len(text)
        self._begun = text[end:]
        self._add(text[:end])

    def __bool__(self) -> bool:
        return bool(self._begun or self._head)

    def take_unread(self) -> str:
        """What came since the last time; a note stands where the middle is left out. It begins
        and ends between words where there are any near: half of a secret would not be found."""
        begun, self._begun = self._begun, ""
        self._add(begun)
        head, tail, gone = self._head, self._tail, self._gone
        self._head, self._tail, self._gone = "", "", 0
        if not gone:
            return head + tail
        total = len(head) + gone + len(tail)
        head, tail = _LAST_WORD.sub("", head), _FIRST_WORD.sub("", tail)
        left_out = total - len(head) - len(tail)
        return f"{head}\n[… {left_out:,} characters omitted …]\n{tail}"

    def _add(self, text: str) -> None:
        text = _ORDERS.sub("", text).replace("\r\n", "\n").replace("\r", "\n").translate(_UNSEEN)
        room = self._kept - len(self._head)
        self._head += text[:room]
        tail = self._tail + text[room:]
        excess = max(0, len(tail) - self._kept)
        self._tail, self._gone = tail[excess:], self._gone + excess
        if text and self._show:
            self._show_some(self._show, text)

    def _show_some(self, show: Callable[[str], None], text: str) -> None:
        now = self._clock.monotonic()
        if now - self._since >= 1.0:
            self._since, self._room = now, _SHOWN_PER_SECOND
        fits = len(text) <= self._room
        shown = text if fits else text[: text.rfind("\n", 0, self._room) + 1]
        self._room = self._room - len(shown) if fits else 0
        if shown:
            note = f"[… {self._skipped:,} characters omitted …]\n" if self._skipped else ""
            self._skipped = 0
            show(note + shown)
        self._skipped += len(text) - len(shown)


GRACE = 2.0
"""Seconds between the request to end and the end."""

_FREE, _PER_SECOND = 4_000_000, 1_000_000
"""Bytes of an output that are read as they come, and how fast the rest is read."""

_DRAIN = 5.0
"""Seconds in which the pipe of a command that is gone must close: until then the sandbox clears
away what the command left, and has its say."""

How = Literal["exited", "timed out", "killed"]


class Ending(Struct, frozen=True):
    """How a command ended. `code` is its exit code, the negative number of a signal that ended it.
    `seconds` is the time limit."""

    how: How
    code: int
    seconds: float | None = None

    def __str__(self) -> str:
        if self.how == "timed out":
            return (
                f"timed out after {self.seconds:g} seconds and was killed. The outcome is unknown"
            )
        if self.how == "killed":
            return "was killed. The outcome is unknown"
        if self.code >= 0:
            return f"exit code {self.code}"
        with suppress(ValueError):
            return f"killed by {signal.Signals(-self.code).name}"
        return f"killed by signal {-self.code}"


class Process:
    """A command, from its launch to its end. `show` is given what it prints, as far as a screen can
    follow."""

    def __init__(self, clock: Clock, show: Callable[[str], None] | None = None) -> None:
        self.output = Output(clock, show)
        self._clock = clock
        self._stopping = asyncio.Event()

    def kill(self) -> None:
        """Have it end: asked first, and soon without being asked. One that has yet to be launched
        ends at once."""
        self._stopping.set()

    async def run(self, launch: Launch, seconds: float | None) -> Ending:
        """Run it to its end, or for at most `seconds`. Raises `OSError` where it cannot start."""
        async with running(launch) as (child, pipe), asyncio.TaskGroup() as tasks:
            reading = tasks.create_task(self._read(pipe))
            exited = tasks.create_task(child.wait())
            stopping = tasks.create_task(self._stopping.wait())
            await self._first_of(seconds, exited, stopping)
            how: How = "timed out"
            if exited.done() or stopping.done():
                how = "exited" if exited.done() else "killed"
            stopping.cancel()
            if how != "exited":
                signal_group(child, signal.SIGTERM)
                await self._first_of(GRACE, exited)
            signal_group(child, signal.SIGKILL)
            code = await exited
            await self._first_of(_DRAIN, reading)
            reading.cancel()  # where something that left the group still holds the pipe
        return Ending(how, code, seconds)

    async def _first_of(self, seconds: float | None, *tasks: asyncio.Task[Any]) -> None:
        """Wait until one of them is done or `seconds` have passed (None: without end)."""
        waiting = asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        with suppress(TimeoutError):
            await (waiting if seconds is None else with_timeout(self._clock, seconds, waiting))

    async def _read(self, pipe: asyncio.StreamReader) -> None:
        size = 0
        while chunk := await pipe.read(CHUNK):
            self.output.feed(chunk)
            size += len(chunk)
            if size > _FREE:
                await self._clock.sleep(len(chunk) / _PER_SECOND)
        self.output.feed(b"", final=True)
