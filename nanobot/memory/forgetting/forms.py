"""The ways in which one letter may be written: its case, its accents in one character or several
and in any order, quotation marks straight or curved, the escapes of JSON and of Python. Pure."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from itertools import permutations

_SAME = (
    ("i", "I", "\u0130", "\u0131", "i\u0307"),  # with and without a dot
    ("\u03c3", "\u03c2", "\u03a3"),  # sigma, also at the end of a word
    ("\u00df", "\u1e9e", "ss", "SS", "Ss", "sS"),
    ("'", "\u2019", "\u2018", "\u02bc"),
    ('"', "\u201c", "\u201d", "\u201e"),
)
"""Spellings of the same that case alone does not make."""

_MOST_ACCENTS = 3
"""Of more on one letter only some orders are looked for."""


def clusters(word: str) -> Iterator[str]:
    """The letters of a composed word, each with the accents that follow it; `ss` is one where it
    may be written with one letter."""
    cluster = ""
    for number, letter in enumerate(word):
        doubles = (cluster + letter).lower() == "ss" and number > 1
        if cluster and not doubles and not unicodedata.combining(letter):
            yield cluster
            cluster = ""
        cluster += letter
    if cluster:
        yield cluster


def is_plain(cluster: str) -> bool:
    """Whether it is always one byte, in one case or the other."""
    return len(cluster) == 1 and cluster.isascii() and cluster.isalnum() and cluster not in "iI"


def pattern_of(cluster: str) -> bytes:
    """A pattern for it in each way in which it may be written."""
    cased = {cluster, cluster.lower(), cluster.upper()}
    cased |= {form for same in _SAME if not cased.isdisjoint(same) for form in same}
    ways = {way for form in cased for spelled in _spellings(form) for way in _written(spelled)}
    if all(len(way) == 1 for way in ways):
        return b"[" + b"".join(sorted(ways)) + b"]"
    return b"(?:" + b"|".join(sorted(ways, reverse=True)) + b")"


def _spellings(form: str) -> Iterator[str]:
    """The same with as many of its accents in the first character as may be, or fewer."""
    base, *accents = list(unicodedata.normalize("NFD", form))
    orders = permutations(accents) if len(accents) <= _MOST_ACCENTS else (tuple(accents),)
    for order in orders:
        parts = (base, *order)
        for number in range(1, len(parts) + 1):
            composed = unicodedata.normalize("NFC", "".join(parts[:number]))
            yield composed + "".join(parts[number:])


def _written(form: str) -> Iterator[bytes]:
    if form in "\"'\\/":
        yield rb"\\*" + re.escape(form.encode())
        return
    yield re.escape(form.encode("utf-8", "surrogatepass"))
    if not form.isascii():
        yield b"".join(map(_escaped, form))


def _escaped(letter: str) -> bytes:
    """The escapes of JSON, and those that Python shows in a log."""
    if letter.isascii():
        return re.escape(letter.encode())
    units = letter.encode("utf-16-be", "surrogatepass")
    codes = (units[at : at + 2].hex() for at in range(0, len(units), 2))
    json_way = b"".join(rb"\\+u" + _any_case(code) for code in codes)
    number = ord(letter)
    width, mark = (2, b"x") if number < 0x100 else (8, b"U")
    return b"(?:" + json_way + rb"|\\+" + mark + _any_case(f"{number:0{width}x}") + b")"


def _any_case(code: str) -> bytes:
    return b"".join(
        f"[{digit}{digit.upper()}]".encode() if digit.isalpha() else digit.encode()
        for digit in code
    )
