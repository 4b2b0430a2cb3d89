"""Finding a text in bytes of any length, block by block.

A search holds the interpreter until it ends, so that nobody else in the process runs meanwhile: it
must never be longer than a block. A file may grow or be cut short while it is read. A match is
found wherever the blocks part it, unless it takes more than `LONGEST` bytes (thousands of blanks
between two words). Pure but for `read`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from nanobot.memory.forgetting.needle import AROUND, Needle

BLOCK = 256 * 1024
LONGEST = 16 * 1024

Read = Callable[[int, int], bytes]
"""The bytes from a position on, at most so many; empty where there are none."""


def matches(read: Read, needle: Needle) -> Iterator[tuple[int, bytes]]:
    """Where the text stands, and in which form."""
    base, data, begin, more = 0, b"", 0, True
    while more:
        block = read(base + len(data), BLOCK)
        data += block
        more = bool(block)
        # What begins behind this may end in the next block.
        settled = len(data) - LONGEST - AROUND if more else len(data)
        for start, end in needle.spans(data, begin):
            if start >= settled:
                break
            yield base + start, data[start:end]
            begin = end
        begin = max(begin, settled)
        cut = max(0, begin - AROUND)
        base, data, begin = base + cut, data[cut:], begin - cut


def count_in(data: bytes, needle: Needle) -> int:
    """How often the text stands in these bytes."""
    return sum(1 for _ in matches(lambda position, size: data[position : position + size], needle))
