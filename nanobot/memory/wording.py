"""How alike two lines are, and what a fact is made of, so that it is known again in other words.
Pure.

Which line is a rewording of which goes by the words they share: a word is a run of letters and
digits, or one character of a script written without spaces; the similarity of two lines is the
share of their words that both hold (Dice), 0.0 to 1.0.

A fact is its content words and, among them, the keys: names, numbers, codes, without which it would
be another fact ("my sister Ann lives in Oslo" and "my sister Eve lives in Oslo" share all but one).
A text states a fact when it holds every key and most of the words; a fact without keys needs nearly
all of its words. Long texts are judged by their sentences, two at a time, because a fact is often
told in two, and everything is told somewhere in a long text.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Sequence

from msgspec import Struct

from nanobot.memory.importance import without_importance

_CJK = r"\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff"

LEAST = 0.5
"""From here on, a removed and an added line are one line, reworded."""

_RUN = rf"[{_CJK}]|[^\W_{_CJK}]+"
_NEAR = 200
"""A removed line is compared with this many added ones before and after it, of those that changed:
so a file of many thousand changed lines is compared in a moment."""


def words_of(line: str) -> frozenset[str]:
    """The words of a line, without regard to case, nor to how important it is."""
    return frozenset(re.findall(_RUN, without_importance(line).casefold()))


def similarity(one: frozenset[str], other: frozenset[str]) -> float:
    """How alike two lines with these words are; 0.0 where one has none."""
    return 2 * len(one & other) / (len(one) + len(other)) if one and other else 0.0


def most_similar(line: str, candidates: Iterable[str], least: float = LEAST) -> str:
    """The candidate that is most like `line`, empty where none is alike by `least`.

    Of equals, the first.
    """
    words, best, found = words_of(line), least, ""
    for candidate in candidates:
        alike = 1.0 if candidate == line else similarity(words, words_of(candidate))
        if alike > best or (alike == best and not found):
            best, found = alike, candidate
    return found


def rewordings(removed: Sequence[str], added: Sequence[str]) -> dict[str, str]:
    """Which of the `removed` lines became which of the `added` ones; each stands for one other.

    The likest pair first; of equals, the first in order. All lines of a sequence differ.
    """
    old, new = [words_of(line) for line in removed], [words_of(line) for line in added]
    pairs = [
        (-alike, abs(first - second), first, second)
        for first in range(len(old))
        for second in range(max(0, first - _NEAR), min(len(new), first + _NEAR))
        if (alike := similarity(old[first], new[second])) >= LEAST
    ]
    found: dict[str, str] = {}
    taken: set[int] = set()
    for _, _, first, second in sorted(pairs):
        if removed[first] not in found and second not in taken:
            found[removed[first]] = added[second]
            taken.add(second)
    return found


# Compiled at their first use, which `re` remembers: that takes time which a start does not have.
_WORD = rf"[{_CJK}]|[^\W{_CJK}_]+(?:[.'’-][^\W{_CJK}_]+)*"
_SENTENCE_END = r"(?<=[.!?])\s+|(?<=[。！？])|\n+"
_STAMP = re.compile(r"\s*\[\d{4}-\d{2}-\d{2} \d{2}:\d{2}\]\s*")
_DATE = re.compile(r"(19|20)\d\d([-./]\d{1,2}){0,2}|\d{1,2}|\d{1,2}[.:]\d{2}")

_STOP_WORDS = """
a about after all also am an and any are as at be because been before but by can could did do does
for from had has have he her his i if in into is it its just me my no not now of on or our says she
so some said than that the their them then there they this to told up us user users want wants was
we were what when where which who will with would you your
"""
_DAYS_AND_MONTHS = """
monday tuesday wednesday thursday friday saturday sunday january february march april may june july
august september october november december
"""
_STOP = frozenset(_STOP_WORDS.split())
_CALENDAR = frozenset(_DAYS_AND_MONTHS.split())
_SHORT_TEXT = 40
"""Up to this many words a text is judged as a whole."""


class Fact(Struct, frozen=True):
    """`words` in their base form; `keys` are those of them that may not be missing."""

    words: frozenset[str]
    keys: frozenset[str] = frozenset()

    @classmethod
    def of(cls, line: str) -> Fact:
        """What a line of a memory file states."""
        keys, line = set[str](), without_importance(line)
        for sentence in sentences(line):
            spoken = re.findall(_WORD, sentence.lstrip("-*+#> \t"))
            keys |= {stem(word) for at, word in enumerate(spoken) if _is_key(word, first=at == 0)}
        found = words(line)
        return cls(found, frozenset(keys) & found)

    @classmethod
    def literal(cls, text: str) -> Fact:
        """What a person typed: each of its words counts."""
        found = words(text)
        return cls(found, found)

    def stated_by(self, text: str) -> bool:
        """Whether some part of `text` states it."""
        if not self._may_be_in(text.casefold()):
            return False
        return any(covers(self.words, self.keys, words(part)) for part in parts(text))

    def _may_be_in(self, folded: str) -> bool:
        """Rules most texts out cheaply: a word's base form differs from it at the end only."""
        if not folded.isascii():
            return True
        found = (word[:-1] in folded for word in self.keys or self.words)
        return all(found) if self.keys else any(found)


