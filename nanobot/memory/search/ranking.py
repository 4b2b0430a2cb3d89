"""Read a question, and rank the passages that answer it. Pure.

People do not repeat the words of a question in the answer. "What did you name the cat?" / "Oscar!":
the words are in one message, the answer in the next. So the bm25 of a message flows to its
neighbours, but only within its segment, a stretch of conversation without a long pause. The
segment's own bm25 is added, then soft factors apply: guesses never filter.

The numbers are round ones from the middle of a broad plateau. Chosen again on any four of the five
development conversations of LoCoMo, they are nearly the same, and serve the fifth as well."""

from __future__ import annotations

import re
from bisect import bisect_right
from calendar import monthrange
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import date, timedelta
from itertools import chain
from math import log
from operator import itemgetter
from typing import Self

from msgspec import Struct

from nanobot.memory.analysis import content_words, is_stop_word, language_of, words_of
from nanobot.memory.search.database import PLACES, STREAM_BITS, TOOLS_FROM, TURN
from nanobot.memory.search.passages import ENDS_ASKING
from nanobot.memory.spelling import join_apart, join_codes

_LONGEST = 4_000
"""Maximum characters of a question: the work grows with its words, and a longer question searches
for everything."""

_MONTHS = "january|february|march|april|may|june|july|august|september|october|november|december"
_BEGINNINGS = [month[:3] for month in _MONTHS.split("|")]
_MONTH = rf"(?P<month>{_MONTHS}|jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec)"
_DAY = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?"
_YEAR = r"(?P<year>(?:19|20)\d\d)"
# The ways to name days, longer ones first: each pattern removes its match before the next.
_DATES = (
    rf"\b(?:on )?{_YEAR}-(?P<month>\d\d?)-(?P<day>\d\d?)\b",
    rf"{_YEAR}年(?P<month>\d\d?)月(?:(?P<day>\d\d?)[日号號])?",
    rf"\b(?:on )?(?:the )?{_DAY} (?:of )?{_MONTH}\b\.?(?:,? {_YEAR}\b)?",
    rf"\b(?:on )?{_MONTH}\.? {_DAY}\b(?:,? {_YEAR}\b)?",
    rf"\b(?:in |during |of )?{_MONTH},? (?:of )?{_YEAR}\b",
    rf"\b(?:(?P<last>last)|in|during|since|this past) {_MONTH}\b",
    rf"\b(?:in |during |of |since ){_YEAR}\b",
)


# A question about the agent's words: "what did you recommend", "your advice".
_OF_AGENT = (
    r"\b(?:you|assistant|agent|bot)\b(?: \w+)?? (?:advi[sc]e|answer|explain|mention|promis"
    r"|propos|recommend|repl[iy]|sa(?:id|y)|suggest|t(?:ell|old)|think|thought|warn|wr[io]te)"
    r"|\byour (?:\w+ )?(?:advice|answer|explanation|idea|opinion|proposal|recommend|reply|suggest)"
)


class Span(Struct, frozen=True):
    """Days from `first` to `last`, both included."""

    first: date
    last: date

    @classmethod
    def of(cls, year: int, month: int = 0, day: int = 0) -> Self:
        """Return a day, or all days of a month or a year. Raise ValueError if it does not exist."""
        last = monthrange(year, month)[1] if month else 31
        return cls(date(year, month or 1, day or 1), date(year, month or 12, day or last))


def spans(question: str, today: date) -> tuple[tuple[Span, ...], str]:
    """Return the days that `question` names, and the question without those words. A date that does
    not exist (2023-02-30) stays a word."""
    found: list[Span] = []

    def take(match: re.Match[str]) -> str:
        try:
            found.append(parse_span(match.groupdict(), today))
        except ValueError:  # no such day
            return match[0]
        return " "

    for pattern in _DATES:
        question = re.sub(pattern, take, question, flags=re.IGNORECASE)
    return tuple(found), question


