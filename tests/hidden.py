"""Text that is hidden from its reader, counted independently of the code under test."""

from __future__ import annotations

import re
import unicodedata

_BIDI = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
_NOTHING = (
    "\u00ad\u034f\u115f\u1160\u17b4\u17b5\u200b\u2060\u2061\u2062\u2063\u2064\u3164\ufeff\uffa0"
)
_OVERLAYS = "\u0334\u0335\u0336\u0337\u0338\u20d2\u20d3\u20d8\u20d9\u20da\u20dd\u20de\u20df\u20e0"
_OVERLAYS += "\u0488\u0489"
_SELECTOR = "[\ufe00-\ufe0f\U000e0100-\U000e01ef]"
_FLAG = re.compile("\U0001f3f4[\U000e0030-\U000e007a]{1,6}\U000e007f")


def find_hidden(text: str, marks: int = 5) -> str:
    """Return the first part of `text` that is invisible or shown differently, or an empty text.
    `marks` are allowed on one letter."""
    text = _FLAG.sub("", text)
    for character in text:
        control = unicodedata.category(character) in ("Cc", "Cs") and character not in "\n\t"
        if control or character in _BIDI + _NOTHING or 0xE0000 <= ord(character) < 0xE0080:
            return ascii(character)
    composed = unicodedata.normalize("NFC", text)
    for found in (
        re.search(f"[{_OVERLAYS}]", composed),
        re.search(f"{_SELECTOR}{{2}}", text),
        re.search("[\u200c\u200d]{2}", text),
    ):
        if found:
            return ascii(found[0])
    run = 0
    for character in text:
        if unicodedata.category(character) in ("Mn", "Me"):
            run += not re.match(_SELECTOR, character)
        elif character not in "\u200c\u200d":
            run = 0
        if run > marks:
            return f"{run} marks"
    return ""
