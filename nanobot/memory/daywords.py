"""The words that name days, by language, and a text as their symbols. Pure.

`daywords.txt` has a section for each language. A field has the words of one kind, from which
spaces separate other members (months, weekdays) and slashes other forms. `_` stands for a space,
and `*` after the beginning of an inflected word. `d1` is yesterday, `w2` the week before last, and
so on. `D2` is two days in one word, without "ago". The file is read at the first use."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from nanobot.memory.analysis import stem_word, vocabulary
from nanobot.memory.figures import COUNTS, parse_cjk_number
from nanobot.memory.languages import ENGLISH

_KINDS = {
    "last": "L", "this": "T", "before": "A", "after": "G", "in": "i", "of": "o", "ordinal": "s",
    "d": "Ud", "w": "Uwu", "m": "Unu", "y": "Uyu", "e": "Ueu",
}  # fmt: skip
_SMALL = ("one", "two", "three", "four", "five", "six")
FEW = -1
_WORDS_FOR = ("on", "dotted")  # words before dates in figures
_FLAGS = ("bare", "lastweek", "monthfirst", "weekday")
_SHOWING = frozenset("mWLPVAG")
_LONGEST_BEGINNING = 12
_SIGNS = (",", ".", "-")
_SPACELESS = "\u0e00"  # scripts from here on, and some before, are read by characters

_HAN = "[一二三四五六七八九十两兩]{1,3}"
_TOKEN = (
    rf"(?P<Y>\d{{4}}) ?[年년]|(?P<M>\d\d?|{_HAN}) ?[月월](?![号號間])"
    rf"|(?P<D>\d\d?|{_HAN}) ?[日号號일]|(?P<N>\d+|{_HAN})"
    r"|[\u0e01-\u109f\u1780-\u17dd\u3040-\u9fff\uac00-\ud7a3]"
    r"|[^\W\d_](?:[^\W\d_]|[\u0300-\u036f\u0591-\u05c7\u064b-\u065f\u0670\u0900-\u0963])*|[^\s\w]"
)

Values = Mapping[str, int]
"""The meanings of a word: symbols with their values.

`N` is a number, `Y` a year (`Z` with its sign), `m` a month, `M` in full, `X` and `D` a month and a
day with their signs, `W` a weekday, `U` a unit, with its letter (`d`, `w`, `n` a month, `y`, `e` a
weekend, `u` any but a day), `P` a span by name (a day, `Q` a week, `R` a year), `V` units counted
in one word, the others as in `_KINDS`. The value of `P` and `V` is a number times 10, plus the
unit's place in `UNITS`."""

UNITS = "dwnye"


class Symbol(NamedTuple):
    """A word or phrase, a number or a sign, with its place in the text and its meanings."""

    begin: int
    end: int
    word: str
    values: Values


class DayWords(NamedTuple):
    """The words of a language, and the number of words of its longest phrase. `fields` has the
    words of a few fields, which may be just flags."""

    phrases: Mapping[tuple[str, ...], Values]
    beginnings: Mapping[str, Values]
    longest: int
    fields: Mapping[str, frozenset[str]]

    def heads(self) -> Iterator[str]:
        """Yield the first words of phrases that show this language, and beginnings with `*`."""
        for phrase, values in self.phrases.items():
            if not _SHOWING.isdisjoint(values):
                yield phrase[0]
        yield from (f"{beginning}*" for beginning in self.beginnings)

    def read(self, tokens: Sequence[Symbol]) -> list[Symbol]:
        """Return `tokens` with their meanings, the words of a phrase as one."""
        found, at = list[Symbol](), 0
        while at < len(tokens):
            first = tokens[at]
            size, values = self._look_up([one.word for one in tokens[at : at + self.longest]])
            last = tokens[at + size - 1]
            found.append(Symbol(first.begin, last.end, first.word, {**first.values, **values}))
            at += size
        return found

    def _look_up(self, words: Sequence[str]) -> tuple[int, Values]:
        """Return the length of the longest phrase that `words` begin with, and its meanings."""
        for size in range(len(words), 0, -1):
            if values := self.phrases.get(tuple(words[:size])):
                return size, values
        for size in range(min(len(words[0]), _LONGEST_BEGINNING), 2, -1):
            if values := self.beginnings.get(words[0][:size]):
                return 1, values
        return 1, {}


def tokenise(text: str) -> Iterator[Symbol]:
    """Yield the words and signs of a text, and single characters of scripts without spaces."""
    for match in re.finditer(_TOKEN, text):
        values = dict[str, int]()
        for symbol, written in match.groupdict().items():
            if written is not None:
                values = _read_figure(symbol, written)
        if match[0] in _SIGNS:
            values = {match[0]: 0}
        yield Symbol(*match.span(), fold(match[0]), values)


