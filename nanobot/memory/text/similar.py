"""Which line is a rewording of which: by the words they share. Pure.

A word is a run of letters and digits, or one character of a script written without spaces. The
similarity of two lines is the share of their words that both hold (Dice): 0.0 to 1.0.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from nanobot.memory.text.patterns import late

LEAST = 0.5
"""From here on, a removed and an added line are one line, reworded."""

_CJK = r"\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff"
_WORD = late(rf"[{_CJK}]|[^\W_{_CJK}]+")

_RAREST, _PER_WORD = 3, 24
"""A line is compared with at most this many others for each of its rarest words, so that files of
many thousand changed lines are paired in a moment."""


def words_of(line: str) -> frozenset[str]:
    """The words of a line, without regard to case."""
    return frozenset(_WORD().findall(line.casefold()))


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
    pairs = []
    for second, first in _candidates(old, new):
        alike = similarity(old[first], new[second])
        if alike >= LEAST:
            pairs.append((-alike, abs(first - second), first, second))
    taken: set[int] = set()
    found: dict[int, int] = {}
    for _, _, first, second in sorted(pairs):
        if first not in found and second not in taken:
            found[first] = second
            taken.add(second)
    return {removed[first]: added[second] for first, second in found.items()}


def _candidates(
    old: Sequence[frozenset[str]], new: Sequence[frozenset[str]]
) -> Iterable[tuple[int, int]]:
    """Pairs (index in `new`, index in `old`) that share a word that few lines hold."""
    frequency = Counter(word for words in (*old, *new) for word in words)
    holders: dict[str, list[int]] = defaultdict(list)
    for index, words in enumerate(old):
        for word in words:
            holders[word].append(index)
    for index, words in enumerate(new):
        shared = [word for word in words if word in holders]
        shared.sort(key=lambda word: (frequency[word], word))
        near: set[int] = set()
        for word in shared[:_RAREST]:
            near.update(_closest(holders[word], index))
        yield from ((index, other) for other in sorted(near))


def _closest(holders: list[int], index: int) -> list[int]:
    """Of many holders of a word, those that stand about as far down."""
    if len(holders) <= _PER_WORD:
        return holders
    middle = bisect_left(holders, index)
    start = max(0, min(middle - _PER_WORD // 2, len(holders) - _PER_WORD))
    return holders[start : start + _PER_WORD]
