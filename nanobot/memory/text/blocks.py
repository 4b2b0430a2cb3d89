"""Lines that stand and go together: a day's note or a fact that waits, and what is indented under
it. Without its first line the rest would belong to the entry above. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

_ENTRY = re.compile(r"- (?:\d\d:\d\d |\[\d{4}-\d\d-\d\d\] \(from )")


def blocks_of(text: str) -> Iterator[str]:
    """The text in pieces, with their line ends: such an entry with all that belongs to it, or else
    a single line. Only what was written as an entry is one; indented lines of a person's own are
    facts by themselves."""
    entry = list[str]()
    for line in _lines(text):
        belongs = not line.strip() or line[0].isspace()
        if entry and belongs:
            entry.append(line)
            continue
        if entry:
            yield "".join(entry)
            entry = []
        if _ENTRY.match(line):
            entry = [line]
        else:
            yield line
    if entry:
        yield "".join(entry)


def _lines(text: str) -> Iterator[str]:
    *whole, last = text.split("\n")
    yield from (f"{line}\n" for line in whole)
    if last:
        yield last