def parse_span(named: dict[str, str | None], today: date) -> Span:
    """Return the day, month or year. A missing part is taken from the past: in March 2026, "in May"
    is May 2025."""
    year, day = (int(named.get(part) or 0) for part in ("year", "day"))
    name = named.get("month") or "0"
    month = int(name) if name.isdecimal() else 1 + _BEGINNINGS.index(name.lower()[:3])
    if not year:
        begun = date(today.year, month, day or 1) <= today
        is_last = named.get("last") and today.month == month
        year = today.year if begun and not is_last else today.year - 1
    return Span.of(year, month, day)


class ParsedQuestion(Struct, frozen=True):
    """`words` are the search terms. `languages` are the languages of the passages, `asked_in` is
    the question's, or any of them. `speakers` are names of one person, whose messages are boosted.
    `is_about_agent` if it asks for the agent's words. `plain` is the original question without the
    names of speakers."""

    words: tuple[str, ...]
    speakers: frozenset[str] = frozenset()
    spans: tuple[Span, ...] = ()
    is_about_agent: bool = False
    plain: str = ""
    asked_in: tuple[str, ...] = ()
    languages: tuple[str, ...] = ()


def parse(
    text: str, names: Collection[str], today: date, role: str = "", languages: Sequence[str] = ()
) -> ParsedQuestion:
    """Parse a question into words, and apart from them a speaker and dates. `names` are the
    speakers and `languages` the languages of the readable passages, `role` is the only requested
    role.

    A speaker's name boosts that speaker's messages and is left out of the words, since people
    rarely say their own name. A calendar date ("8 May 2023", "last May", "in 2022") boosts messages
    of that time. Both rules were measured."""
    text = text[:_LONGEST]
    found, rest = spans(text, today)
    language = language_of(text, next(iter(languages), ""))
    words = [*words_of(rest, language), *join_codes(rest), *join_apart(rest)]
    content = content_words(words, language)
    asked = find_names(words, names, language)
    spoken_for = set(chain.from_iterable(asked.values()))
    others = [word for word in content if word not in spoken_for]
    return ParsedQuestion(
        words=tuple(others or content or content_words(words_of(text, language), language)),
        asked_in=(language,) if language_of(text) else tuple(languages),
        languages=tuple(languages),
        plain=remove_names(spoken_for, text) or text,
        speakers=frozenset(asked) if len({name.casefold() for name in asked}) == 1 else frozenset(),
        spans=found,
        is_about_agent=role == "assistant" or bool(re.search(_OF_AGENT, text, re.IGNORECASE)),
    )


def find_names(
    words: Sequence[str], names: Collection[str], language: str
) -> dict[str, Sequence[str]]:
    """Return the names in a question, with their words."""
    # Not every "will" is a person called Will.
    called = {word for word in words if not is_stop_word(word, language)}
    parts = {name: words_of(name, language) for name in names}
    return {name: own for name, own in parts.items() if own and own[0] in called}


def remove_names(names: Collection[str], text: str) -> str:
    """Remove these words from `text`."""
    if not names:
        return text
    pattern = rf"\b(?:{'|'.join(map(re.escape, names))})(?:['’]s)?\b"
    return " ".join(re.sub(pattern, " ", text, flags=re.IGNORECASE).split())


NEIGHBOURS = (-2, -1, 1, 2)
"""The distances over which score flows, in turns."""

MENTIONED_WITHIN = timedelta(days=14)
"""The time after an event in which people mention it."""

# Half of the messages to the agent are its replies, and few of those are worth finding. So distance
# is counted in turns, of a person's message and the replies to it.
_NEXT, _ANSWER, _PREVIOUS, _AFTER_NEXT, _BEFORE_PREVIOUS = 0.2, 0.8, 0.55, 0.3, 0.2
_TELLING_SHARES = ((-2, _BEFORE_PREVIOUS), (-1, _PREVIOUS), (1, _NEXT), (2, _AFTER_NEXT))
_ASKING_SHARES = ((-2, _BEFORE_PREVIOUS), (-1, _PREVIOUS), (1, _ANSWER), (2, _AFTER_NEXT))
_SEGMENT = 1.5  # the words of a question are often spread over a segment
_REPEATED = 0.1  # a reply that repeats its message displaces no other
_FROM_REPLY = 0.3  # of a word that only a reply has counts for the message as well
_TO_REPLY = 0.8  # of a person's score flows to the replies if the question is about the agent
_NOT_MEANT = 0.6  # replies, or a person's messages if the question is about the agent
_SPEAKER, _SPAN, _KEPT = 1.6, 2.5, 1.5
_ENDS_ASKING = 0.8  # a message that ends as a question answers little
_TOOL = 0.6  # the caller of a tool usually repeated its output
_K1, _B = 1.2, 0.75
MEANING_FLOWS = 0.5  # less than for words: vectors catch more of the context

