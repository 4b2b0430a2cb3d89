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
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import date, timedelta
from itertools import chain
from math import inf, log
from operator import itemgetter
from types import MappingProxyType

from msgspec import Struct

from nanobot.memory.analysis import content_words, is_stop_word, language_of, words_of
from nanobot.memory.days import ReadDays, Span, read_days
from nanobot.memory.languages import LANGUAGES
from nanobot.memory.search.database import PLACES, STREAM_BITS, TOOLS_FROM, TURN
from nanobot.memory.search.passages import ENDS_ASKING
from nanobot.memory.spelling import join_apart, join_codes

_LONGEST = 4_000
"""Maximum characters of a question: the work grows with its words, and a longer question searches
for everything."""

# A question about the agent's words: "what did you recommend", "your advice".
_OF_AGENT = (
    r"\b(?:you|assistant|agent|bot)\b(?: \w+)?? (?:advi[sc]e|answer|explain|mention|promis"
    r"|propos|recommend|repl[iy]|sa(?:id|y)|suggest|t(?:ell|old)|think|thought|warn|wr[io]te)"
    r"|\byour (?:\w+ )?(?:advice|answer|explanation|idea|opinion|proposal|recommend|reply|suggest)"
    r"|你(?:刚才|之前|上次|当时|曾经|给我|跟我|对我|还)*(?:说|推荐|建议|提到|告诉|讲|回答|介绍)"
    r"|あなた(?:が|は|の).{0,10}(?:言|勧|薦|提案|教え|おすすめ|答え|アドバイス)"
)


_WEEK = timedelta(days=6)


class ParsedQuestion(Struct, frozen=True):
    """`words` are the search terms. `languages` are the languages of the passages, `asked_in` is
    the question's, or any of them. `speakers` are names of one person, whose messages are boosted.
    `is_about_agent` if it asks for the agent's words, `is_about_days` if
    its words are idle ("what did I do"). `plain` is the original question without the
    names of speakers."""

    words: tuple[str, ...]
    speakers: frozenset[str] = frozenset()
    spans: tuple[Span, ...] = ()
    is_about_agent: bool = False
    is_about_days: bool = False
    plain: str = ""
    asked_in: tuple[str, ...] = ()
    languages: tuple[str, ...] = ()

    @property
    def days(self) -> list[Span]:
        """Days, and spans up to a week."""
        return [one for one in self.spans if one.last - one.first <= _WEEK]


def parse(
    text: str, names: Collection[str], today: date, role: str = "", languages: Sequence[str] = ()
) -> ParsedQuestion:
    """Parse a question into words, and apart from them a speaker and dates. `names` are the
    speakers and `languages` the languages of the readable passages, `role` is the only requested
    role.

    A speaker's name boosts that speaker's messages and is left out of the words, since people
    rarely say their own name. A date ("8 May 2023", "yesterday", "last May") boosts messages of
    that time. Both rules were measured."""
    text = text[:_LONGEST]
    language = language_of(text, next(iter(languages), ""))
    days, rest, dates = find_days(text, today, languages)
    words = [*words_of(rest, language), *join_codes(rest), *join_apart(rest)]
    content = content_words(words, language)
    asked = find_names(words, names, language)
    spoken_for = set(chain.from_iterable(asked.values()))
    others = [word for word in content if word not in spoken_for]
    return ParsedQuestion(
        words=(*(others or content or content_words(words_of(text, language), language)), *dates),
        asked_in=(language,) if language_of(text) else tuple(languages),
        languages=tuple(languages),
        plain=remove_names(spoken_for, text) or text,
        speakers=frozenset(asked) if len({name.casefold() for name in asked}) == 1 else frozenset(),
        spans=days,
        is_about_days=are_idle(others, language),
        is_about_agent=role == "assistant" or asks_for_reply(text, language),
    )


def are_idle(words: Sequence[str], language: str) -> bool:
    return all(is_stop_word(word, language) for word in words)


def find_days(text: str, today: date, languages: Sequence[str]) -> ReadDays:
    """Return the days that a question names, and the dates as phrases, which messages may have as
    well. The question may be in any of the `languages`, if it shows none of them."""
    shown = language_of(text)
    spoken = (shown,) if shown in languages else (shown, *languages)
    days = read_days(text, today, spoken)
    return days._replace(dates=tuple(" ".join(words_of(one, shown)) for one in days.dates))


