"""The end of what a running tool prints, as lines that a terminal can show. Pure."""

from __future__ import annotations

from nanobot_cli.plain import clean

_KEPT = 8_000
"""Characters that are kept: more than any screen shows of it."""


class OutputTail:
    """Takes pieces of any size; `\\r` begins a line anew, as progress bars do."""

    def __init__(self) -> None:
        self._tail = ""
        self._ended = 0

    def feed(self, text: str) -> None:
        """More of it."""
        self._ended += text.count("\n")
        self._tail = (self._tail + text)[-_KEPT:]

    def lines(self, most: int, width: int) -> list[str]:
        """The last `most` lines, each cut to `width` characters; one that is blank at the end does
        not count. Where there were more, the first says how many."""
        shown = [_as_shown(line)[:width] for line in self._tail.split("\n")]
        total = self._ended + 1
        while shown and not shown[-1].strip():
            shown.pop()
            total -= 1
        if total <= most or not shown:
            return shown
        kept = shown[len(shown) - min(most - 1, len(shown)) :]
        return [f"… {total - len(kept):,} lines before", *kept]


def _as_shown(line: str) -> str:
    """A line after all that was written over it."""
    return clean(line.rstrip("\r").rpartition("\r")[2]).expandtabs(4).rstrip()
