"""When a text says a word, when it states a fact, and how alike two lines are: search's notion of
words, for texts that stand in no index. Pure.

A word is what search takes for one (`search.analysis`): without case, accents and endings, in the
language of the text; of a script without spaces single characters and pairs. So whatever search
finds by a word, `/forget` and `why` find by it, too.

- A person's request (`Request`) is said by a text that holds all its words. Where some text holds
  forms of them, relatives (`Haus` in `Hausarzt`) of other texts do not count.
- A fact (`Fact`) is its content words and, among them, the keys: names, numbers, codes, without
  which it would be another fact ("my sister Ann lives in Oslo" and "my sister Eve lives in Oslo"
  share all but one). A text states a fact when it holds every key and most of the words; a fact
  without keys needs nearly all of its words.
- Long texts are judged by their sentences, two at a time, because a fact is often told in two, and
  everything is told somewhere in a long text.
- A line is a reworded other one where both hold half of all their words (Dice), stop words too.
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
    """The words of a line, without regard to case, nor to how important it is."""
    return frozenset(plain_words(without_importance(line)))


def similarity(one: frozenset[str], other: frozenset[str]) -> float:
    """How alike two lines with these words are, 0.0 to 1.0; 0.0 where one has none."""
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
    """The content words of `text` in their base form, a date or number of several parts as one;
    single characters of what is written without spaces. None: the language that it shows."""
    language = language_of(text, ENGLISH) if language is None else language
    figures, rest = re.findall(_FIGURES, text), re.sub(f"{_FIGURES}|{_ELIDED}", " ", text)
    return frozenset([*figures, *_letters(text), *bases(rest, language)])


def _letters(text: str) -> list[str]:
    return [letter.lower() for letter in re.findall(_LETTER, text)]


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


class Fact(Struct, frozen=True):
    """`words` in their base form, as in `language`; `keys` are those of them that may not be
    missing, and `least` is the share of all that a text which states it holds."""

    words: frozenset[str]
    keys: frozenset[str] = frozenset()
    language: str = ""
    least: float = 0.75

    @classmethod
    def of(cls, line: str) -> Fact:
        """What a line of a memory file states."""
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
        """The same where a person named it by these words: of a fact without keys they are it."""
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
        """Whether a text with these tokens holds all keys and enough of the words; never where
        there are none."""
        if not self.words or not all(key in said for key in self.keys):
            return False
        return sum(word in said for word in self.words) >= self.least * len(self.words)


# Most texts are ruled out by their outline, in a twentieth of the time.
@lru_cache(maxsize=1 << 10)
def _cores(fact: Fact) -> tuple[str, ...]:
    return tuple(core(word, fact.language) for word in fact.keys or fact.words)


class Request(Struct, frozen=True):
    """The words by which a person names something: each counts, and so do the pairs of characters
    of one that is written without spaces (`groups`). It is in the language `asked`, where it shows
    one; `languages` are those of the texts, the likeliest first. `joined` is the same with each
    word as one that was typed with hyphens."""

    groups: tuple[tuple[str, ...], ...]
    asked: tuple[str, ...] = ()
    languages: tuple[str, ...] = ()
    joined: Request | None = None

    @classmethod
    def of(cls, text: str, languages: Sequence[str] = ()) -> Request:
        """What a person typed."""
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
        """How closely some part of `text` holds all words: 2 in forms of them, 1 where one is a
        relative, 0 where one is missing."""
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
        """What a text states that holds the words, in each language that they may be in."""
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
    """Of which an outline holds one, or else no word of the group is there."""
    forms = word_forms(group[0], (), tuple(languages)).forms if len(group) == 1 else group
    return frozenset(core(form, language) for form in forms for language in languages or ("",))


@lru_cache(maxsize=1 << 8)
def _forms_of(
    group: Sequence[str], asked: tuple[str, ...], searched: tuple[str, ...]
) -> list[WordForms]:
    return [word_forms(word, asked, searched).stemmed() for word in group]


def _closeness(forms: Sequence[WordForms], said: Collection[str]) -> int:
    """How closely a text with these tokens holds a word, or most of the pairs of a run."""
    close = [one.closeness(said) for one in forms]
    found = sum(one > 0 for one in close)
    return min(close) if found == len(close) else int(found >= _MOST_OF_A_RUN * len(close))


@lru_cache(maxsize=8)
def said_in(text: str, language: str) -> Sequence[frozenset[str]]:
    """The tokens of what may state one fact: of a short text as a whole, else of neighbouring
    sentences."""
    if len(text) < _SHORT and sum(1 for _ in plain_words(text[:_SHORT])) <= _SHORT_TEXT:
        return [_said(text, language)]
    said = [_said(one, language) for one in sentences(text)]
    return [*said, *(one | other for one, other in pairwise(said))]


def _said(text: str, language: str) -> frozenset[str]:
    return frozenset([*tokens(text, language), *re.findall(_FIGURES, text)])


def sentences(text: str) -> list[str]:
    """The sentences of a text; a line break ends one."""
    return [part for part in re.split(_SENTENCE_END, text) if part.strip()]


def without(text: str, is_said: Callable[[str], bool]) -> str:
    """`text` without the sentences, or pairs of them, that say something; the time in front stays.

    Empty where nothing else is left.
    """
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