def asks_for_reply(text: str, language: str) -> bool:
    """Return True if a question is about the agent's words."""
    cues = LANGUAGES[language].agent.split() if language in LANGUAGES else ()
    return any(re.search(cue, text, re.IGNORECASE) for cue in (_OF_AGENT, *cues))


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
_TO_REPLY = 0.8  # of a message's score flows to replies that say something new
_NEW_WORD = 1.25  # of a word that a reply has, but not its message
_NOT_MEANT = 0.6  # replies, or a person's messages if the question is about the agent
_NEWS = 0.7  # replies that say something new
_LENGTH = 0.6  # of the mean length of passages counts of such a reply, at most
_SPEAKER, _KEPT = 1.6, 1.5
_DAY, _SPAN, _AFTER = 5.0, 4.0, 2.5
_ON_DAY = 0.15  # of the best score, for each message of a named day, even without a word
_ENDS_ASKING = 0.8  # a message that ends as a question answers little
_TOOL = 0.6  # the caller of a tool usually repeated its output
_K1, _B = 1.2, 0.75
MEANING_FLOWS = 0.3  # less than for words: vectors catch more of the context

Ranking = list[tuple[int, float]]
"""Ids of passages with their scores, best first, among equals the newer id first."""


class RankCandidate(Struct, frozen=True, gc=False):
    """The ranking data of a passage.

    Neighbours have the same `segment` and ids that differ by `TURN`. The replies to a message have
    the ids that follow its own. `moment` is ISO or empty, and begins with the civil day. `asks` is
    0, `ASKS` or `ENDS_ASKING`. `news` is the number of words of a reply that says something new. No
    score flows to and from tool output (role `tool`), which is apart from the talk."""

    id: int
    segment: int
    role: str = ""
    speaker: str = ""
    moment: str = ""
    asks: int = 0
    kept: int = 0
    news: int = 0


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


def reply_matches(words: Iterable[Mapping[int, float]]) -> dict[int, float]:
    """Return the bm25 of the replies with any word, as for messages of their own."""
    own = defaultdict[int, float](float)
    for holding in words:
        for id, score in holding.items():
            if id % TURN:
                own[id] += score if turn_of(id) in holding else _NEW_WORD * score
    return own


def rank(
    question: ParsedQuestion,
    candidates: Mapping[int, RankCandidate],
    own: Mapping[int, float],
    segments: Mapping[int, float],
    replies: Mapping[int, float] = MappingProxyType({}),
    flows: float = 1.0,
    mean_length: float = inf,
) -> Ranking:
    """Rank the `candidates` with any score.

    `own` is the result of `matches`, `replies` that of `reply_matches`, `segments` has the bm25 of
    whole segments, and `flows` is the share of the flow to neighbours. `mean_length` is that of
    passages, in words."""
    flowed, is_about_agent = spread_scores(candidates, own, flows), question.is_about_agent
    add_days(question, candidates, flowed)
    scored = []
    for id, here in candidates.items():
        score = flowed.get(id, 0.0)
        counts = id % TURN == 0 or is_about_agent or here.news
        if id % TURN and counts:
            score = score if is_about_agent else replies.get(id, 0.0)
            score *= compute_lift(here.news, mean_length)
            score += _TO_REPLY * flowed.get(turn_of(id), 0.0)
        if score:
            if counts:  # the segment adds nothing to another reply
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
        factor *= _NEWS if candidate.news else _NOT_MEANT
    return factor * time_factor(question.spans, candidate.moment)


def compute_lift(length: int, mean_length: float) -> float:
    """Return how much higher the bm25 of a reply of this length would be if it were no longer than
    messages are. Only a part of a long reply answers a question, and bm25 would bury it."""

    def weigh(words: float) -> float:  # for a word that occurs once
        return 1 + _K1 * (1 - _B + _B * words / mean_length)

    return weigh(length) / weigh(min(length, _LENGTH * mean_length))


def add_days(
    question: ParsedQuestion, candidates: Mapping[int, RankCandidate], total: dict[int, float]
) -> None:
    """Add a share of the best score to each message of the named days."""
    days = [(str(span.first), str(span.last)) for span in question.days]
    share = (1.0 if question.is_about_days else _ON_DAY) * max(total.values(), default=1.0)
    for id, here in candidates.items() if days else ():
        day = here.moment[:10]
        if id % TURN == 0 and here.role != "tool" and any(a <= day <= b for a, b in days):
            total[id] = total.get(id, 0.0) + share


def time_factor(spans: Sequence[Span], moment: str) -> float:
    """Return the boost of a passage from a time that the question names, or from soon after. A day
    means more than a month."""
    if not (spans and moment):
        return 1.0
    day, found = date.fromisoformat(moment[:10]), 1.0
    for span in spans:
        if span.first <= day <= span.last:
            found = max(found, _DAY if span.first == span.last else _SPAN)
        elif span.first <= day <= span.last + MENTIONED_WITHIN:
            found = max(found, _AFTER)
    return found


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
