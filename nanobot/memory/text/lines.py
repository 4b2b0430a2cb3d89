"""Long-term files as lines of facts: what changed, and how changes of two writers become one. Pure.

A change is a tuple of operations, one a line, so that it can be kept, explained, and made again on
a text that has moved on. Invariants:

- `apply_operations(base, operations_between(base, new))` has the lines of `new`, each as often as
  there, if not always in the same order;
- operations that were made already change nothing;
- a merge never loses a line that one side added, and holds the same lines whichever side is ours.

Blank lines and the white space at the end of lines are layout (`nanobot.memory.text.layout`). Which
line is a rewording of which goes by the words they share: a word is a run of letters and digits, or
one character of a script written without spaces; the similarity of two lines is the share of their
words that both hold (Dice), 0.0 to 1.0.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from nanobot.memory.text.layout import Document, is_fixed, is_heading, key, lines_of, split
from nanobot.memory.text.wording import late
from nanobot.session.records import JsonValue

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


__all__ = [
    "Applied",
    "Merged",
    "Operation",
    "apply_operations",
    "merge",
    "most_similar",
    "operations_between",
]


@dataclass(frozen=True, slots=True)
class Operation:
    """Adds (`old` empty), removes (`new` empty) or rewords one line.

    `section` is the nearest heading above the line, with its #s, empty above all headings; `cursor`
    the history entry behind it, 0 where there is none. Where `old` and `new` are the same, the line
    moves to `section`.
    """

    old: str = ""
    new: str = ""
    section: str = ""
    cursor: int = 0

    @property
    def moves(self) -> bool:
        """Whether this only changes where a line stands."""
        return self.old == self.new

    def as_json(self) -> dict[str, JsonValue]:
        """What `from_json` reads; fields that say nothing are left out."""
        fields: dict[str, JsonValue] = {"old": self.old, "new": self.new, "section": self.section}
        fields["cursor"] = self.cursor
        return {name: value for name, value in fields.items() if value}

    @staticmethod
    def from_json(value: object) -> Operation | None:
        """The operation, None where `value` is none."""
        match value:
            case dict():
                old, new = value.get("old", ""), value.get("new", "")
                section, cursor = value.get("section", ""), value.get("cursor", 0)
            case _:
                return None
        texts = isinstance(old, str) and isinstance(new, str) and isinstance(section, str)
        if not texts or not isinstance(cursor, int) or not (old or new):
            return None
        return Operation(old, new, section, cursor)


@dataclass(frozen=True, slots=True)
class Applied:
    """The text after some operations; `left` are those that no longer fit."""

    text: str
    left: tuple[Operation, ...] = ()


@dataclass(frozen=True, slots=True)
class Merged:
    """A text with both sides' changes; `conflicts` says, for people, where they disagree.

    Where they do, the text keeps what either side wrote.
    """

    text: str
    conflicts: tuple[str, ...] = ()


def operations_between(base: str, new: str) -> tuple[Operation, ...]:
    """What makes `base` into `new`. A removed and an added line that are alike are a rewording.

    Where a line stands several times, and not as often as before, all its places are stated.
    """
    if base == new:
        return ()
    return tuple(_Difference(base, new).operations())


def apply_operations(text: str, operations: Sequence[Operation]) -> Applied:
    """`text` with the operations made, as far as they still fit.

    A line that stands already is not added again, unless the operations add it several times; a
    section that is missing is made. A rewording of a line that is gone is left over, unless
    nothing says it already and most of its words are new.
    """
    operations = [step for step in map(_plain, operations) if step.old or step.new]
    moves = [step for step in operations if step.moves and not is_fixed(step.new)]
    steps = [step for step in operations if not step.moves]
    wanted = Counter(step.new for step in steps if step.new)
    for line in (line for step in operations if step.new for line in (step.section, step.new)):
        wanted[line] = max(wanted[line], 1)  # a section that holds lines stays
    document = Document(text)
    gone = _change(document, [step for step in steps if step.old and step.new], wanted)
    for step in gone:
        wanted[step.new] = max(wanted[step.new] - 1, 1)
    _change(document, [step for step in steps if not (step.old and step.new)], wanted)
    left = []
    for step in gone:
        if _is_news(step, document):
            document.add(step.new, step.section)
        else:
            left.append(step)
    _move(document, moves)
    return Applied(document.text, tuple(left))


def merge(base: str, ours: str, theirs: str) -> Merged:
    """Both sides' changes to `base`, in the layout of `ours`.

    A line that both added stands once. A line that one side reworded and the other removed, or
    reworded otherwise, is a conflict: all that was written stays.
    """
    if theirs in (base, ours):
        return Merged(ours)
    if ours == base:
        return Merged(theirs)
    mine, other = operations_between(base, ours), operations_between(base, theirs)
    counts = [Counter(line for line, _ in lines_of(text)) for text in (base, ours, theirs)]
    target = {line: _three_way(*(count[line] for count in counts)) for line in set().union(*counts)}
    headings = [
        *_needed_headings(mine, counts[1] - counts[2], other),
        *_needed_headings(other, counts[2] - counts[1], mine),
    ]
    document = Document(ours)
    for heading in headings:
        target[heading] = max(target.get(heading, 0), 1)
    names, moved = _rewordings_of(mine), {step.new for step in mine if step.moves}
    renamed = [replace(step, section=names.get(step.section, step.section)) for step in other]
    steps = [step for step in renamed if not step.moves]
    for step in _change(document, steps, target):
        if document.count(step.new) < target[step.new]:
            document.add(step.new, step.section)
    for heading in headings:
        if not document.count(heading):
            document.add(heading, "")
    moves = [step for step in renamed if step.moves and step.new not in moved]
    _move(document, [step for step in moves if document.count(step.section)])
    return Merged(document.text, tuple(_conflicts(mine, other)))


class _Difference:
    def __init__(self, base: str, new: str) -> None:
        self._old, self._new = list(lines_of(base)), list(lines_of(new))
        self._before = Counter(line for line, _ in self._old)
        self._after = Counter(line for line, _ in self._new)
        removed = [line for line in self._before if line not in self._after]
        added = [line for line in self._after if line not in self._before]
        self._became = rewordings(
            [line for line in removed if is_heading(line)],
            [line for line in added if is_heading(line)],
        ) | rewordings(
            [line for line in removed if not is_heading(line)],
            [line for line in added if not is_heading(line)],
        )
        self._was = {new: old for old, new in self._became.items()}
        self._section_before = {
            line: self._became.get(section, section) for line, section in reversed(self._old)
        }

    def operations(self) -> Iterator[Operation]:
        places = Counter((line, self._became.get(section, section)) for line, section in self._old)
        stated = []
        for line, section in self._new:
            before, after = self._before[line], self._after[line]
            if old := self._was.pop(line, ""):
                yield Operation(old, line, section)
                yield from self._move(old, line, section)
            elif before == after:
                yield from self._move(line, line, section)
            elif before > after or places[line, section] > 0:
                places[line, section] -= 1
                stated.append(Operation(new=line, section=section))
            else:
                yield Operation(new=line, section=section)
        yield from stated
        fewer = [line for line in self._before if self._before[line] > self._after[line]]
        for line in sorted(fewer, key=is_heading):
            if line not in self._became:
                yield Operation(old=line, section=self._section_before[line])

    def _move(self, old: str, line: str, section: str) -> Iterator[Operation]:
        once = self._before[old] == self._after[line] == 1
        if once and not is_fixed(line) and section and self._section_before[old] != section:
            yield Operation(line, line, section)


def _plain(step: Operation) -> Operation:
    """The operation with its lines as they are compared."""
    return replace(step, old=key(step.old), new=key(step.new), section=key(step.section))


def _change(
    document: Document, operations: Sequence[Operation], target: Mapping[str, int]
) -> list[Operation]:
    """Add, reword and remove until each line stands as often as `target` says.

    Returns the rewordings whose old line is not there to reword, of which nothing was made.
    """
    gone = []
    for step in operations:
        old, new, section = step.old, step.new, step.section
        missing = bool(new) and document.count(new) < target.get(new, 0)
        if old and missing and document.count(old) <= target.get(old, 0):
            gone.append(step)
            continue
        if missing:
            if old and is_heading(old) == is_heading(new):
                document.reword(old, new)
            else:
                document.add(new, section)
        while old and document.count(old) > target.get(old, 0):
            document.remove(old)
    return gone


def _move(document: Document, operations: Sequence[Operation]) -> None:
    for step in operations:
        line, section = step.new, step.section
        plain = document.count(line) == 1 and bool(section) and document.count(section) <= 1
        if plain and not document.is_under(line, section):
            document.remove(line)
            document.add(line, section)


def _is_news(step: Operation, document: Document) -> bool:
    new, old = words_of(step.new), words_of(step.old)
    if 2 * len(new - old) < len(new) or document.count(step.new):
        return False
    return all(similarity(new, words_of(line)) < 0.5 for line in document.standing())


def _three_way(base: int, ours: int, theirs: int) -> int:
    if ours == base:
        return theirs
    return ours if theirs in (base, ours) else max(ours, theirs)


def _rewordings_of(operations: Sequence[Operation]) -> dict[str, str]:
    return {step.old: step.new for step in operations if step.old and step.new and not step.moves}


def _needed_headings(
    mine: Sequence[Operation], added: Counter[str], other: Sequence[Operation]
) -> Iterator[str]:
    """The headings over lines that only one side added, as the other side calls them."""
    names = _rewordings_of(other)
    for step in mine:
        if step.new in added and step.section and not is_heading(step.new):
            yield names.get(step.section, step.section)


def _conflicts(mine: Sequence[Operation], other: Sequence[Operation]) -> Iterator[str]:
    ours, theirs = _rewordings_of(mine), _rewordings_of(other)
    ours_removed = {step.old for step in mine if not step.new}
    theirs_removed = {step.old for step in other if not step.new}
    for old, new in ours.items():
        if old in theirs_removed:
            yield f"{old!r} became {new!r} here and was removed there"
        elif theirs.get(old, new) != new:
            yield f"{old!r} became {new!r} here and {theirs[old]!r} there"
    for old, new in theirs.items():
        if old in ours_removed:
            yield f"{old!r} was removed here and became {new!r} there"


_MOST = 3
_LONGEST = 100
_PLACEHOLDER = re.compile(r"[-*+]?\s*\(.*\)")
_MARK = re.compile(r"(?:[-*+]|\d{1,9}[.)])\s+")


def told(name: str, before: str, after: str) -> str:
    """`wrote: Tom's birthday is on 3 May and 2 lines more`; `edited NAME` where no line that says
    something came or went."""
    old, new = _said(before), _said(after)
    if wrote := [line for line in new if line not in old]:
        return f"wrote: {_listed(wrote)}"
    if gone := [line for line in old if line not in new]:
        return f"took out: {_listed(gone)}"
    return f"edited {name}"


def _said(text: str) -> dict[str, None]:
    lines = (line.strip() for line in split(text))
    said = (line for line in lines if line and not is_fixed(line))
    return dict.fromkeys(line for line in said if not _PLACEHOLDER.fullmatch(line))


def _listed(lines: Sequence[str]) -> str:
    short = [_MARK.sub("", line, count=1) for line in lines[:_MOST] if len(line) <= _LONGEST]
    more = len(lines) - len(short)
    rest = f"{more} {'line' if more == 1 else 'lines'}"
    if not short:
        return rest
    return "; ".join(short) + (f" and {rest} more" if more else "")
