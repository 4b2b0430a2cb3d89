"""Texts that others chose, made safe for notes, names and files of ours.

Notes, names and quotes stand in bracketed lines, which are nanobot's: what people choose freely
(names, titles, questions) never holds a bracket or a line end of its own.
"""

from __future__ import annotations

import re

LONGEST_NAME = 128
"""Characters of the name of a person, a group or a file."""

_SURROGATE = re.compile("[\ud800-\udfff]")
_UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]+")
"""Control characters, line ends, and what changes the direction of writing."""
_BRACKETS = str.maketrans("[]", "()")


def valid_unicode(text: str) -> str:
    """`text` with surrogate pairs joined and lone surrogates replaced: JSON can hold them, files,
    SQLite and UTF-8 cannot. The length in UTF-16 units stays the same."""
    if text.isascii() or not _SURROGATE.search(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def one_line(text: str, limit: int = LONGEST_NAME) -> str:
    """`text` on one line, without brackets, of at most `limit` characters."""
    line = " ".join(_UNSEEN.sub(" ", valid_unicode(text)).translate(_BRACKETS).split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"
