"""Compare texts that are in no index by search's notion of words: whether a text has a word, states
a fact, and how alike two lines are. Pure.

A word is what search takes for one (`analysis`): without case, accents and endings, in the language
of the text; single characters and pairs in scripts without spaces. So `/forget` and `why` find
whatever search finds.

- A person's request (`Request`) matches a text with all its words. If some text has forms of them,
  relatives (`Haus` in `Hausarzt`) in other texts do not count.
- A fact (`Fact`) is its content words and, among them, the keys: names, numbers and codes that
  distinguish it ("my sister Ann lives in Oslo" and "my sister Eve lives in Oslo" share all but
  one). A text states a fact if it has every key and most of the words, or nearly all words of a
  fact without keys.
- Long texts are judged by their sentences, two at a time: a fact often takes two, and a long text
  has every word somewhere.
- A line is a reworded other one if both have half of all their words (Dice), stop words too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import lru_cache
from itertools import chain, filterfalse, pairwise

from msgspec import Struct
from msgspec.structs import replace

from nanobot.memory.analysis import (
    HYPHENATED,
    WordForms,
    bases,
    core,
    is_stop_word,
    joined,
    language_of,
    outline,
    plain_words,
    tokens,
    word_forms,
    word_groups,
)
from nanobot.memory.importance import without_importance
from nanobot.memory.languages import ENGLISH

LEAST = 0.5
"""From here on, a removed and an added line are one line, reworded."""

_NEAR = 200
"""A removed line is compared with this many added ones before and after it, of those that changed:
so a file of many thousand changed lines is compared in a moment."""


def words_of(line: str) -> frozenset[str]:
    """Return the words of a line, without case and importance."""
    return frozenset(plain_words(without_importance(line)))


def similarity(one: frozenset[str], other: frozenset[str]) -> float:
    """Return how alike two lines with these words are, 0.0 to 1.0."""
    return 2 * len(one & other) / (len(one) + len(other)) if one and other else 0.0


def most_similar(line: str, candidates: Iterable[str], least: float = LEAST) -> str:
    """Return the first of the most similar candidates, or "" if none is alike by `least`."""
    words, best, found = words_of(line), least, ""
    for candidate in candidates:
        alike = 1.0 if candidate == line else similarity(words, words_of(candidate))
        if alike > best or (alike == best and not found):
            best, found = alike, candidate
    return found


def rewordings(removed: Sequence[str], added: Sequence[str]) -> dict[str, str]:
    """Pair `removed` lines with the `added` ones that they became; each line once. The likest pair
    comes first, of equals the first in order. All lines of a sequence differ."""
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
_SENTENCE_END = r"(?<=[.!?])\s+|(?<=[。！？])|\n+"
_SPOKEN = r"[^\W_]+(?:[.:/'’-][^\W_]+)*"
_FIGURES = r"(?<!\d)\d+(?:[-./:]\d+)+"
_ELIDED = r"(?<=[^\W\d_])['’ʼ][^\W\d_]{1,2}(?![^\W_])|(?<![^\W_])[^\W\d_]{1,2}['’ʼ](?=[^\W\d_])"
"""What an apostrophe cuts off: `l'`, `O'`, `'s`, `'da`."""
_LETTER = r"(?<=[^\W_]\s)[A-HJ-Z](?![^\W_]|['’ʼ])"
"""A letter that is a name (vitamin D), though many a language has such a function word."""

_STAMP = r"\s*\[\d{4}-\d{2}-\d{2} \d{2}:\d{2}\]\s*"
_DATE = r"(19|20)\d\d([-./]\d{1,2}){0,2}|\d{1,2}|\d{1,2}[.:]\d{2}"
_SHORT_TEXT, _SHORT = 40, 1_000
"""Up to this many words and characters a text is judged as a whole."""
_MOST_OF_A_RUN = 2 / 3
"""The share of a run's pairs that a text holds which says it with another particle."""


def words(text: str, language: str | None = None) -> frozenset[str]:
    """Return the content words of `text` in their base form, a date or number of several parts as
    one; single characters in scripts without spaces. None: detect the language."""
    language = language_of(text, ENGLISH) if language is None else language
    figures, rest = re.findall(_FIGURES, text), re.sub(f"{_FIGURES}|{_ELIDED}", " ", text)
    return frozenset([*figures, *_letters(text), *bases(rest, language)])