Ranking = list[tuple[int, float]]
"""Ids of passages with their scores, best first, among equals the newer id first."""


class RankCandidate(Struct, frozen=True, gc=False):
    """The ranking data of a passage.

    Neighbours have the same `segment` and ids that differ by `TURN`. The replies to a message have
    the ids that follow its own. `moment` is ISO or empty, and begins with the civil day. `asks` is
    0, `ASKS` or `ENDS_ASKING`. No score flows to and from tool output (role `tool`), which is apart
    from the talk."""

    id: int
    segment: int
    role: str = ""
    speaker: str = ""
    moment: str = ""
    asks: int = 0
    kept: int = 0


def turn_of(id: int) -> int:
    """Return the id of the message that begins the turn."""
    return id - id % TURN


def reach(ids: Iterable[int]) -> set[int]:
    """Return the turns that score may flow to from `ids`, including their own."""
    return {turn_of(id) + step * TURN for id in ids for step in (0, *NEIGHBOURS)}


def heirs(ids: Iterable[int]) -> set[int]:
    """Return the passages that can get score from `ids`, including their own."""
    found = set(ids)
    for id in ids:
        if id % TURN:
            found.add(turn_of(id) + TURN)
        else:
            found.update((id - 2 * TURN, id - TURN, id + TURN, id + 2 * TURN))
    return found


def matches(question: ParsedQuestion, words: Iterable[Mapping[int, float]]) -> dict[int, float]:
    """Return the bm25 of the passages with any word. `words` has it for each word."""
    own = defaultdict[int, float](float)
    for holding in words:
        lent: dict[int, float] = {}
        for id, score in holding.items():
            if id % TURN:
                turn = turn_of(id)
                if turn not in holding:
                    lent[turn] = max(lent.get(turn, 0.0), _FROM_REPLY * score)
                elif not question.is_about_agent:
                    own[id] += _REPEATED * score
                    continue
            own[id] += score
        for turn, score in lent.items():
            own[turn] += score
    return own


def rank(
    question: ParsedQuestion,
    candidates: Mapping[int, RankCandidate],
    own: Mapping[int, float],
    segments: Mapping[int, float],
    flows: float = 1.0,
) -> Ranking:
    """Rank the `candidates` with any score.

    `own` is the result of `matches`, `segments` has the bm25 of whole segments, and `flows` is the
    share of the flow to neighbours."""
    flowed, is_about_agent = spread_scores(candidates, own, flows), question.is_about_agent
    scored = []
    for id, here in candidates.items():
        score = flowed.get(id, 0.0)
        if is_about_agent and id % TURN:
            score += _TO_REPLY * flowed.get(turn_of(id), 0.0)
        if score:
            if is_about_agent or id % TURN == 0:  # the segment adds nothing to a reply
                score += _SEGMENT * segments.get(here.segment, 0.0)
            scored.append((id, score * compute_factor(question, here)))
    return sort_best_first(scored)


def fuse(by_words: Ranking, by_meaning: Ranking) -> Ranking:
    """Add two rankings, each divided by its highest score."""
    total = defaultdict[int, float](float)
    for ranking in (by_words, by_meaning):  # before the score flows, or by places, found less
        for id, score in ranking:
            total[id] += score / ranking[0][1]
    return sort_best_first(total.items())


def sort_best_first(scored: Iterable[tuple[int, float]]) -> Ranking:
    return sorted(scored, key=itemgetter(1, 0), reverse=True)


