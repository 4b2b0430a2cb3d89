"""The importance of a fact: a mark at the end of its line, from 1 to 5, with a reason. Pure.

    - Allergic to penicillin <!-- importance 5: health -->

So it is edited, moved, versioned, undone and forgotten with the line. Rendered files and prompts do
not show it. It is not part of the fact: lines that only differ in it state the same. A line without
a mark has the importance 3.

Dream marks lines without a mark, and changes none. The person changes them, by a command or in an
editor.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import Struct

USUAL, HIGHEST = 3, 5
LONGEST_REASON = 80
"""Characters."""

_MARK = re.compile(
    r"(?<=\S)[ \t]*<!--[ \t]*importance[ \t:=]+([0-9])\b[ \t:,;-]*([^\n]{0,200}?)[ \t]*-->",
    re.IGNORECASE,
)


class Importance(Struct, frozen=True):
    """A level from 1 to 5, and a short reason."""

    level: int = USUAL
    reason: str = ""

    @classmethod
    def of(cls, level: int, reason: str = "") -> Importance:
        """Create an importance with the nearest level and a reason that can be in a mark."""
        words = " ".join(re.sub(r"[<>]|--+", " ", reason).split())
        return cls(min(max(level, 1), HIGHEST), words[:LONGEST_REASON].rstrip())

    @property
    def mark(self) -> str:
        """The comment for the end of a line, with a leading blank."""
        return f" <!-- importance {self.label} -->"

    @property
    def label(self) -> str:
        """Text for people: `5: health`."""
        return f"{self.level}: {self.reason}" if self.reason else str(self.level)


def importance_mark(line: str) -> str:
    match = _MARK.search(line) if "<!--" in line else None
    return match[0] if match else ""


def importance_of(line: str) -> Importance | None:
    """Return the importance in a line's mark, or None."""
    match = _MARK.search(line) if "<!--" in line else None
    return Importance.of(int(match[1]), match[2]) if match else None


def without_importance(text: str) -> str:
    """Return a line, or a whole text, without marks."""
    if "<!--" not in text:
        return text
    lines = (_MARK.sub("", line) if "<!--" in line else line for line in text.split("\n"))
    return "\n".join(lines)


def with_mark(line: str, mark: str) -> str:
    """Replace the mark of a line. An empty mark removes it."""
    return strip_mark(line) + mark


def strip_mark(line: str) -> str:
    """Return the line without its mark and trailing white space."""
    return without_importance(line).rstrip()


def marks_of(text: str) -> dict[str, str]:
    """Return the mark of each marked line, the highest if a line occurs several times."""
    marks = dict[str, str]()
    for line in text.split("\n") if importance_mark(text) else ():
        if mark := importance_mark(line):
            marks[strip_mark(line)] = max(mark, marks.get(strip_mark(line), ""))
    return marks


def with_marks(text: str, marks: Mapping[str, str]) -> str:
    """Put these marks behind their lines, before trailing white space."""
    pairs = ((raw, raw.rstrip()) for raw in text.split("\n"))
    return "\n".join(f"{line}{marks.get(line, '')}{raw[len(line) :]}" for raw, line in pairs)
