"""Lines that fit a terminal. What goes on of a list item stands under its beginning. Pure."""

from __future__ import annotations

import re
from unicodedata import east_asian_width

_NARROWEST = 20
_INDENT = re.compile(r"\s*(?:[-*+]\s+)?")
_WIDE = "\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60"
_PIECE = re.compile(rf"\s+|[{_WIDE}][\uff0c\uff01\uff1f\u3001\u3002\u201d]*|[^\s{_WIDE}]+")
"""What stays together: a word, or one character of a script without spaces."""


def wrapped(text: str, width: int) -> str:
    """`text` in lines of `width` columns, broken between words where there are any.

    Blocks that must stay aligned, indented by four, are left alone, and so is a word that is too
    long for any line.
    """
    width = max(_NARROWEST, width)
    return "\n".join(_wrapped(line, width) for line in text.split("\n"))


def _wrapped(line: str, width: int) -> str:
    if len(line) * 2 <= width or line.startswith("    ") or columns(line) <= width:
        return line
    match = _INDENT.match(line)
    hanging = min(len(match[0]) if match else 0, width // 2)
    lines, current, used = list[str](), "", 0
    for piece in _PIECE.findall(line):
        size = columns(piece)
        if used + size > width and current.strip() and not piece.isspace():
            lines.append(current.rstrip())
            current, used = " " * hanging, hanging
        current, used = current + piece, used + size
    return "\n".join([*lines, current.rstrip()])


def columns(text: str) -> int:
    """The columns of a terminal that `text` takes."""
    return len(text) if text.isascii() else sum(1 + (east_asian_width(c) in "WF") for c in text)
