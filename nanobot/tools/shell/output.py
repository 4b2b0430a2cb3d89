"""What a command has printed: kept within bounds, and shown to whoever watches at a pace that a
screen can follow. However much is printed, what is kept in memory stays small.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from nanobot.clock import Clock

KEPT = 100_000
"""Characters that are kept of the beginning of an output, and as many of its end."""

_LONGEST_WORD = 4_000
"""Characters; what is longer is no secret."""

_SHOWN_PER_SECOND = 4_000
_LONGEST_LINE = 2_000


class Output:
    """The beginning and the end of what was printed since it was last taken."""

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._clear()

    def add(self, text: str) -> None:
        """More was printed."""
        room = self._kept - self._head_size
        if room > 0:
            self._head.append(text[:room])
            self._head_size += len(self._head[-1])
            text = text[room:]
        if not text:
            return
        self._tail.append(text)
        self._tail_size += len(text)
        while self._tail_size - len(self._tail[0]) >= self._kept:
            gone = len(self._tail.popleft())
            self._tail_size -= gone
            self._gone += gone

    def take(self) -> str:
        """What came since the last time; a note stands where the middle is left out. It begins
        and ends between words where there are any near: half of a secret would not be found."""
        head, tail = "".join(self._head), "".join(self._tail)
        total = len(head) + self._gone + len(tail)
        gone = self._gone or len(tail) > self._kept
        self._clear()
        if not gone:
            return head + tail
        head, tail = _without_last_word(head), _without_first_word(tail[-self._kept :])
        left_out = total - len(head) - len(tail)
        return f"{head}\n[… {left_out:,} characters are left out here …]\n{tail}"

    def __bool__(self) -> bool:
        return self._head_size > 0

    def _clear(self) -> None:
        self._head: list[str] = []
        self._tail: deque[str] = deque()
        self._head_size = self._tail_size = self._gone = 0


def _without_last_word(text: str) -> str:
    """`text` up to its last white space, where that is near its end."""
    for at in range(len(text) - 1, max(0, len(text) - _LONGEST_WORD) - 1, -1):
        if text[at].isspace():
            return text[: at + 1]
    return text


def _without_first_word(text: str) -> str:
    """`text` from its first white space on, where that is near its beginning."""
    for at, character in enumerate(text[:_LONGEST_WORD]):
        if character.isspace():
            return text[at:]
    return text


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
