"""Other spellings: codes and numbers written together or apart, and mistyped words. Pure.

Texts get additional words for their codes (`join_codes`), and so do questions, so that one spelling
finds the other."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise

# Compiled and cached by `re` at their first use.
HYPHENATED = r"(?<![\w-])[^\W\d_]{1,20}(?:[-\u2011][^\W\d_]{1,20}){1,2}(?![\w-])"
_CANDIDATE = r"\d|[a-z][A-Z]"
_JOINED = r"(?<![\w-])[^\W_]{1,12}(?:[-_][^\W_]{1,12}){1,4}(?![\w-])"
_CAMEL = r"\b[^\W\d_]*[a-z][A-Z][^\W\d_]*\b"
_HUMP = r"[A-Z]?[a-z]{2,}|[A-Z]{3,}(?![a-z])"
_THOUSANDS = r"(?<![\d.,])\d{1,3}(?:[ .,'’\u00a0\u202f]\d{3})+(?![\d])"
_LONG = r"\d(?:(?:[ .,'’/\u00a0\u202f-]|\) ?| ?\()?\d){6,33}"
_APART = r"\b([^\W\d_]{1,6}) (\d{1,6})\b"
_BOUNDARY = r"(?<=[^\W\d_])(?=\d)|(?<=\d)(?=[^\W\d_])"

_TAIL, _DIGITS = "\ue100", 7
"""The word for a long number is a character of private use and its last digits: telephone numbers
differ in the first ones, with or without the code of the country."""

_LEAST, _PAIR = 5, 3
"""Letters of a word that may be mistyped, and of each part of a word that is split."""
_MOST = 20
_FARTHEST = 2  # distance of a letter from its place
_ALPHABETS = (
    "abcdefghijklmnopqrstuvwxyz",
    "абвгдежзийклмнопрстуфхцчшщъыьэюяіїєґ",
    "αβγδεζηθικλμνξοπρστυφχψω",
    "אבגדהוזחטיכלמנסעפצקרשת",
    "ابتثجحخدذرزسشصضطظعغفقكلمنهوي",
)


def join_hyphenated(text: str) -> list[str]:
    """Return the hyphenated words of `text`, each as one word: `email` for `e-mail`."""
    found = re.findall(HYPHENATED, text) if "-" in text or "\u2011" in text else ()
    return [join_hyphens(word) for word in found]


def join_hyphens(word: str) -> str:
    return re.sub(r"\W", "", word)


def join_codes(text: str) -> list[str]:
    """Return the additional words for the codes (`x7k9qp` for `X7K-9QP`), long and grouped numbers
    (`12000` for `12,000`) and camel-case names (`user` and `name` for `userName`) in `text`."""
    if not re.search(_CANDIDATE, text):
        return []
    found = [re.sub(r"[-_]", "", code).lower() for code in re.findall(_JOINED, text)]
    found = [code for code in found if not code.isalpha() and not code.isdecimal()]
    found += [
        number for each in re.findall(_THOUSANDS, text) if len(number := _digits(each)) < _DIGITS
    ]
    found += map(_tail, re.findall(_LONG, text))
    return found + [
        part.lower() for name in re.findall(_CAMEL, text) for part in re.findall(_HUMP, name)
    ]


def join_apart(text: str) -> list[str]:
    """Return the letters and numbers of a question that may be one word: `lh1829` for `LH 1829`."""
    return [f"{letters}{digits}".lower() for letters, digits in re.findall(_APART, text)]


def is_hidden(word: str) -> bool:
    """Return True for a word that is not shown to anyone."""
    return word.startswith(_TAIL)


def spell_code(word: str) -> Iterator[str]:
    """Yield the FTS5 terms for other spellings of a code: the phrase `lh 1829` for `lh1829`, and
    the end of a long number."""
    yield from map(_tail, re.findall(_LONG, word))
    parts = re.split(_BOUNDARY, word) if word.isalnum() and not word.isdecimal() else ()
    if len(parts) > 1:
        yield " ".join(parts)


def respell(words: Sequence[str], at: int) -> list[str]:
    """Return the words and phrases that the unknown word at this place may stand for: joined with a
    neighbour, split in two, or without one typing error."""
    word, beside = words[at], words[max(0, at - 1) : at + 2]
    if not word.isalpha() or len(word) > _MOST:
        return []
    found = [one + other for one, other in pairwise(beside) if (one + other).isalpha()]
    found += [f"{word[:cut]} {word[cut:]}" for cut in range(_PAIR, len(word) - _PAIR + 1)]
    return found + (correct(word) if len(word) >= _LEAST else [])


def correct(word: str) -> list[str]:
    """Return the words that differ from `word` by one typing error: a letter that is missing,
    unnecessary, wrong, or at another place, or two letters that are wrongly doubled or not."""
    letters = next((letters for letters in _ALPHABETS if not set(word) - set(letters)), "")
    found = [*_move(word), *_double(word)]
    for head, tail in ((word[:at], word[at:]) for at in range(len(word) + 1)):
        found += [head + letter + tail for letter in letters]
        found += [head + letter + tail[1:] for letter in (*letters, "")]
    return list(dict.fromkeys(found))


def _move(word: str) -> Iterator[str]:
    """Yield the word with a letter moved."""
    for at in range(len(word)):
        head, tail = word[:at], word[at:]
        for far in range(1, min(_FARTHEST + 1, len(tail))):
            rest = tail[far + 1 :]
            yield head + tail[1 : far + 1] + tail[0] + rest
            yield head + tail[far] + tail[:far] + rest


def _double(word: str) -> Iterator[str]:
    """Yield the word with two letters doubled or undoubled (`acomodation`)."""
    runs = [run[0] for run in re.finditer(r"(.)\1*", word)]
    swapped = [run[0] if len(run) > 1 else run * 2 for run in runs]
    for one, other in combinations(range(len(runs)), 2):
        yield "".join(swapped[n] if n in (one, other) else run for n, run in enumerate(runs))


def _tail(number: str) -> str:
    return _TAIL + _digits(number)[-_DIGITS:]


def _digits(number: str) -> str:
    return re.sub(r"\D", "", number)
