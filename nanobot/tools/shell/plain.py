"""What a program prints, as plain text: without colours, cursor movements and other orders to a
terminal. Pure, linear in the text, and quick for whatever a program may print on purpose.
"""

from __future__ import annotations

import codecs
import re

_ORDERS = re.compile(
    "\x1b\\[[0-?]*[ -/]*[@-~]"  # colours, cursor movements
    "|\x1b[\\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\\\)"  # titles, links and other strings
    "|\x1b[ -/]*[0-OQ-WYZ\\\\`-~]"
)
_BEGUN = re.compile("(?:\x1b(?:\\[[0-?]*[ -/]*|[\\]PX^_][^\x07\x1b]*\x1b?|[ -/]*)?|\r)\\Z")
_MEANT_FOR_NOBODY = bytes({*range(0x20), 0x7F} - {*b"\x07\t\n\r\x1b"})
"""Means nothing in an order either. (In the middle of one terminals ignore it, too.)"""

_ESCAPES, _BELLS = re.compile(b"\x1b{2,}"), re.compile(b"\x07{2,}")
_HIGH = re.compile("[\x80-\x9f]+")
_LOW = dict.fromkeys((*range(9), *range(11, 32), 127))
_LONGEST_ORDER = 1_000
"""Characters for which the end of an order is waited for."""


class PlainText:
    """Reads bytes as they come, wherever they were cut; what is no UTF-8 becomes U+FFFD."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""

    def feed(self, chunk: bytes) -> str:
        """The text that is complete with `chunk`; every end of a line is a newline."""
        return self._plain(self._decoder.decode(_thinned(chunk)))

    def end(self) -> str:
        """The text that was still waited with."""
        text = self._plain(self._decoder.decode(b"", final=True))
        rest, self._held = self._held, ""
        return text + _cleaned(rest)

    def _plain(self, text: str) -> str:
        text = self._held + text
        begun = _BEGUN.search(text, max(0, len(text) - _LONGEST_ORDER))
        end = begun.start() if begun else len(text)
        self._held = text[end:]
        return _cleaned(text[:end])


def _thinned(chunk: bytes) -> bytes:
    """Without most of what will be taken out anyway, while that costs least."""
    chunk = chunk.translate(None, _MEANT_FOR_NOBODY)
    chunk = _ESCAPES.sub(b"\x1b", chunk) if b"\x1b\x1b" in chunk else chunk
    return _BELLS.sub(b"\x07", chunk) if b"\x07\x07" in chunk else chunk


def _cleaned(text: str) -> str:
    text = _ORDERS.sub("", text) if "\x1b" in text else text
    text = text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text
    if text.isascii():
        return text.translate(_LOW)
    return _HIGH.sub("", text).translate(_LOW)
