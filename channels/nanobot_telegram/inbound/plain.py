"""Texts of others, made safe to stand among nanobot's own marks.

Notes, names and quotes come to stand in lines in brackets, which are nanobot's: what people choose
freely (names, titles, questions) never holds a bracket or a line end of its own.
"""

from __future__ import annotations

import re

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]+")
"""Control characters, line ends, and what turns the direction of writing around."""
_BRACKETS = str.maketrans("[]", "()")
_NAME_LENGTH = 128


def clean(text: str) -> str:
    """`text` without lone surrogates, which no file can hold. The length stays the same."""
    return text if text.isascii() else _LONE_SURROGATE.sub("\ufffd", text)


def one_line(text: str) -> str:
    """`text` on one line and without brackets."""
    return " ".join(_UNSEEN.sub(" ", clean(text)).translate(_BRACKETS).split())


def short(text: str) -> str:
    """A name: one line, and not a story."""
    name = one_line(text)
    return name if len(name) <= _NAME_LENGTH else name[: _NAME_LENGTH - 1] + "…"


def note(kind: str, *details: str | None) -> str:
    """`kind: detail, detail`, or `kind` where no detail is known."""
    known = ", ".join(filter(None, (one_line(detail) for detail in details if detail)))
    return f"{kind}: {known}" if known else kind
