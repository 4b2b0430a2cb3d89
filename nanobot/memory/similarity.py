"""Compare texts outside the index with search's notion of words: whether a text has a word or
states a fact, and how alike two lines are. Pure.

Words are the same as in search (`analysis`): without case, accents and endings, in the language of
the text, or single characters and pairs in scripts without spaces. So `/forget` and `why` find
whatever search finds.

- A person's request (`Request`) matches a text with all its words. If some text has forms of them,
  relatives (`Haus` in `Hausarzt`) in other texts do not count.
- A fact (`Fact`) is its content words and, among them, the keys: names, numbers and codes that
  distinguish it ("my sister Ann lives in Oslo" and "my sister Eve lives in Oslo" share all but
  one). A text states a fact if it has every key and most of the words, or nearly all words of a
  fact without keys.
- Long texts are judged by two sentences at a time: a fact often takes two, and a long text has
  every word in some place.
- A line is a rewording of another if they share half of all their words (Dice), stop words too."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import lru_cache
from itertools import chain, filterfalse, pairwise

from msgspec import Struct
from msgspec.structs import replace

from nanobot.memory.analysis import (
    WordForms,
    bases,
    core,
    is_stop_word,
    language_of,
    outline,
    plain_words,
    tokens,
    word_forms,
    word_groups,
)
from nanobot.memory.importance import without_importance
from nanobot.memory.languages import ENGLISH
from nanobot.memory.spelling import HYPHENATED, join_hyphens

LEAST = 0.5
"""Minimum similarity of a removed and an added line that are one line, reworded."""

_NEAR = 200
"""A removed line is compared with at most this many changed lines before and after it, so many
thousand lines are fast too."""


def words_of(line: str) -> frozenset[str]:
    """Return the words of a line, without case and importance."""
    return frozenset(plain_words(without_importance(line)))


def similarity(one: frozenset[str], other: frozenset[str]) -> float:
    """Return how alike two lines with these words are, 0.0 to 1.0."""
    return 2 * len(one & other) / (len(one) + len(other)) if one and other else 0.0


def most_similar(line: str, candidates: Iterable[str], least: float = LEAST) -> str:
    """Return the first of the most similar candidates, or "" if all are less similar than
    `least`."""
    words, best, found = words_of(line), least, ""
    for candidate in candidates:
        alike = 1.0 if candidate == line else similarity(words, words_of(candidate))
        if alike > best or (alike == best and not found):
            best, found = alike, candidate
    return found


def rewordings(removed: Sequence[str], added: Sequence[str]) -> dict[str, str]:
    """Pair `removed` lines with the `added` ones that they became, each line once. The most similar
    pair comes first, of equals the first in order. All lines of a sequence differ."""
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


# Compiled and cached by `re` at first use: compiling would slow down the start.
_SENTENCE_END = r"(?<=[.!?])\s+|(?<=[。！？])|\n+"
_SPOKEN = r"[^\W_]+(?:[.:/'’-][^\W_]+)*"
_FIGURES = r"(?<!\d)\d+(?:[-./:]\d+)+"
# The parts that an apostrophe cuts off: `l'`, `O'`, `'s`, `'da`.
_ELIDED = r"(?<=[^\W\d_])['’ʼ][^\W\d_]{1,2}(?![^\W_])|(?<![^\W_])[^\W\d_]{1,2}['’ʼ](?=[^\W\d_])"
# A letter that is a name (vitamin D), though many languages have such a function word.
_LETTER = r"(?<=[^\W_]\s)[A-HJ-Z](?![^\W_]|['’ʼ])"

_STAMP = r"\s*\[\d{4}-\d{2}-\d{2} \d{2}:\d{2}\]\s*"
_DATE = r"(19|20)\d\d([-./]\d{1,2}){0,2}|\d{1,2}|\d{1,2}[.:]\d{2}"
_SHORT_TEXT, _SHORT = 40, 1_000  # words and characters up to which a text is judged as a whole
_MOST_OF_A_RUN = 2 / 3  # share of a run's pairs in a text that has the run with another particle


def words(text: str, language: str | None = None) -> frozenset[str]:
    """Return the content words of `text` in their base form. A date or number of several parts is
    one word, and so is a character in scripts without spaces. None: detect the language."""
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
    """`words` are base forms in `language`, `keys` are required in a text, and `least` is the
    required share of all words."""

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

    def add_keys(self, request: Request) -> Fact:
        """Return the fact with the person's words as its keys, if it has none."""
        if self.keys:
            return self
        said = frozenset(tokens(" ".join(chain.from_iterable(request.groups)), self.language))
        return replace(self, keys=self.words & said)

    def is_stated_by(self, text: str) -> bool:
        cores, plain = _cores(self), outline(text)
        held = (core in plain for core in cores)
        if not (all(held) if self.keys else any(held)):
            return False
        return any(map(self.is_held_by, tokenize_parts(text, self.language)))

    def is_held_by(self, said: Collection[str]) -> bool:
        """Return True if a text with these tokens has all keys and enough words; False without
        words."""
        if not self.words or not all(key in said for key in self.keys):
            return False
        return sum(word in said for word in self.words) >= self.least * len(self.words)


