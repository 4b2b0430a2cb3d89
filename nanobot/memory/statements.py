"""What a line or a clause says: its content words, its figures, and whether it is negated. Pure.

Words count as forms of one if they have the same stem in English, if one begins or ends the other,
or if they share most of their letters, as forms do in other languages.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import lru_cache

from msgspec import Struct

from nanobot.memory.analysis import (
    bases,
    is_stop_word,
    language_of,
    languages_of,
    stemmed,
    words_of,
)
from nanobot.memory.certainty import has_cue
from nanobot.memory.figures import (
    Figures,
    begins_with_month,
    figures_of,
    folded,
    is_number_word,
)
from nanobot.memory.importance import without_importance
from nanobot.memory.languages import ENGLISH, LANGUAGES, RUNS, Language
from nanobot.memory.similarity import similar

_CLAUSE = re.compile(r"[,;:(){}\[\]«»“”\"、，：；]\s*|\s[-–—]\s|\s(?=but\b)|\s(?=aber\b)")
_NOT = re.compile(r"n[’']t\b", re.IGNORECASE)
_MARK = re.compile(r"^\s*(?:[-*+]|\d{1,9}[.)])\s+")
_FEW, _PART = 8, 5
"""Words from which on a text shows its language; letters that are enough to be the beginning or
the end of a longer word."""

_LABELS = frozenset({"user", "users", "since", "now", "currently", "anymore"})


class Stated(Struct, frozen=True):
    """What a line or a clause says, by its content words in order."""

    words: tuple[str, ...]
    figures: Figures = Figures()
    negated: bool = False
    over: bool = False
    now: bool = False

    def news(self, known: Stated) -> list[str]:
        """Its words that `known` does not have."""
        return [word for word in self.words if not is_in(word, known.words)]


class Known:
    """The facts of a file, found again by what they say."""

    def __init__(self, facts: Iterable[str], languages: tuple[str, ...]) -> None:
        self._languages = languages
        self._facts: list[tuple[str, Stated, frozenset[str]]] = []
        for fact in facts:
            self.add(fact)

    def add(self, fact: str) -> None:
        """Know one more."""
        stated = self.read(fact)
        self._facts.append((fact, stated, _beginnings(stated)))

    def read(self, line: str) -> Stated:
        """What a line says."""
        return stated_in(bare(line), self._languages)

    def has(self, line: str) -> bool:
        """Whether a fact says all that `line` does."""
        stated = self.read(line)
        return bool(stated.words) and any(
            stated.negated == other.negated
            and not (stated.figures.missing_in([other.figures]) or stated.news(other))
            for _, other in self._near(stated)
        )

    def touched_by(self, line: str) -> str:
        """The fact that `line` adds to, or says with another number or negated; empty for none."""
        stated = self.read(line)
        for fact, other in self._near(stated):
            shared = len(stated.words) - len(stated.news(other))
            is_within = shared == len(stated.words) or not other.news(stated)
            if shared and (is_within or 2 * shared >= max(len(stated.words), len(other.words))):
                return fact
        return ""

    def _near(self, stated: Stated) -> Iterator[tuple[str, Stated]]:
        beginnings = _beginnings(stated)
        for fact, other, begins in self._facts:
            if 2 * len(beginnings & begins) >= min(len(beginnings), len(begins)):
                yield fact, other


def _beginnings(stated: Stated) -> frozenset[str]:
    return frozenset(stem_of(word)[:4] for word in stated.words)


def stated_in(text: str, languages: Sequence[str], *, figures: bool = True) -> Stated:
    """What `text`, in one of these languages, says."""
    tokens, spoken = _tokens(text), (*languages, language_of(text, languages[0]))
    no = _negations(spoken)  # a few words may be of any language
    words = [
        word
        for word in tokens
        if not (word in no or _is_idle(word, tuple(languages)) or word.isdecimal())
    ]
    is_run_negated = not text.isascii() and any(run in text for run in RUNS.no.split())
    return Stated(
        tuple(dict.fromkeys(words)),
        figures_of(text, spoken) if figures else Figures(),
        is_run_negated or not no.isdisjoint(tokens),
        has_cue(text, "over", spoken),
        has_cue(text, "now", spoken),
    )


def still_says(new: str, old: str) -> bool:
    """Whether a rewording of `old` has its numbers and names, and is negated as it is."""
    new, old = bare(new), bare(old)
    languages = languages_of((old, new))
    was, becomes = stated_in(old, languages), stated_in(new, languages)
    if was.figures.missing_in([becomes.figures]):
        return False
    clauses = [stated_in(one, languages, figures=False) for one in (new, *clauses_of(new))]
    counts = [hits(was.words, one.words) for one in clauses]
    said = zip(clauses, counts, strict=True)
    if not any(one.negated == was.negated for one, count in said if count == max(counts)):
        return False
    return all(is_in(key, becomes.words) for key in _keys(old) if key in was.words)


def is_part_of(part: str, whole: str) -> bool:
    """Whether `whole` says `part` as it is, word by word, with one more word at most in between:
    so that nothing can be swapped."""
    inner, outer = _spoken(part), _spoken(whole)
    spans = (iter(outer[at : at + len(inner) + 1]) for at in range(len(outer)))
    return bool(inner) and any(all(word in span for word in inner) for span in spans)


def clauses_of(sentence: str) -> Iterator[str]:
    return filter(str.strip, _CLAUSE.split(sentence))


def _spoken(line: str) -> list[str]:
    return [stem_of(word) for word in _tokens(bare(line)) if not is_stop_word(word)]


@lru_cache(maxsize=256)
def _negations(languages: tuple[str, ...]) -> frozenset[str]:
    known = (LANGUAGES.get(language, Language()).no for language in languages)
    return frozenset(stemmed(word, "") for no in known for word in no.split())


def _tokens(text: str) -> list[str]:
    return [folded(word) for word in words_of(_NOT.sub(" not", text))]


@lru_cache(maxsize=1 << 14)
def _is_idle(word: str, languages: tuple[str, ...]) -> bool:
    """Whether a word says nothing by itself."""
    if word in _LABELS or is_number_word(word, languages):
        return True
    return any(is_stop_word(word, one) for one in languages)


@lru_cache(maxsize=1 << 14)
def is_same(one: str, other: str) -> bool:
    """Whether two words may be forms of one, or one is part of the other."""
    short, long = sorted((stem_of(one), stem_of(other)), key=len)
    is_part = long.startswith(short) or long.endswith(short)
    return short == long or (len(short) >= _PART and (is_part or similar(short, long)))


@lru_cache(maxsize=1 << 14)
def stem_of(word: str) -> str:
    """The stem of a word that is taken for English."""
    return next(bases(word, ENGLISH), word)


def is_in(word: str, words: Collection[str]) -> bool:
    return word in words or any(is_same(word, one) for one in words)


def hits(words: Iterable[str], said: Collection[str]) -> int:
    return sum(is_in(word, said) for word in words)


def bare(line: str) -> str:
    """A line without list mark and importance. A number in front may be a day (`3. Mai`)."""
    text = without_importance(line)
    found = _MARK.match(text)
    rest = text[found.end() :] if found else text
    return text if found and found[0].strip()[0].isdigit() and begins_with_month(rest) else rest


def _keys(line: str) -> list[str]:
    """The names on a line, by their capitals."""
    _, *spoken = re.findall(r"[^\W_]+", bare(line)) or [""]
    return [stemmed(word, "") for word in spoken if word[0].isupper()]