def _read_figure(symbol: str, written: str) -> dict[str, int]:
    number = int(written) if written.isdecimal() else parse_cjk_number(written)
    if symbol == "N" and len(written) == 4 and 1900 <= number < 2600:
        return {"Y": number}
    if symbol == "Y":
        return {"Y": number, "Z": number}
    if symbol == "M" and written.isdecimal():
        return {"m": number, "X": number}
    return {"m" if symbol == "M" else symbol: number}  # 二月 alone is no month


def fold(word: str) -> str:
    """Return a word without case and accents."""
    return stem_word(word.replace("’", "'"), "")


@cache
def load_words() -> Mapping[str, DayWords]:
    """Return the words of all languages."""
    text = Path(__file__).with_name("daywords.txt").read_text("utf-8")
    found = {}
    for section in text.removeprefix("[").split("\n\n["):
        name, _, body = section.partition("]\n")
        lines = body.replace("\n  ", " ").strip().splitlines()
        found[name] = _load_language(name, dict(line.split(": ", 1) for line in lines))
    return found


def _load_language(name: str, fields: Mapping[str, str]) -> DayWords:
    phrases = defaultdict[tuple[str, ...], dict[str, int]](dict)
    beginnings = dict[str, Values]()
    for word, at in vocabulary("numbers", (name,)).items():
        phrases[word,]["N"] = COUNTS[at]
    for form, values in _forms(name, fields):
        if form.endswith("*"):
            beginnings[fold(form[:-1])] = values
        else:
            phrases[_split(form)].update(values)
    kept = {field: fields[field] for field in (*_WORDS_FOR, *_FLAGS, "in") if field in fields}
    words_of = {field: frozenset(map(fold, re.split("[ /]", text))) for field, text in kept.items()}
    return DayWords(dict(phrases), beginnings, max(map(len, phrases)), words_of)


def _split(form: str) -> tuple[str, ...]:
    if form.isalpha() and form[0] < _SPACELESS:
        return (fold(form),)
    return tuple(one.word for one in tokenise(form.replace("_", " ")))


def _forms(name: str, fields: Mapping[str, str]) -> Iterator[tuple[str, Values]]:
    """Yield the words of a language with their meanings."""
    for field, words in fields.items():
        for at, forms in enumerate(words.split()):
            full, *others = forms.split("/")
            values = _meaning(field, at)
            yield full, values
            for form in others:
                is_short = len(form) <= 4 and fold(full[:3]) == fold(form[:3]) and name != ENGLISH
                # A month's abbreviation, or a form like Estonian "mail", needs the number of a day.
                yield form, {"m": at + 1} if field == "months" and is_short else values


def _meaning(field: str, at: int) -> dict[str, int]:
    """Return the meaning of the word at a place in a field."""
    match field:
        case "months":
            return {"m": at + 1, "M": at + 1}
        case "weekdays":
            return {"W": at}
        case "few":
            return {"N": FEW}
        case _ if field in _SMALL:
            return {"N": _SMALL.index(field) + 1}
        case _ if field in _KINDS:
            return dict.fromkeys(_KINDS[field], UNITS.find(_KINDS[field][1:2]))
    unit, count = field[:1], field[1:]
    return _count_units(unit, int(count)) if count.isdecimal() else {}


def _count_units(unit: str, count: int) -> dict[str, int]:
    """Return the meaning of a field such as `d1` or `D2`."""
    value = 10 * count + UNITS.index(unit.lower().replace("m", "n"))
    kinds = "V" if unit.isupper() else {"w": "PQ", "y": "PR"}.get(unit, "P")
    return dict.fromkeys(kinds, value)


@cache
def heads() -> Mapping[str, frozenset[str]]:
    """Return the languages that a word may show, also by beginnings."""
    found = defaultdict[str, set[str]](set)
    for name, known in load_words().items():
        for head in known.heads():
            found[head].add(name)
    return {head: frozenset(names) for head, names in found.items()}


def languages_shown(tokens: Sequence[Symbol]) -> set[str]:
    """Return the languages with words for days among `tokens`."""
    known = heads()
    found = {name for token in tokens for name in known.get(token.word, ())}
    for token in tokens:
        if "m" in token.values or "D" in token.values or "Z" in token.values:
            found.update(("chinese", "korean"))
        for size in range(3, min(len(token.word), _LONGEST_BEGINNING) + 1):
            found |= known.get(f"{token.word[:size]}*", frozenset())
    return found
