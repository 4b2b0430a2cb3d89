"""Makes text safe to print: nothing in a reply may control the terminal that shows it.

Escape sequences that are complete go as a whole; then every control character that is left goes
too, so that no sequence can form out of the remains. The words around them always stay.

Lines that fit a terminal. What goes on of a list item stands under its beginning. Pure.

The end of what a running tool prints, as lines that a terminal can show. Pure.
"""

from __future__ import annotations

import re
from unicodedata import east_asian_width

from nanobot_cli.wire import SentFile

# No part runs over the beginning of another one: the search is linear on hostile text.
_SEQUENCE = re.compile(
    "(?:\x1b\\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor, clearing
    "|(?:\x1b[]P^_X]|[\x9d\x90\x9e\x9f\x98])[^\x07\x1b\x80-\x9f\n]*(?:\x07|\x1b\\\\|\x9c)"  # titles
    "|\x1b[ -/]+[0-~]"  # character sets
)

_CONTROLS = {code: None for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"}

_ESCAPES = dict.fromkeys((0x1B, *range(0x80, 0xA0)))


def clean(text: str) -> str:
    """`text` for a terminal: lines and tabs stay, everything that could control it is gone."""
    if text.isprintable():
        return text
    text = _SEQUENCE.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    return text.translate(_CONTROLS)


def without_escapes(text: str) -> str:
    """`text` for a file or a pipe: as it is, save that nothing in it can start a sequence."""
    return text.translate(_ESCAPES)


def one_line(text: str, width: int) -> str:
    """The beginning of `text` as one line of at most `width` characters."""
    line = " ".join(clean(text[: width * 4]).split())
    return line if len(line) <= width else line[: max(0, width - 1)] + "…"


def file_line(file: SentFile) -> str:
    """A file that was sent, on one line: what it is called, how large it is and where it lies."""
    path = clean(file.path).replace("\n", " ")
    return f"[file] {one_line(file.name, 200)} ({file.size:,} bytes): {path}"


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