def _letters(text: str) -> list[str]:
    return [letter.lower() for letter in re.findall(_LETTER, text)]


def similar(one: str, other: str) -> bool:
    """Return True if two base forms may be of the same word (allergy, allergic)."""
    if one == other:
        return True
    common = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        common += 1
    return common >= max(4, 0.6 * max(len(one), len(other)))


def share(wanted: Collection[str], text: str) -> float:
    """Return the share of the words `wanted` that `text` has, in this form or a similar one."""
    said = words(text)
    hits = sum(word in said or any(similar(word, one) for one in said) for word in wanted)
    return hits / len(wanted) if wanted else 0.0


class Fact(Struct, frozen=True):
    """`words` are base forms in `language`, `keys` those that a text must have, and `least` is the
    share of all that it must have."""

    words: frozenset[str]
    keys: frozenset[str] = frozenset()
    language: str = ""
    least: float = 0.75

    @classmethod
    def of(cls, line: str) -> Fact:
        """Read a line of a memory file."""
        line = without_importance(line)
        language, keys = language_of(line, ENGLISH), set[str]()
        for sentence in sentences(line):
            spoken = re.findall(_SPOKEN, sentence.lstrip("-*+#> \t"))
            for at, word in enumerate(spoken):
                if _is_key(word, first=at == 0):
                    keys |= words(word, language)
        found = words(line, language)
        keys.update(_letters(line))
        keys &= found
        # Many facts share one place or name ("lives in Lyon"), few a number or two names.
        is_distinct = len(keys) > 1 or any(map(str.isdecimal, "".join(keys)))
        return cls(found, frozenset(keys), language, 0.6 if is_distinct else 0.75)

    def named_by(self, request: Request) -> Fact:
        """Return the fact with the person's words as its keys, if it has none."""
        if self.keys:
            return self
        said = frozenset(tokens(" ".join(chain.from_iterable(request.groups)), self.language))
        return replace(self, keys=self.words & said)

    def stated_by(self, text: str) -> bool:
        cores, plain = _cores(self), outline(text)
        held = (core in plain for core in cores)
        if not (all(held) if self.keys else any(held)):
            return False
        return any(map(self.is_held_by, said_in(text, self.language)))

    def is_held_by(self, said: Collection[str]) -> bool:
        """Return True if a text with these tokens has all keys and enough words; False without
        words."""
        if not self.words or not all(key in said for key in self.keys):
            return False
        return sum(word in said for word in self.words) >= self.least * len(self.words)


# Most texts are ruled out by their outline, in a twentieth of the time.
@lru_cache(maxsize=1 << 10)
def _cores(fact: Fact) -> tuple[str, ...]:
    return tuple(core(word, fact.language) for word in fact.keys or fact.words)


