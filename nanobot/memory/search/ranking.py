"""Which passages answer a question: bm25 first, then what the conversation around a hit tells.
Pure.

People do not repeat the words of a question in the answer to it. "What did you name the cat?" /
"Oscar!": the words stand in one message, the answer in the next. So a message's own bm25 flows to
its neighbours:

    to the next        0.3, or 0.8 where it asks something (the next one is likely the answer)
    to the previous    0.55
    at distance two    0.3 onwards, 0.2 backwards

but only within its segment, a stretch of conversation without a long pause. Added to that is 1.2 of
the bm25 of the whole segment as one document (`Segments`), because the words of a question are
often spread over it. No second full-text table is needed: a word's frequency in a segment is the
number of its messages that hold it, and a segment's length the number of its messages:

    sum over words of  idf * tf * (k1 + 1) / (tf + k1 * (1 - b + b * length / mean length))

with idf = ln((N - n + 0.5) / (n + 0.5)), never negative, for n of N segments.

Then factors, soft ones: nothing is filtered by a guess. Messages of a speaker that the question
names count more, so do messages from the days that it names and the two weeks after
(people tell afterwards). A message that ends as a question answers little, and the output of a tool
was usually said again by the one who called it.

The numbers are round ones from the middle of a broad plateau. Chosen again on any four of the five
development conversations of LoCoMo, they come out nearly the same, and serve the fifth as well.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import date, timedelta
from math import log
from typing import NamedTuple

from nanobot.memory.search.database import PLACES, STREAM_BITS, TOOLS_FROM
from nanobot.memory.search.question import ParsedQuestion
from nanobot.memory.search.reading import ENDS_ASKING

NEIGHBOURS = (-2, -1, 1, 2)
"""The distances over which score flows."""

MENTIONED_WITHIN = timedelta(days=14)
"""How long after an event people are taken to speak of it."""

_NEXT, _ANSWER, _PREVIOUS, _AFTER_NEXT, _BEFORE_PREVIOUS = 0.3, 0.8, 0.55, 0.3, 0.2
_SEGMENT = 1.2
_SPEAKER, _SPAN, _ENDS_ASKING, _TOOL = 1.6, 2.5, 0.8, 0.6
_K1, _B = 1.2, 0.75

Scored = list[tuple[int, float]]
"""Ids of passages with their scores, best first; among equals the newer id first."""


class RankCandidate(NamedTuple):
    """What ranking knows of a passage; a tuple because each search makes a thousand.

    Neighbours have ids that differ by one, and the same `segment`. `moment` is ISO, empty where
    there is none, and begins with the civil day. `asks` is 0, `ASKS` or `ENDS_ASKING`. To and
    from the output of tools (role `tool`), which stands beside the talk, no score flows.
    """

    id: int
    segment: int
    role: str = ""
    speaker: str = ""
    moment: str = ""
    asks: int = 0
    seq: int = 0


def reach(ids: Iterable[int]) -> set[int]:
    """The ids that score may flow to from `ids`, themselves included."""
    return {id + step for id in ids for step in (0, *NEIGHBOURS)}


def rank(
    question: ParsedQuestion,
    candidates: Mapping[int, RankCandidate],
    own: Mapping[int, float],
    segments: Mapping[int, float],
) -> Scored:
    """Those of `candidates` to which any score comes.

    `own` has the bm25 (positive, higher is better) of those that match, `segments` that of whole
    segments.
    """
    flowed = _flow(candidates, own)
    scored = []
    for id, score in flowed.items():
        here = candidates[id]
        whole = score + _SEGMENT * segments.get(here.segment, 0.0)
        scored.append((id, whole * _factor(question, here)))
    return sorted(scored, key=lambda item: (-item[1], -item[0]))


def _flow(candidates: Mapping[int, RankCandidate], own: Mapping[int, float]) -> dict[int, float]:
    total: dict[int, float] = {}
    for id, score in own.items():
        here = candidates.get(id)
        if here is None:
            continue
        total[id] = total.get(id, 0.0) + score
        if here.role == "tool":
            continue
        onwards = _ANSWER if here.asks else _NEXT
        shares = (_BEFORE_PREVIOUS, _PREVIOUS, onwards, _AFTER_NEXT)
        for step, share in zip(NEIGHBOURS, shares, strict=True):
            there = candidates.get(id + step)
            if there is not None and there.segment == here.segment and there.role != "tool":
                total[id + step] = total.get(id + step, 0.0) + share * score
    return total


def _factor(question: ParsedQuestion, candidate: RankCandidate) -> float:
    factor = 1.0
    if candidate.speaker in question.speakers:
        factor *= _SPEAKER
    if candidate.asks == ENDS_ASKING:
        factor *= _ENDS_ASKING
    if candidate.role == "tool":
        factor *= _TOOL
    if question.spans and candidate.moment:
        day = date.fromisoformat(candidate.moment[:10])
        if any(s.first <= day <= s.last + MENTIONED_WITHIN for s in question.spans):
            factor *= _SPAN
    return factor


class Segments:
    """All segments of an index: their ids in order, and how many messages each has."""

    def __init__(self, ids: Sequence[int], sizes: Sequence[int]) -> None:
        self._ids, self._sizes = ids, sizes
        self._mean = sum(sizes) / len(sizes) if sizes else 1.0

    def scores(self, occurrences: Iterable[Collection[int]]) -> dict[int, float]:
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
