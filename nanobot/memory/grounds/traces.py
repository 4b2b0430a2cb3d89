"""Text as the tokens by which a fact is traced to whoever said it. Pure, and linear in the text.

Three kinds, in one set: words, as stems (`lives` and `living` are one; of a script written without
spaces each pair of characters is a word); data (addresses, paths, handles, identifiers, numbers of
three digits and more), which are traced letter by letter; and marks that a standing order is given,
and that something is denied.
Dates, times and years are neither: facts are stored with their dates worked out.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

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

_RUNS = (
    r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff"
)
_INVISIBLE = late("[\u00ad\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff]")
_WORD = late(rf"[{_RUNS}]+|[^\W\d_{_RUNS}]+(?:['’][^\W\d_{_RUNS}]+)?")
_RUN = late(rf"[{_RUNS}]")
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
_CHUNK = late(rf"[^\s\"'`´‘’“”«»<>()\[\]{{}}|，。；：、！？（）【】《》「」{_RUNS}]+")
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
    or when each of its parts is.
    """

    words: frozenset[str]
    data: frozenset[str]
    numbers: frozenset[tuple[str, ...]]
    marks: frozenset[str]

    @classmethod
    def of(cls, text: str) -> Tokens:
        """The tokens of `text`."""
        folded = _INVISIBLE().sub("", unicodedata.normalize("NFKC", text)).casefold()
        undated = _DATE().sub(" ", folded)
        plain = frozenset(word.replace("’", "'") for word in set(_WORD().findall(undated)))
        words = frozenset(token for word in plain for token in _tokens(word))
        marks = frozenset(_marks(folded, plain))
        return cls(words, frozenset(_data(undated)), frozenset(_numbers(undated)), marks)

    def known(self) -> frozenset[str]:
        """Everything as one set, numbers both as a whole and in parts."""
        numbers = (_DATA + part for group in self.numbers for part in (*group, "".join(group)))
        data = (_DATA + item for item in self.data)
        hosts = (_DATA + host for item in self.data if (host := _host(item)))
        return frozenset((*self.words, *self.marks, *numbers, *data, *hosts))

    def stated_in(self, known: frozenset[str]) -> bool:
        """Whether every mark, every piece of data and every number is among `known`."""
        if not self.marks <= known:
            return False
        return all(_DATA + item in known for item in self.data) and all(
            _DATA + "".join(group) in known or all(_DATA + part in known for part in group)
            for group in self.numbers
        )


def _tokens(word: str) -> Iterator[str]:
    if _RUN().match(word):
        pairs = [word[at : at + 2] for at in range(max(1, len(word) - 1))]
        yield from (pair for pair in pairs if not CJK_STOP.issuperset(pair))
    elif len(word) > 1 and word not in STOP and word not in CALENDAR:
        stem = _stem(word.partition("'")[0])
        if stem:
            yield stem


def _marks(text: str, words: frozenset[str]) -> Iterator[str]:
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


def _data(text: str) -> Iterator[str]:
    for chunk in set(_CHUNK().findall(text)):
        item = chunk.strip(_EDGES)
        if item and _is_data(item, chunk):
            yield _plain(item)


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
        group = tuple(_DIGITS.findall(match[0]))
        if sum(map(len, group)) >= _SHORTEST_NUMBER:
            yield group