def covers(fact: Collection[str], keys: Collection[str], said: Collection[str]) -> bool:
    """Whether `said` holds all `keys` and enough of the words of a fact; never for no words."""
    if not fact or not all(key in said for key in keys):
        return False
    shared = sum(word in said for word in fact)
    return shared >= (0.6 if keys else 0.75) * len(fact)


def words(text: str) -> frozenset[str]:
    """The content words of `text` in their base form, single characters for CJK."""
    found: list[str] = re.findall(_WORD, unicodedata.normalize("NFKC", text))
    return frozenset(stem(word) for word in found if word.casefold() not in _STOP)


def stem(word: str) -> str:
    """A word without case, possessive and plural ending; crude, but always the same."""
    base = word.casefold().replace("’", "'").removesuffix("'s")
    if len(base) > 4 and base.endswith("ies"):
        return f"{base[:-3]}y"
    if len(base) > 3 and base.endswith("s") and not base.endswith("ss"):
        return base[:-1]
    return base


def similar(one: str, other: str) -> bool:
    """Whether two base forms may be the same word in other forms (allergy, allergic)."""
    if one == other:
        return True
    common = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        common += 1
    return common >= max(4, 0.6 * max(len(one), len(other)))


def share(wanted: Collection[str], text: str) -> float:
    """Which part of the words `wanted` occurs in `text`, in this form or a similar one; 0 to 1."""
    said = words(text)
    hits = sum(word in said or any(similar(word, one) for one in said) for word in wanted)
    return hits / len(wanted) if wanted else 0.0


def sentences(text: str) -> list[str]:
    """The sentences of a text; a line break ends one."""
    return [part for part in re.split(_SENTENCE_END, text) if part.strip()]


def parts(text: str) -> Iterator[str]:
    """What of a text may state one fact: a short text as a whole, else neighbouring sentences."""
    if len(re.findall(_WORD, text[: 16 * _SHORT_TEXT])) <= _SHORT_TEXT and len(text) < 1000:
        yield text
        return
    found = sentences(text)
    for at, sentence in enumerate(found):
        yield sentence
        if at + 1 < len(found):
            yield f"{sentence} {found[at + 1]}"


def without(text: str, facts: Iterable[Fact]) -> str:
    """`text` without the sentences that state one of the facts; the time in front stays.

    Empty where nothing else is left.
    """
    stamp = match[0] if (match := _STAMP.match(text)) else ""
    said = left = sentences(text[len(stamp) :])
    for fact in facts:
        left = _unsaid(left, fact)
    if len(left) == len(said):
        return text
    return stamp + " ".join(sentence.strip() for sentence in left) if left else ""


def _unsaid(sentences: list[str], fact: Fact) -> list[str]:
    left = [one for one in sentences if not covers(fact.words, fact.keys, words(one))]
    gone = {
        at + step
        for at in range(len(left) - 1)
        if covers(fact.words, fact.keys, words(f"{left[at]} {left[at + 1]}"))
        for step in (0, 1)
    }
    return [one for at, one in enumerate(left) if at not in gone]


def _is_key(word: str, *, first: bool) -> bool:
    folded = word.casefold()
    if folded in _STOP or folded in _CALENDAR or _DATE.fullmatch(word):
        return False
    if any(letter.isdigit() for letter in word):
        return True
    return not first and word[0].isupper()
