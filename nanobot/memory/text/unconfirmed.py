"""The mark of a note that foreign content may have caused: `(from tool:web_fetch, unconfirmed)`.

Whoever reads notes, in a prompt or a search, reads such a one as foreign text. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from nanobot.memory.text.layout import split

NOTE = "note"
"""The origin of what stands in such a note; its mark may say more, but that is for people."""

_MARKED = re.compile(r"- \d\d:\d\d \(from [^\n]{1,300}, unconfirmed\) ")
_TOLD = re.compile(r"\d\d:\d\d \(from ")
_LONGEST = 280


def mark_of(origins: Iterable[str]) -> str:
    """What such a note begins with; empty where there are no origins."""
    named = ", ".join(" ".join(origin.split()) for origin in dict.fromkeys(origins))
    return f"(from {named[:_LONGEST]}, unconfirmed) " if named else ""


def is_unconfirmed(line: str) -> bool:
    """Whether a line of notes carries the mark."""
    return _MARKED.match(line) is not None


def says_unconfirmed(notice: str) -> bool:
    """Whether the news of memory in a prompt tell of such a note; they may be cut in the mark."""
    return _TOLD.search(notice) is not None


def unconfirmed_in(notes: str) -> str:
    """Those of a day's notes that carry the mark, with what is indented under them."""
    found = []
    marked = False
    for line in split(notes):
        if line.strip() and not line.startswith(" "):
            marked = is_unconfirmed(line)
        if marked:
            found.append(line)
    return "\n".join(found)
