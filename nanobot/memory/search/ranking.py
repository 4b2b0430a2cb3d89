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

with idf = ln((N - n + 0.5) / (n + 0.5)), never negative, for n of N segments. A history entry that
answers passes some of its score to the messages that it sums up.

Then factors, soft ones: nothing is filtered by a guess. Messages of a speaker or role that the
question names count more, so do messages from the days that it names and the two weeks after
(people tell afterwards), and passages that name a time where it asks when. A message that ends as a
question answers little, and the output of a tool was usually said again by the one who called it.

The numbers are round ones from the middle of a broad plateau. Chosen anew on any four of the five
development conversations of LoCoMo, they come out nearly the same, and serve the fifth as well.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from math import log

from nanobot.memory.search.question import Question
from nanobot.memory.search.tables import PLACES, STREAM_BITS, TOOLS_FROM, Candidate

NEIGHBOURS = (-2, -1, 1, 2)
"""The distances over which score flows."""

TELLING_AFTERWARDS = timedelta(days=14)
"""How long after an event people are taken to speak of it."""


@dataclass(frozen=True, slots=True)
class Weights:
    """The numbers of the docstring above."""

    next: float = 0.3
    answer: float = 0.8
    previous: float = 0.55
    after_next: float = 0.3
    before_previous: float = 0.2
    segment: float = 1.2
    summed_up: float = 0.3
    speaker: float = 1.6
    role: float = 1.6
    days: float = 2.5
    time: float = 1.3
    question: float = 0.8
    tool: float = 0.6


WEIGHTS = Weights()


@dataclass(frozen=True, slots=True)
class Summary:
    """A history entry's `score`, and the passages that were found among those that it sums up."""

    score: float
    members: tuple[int, ...]


def reach(ids: Sequence[int]) -> set[int]:
    """The ids that score may flow to from `ids`, themselves included."""
    return {id + step for id in ids for step in (0, *NEIGHBOURS)}


def rank(
    question: Question,
    candidates: Mapping[int, Candidate],
    own: Mapping[int, float],
    segments: Mapping[int, float],
    summaries: Sequence[Summary] = (),
    weights: Weights = WEIGHTS,
) -> list[tuple[int, float]]:
    """The ids of `candidates` with their scores, best first; among equals the newer id first.

    `own` has the bm25 (positive, higher is better) of those that match, `segments` that of whole
    segments. A candidate to which no score comes is left out. Whether a passage names a time is
    not known here: see `favour`.
    """
    flowed = _flow(candidates, own, weights)
    for summary in summaries:
        for id in summary.members:
            flowed[id] = flowed.get(id, 0.0) + weights.summed_up * summary.score
    scored = []
    for id, score in flowed.items():
        candidate = candidates[id]
        whole = score + weights.segment * segments.get(candidate.segment, 0.0)
        scored.append((id, whole * _factor(question, candidate, weights)))
    return in_order(scored)


def favour(
    scored: Sequence[tuple[int, float]], timed: frozenset[int], weights: Weights = WEIGHTS
) -> list[tuple[int, float]]:
    """The same, with passages in `timed` favoured: for a question that asks when."""
    return in_order([(id, s * weights.time if id in timed else s) for id, s in scored])


def in_order(scored: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    """Best first."""
    return sorted(scored, key=lambda item: (-item[1], -item[0]))


def _flow(
    candidates: Mapping[int, Candidate], own: Mapping[int, float], weights: Weights
) -> dict[int, float]:
    total: dict[int, float] = {}
    for id, score in own.items():
        here = candidates.get(id)
        if here is None:
            continue
        total[id] = total.get(id, 0.0) + score
        if here.role == "tool":
            continue
        onwards = weights.answer if here.asks else weights.next
        for step, share in (
            (1, onwards),
            (-1, weights.previous),
            (2, weights.after_next),
            (-2, weights.before_previous),
        ):
            there = candidates.get(id + step)
            if there is not None and there.segment == here.segment and there.role != "tool":
                total[id + step] = total.get(id + step, 0.0) + share * score
    return total


def _factor(question: Question, candidate: Candidate, weights: Weights) -> float:
    factor = 1.0
    if candidate.speaker in question.speakers:
        factor *= weights.speaker
    if question.role and candidate.role == question.role:
        factor *= weights.role
    if candidate.ends_asking:
        factor *= weights.question
    if candidate.role == "tool":
        factor *= weights.tool
    if question.spans and candidate.moment:
        day = date.fromisoformat(candidate.moment[:10])
        if any(s.first <= day <= s.last + TELLING_AFTERWARDS for s in question.spans):
            factor *= weights.days
    return factor


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
