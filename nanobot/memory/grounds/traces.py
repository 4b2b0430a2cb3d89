"""Text as the tokens by which a fact is traced to whoever said it. Pure, and linear in the text.

Three kinds, in one set: words, as stems (`lives` and `living` are one; of a script written without
spaces each pair of characters is a word); data (addresses, paths, handles, identifiers, what stands
there letter by letter, numbers of three digits and more), which are traced letter by letter; and
marks that a standing order is given, and that something is denied.
Dates, times and years are neither: facts are stored with their dates worked out. What is none of
all this is counted (see `loose`), so that nothing passes for being no word.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import NamedTuple

from nanobot.memory.grounds.loose import RUNS, folded, loose, punctuation, spelled, unspelled
from nanobot.memory.grounds.wordlists import (
    CALENDAR,
    CJK_NEGATION,
    CJK_STOP,
    NEGATION,
    ORDER_PHRASES,
    STANDING_ORDER,
    STOP,
)
from nanobot.memory.text.patterns import late

_ORDER, _NOT = "\0order", "\0not"
_DATA = "\0data:"
_STEM = 6
_SHORTEST_NUMBER = 3
_FREE_DATES, _BLANK = 3, 4
_FREE_LOOSE, _LOOSE_SHARE = 4, 0.25
_FREE_PUNCTUATION, _PUNCTUATION_SHARE = 8, 0.5

_WORD = late(rf"[{RUNS}]+|[^\W\d_{RUNS}]+(?:['’][^\W\d_{RUNS}]+)?")
_RUN = late(rf"[{RUNS}]")
_DATE = late(
    r"(?<!\d)(?:"
    r"(?:19|20)\d\d[-/.](?:0?[1-9]|1[0-2])[-/.](?:[0-2]?\d|3[01])(?:t\d\d(?::\d\d){1,2}z?)?"
    r"|(?:[0-2]?\d|3[01])[-/.](?:[0-2]?\d|3[01])[-/.](?:19|20)\d\d"
    r"|(?:19|20)\d\d[-/.](?:0[1-9]|1[0-2])"
    r"|(?:19|20)\d\d\s?[-–]\s?(?:19|20)\d\d"
    r"|(?:19|20)\d\d"
    r"|[0-2]?\d:[0-5]\d(?::[0-5]\d)?"
    r")(?!\d)"
)
_CHUNK = late(rf"[^\s\"'`´‘’“”«»<>()\[\]{{}}|，。；：、！？（）【】《》「」{RUNS}]+")
_NUMBER = re.compile(r"(?<!\d)\d+(?:[ .,()/-]{1,2}\d+)*")
_DIGITS = re.compile(r"\d+")
_DOTTED = re.compile(r"\w\.[^\W\d_]{2}")
_DRIVE = re.compile(r"[a-z]:\\")
_EDGES = ".,;:!?*_~#=…·-"
_SUFFIXES = ("ations", "ation", "ings", "ing", "ies", "ied", "edly", "ers", "ed", "er", "es", "ly")


@dataclass(frozen=True, slots=True)
class Tokens:
    """What a text is made of. `marks` say that it gives a standing order, or denies something.

    `numbers` are groups of digits that belong together: each group is known when it is as a whole,
    or when each of its parts is. `loose` is what belongs to none of these, piece by piece, `dates`
    are apart from it; `size` counts the characters of words, data and numbers, repetitions once,
    `small` the words that say nothing, and `punctuation` the marks between them.
    """

    words: frozenset[str]
    data: frozenset[str]
    numbers: frozenset[tuple[str, ...]]
    marks: frozenset[str]
    loose: tuple[str, ...] = ()
    dates: tuple[str, ...] = ()
    size: int = 0
    small: int = 0
    punctuation: int = 0

    @classmethod
    def of(cls, text: str) -> Tokens:
        """The tokens of `text`."""
        plain, unseen = folded(text)
        traced = _Traced.of(plain)
        rest = _rest(traced.undated)
        return cls(
            traced.words,
            traced.data,
            traced.numbers,
            traced.marks,
            (*unseen, *loose(rest)),
            tuple(_DATE().findall(plain)),
            sum(len(word) for word, tokens in traced.written.items() if tokens)
            + sum(map(len, traced.data))
            + sum(len(part) for group in traced.numbers for part in group),
            sum(not tokens for tokens in traced.written.values()),
            punctuation(rest),
        )

    @property
    def is_blank(self) -> bool:
        """Whether there is nothing to see but at most a rule or the mark of a list."""
        other = self.size or self.small or self.loose or self.dates
        return not other and self.punctuation <= _BLANK

    @property
    def is_accounted(self) -> bool:
        """Whether words, data and numbers make up nearly all of it."""
        dates = sum(map(len, self.dates[_FREE_DATES:]))
        loose_most = max(_FREE_LOOSE, _LOOSE_SHARE * self.size)
        marks_most = _FREE_PUNCTUATION + _PUNCTUATION_SHARE * self.size
        return len(self.loose) + dates <= loose_most and self.punctuation <= marks_most

    def since(self, before: Tokens) -> Tokens:
        """What differs where `before` becomes this: words that came or went, and the rest that
        came."""
        return Tokens(
            self.words ^ before.words,
            self.data - before.data,
            self.numbers - before.numbers,
            self.marks ^ before.marks,
            tuple((Counter(self.loose) - Counter(before.loose)).elements()),
            tuple((Counter(self.dates) - Counter(before.dates)).elements()),
            self.size,
            self.small,
            max(0, self.punctuation - before.punctuation),
        )

    def stated_in(self, known: frozenset[str]) -> bool:
        """Whether every mark, every piece of data and every number is among `known`."""
        if not self.marks <= known:
            return False
        return all(_DATA + item in known for item in self.data) and all(
            _DATA + "".join(group) in known or all(_DATA + part in known for part in group)
            for group in self.numbers
        )


def known(text: str) -> frozenset[str]:
    """What `text` makes known, for `Tokens.stated_in`: its words, marks, data and numbers, these
    both as a whole and in parts."""
    traced = _Traced.of(folded(text)[0])
    numbers = (_DATA + part for group in traced.numbers for part in (*group, "".join(group)))
    data = (_DATA + item for item in traced.data)
    hosts = (_DATA + host for item in traced.data if (host := _host(item)))
    return frozenset((*traced.words, *traced.marks, *numbers, *data, *hosts))


class _Traced(NamedTuple):
    """What of a folded text is traced. `undated` is the text without its dates, `written` has its
    words with their tokens."""

    undated: str
    written: Mapping[str, tuple[str, ...]]
    words: frozenset[str]
    data: frozenset[str]
    numbers: frozenset[tuple[str, ...]]
    marks: frozenset[str]

    @classmethod
    def of(cls, plain: str) -> _Traced:
        undated = _DATE().sub(" ", plain)
        joined = spelled(undated)
        words = {word.replace("’", "'") for word in (*_WORD().findall(undated), *joined)}
        written = {word: tuple(_tokens(word)) for word in words}
        return cls(
            undated,
            written,
            frozenset(token for tokens in written.values() for token in tokens),
            frozenset((*_data(undated), *joined)),
            frozenset(_numbers(undated)),
            frozenset(_marks(plain, words)),
        )


def _tokens(word: str) -> Iterator[str]:
    if _RUN().match(word):
        pairs = [word[at : at + 2] for at in range(max(1, len(word) - 1))]
        yield from (pair for pair in pairs if not CJK_STOP.issuperset(pair))
    elif len(word) > 1 and word not in STOP and word not in CALENDAR:
        stem = _stem(word.partition("'")[0])
        if stem:
            yield stem


def _marks(text: str, words: AbstractSet[str]) -> Iterator[str]:
    if not words.isdisjoint(STANDING_ORDER) or any(phrase in text for phrase in ORDER_PHRASES):
        yield _ORDER
    if not words.isdisjoint(NEGATION) or not CJK_NEGATION.isdisjoint(text):
        yield _NOT


def _stem(word: str) -> str:
    for suffix in _SUFFIXES:
        if word.endswith(suffix) and len(word) - len(suffix) >= 3:
            word = word.removesuffix(suffix)
            break
    else:
        if len(word) > 3 and word.endswith("s") and not word.endswith("ss"):
            word = word[:-1]
    if len(word) > 3:
        word = word.rstrip("eyi") or word
    if len(word) > 3 and word[-1] == word[-2]:
        word = word[:-1]
    return word[:_STEM]


def _rest(text: str) -> str:
    """`text` without its words, data and numbers; single letters that are no word stay."""
    text = _CHUNK().sub(lambda chunk: " " if _datum(chunk[0]) else chunk[0], text)
    text = _NUMBER.sub(lambda number: " " if _is_number(number[0]) else number[0], text)
    return _WORD().sub(lambda word: word[0] if _is_single(word[0]) else " ", unspelled(text))


def _is_single(word: str) -> bool:
    return len(word) == 1 and word not in STOP and not _RUN().match(word)


def _data(text: str) -> Iterator[str]:
    for chunk in set(_CHUNK().findall(text)):
        if item := _datum(chunk):
            yield _plain(item)


def _datum(chunk: str) -> str:
    """The address, path or identifier that `chunk` is, empty where it is none."""
    item = chunk.strip(_EDGES)
    return item if item and _is_data(item, chunk) else ""


def _is_data(item: str, chunk: str) -> bool:
    if "://" in item or "@" in item or "\\" in item:
        return True
    if chunk.startswith(("/", "~/", "./", "../")) and len(item) > 1:
        return True
    if _DOTTED.search(item) or _DRIVE.match(item):
        return True
    return len(item) > 5 and _is_identifier(item)


def _is_identifier(item: str) -> bool:
    letters = sum(character.isalpha() for character in item)
    digits = sum(character.isdigit() for character in item)
    return letters > 0 and digits > 0 and digits + letters > 5 and not _RUN().search(item)


def _plain(item: str) -> str:
    """An address without what makes no difference."""
    for start in ("http://", "https://", "www."):
        item = item.removeprefix(start)
    return item.rstrip("/")


def _host(item: str) -> str:
    host = item.partition("/")[0]
    return host if host != item and _DOTTED.search(host) else ""


def _numbers(text: str) -> Iterator[tuple[str, ...]]:
    for match in _NUMBER.finditer(text):
        if _is_number(match[0]):
            yield tuple(_DIGITS.findall(match[0]))


def _is_number(text: str) -> bool:
    return sum(map(len, _DIGITS.findall(text))) >= _SHORTEST_NUMBER
