"""One running command: reads its output, limits its time, and leaves nothing behind.

Invariant: the command and its children form a process group. When the command ends in any way, or
this is cancelled, the rest of the group is killed.

The output becomes plain text, without colours, cursor movements and other terminal controls. Memory
use stays small, and viewers get the output at a readable pace. A flood is read slowly, which makes
its program wait and leaves time for everything else."""

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
from nanobot.security.sandbox import CHUNK, run_process, signal_group

KEPT = 100_000
"""Characters kept from the beginning of an output, and from its end."""

_LAST_WORD = r"(?<=\s)\S{0,4000}\Z"
_FIRST_WORD = r"\A\S{0,4000}(?=\s)"
"""A longer word is not a secret."""

_SHOWN_PER_SECOND = 4_000
_LONGEST_LINE = 2_000

_ORDERS = (
    "\x1b\\[[0-?]*[ -/]*[@-~]"  # colours, cursor movements
    "|\x1b[\\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\\\)"  # titles, links and other strings
    "|\x1b[ -/]*[0-OQ-WYZ\\\\`-~]"
)
_UNSEEN = dict.fromkeys((*range(9), *range(11, 32), *range(127, 160)))


class Output:
    """The output of a command as plain text. All line ends are newlines, and invalid UTF-8 becomes
    U+FFFD. The beginning and the end of the unread output are kept. `show` gets whole lines,
    because a secret cut in two would not be found."""

    def __init__(
        self, clock: Clock, show: Callable[[str], None] | None = None, kept: int = KEPT
    ) -> None:
        self._clock, self._show, self._kept = clock, show, kept
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._begun = self._head = self._tail = ""
        self._gone = self._skipped = 0
        self._since, self._room = clock.monotonic(), _SHOWN_PER_SECOND

    def feed(self, chunk: bytes, *, final: bool = False) -> None:
        """Add more output, cut anywhere."""
        text = self._begun + self._decoder.decode(chunk, final)
        end = 1 + max(text.rfind("\n"), text.rfind("\r", 0, max(0, len(text) - 1)))
        if final or len(text) - end > _LONGEST_LINE:
            end = len(text)
        self._begun = text[end:]
        self._add(text[:end])

    def __bool__(self) -> bool:
        return bool(self._begun or self._head)

    def take_unread(self) -> str:
        """Return the output since the last call, with a note for an omitted middle. It is cut
        between words if possible, because half of a secret would not be found."""
        begun, self._begun = self._begun, ""
        self._add(begun)
        head, tail, gone = self._head, self._tail, self._gone
        self._head, self._tail, self._gone = "", "", 0
        if not gone:
            return head + tail
        total = len(head) + gone + len(tail)
        head, tail = re.sub(_LAST_WORD, "", head), re.sub(_FIRST_WORD, "", tail)
        left_out = total - len(head) - len(tail)
        return f"{head}\n[… {left_out:,} characters omitted …]\n{tail}"

    def _add(self, text: str) -> None:
        text = re.sub(_ORDERS, "", text).replace("\r\n", "\n").replace("\r", "\n")
        text = text.translate(_UNSEEN)
        room = self._kept - len(self._head)
        self._head += text[:room]
        tail = self._tail + text[room:]
        excess = max(0, len(tail) - self._kept)
        self._tail, self._gone = tail[excess:], self._gone + excess
        if not (text and self._show):
            return
        now = self._clock.monotonic()
        if now - self._since >= 1.0:
            self._since, self._room = now, _SHOWN_PER_SECOND
        fits = len(text) <= self._room
        shown = text if fits else text[: text.rfind("\n", 0, self._room) + 1]
        self._room = self._room - len(shown) if fits else 0
        if shown:
            note = f"[… {self._skipped:,} characters omitted …]\n" if self._skipped else ""
            self._skipped = 0
            self._show(note + shown)
        self._skipped += len(text) - len(shown)


GRACE = 2.0
"""Seconds between SIGTERM and SIGKILL."""

_FREE, _PER_SECOND = 4_000_000, 1_000_000
"""Bytes of an output that are read at full speed, and the rate after that."""

_DRAIN = 5.0
"""Seconds for the pipe of an ended command to close. Until then the sandbox cleans up and
reports."""

How = Literal["exited", "timed out", "killed"]


class Ending(Struct, frozen=True):
    """The end of a command. `code` is its exit code, or the negative number of its signal.
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
    """A command from launch to end. `show` gets its output at a readable pace."""

    def __init__(self, clock: Clock, show: Callable[[str], None] | None = None) -> None:
        self.output = Output(clock, show)
        self._clock = clock
        self._stopping = asyncio.Event()

    def kill(self) -> None:
        """End it: with SIGTERM, and soon with SIGKILL. If it was not launched yet, it ends at
        once."""
        self._stopping.set()

    async def run(self, launch: Launch, seconds: float | None) -> Ending:
        """Run it to its end, or for at most `seconds`. Raise `OSError` if it cannot start."""
        async with run_process(launch) as (child, pipe), asyncio.TaskGroup() as tasks:
            reading = tasks.create_task(self._read(pipe))
            exited = tasks.create_task(child.wait())
            stopping = tasks.create_task(self._stopping.wait())
            await self._wait_for_first(seconds, exited, stopping)
            how: How = "timed out"
            if exited.done() or stopping.done():
                how = "exited" if exited.done() else "killed"
            stopping.cancel()
            if how != "exited":
                signal_group(child, signal.SIGTERM)  # lets it clean up
                await self._wait_for_first(GRACE, exited)
            signal_group(child, signal.SIGKILL)
            code = await exited
            await self._wait_for_first(_DRAIN, reading)
            reading.cancel()  # a process that left the group may still hold the pipe
        return Ending(how, code, seconds)

    async def _wait_for_first(self, seconds: float | None, *tasks: asyncio.Task[Any]) -> None:
        """Wait until one of them is done or `seconds` have passed (None: no limit)."""
        waiting = asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        with suppress(TimeoutError):
            await (waiting if seconds is None else with_timeout(self._clock, seconds, waiting))

    async def _read(self, pipe: asyncio.StreamReader) -> None:
        size = 0
        while chunk := await pipe.read(CHUNK):
            self.output.feed(chunk)
            size += len(chunk)
            if size > _FREE:
                await self._clock.sleep(len(chunk) / _PER_SECOND)  # a full pipe blocks the program
        self.output.feed(b"", final=True)
