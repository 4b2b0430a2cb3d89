"""How well whole stretches of conversation match a question.

A question's words are often spread over a conversation, so a segment is scored by bm25 as if it
were one document. No second full-text table is needed for that: the messages in which each word
stands are at hand. A word's frequency in a segment is the number of its messages that hold it, and
a segment's length the number of its messages:

    sum over words of  idf * tf * (k1 + 1) / (tf + k1 * (1 - b + b * length / mean length))

with idf = ln((N - n + 0.5) / (n + 0.5)), never negative, for n of N segments. Measured against a
table of whole segments, this finds as much.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from math import log

from nanobot.memory.index.schema import PLACES, STREAM_BITS, TOOLS_FROM

_K1, _B = 1.2, 0.75


class Segments:
    """All segments of an index: their ids in order, and how many messages each has."""

    def __init__(self, ids: Sequence[int], sizes: Sequence[int]) -> None:
        self._ids, self._sizes = ids, sizes
        self._mean = sum(sizes) / len(sizes) if sizes else 1.0

    def scores(self, occurrences: Iterable[Sequence[int]]) -> dict[int, float]:
        """The bm25 of each segment that matches; `occurrences` has, for each word, the ids of the
        messages that hold it."""
        found: dict[int, float] = {}
        for messages in occurrences:
            places = Counter(at for id in messages if (at := self._place(id)) >= 0)
            rarity = log((len(self._ids) - len(places) + 0.5) / (len(places) + 0.5))
            if rarity <= 0:
                continue
            for at, count in places.items():
                length = _K1 * (1 - _B + _B * self._sizes[at] / self._mean)
                score = rarity * count * (_K1 + 1) / (count + length)
                found[self._ids[at]] = found.get(self._ids[at], 0.0) + score
        return found

    def _place(self, id: int) -> int:
        """Where the segment of a message stands; -1 for what is in none."""
        at = bisect_right(self._ids, id) - 1
        if at < 0 or id % PLACES > TOOLS_FROM or self._ids[at] >> STREAM_BITS != id >> STREAM_BITS:
            return -1
        return at
