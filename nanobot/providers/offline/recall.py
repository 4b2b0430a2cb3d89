"""Answering from what is known, by overlap.

A question is covered by a passage as far as the passage holds its telling words, or words that
the lists say may mean the same. Rare words count more than common ones, as in any search. Two
guards make "I don't know" an honest answer: a fact whose own subject is only partly asked for
counts less ("User's sister's name" for "my name"), and so does one that lacks somebody the question
names.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from nanobot.providers.offline.facts import OVER, key_and_value, subject
from nanobot.providers.offline.words import is_chinese, known, stem, terms

ENOUGH = 0.6
"""The score from which a passage answers; 1 is a passage about exactly what was asked."""

_TIME = re.compile(
    r"\d{1,2}:\d\d|\b\d{1,2} ?[ap]m\b|\b(?:19|20)\d\d\b|\b\d{1,2}(?:st|nd|rd|th)\b|"
    r"\b(?:january|february|march|april|may|june|july|august|september|october|november|december|"
    r"(?:mon|tues|wednes|thurs|fri|satur|sun)days?|noon|midnight|morning|afternoon|evening|night|"
    r"jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec|today|tomorrow|tonight|week|weekend|month|o'clock|spring|summer|autumn|winter|christmas|"
    r"easter|daily|hours?|at \d{1,2}|before|after|until|since)\b|"
    r"[\d一二三四五六七八九十][月日号点]|星期|周|[今明后昨]天|[上下]午|早上|晚上|每[天月年]",
    re.IGNORECASE,
)
_NUMBER = re.compile(
    r"\d|\b(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|twenty|thirty|hundred|"
    r"no)\b|[一二两三四五六七八九十百]",
    re.IGNORECASE,
)
_PLACE = re.compile(
    r"\b(?:in|at|on|near|from|to|under|behind|between|inside|outside|above|below|next|address|home|"
    r"floor|level|room)\b|在|住|里|上|下|楼|地址|来自|到",
    re.IGNORECASE,
)
_NAME = re.compile(r"(?<=\s)[A-Z][^\W\d_]+(?!'s)")
# "Which herb do I hate?": the answer is a herb, but seldom says so.
_WHAT = re.compile(
    r"\b(?:what|which) ([a-z]+) (?:do|does|did|am|have|can|should|will) (?:i|we|my)\b"
)
# What an answer is of a kind of: said in the question, seldom in the answer.
_SORTS = (
    (re.compile(r"\b(?:what|which) (?:year|month|day|date|time)\b", re.IGNORECASE), "when"),
    (
        re.compile(r"\b(?:what|which) (?:city|town|country|place|village|street)\b", re.IGNORECASE),
        "where",
    ),
    (re.compile(r"\b(e-?mail|phone|mobile|cell) (?:address|number)\b", re.IGNORECASE), r"\1"),
    (re.compile(r"\bfor a living\b", re.IGNORECASE), "for work"),
)
_FORMERLY = re.compile(
    r"\b(?:did|was|were|used to|no longer|formerly|before|any ?more)\b|以前|曾经|不再"
)
_APPOSED = re.compile(r"\b([a-z]+) ([A-Z][^\W\d_]*)'s\b")
# "Who is the vet?": of whom is not asked.
_ANY = re.compile(r"\b(?:who|what|when|where)(?:'s| is| are) the \w+\W*$")
_CALLED = re.compile(r"\b(?:called|names?)\b|叫什么|名字|姓名")
_CALENDAR = re.compile(
    r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec|mon|tue|wed|thu|fri|sat|sun)",
    re.IGNORECASE,
)
_POSSESSOR = re.compile(r"\b([A-Z][^\W\d_]*)'s\b")


@dataclass(frozen=True, slots=True)
class Passage:
    """A text that may answer; a later `order` is a newer statement."""

    text: str
    order: int


class Profile:
    """The words of a text, as matching wants them."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.terms = tuple(dict.fromkeys(terms(text)))

    @cached_property
    def words(self) -> frozenset[str]:
        """The distinct terms."""
        return frozenset(self.terms)

    @cached_property
    def key(self) -> Profile:
        """What a fact is about."""
        return Profile(key_and_value(self.text)[0])

    @cached_property
    def value(self) -> Profile:
        """What it says of that."""
        return Profile(key_and_value(self.text)[1])

    @cached_property
    def owners(self) -> frozenset[str]:
        """Others than the person whose something this is about."""
        named = {stem(name.lower()) for name in _POSSESSOR.findall(self.text)}
        return frozenset(named | (self.words & known().owners)) & self.words

    @cached_property
    def characters(self) -> frozenset[str]:
        """Its Chinese characters."""
        return frozenset(character for character in self.text if "\u3400" <= character <= "\u9fff")

    @cached_property
    def same(self) -> frozenset[int]:
        """The groups of like meaning that its words are in."""
        groups = known().same
        return frozenset(group for word in self.terms for group in groups.get(word, ()))

    @cached_property
    def kinds(self) -> frozenset[str]:
        """The kinds it names."""
        return frozenset(kind for word in self.terms for kind in known().kind.get(word, ()))

    @cached_property
    def kinds_of(self) -> frozenset[str]:
        """The kinds that its words are of."""
        return frozenset(kind for word in self.terms for kind in known().kinds_of.get(word, ()))

    def holds(self, word: str) -> float:
        """How well this text holds `word`, from 0 to 1."""
        lists = known()
        if word in self.words:
            return 1.0
        if not self.same.isdisjoint(lists.same.get(word, ())):
            return 0.9
        if not (
            self.kinds_of.isdisjoint(lists.kind.get(word, ()))
            and self.kinds.isdisjoint(lists.kinds_of.get(word, ()))
        ):
            return 0.8
        if "\u3400" <= word[0] <= "\u9fff":
            near = {1: 0.8, 2: 0.5}.get(len(word), 0.0)
            return near if self.characters.issuperset(word) else 0.0
        return 0.8 if any(_alike(word, other) for other in self.terms) else 0.0


