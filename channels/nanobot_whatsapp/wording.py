"""Text that others chose, as it may stand in messages, notes and files of ours."""

from __future__ import annotations

import re

LONGEST_NAME = 128
"""Characters of a name, of a person, a group or a file."""

_HALF = re.compile("[\ud800-\udfff]")
_UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]+")
"""Control characters, line ends, and what turns the direction of writing around."""
_ROUND = str.maketrans("[]", "()")


def whole(text: str) -> str:
    """`text` with halves of characters joined, or replaced where they are alone: JSON can hold
    them, files and UTF-8 cannot."""
    if text.isascii() or not _HALF.search(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def one_line(text: str, most: int = LONGEST_NAME) -> str:
    """`text` as it may stand in brackets, which are nanobot's: on one line, without any, and of at
    most so many characters."""
    line = " ".join(_UNSEEN.sub(" ", whole(text)).translate(_ROUND).split())
    return line if len(line) <= most else f"{line[: most - 1]}…"