def spread_scores(
    candidates: Mapping[int, RankCandidate], own: Mapping[int, float], flows: float
) -> dict[int, float]:
    total = defaultdict[int, float](float)
    for id, score in own.items():
        here = candidates.get(id)
        if here is None:
            continue
        total[id] += score
        if here.role == "tool":
            continue
        turn = turn_of(id)
        for step, share in _shares(here):
            there = candidates.get(turn + step * TURN)
            if there is not None and there.segment == here.segment and there.role != "tool":
                total[there.id] += share * flows * score
    return total


def _shares(passage: RankCandidate) -> Sequence[tuple[int, float]]:
    """Return the shares of a passage's score that flow, by distance."""
    if passage.id % TURN:
        return ((1, _ANSWER),) if passage.asks else ()  # the next message is likely the answer
    return _ASKING_SHARES if passage.asks else _TELLING_SHARES


def compute_factor(question: ParsedQuestion, candidate: RankCandidate) -> float:
    factor = _SPEAKER if candidate.speaker in question.speakers else 1.0
    if candidate.asks == ENDS_ASKING:
        factor *= _ENDS_ASKING
    if candidate.kept:
        factor *= _KEPT
    if candidate.role == "tool":
        factor *= _TOOL
    elif candidate.role == ("user" if question.is_about_agent else "assistant"):
        factor *= _NOT_MEANT
    return factor * _SPAN if is_in_spans(question, candidate) else factor


def is_in_spans(question: ParsedQuestion, candidate: RankCandidate) -> bool:
    """Return True if the passage is from a time that the question mentions, or from soon after."""
    if not (question.spans and candidate.moment):
        return False
    day = date.fromisoformat(candidate.moment[:10])
    return any(span.first <= day <= span.last + MENTIONED_WITHIN for span in question.spans)


class Segments:
    """All segments of an index: their sorted ids, and their numbers of turns.

    The bm25 of a segment as one document is

        sum over words of  idf * tf * (k1 + 1) / (tf + k1 * (1 - b + b * length / mean length))

    with idf = ln((N - n + 0.5) / (n + 0.5)), never negative, for n of N segments. A word's tf is
    the number of turns that begin with a message with the word, and length is the number of
    turns."""

    def __init__(self, ids: Sequence[int], sizes: Sequence[int]) -> None:
        self._ids, self._sizes = list(ids), list(sizes)
        self._mean = sum(sizes) / len(sizes) if sizes else 1.0

    def scores(self, occurrences: Iterable[Collection[int]]) -> dict[int, float]:
        """Return the bm25 of each matching segment. `occurrences` has, for each word, the ids of
        the messages with it."""
        found: dict[int, float] = {}
        for messages in occurrences:
            places = Counter(self._places(messages))
            rarity = log((len(self._ids) - len(places) + 0.5) / (len(places) + 0.5))
            if rarity <= 0:
                continue
            for at, count in places.items():
                length = _K1 * (1 - _B + _B * self._sizes[at] / self._mean)
                score = rarity * count * (_K1 + 1) / (count + length)
                found[self._ids[at]] = found.get(self._ids[at], 0.0) + score
        return found

    def select_promising(
        self, own: Mapping[int, float], segments: Mapping[int, float], most: int
    ) -> dict[int, float]:
        """Return the passages of `own` with the highest sum of their and their segment's scores."""
        promise = dict[int, float]()
        for id, score in own.items():
            at = bisect_right(self._ids, id) - 1  # for tool output the last segment, as a guess
            promise[id] = score + (_SEGMENT * segments.get(self._ids[at], 0.0) if at >= 0 else 0.0)
        best = sorted(own, key=promise.__getitem__, reverse=True)
        return {id: own[id] for id in best[:most]}

    def _places(self, ids: Iterable[int]) -> Iterator[int]:
        """Yield the positions of the segments of these messages, except of those in none."""
        begins = self._ids
        for id in ids:
            if id % TURN == 0 and id % PLACES <= TOOLS_FROM:
                at = bisect_right(begins, id) - 1
                if at >= 0 and begins[at] >> STREAM_BITS == id >> STREAM_BITS:
                    yield at