class Request(Struct, frozen=True):
    """The words by which a person names something. Each of the `groups` counts, and so do the pairs
    of characters of a run without spaces. `asked` is the language, if it shows one; `languages` are
    those of the texts, the likeliest first. `joined` is the request with each hyphenated word as
    one."""

    groups: tuple[tuple[str, ...], ...]
    asked: tuple[str, ...] = ()
    languages: tuple[str, ...] = ()
    joined: Request | None = None

    @classmethod
    def of(cls, text: str, languages: Sequence[str] = ()) -> Request:
        """Read what a person typed."""
        likely = language_of(text, next(iter(languages), ENGLISH))
        asked, letters = language_of(text), _letters(text)

        def contents(groups: Iterable[tuple[str, ...]], *known: str) -> list[tuple[str, ...]]:
            return [
                one
                for one in groups
                if len(one) > 1
                or one[0] in letters
                or not any(is_stop_word(one[0], each) for each in known)
            ]

        found = contents(map(tuple, word_groups(re.sub(_ELIDED, " ", text), likely)), likely)
        if not asked:  # too short to show its language: "meine Tabletten"
            found = contents(found, *languages) or found
        whole = re.sub(HYPHENATED, lambda word: joined(word[0]), text)
        other = cls.of(whole, languages) if whole != text else None
        shown = (asked,) if asked else ()
        return cls(tuple(dict.fromkeys(found)), shown, tuple(languages), other)

    def closeness(self, text: str) -> int:
        """Return how closely a part of `text` has all words: 2 for forms of them, 1 if one is a
        relative, 0 if one is missing."""
        close = self.joined.closeness(text) if self.joined else 0
        if not self._may_be_in(outline(text)):
            return close
        # A short text may be in any of them.
        for shown in {language_of(text, likely) for likely in self.languages or (ENGLISH,)}:
            searched = tuple(dict.fromkeys((*self.languages, shown)))
            words = [_forms_of(group, self.asked or searched, searched) for group in self.groups]
            for said in said_in(text, shown):
                close = max(close, min(_closeness(word, said) for word in words))
        return close

    def _may_be_in(self, plain: str) -> bool:
        cores = (_cores_of(group, self.languages) for group in self.groups)
        return bool(self.groups) and all(any(core in plain for core in each) for each in cores)

    def facts(self) -> tuple[Fact, ...]:
        """Return what a text with these words states, in each possible language."""
        found = []
        letters = [group[0] for group in self.groups if len(group[0]) == 1]
        for one in self.languages or ("",):
            # The keys of a run are in their base form already.
            based = (bases(group[0], one) if len(group) == 1 else group for group in self.groups)
            said = frozenset(chain(letters, *based))
            found.append(Fact(said, said, one))
        return (*found, *(self.joined.facts() if self.joined else ()))


@lru_cache(maxsize=1 << 8)
def _cores_of(group: Sequence[str], languages: Sequence[str]) -> frozenset[str]:
    """Return cores of which every outline with a word of the group has one."""
    forms = word_forms(group[0], (), tuple(languages)).forms if len(group) == 1 else group
    return frozenset(core(form, language) for form in forms for language in languages or ("",))


@lru_cache(maxsize=1 << 8)
def _forms_of(
    group: Sequence[str], asked: tuple[str, ...], searched: tuple[str, ...]
) -> list[WordForms]:
    return [word_forms(word, asked, searched).stemmed() for word in group]


def _closeness(forms: Sequence[WordForms], said: Collection[str]) -> int:
    """Return how closely a text with these tokens has a word, or most of the pairs of a run."""
    close = [one.closeness(said) for one in forms]
    found = sum(one > 0 for one in close)
    return min(close) if found == len(close) else int(found >= _MOST_OF_A_RUN * len(close))


@lru_cache(maxsize=8)
def said_in(text: str, language: str) -> Sequence[frozenset[str]]:
    """Return the tokens of each part that may state one fact: a short text, else pairs of
    sentences."""
    if len(text) < _SHORT and sum(1 for _ in plain_words(text[:_SHORT])) <= _SHORT_TEXT:
        return [_said(text, language)]
    said = [_said(one, language) for one in sentences(text)]
    return [*said, *(one | other for one, other in pairwise(said))]


def _said(text: str, language: str) -> frozenset[str]:
    return frozenset([*tokens(text, language), *re.findall(_FIGURES, text)])


def sentences(text: str) -> list[str]:
    """Split a text into sentences; a line break ends one."""
    return [part for part in re.split(_SENTENCE_END, text) if part.strip()]


def without(text: str, is_said: Callable[[str], bool]) -> str:
    """Remove the sentences, or pairs of them, that say something, but keep the time in front.
    Return "" if nothing else is left."""
    stamp = match[0] if (match := re.match(_STAMP, text)) else ""
    said = sentences(text[len(stamp) :])
    left = list(filterfalse(is_said, said))
    gone = {
        at + step
        for at, (one, other) in enumerate(pairwise(left))
        if is_said(f"{one} {other}")
        for step in (0, 1)
    }
    left = [one for at, one in enumerate(left) if at not in gone]
    if len(left) == len(said):
        return text
    return stamp + " ".join(sentence.strip() for sentence in left) if left else ""


def _is_key(word: str, *, first: bool) -> bool:
    if is_stop_word(word.casefold()) or re.fullmatch(_DATE, word):
        return False
    if any(letter.isdigit() for letter in word):
        return True
    return not first and word[0].isupper()