# The outline rules out most texts, in a twentieth of the time.
@lru_cache(maxsize=1 << 10)
def _cores(fact: Fact) -> tuple[str, ...]:
    return tuple(core(word, fact.language) for word in fact.keys or fact.words)


class Request(Struct, frozen=True):
    """The words of a person's request. Each of the `groups` is required, or most pairs of a run of
    characters without spaces. `asked` is the language, if recognizable. `languages` are the
    languages of the texts, the likeliest first. `joined` is the request with each hyphenated word
    as one."""

    groups: tuple[tuple[str, ...], ...]
    asked: tuple[str, ...] = ()
    languages: tuple[str, ...] = ()
    joined: Request | None = None

    @classmethod
    def of(cls, text: str, languages: Sequence[str] = ()) -> Request:
        """Parse a person's request."""
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
        if not asked:  # too short to detect its language: "meine Tabletten"
            found = contents(found, *languages) or found
        whole = re.sub(HYPHENATED, lambda word: join_hyphens(word[0]), text)
        other = cls.of(whole, languages) if whole != text else None
        shown = (asked,) if asked else ()
        return cls(tuple(dict.fromkeys(found)), shown, tuple(languages), other)

    def closeness(self, text: str) -> int:
        """Return how closely a part of `text` has all words: 2 for forms of them, 1 if one is a
        relative, 0 if one is missing."""
        close = self.joined.closeness(text) if self.joined else 0
        if not self._may_be_in(outline(text)):
            return close
        # A short text may be in any of these languages.
        for shown in {language_of(text, likely) for likely in self.languages or (ENGLISH,)}:
            searched = tuple(dict.fromkeys((*self.languages, shown)))
            words = [_forms_of(group, self.asked or searched, searched) for group in self.groups]
            for said in tokenize_parts(text, shown):
                close = max(close, min(_closeness(word, said) for word in words))
        return close

    def _may_be_in(self, plain: str) -> bool:
        cores = (_cores_of(group, self.languages) for group in self.groups)
        return bool(self.groups) and all(any(core in plain for core in each) for each in cores)

    def facts(self) -> tuple[Fact, ...]:
        """Return the facts that these words state, in each possible language."""
        found = []
        letters = [group[0] for group in self.groups if len(group[0]) == 1]
        for one in self.languages or ("",):
            # The keys of a run already are base forms.
            based = (bases(group[0], one) if len(group) == 1 else group for group in self.groups)
            said = frozenset(chain(letters, *based))
            found.append(Fact(said, said, one))
        return (*found, *(self.joined.facts() if self.joined else ()))


@lru_cache(maxsize=1 << 8)
def _cores_of(group: Sequence[str], languages: Sequence[str]) -> frozenset[str]:
    """Return cores, one of which is in every outline with a word of the group."""
    forms = word_forms(group[0], (), tuple(languages)).forms if len(group) == 1 else group
    return frozenset(core(form, language) for form in forms for language in languages or ("",))


@lru_cache(maxsize=1 << 8)
def _forms_of(
    group: Sequence[str], asked: tuple[str, ...], searched: tuple[str, ...]
) -> list[WordForms]:
    return [word_forms(word, asked, searched).stem() for word in group]


def _closeness(forms: Sequence[WordForms], said: Collection[str]) -> int:
    """Return how closely a text with these tokens has a word, or most of the pairs of a run."""
    close = [one.closeness(said) for one in forms]
    found = sum(one > 0 for one in close)
    return min(close) if found == len(close) else int(found >= _MOST_OF_A_RUN * len(close))


@lru_cache(maxsize=8)
def tokenize_parts(text: str, language: str) -> Sequence[frozenset[str]]:
    """Return the tokens of each part that may state one fact: a short text, else pairs of
    sentences."""
    if len(text) < _SHORT and sum(1 for _ in plain_words(text[:_SHORT])) <= _SHORT_TEXT:
        return [_tokenize(text, language)]
    said = [_tokenize(one, language) for one in sentences(text)]
    return [*said, *(one | other for one, other in pairwise(said))]


def _tokenize(text: str, language: str) -> frozenset[str]:
    return frozenset([*tokens(text, language), *re.findall(_FIGURES, text)])


def sentences(text: str) -> list[str]:
    """Split a text into sentences. A line break ends one."""
    return [part for part in re.split(_SENTENCE_END, text) if part.strip()]


def remove_sentences(text: str, is_said: Callable[[str], bool]) -> str:
    """Remove the sentences, or pairs of them, for which `is_said` holds, but keep the time in
    front. Return "" if nothing else is left."""
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