def _alike(one: str, other: str) -> bool:
    """Forms of one word that the stemmer does not bring together: "allergic", "allergies"."""
    if len(one) < 5 or len(other) < 5 or one[:5] != other[:5]:
        return False
    shared = next(
        (n for n, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]),
        min(len(one), len(other)),
    )
    return shared >= 0.75 * max(len(one), len(other))


class Search:
    """One question against many passages."""

    def __init__(self, question: str, passages: Sequence[Passage]) -> None:
        question = question.replace("’", "'")
        for sort, plain in _SORTS:
            question = sort.sub(plain, question)
        self._low = question.lower()
        what = _WHAT.search(self._low)
        self._sort = stem(what[1]) if what and stem(what[1]) not in known().kind else ""
        self.question = Profile(question)
        self._chinese = is_chinese(question)
        # "What is my name?" asks for a fact about the person; one about their cat is none.
        self._is_general = all(known().weight.get(word, 1.0) < 0.5 for word in self.question.terms)
        self._found = [(Profile(passage.text), passage) for passage in passages]
        self._seen: Counter[str] = Counter()
        for profile, _ in self._found:
            self._seen.update(profile.words & self.question.words)

    def best(self, limit: int = 3) -> list[Passage]:
        """The passages that answer, best first: one, or more that are as good and about others."""
        scored = [(round(self.score(profile), 2), passage) for profile, passage in self._found]
        scored = [item for item in scored if item[0] >= ENOUGH]
        scored.sort(key=lambda item: (item[0], item[1].order), reverse=True)
        answers: list[Passage] = []
        said: set[str] = set()
        settled: set[frozenset[str]] = set()
        for score, passage in scored:
            if score < scored[0][0] - 0.02 or len(answers) == limit:
                break
            about, words = subject(passage.text), " ".join(terms(passage.text))
            if words in said or about in settled:
                continue
            said.add(words)
            settled |= {about} if about else set()
            answers.append(passage)
        return answers

    def overlap(self, profile: Profile) -> float:
        """How much of the question `profile` holds, from 0 to 1."""
        total = sum(map(self._weight, self.question.terms))
        held = sum(self._weight(word) * profile.holds(word) for word in self.question.terms)
        return held / total if total else 0.0

    def score(self, profile: Profile) -> float:
        """How well `profile` answers, from 0 to 1."""
        covered = self.overlap(profile)
        if covered < ENOUGH * 0.8:
            return 0.0
        if any(not profile.holds(owner) for owner in self.question.owners):
            covered *= 0.5
        if self._in_key(profile):
            asked = self._asked_for(profile.key)
            covered = min(covered, 5 * asked * covered / (4 * asked + covered))
            if not self._names(profile.key):
                covered *= 0.5
        elif self._is_general and not self._names(profile):
            covered *= 0.5
        if OVER.search(profile.text) and not _FORMERLY.search(self._low):
            return 0.0
        if self._is_passing_colour(profile) or self._only_mentions(profile):
            covered *= 0.5
        if is_chinese(profile.text) != self._chinese:
            covered *= 0.95
        return covered * self._kind_of_answer(profile.text)

    def _only_mentions(self, profile: Profile) -> bool:
        """Whether all it shares with the question is whose it is, not what is asked of them."""
        if re.search(r"\bhow\b|多少|几|多大", self._low):
            return False
        held = [word for word in self.question.terms if profile.holds(word)]
        rest = [word for word in self.question.terms if word not in held]
        slight = bool(rest) and all(known().weight.get(word, 1.0) < 0.5 for word in rest)
        return slight and all(word in known().owners for word in held)

    def _is_passing_colour(self, profile: Profile) -> bool:
        """Whether a colour is asked for and this only has one in the name of something else."""
        if "color" not in self.question.kinds or "color" in profile.kinds:
            return False
        kinds_of = known().kinds_of
        words = [word.strip(".,;!") for word in profile.text.lower().split()]
        for word, following in pairwise(words):
            if "color" in kinds_of.get(stem(word), ()):
                after = terms(following)
                return bool(after) and not self.question.holds(after[0])
        return False

    def _names(self, key: Profile) -> bool:
        """Whether the question says whose this is: the relation, or the name."""
        if all(self.question.holds(owner) for owner in key.owners):
            return True
        for relation, name in _APPOSED.findall(key.text):
            if stem(relation) in known().owners and (
                self.question.holds(stem(relation)) or self.question.holds(stem(name.lower()))
            ):
                return True
        if _ANY.search(self._low) and key.terms[-1] in self.question.words:
            return True
        return any(stem(name.lower()) in self.question.words for name in _NAME.findall(key.text))

    def _weight(self, word: str) -> float:
        common = self._seen[word]
        weight = 0.3 if word == self._sort else known().weight.get(word, 1.0)
        return weight / (1 + 0.1 * math.log2(common) if common else 1.0)

    def _in_key(self, profile: Profile) -> bool:
        """Whether the question names what the fact is about, rather than what it says."""
        in_key = sum(self._weight(w) * profile.key.holds(w) for w in self.question.terms)
        in_value = sum(self._weight(w) * profile.value.holds(w) for w in self.question.terms)
        return bool(profile.key.terms and profile.value.terms) and in_key >= in_value

    def _asked_for(self, key: Profile) -> float:
        """How much of a fact's subject the question names; a long one is seldom repeated."""
        weights = known().weight
        total = sum(weights.get(word, 1.0) for word in key.terms)
        named = sum(weights.get(w, 1.0) * self.question.holds(w) for w in key.terms)
        return max(named / total, 0.35)

    def _kind_of_answer(self, text: str) -> float:
        """A question for a name, a time, a place or a number wants one in its answer."""
        if _CALLED.search(self._low) and not self._chinese and not _CALLED.search(text):
            named = [name for name in _NAME.findall(text) if not _CALENDAR.match(name)]
            return 1.0 if named else 0.6
        if re.search(
            r"\bwhen\b|\bwhat (?:time|day|date)\b|什么时候|几点|几号|哪天|何时", self._low
        ):
            return 1.0 if _TIME.search(text) else 0.6
        if re.search(r"\bhow (?:many|much|old|long|tall|far)\b|多少|几[个岁只]|多大", self._low):
            return 1.0 if _NUMBER.search(text) else 0.7
        if re.search(r"\bwhere\b|哪里|哪儿|什么地方", self._low):
            return 1.0 if _PLACE.search(text) else 0.8
        return 1.0
