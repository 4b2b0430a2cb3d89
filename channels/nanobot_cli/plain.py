"""Makes text safe to print: nothing in a reply may control the terminal that shows it.

Escape sequences that are complete go as a whole; then every control character that is left goes
too, so that no sequence can form out of the remains. The words around them always stay.
"""

from __future__ import annotations

import re

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
