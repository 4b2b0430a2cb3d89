"""Long-term files as lines of facts: what changed, how a change is made again on a text that has
moved on, and how the changes of two writers become one. Pure.

A change is a tuple of operations, one a line, so that it can be kept and explained. Invariants:

- `apply_operations(base, operations_between(base, new))` has the lines of `new`, each as often as
  there, if not always in the same order or section;
- operations that were made already change nothing;
- a merge never loses a line that one side added, and holds the same lines whichever side is ours;
- what is not changed stays byte for byte: line endings, blank lines, placeholders in parentheses;
- how important a line is (`importance`) is not changed by an operation, which names the line with
  its mark or without; one that adds or rewords a line without a mark may bring one.

Blank lines and the white space at the end of lines are layout. A new line stands after the last of
its kind in its section (a list item after the last list item), and before a rule that closes the
section; a blank line separates it from what is of another kind. A removed line leaves no double
blank line behind. Whether a line is a heading depends on the line alone: code
fences are not read.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import filterfalse
from operator import attrgetter
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from nanobot.memory.importance import (
    importance_mark,
    marks_of,
    unmarked,
    with_marks,
    without_importance,
)
from nanobot.memory.similarity import rewordings

Value = TypeVar("Value", int, str)

_HEADING = re.compile(r"#{1,6}\s+\S")
_KINDS = {
    "heading": _HEADING,
    "rule": re.compile(r"\s{0,3}([-*_])(\s*\1){2,}\s*$"),
    "item": re.compile(r"([-*+]|\d{1,9}[.)])\s+\S|\s"),  # or what belongs to one: it is indented
    "table": re.compile(r"\|"),
    "placeholder": re.compile(r"\(.*\)\s*$"),
}


def split(text: str) -> list[str]:
    """The lines of a text, without their ends. Only a newline ends one: what else Python takes for
    a line break (U+2028, a form feed) stands within a line, for everybody who cuts lines."""
    lines = text.split("\n")
    if "\r" in text:
        lines = [line.removesuffix("\r") for line in lines]
    return lines if lines[-1] else lines[:-1]


def is_heading(line: str) -> bool:
    return _HEADING.match(line) is not None


def find_heading(wanted: str, text: str) -> str:
    """The heading of `text` with these words, whatever its #s and case; empty for none."""

    def name_of(line: str) -> str:
        return " ".join(line.split()).strip("# ").casefold()

    name = name_of(wanted)
    headings = (line.rstrip() for line in split(text) if name and is_heading(line))
    return next((line for line in headings if name_of(line) == name), "")


def lines_of(text: str) -> Iterator[tuple[str, str]]:
    """The non-blank lines, each with the nearest heading above it."""
    section = ""
    for raw in text.split("\n"):
        if line := raw.rstrip():
            yield line, section
            if is_heading(line):
                section = line


_ENTRY = re.compile(r"- (?:\d\d:\d\d |\[\d{4}-\d\d-\d\d\] \(from )")


def blocks_of(text: str) -> list[str]:
    """The text in pieces, with their line ends: an entry (a day's note, a fact that waits) with all
    that is indented under it, or else a single line. Only what was written as an entry is one;
    indented lines of a person's own are facts by themselves."""
    blocks, in_entry = list[str](), False
    for line in re.findall(r"[^\n]*\n|[^\n]+", text):
        if in_entry and (not line.strip() or line[0].isspace()):
            blocks[-1] += line
        else:
            blocks.append(line)
            in_entry = _ENTRY.match(line) is not None
    return blocks


def numbered_blocks(text: str, *, headings: bool = False) -> Iterator[tuple[int, str]]:
    """The pieces that say something, also `headings` where these are wanted, each with the number
    of its first line."""
    number = 1
    for block in blocks_of(text):
        if block.strip() and (headings or not is_heading(block)):
            yield number, block.rstrip()
        number += block.count("\n")


class Operation(Struct, frozen=True, omit_defaults=True):
    """Adds (`old` empty), removes (`new` empty) or rewords one line.

    `section` is the nearest heading above the line, with its #s, empty above all headings; `cursor`
    the history entry behind it, 0 where there is none; `note` the day (YYYY-MM-DD) of the notes
    behind it, or the month (YYYY-MM) of their digest, empty for neither. If `old` and `new` are the
    same, it changes nothing.
    """

    old: str = ""
    new: str = ""
    section: str = ""
    cursor: int = 0
    note: str = ""

    @property
    def says_nothing_new(self) -> bool:
        """Whether this says at most how important a line is."""
        return bool(self.old) and unmarked(self.old) == unmarked(self.new)

    @property
    def states(self) -> bool:
        """Whether this puts in a line that says more than how important it is."""
        return bool(self.new) and not self.says_nothing_new

    @property
    def rewords(self) -> bool:
        """Whether this puts another line in the place of one."""
        return bool(self.old and self.new)


class Applied(Struct, frozen=True):
    """The text after some operations; `left` are those that no longer fit."""

    text: str
    left: tuple[Operation, ...] = ()


class Merged(Struct, frozen=True):
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
    before, after = map(_counts_of, (base, new))
    became = _became([*_without(before, after)], [*_without(after, before)])
    was = {new: old for old, new in became.items()}
    steps = [
        Operation(was.pop(line, ""), line, section)
        for line, section in lines_of(new)
        if line in was or before[line] != after[line]
    ]
    places = dict(reversed([*lines_of(base)]))  # of several the first
    gone = sorted(_without(before - after, became), key=is_heading)
    return (*steps, *(Operation(old=line, section=places[line]) for line in gone))


def _counts_of(text: str) -> Counter[str]:
    return Counter(line for line, _ in lines_of(text))


def _without(lines: Iterable[str], others: Container[str]) -> Iterator[str]:
    return (line for line in lines if line not in others)


def apply_operations(text: str, operations: Sequence[Operation]) -> Applied:
    """`text` with the operations made, as far as they still fit.

    A line that stands already is not added again, unless the operations add it several times; a
    section that is missing is made. A rewording of a line that is gone is left over.
    """
    asked = [(_plain(step), step) for step in operations]
    document = _Document(without_importance(text))
    left = _make(document, [step for step, _ in asked if step.old != step.new])
    marks = marks_of(text)
    brought = _brought_marks(marks, ((step, given) for step, given in asked if step not in left))
    if brought or document.is_changed:
        text = with_marks(document.text, marks | brought)
    return Applied(text, tuple(given for step, given in asked if step in left))


def _make(document: _Document, steps: Sequence[Operation]) -> list[Operation]:
    target = Counter(step.new for step in steps if step.new)  # how often each line is to stand
    for section in {step.section for step in steps if step.new} - {""}:
        target[section] = max(target[section], 1)  # a section that holds lines stays
    rewords = attrgetter("rewords")
    left = _change(document, [*filter(rewords, steps)], target)
    for step in left:
        target[step.new] = max(target[step.new] - 1, 1)
    _change(document, [*filterfalse(rewords, steps)], target)
    return left


def merge(base: str, ours: str, theirs: str) -> Merged:
    """Both sides' changes to `base`, in the layout of `ours`.

    A line that both added stands once. A line that one side reworded and the other removed, or
    reworded otherwise, is a conflict: all that was written stays. A line goes to the end of the
    file's lines if its section was removed on the other side.
    """
    if theirs in (base, ours):
        return Merged(ours)
    if ours == base:
        return Merged(theirs)
    marks = [*map(marks_of, (base, ours, theirs))]
    base, ours, theirs = map(without_importance, (base, ours, theirs))
    mine, other = operations_between(base, ours), operations_between(base, theirs)
    counts = [*map(_counts_of, (base, ours, theirs))]
    target = {line: _three_way(*(count[line] for count in counts)) for line in set().union(*counts)}
    document = _Document(ours)
    names = {line: line for line, count in target.items() if count}
    names |= {step.old: step.new for step in filter(attrgetter("rewords"), mine)}
    placed = [replace(step, section=names.get(step.section, "")) for step in other]
    gone = _change(document, placed, target)
    _change(document, [replace(step, old="") for step in gone], target)
    text = with_marks(document.text, _merged_marks(marks, (*mine, *other)))
    return Merged(text, tuple(_conflicts(mine, other)))


def _brought_marks(
    marks: Mapping[str, str], made: Iterable[tuple[Operation, Operation]]
) -> dict[str, str]:
    """Return the marks of lines that had none: of the line that they reword, or as `made` gives
    them, which has each operation without marks and as it was given."""
    mark_of = {step.new: marks.get(step.old) or importance_mark(given.new) for step, given in made}
    return {line: mark for line, mark in mark_of.items() if line and mark and line not in marks}


def _merged_marks(
    sides: Sequence[Mapping[str, str]], operations: Sequence[Operation]
) -> dict[str, str]:
    """Return the marks after a merge: of the side that changed one, of two the higher. `sides` has
    those of the base and of both sides. A reworded line keeps its mark."""
    was: dict[str, set[str]] = {}
    for step in operations:
        if step.rewords:
            was.setdefault(step.new, set()).add(step.old)

    def mark_of(line: str, old: str) -> str:
        return _three_way(*(side.get(line) or side.get(old, "") for side in sides))

    lines = {*was, *(line for side in sides for line in side)}
    return {line: max(mark_of(line, old) for old in was.get(line, {line})) for line in lines}


def kind_of(line: str) -> str:
    """Return heading, rule, item (a list item or an indented line), table, placeholder or text."""
    return next((kind for kind, pattern in _KINDS.items() if pattern.match(line)), "text")


def _apart(upper: str, lower: str) -> bool:
    return kind_of(upper) != kind_of(lower) or is_heading(upper)


class _Document:
    """A text that is being changed; `text` is what it has become. Lines are named by their keys."""

    def __init__(self, text: str) -> None:
        self._original, self.is_changed = text, False
        self._end = "\r" if text.count("\r\n") * 2 > text.count("\n") else ""
        *self._lines, last = text.split("\n")
        if last:
            self._lines.append(last + self._end)
        self._keys = [line.rstrip() for line in self._lines]
        self._counts = Counter(filter(None, self._keys))

    @property
    def text(self) -> str:
        if not self.is_changed:
            return self._original
        return "".join(f"{line}\n" for line in self._lines)

    def count(self, line: str) -> int:
        return self._counts[line]

    def remove(self, line: str) -> None:
        """Take out the last `line`, which must stand here."""
        at = len(self._keys) - 1 - self._keys[::-1].index(line)
        self._replace(slice(at, at + 1), [])
        while at < len(self._keys) and not self._keys[at] and not (at and self._keys[at - 1]):
            self._replace(slice(at, at + 1), [])
        while at == len(self._keys) > 0 and not self._keys[-1]:
            at -= 1
            self._replace(slice(at, at + 1), [])

    def reword(self, old: str, new: str) -> None:
        """Put `new` in the place of the first `old`, which must stand here."""
        at = self._keys.index(old)
        end = "\r" if self._lines[at].endswith("\r") else ""
        self._replace(slice(at, at + 1), [new + end])

    def add(self, line: str, heading: str) -> None:
        """Put `line` into the section of that heading, which is made where it is missing."""
        end = len(self._keys) if heading else 0
        if is_heading(line):
            at = self._keys.index(heading) if self._counts[heading] else end
            self._insert(self._close(self._section(at)), line)
            return
        if heading and not self._counts[heading]:
            self._insert(self._close(self._section(end)), heading)
        self._insert(self._place(kind_of(line), self._find(heading)), line)

    def _place(self, kind: str, section: range) -> int:
        """Where a line of this kind goes in a section."""
        end = self._close(section)
        visible = [at for at in range(section.start, end) if self._keys[at]]
        same = [at for at in visible if kind_of(self._lines[at]) == kind]
        return (same or visible or [section.start - 1])[-1] + 1

    def _insert(self, at: int, line: str) -> None:
        """Put a line there, with a blank one wherever it meets one of another kind."""
        lines = [line]
        if at and self._keys[at - 1] and _apart(self._lines[at - 1], line):
            lines.insert(0, "")
        if at < len(self._keys) and self._keys[at] and _apart(line, self._lines[at]):
            lines.append("")
        self._replace(slice(at, at), [each + self._end for each in lines])

    def _replace(self, place: slice, lines: list[str]) -> None:
        keys = [line.rstrip() for line in lines]
        self._counts.subtract(filter(None, self._keys[place]))
        self._counts.update(filter(None, keys))
        self._lines[place], self._keys[place], self.is_changed = lines, keys, True

    def _find(self, heading: str) -> range:
        if heading:
            return self._section(self._keys.index(heading))
        # Above the first heading a title would stand: no place for a fact in a file of sections.
        above = range(self._next_heading(0))
        if len(above) == len(self._keys) or any(self._keys[at] for at in above):
            return above
        return self._section(len(self._keys))

    def _section(self, at: int) -> range:
        before = range(min(at, len(self._keys) - 1), 0, -1)
        start = next((n for n in before if is_heading(self._keys[n])), 0)
        return range(start, self._next_heading(start + 1))

    def _next_heading(self, start: int) -> int:
        later = range(start, len(self._keys))
        return next((at for at in later if is_heading(self._keys[at])), len(self._keys))

    def _close(self, section: range) -> int:
        """Where a section ends: before a rule with no list item after it."""
        for at in reversed(section):
            kind = kind_of(self._lines[at]) if self._keys[at] else ""
            if kind == "item":
                break
            if kind == "rule" and any(self._keys[section.start : at]):
                return at
        return section.stop


def _became(removed: Sequence[str], added: Sequence[str]) -> dict[str, str]:
    """Which removed line became which added one; a heading becomes a heading only."""
    return {
        old: new
        for kind in (True, False)
        for old, new in rewordings(
            [line for line in removed if is_heading(line) is kind],
            [line for line in added if is_heading(line) is kind],
        ).items()
    }


def _plain(step: Operation) -> Operation:
    """Return the operation with its lines as they are compared, each on one line."""
    texts = (step.old, step.new, step.section)
    old, new, section = (unmarked(text.replace("\n", " ").rstrip()) for text in texts)
    return replace(step, old=old, new=new, section=section)


def _change(
    document: _Document, operations: Sequence[Operation], target: Mapping[str, int]
) -> list[Operation]:
    """Add, reword and remove until each line stands as often as `target` says.

    Returns the rewordings whose old line is not there to reword, of which nothing was made.
    """
    gone = []
    for step in operations:
        old, new, section = step.old, step.new, step.section
        missing = document.count(new) < target.get(new, 0)
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


def _three_way(base: Value, ours: Value, theirs: Value) -> Value:
    if ours == base:
        return theirs
    return ours if theirs in (base, ours) else max(ours, theirs)


def _conflicts(mine: Sequence[Operation], other: Sequence[Operation]) -> Iterator[str]:
    ours, theirs = ({step.old: step.new for step in side if step.old} for side in (mine, other))
    for old, new in ours.items():
        if (there := theirs.get(old, new)) != new:
            here, there = (repr(line) if line else "nothing" for line in (new, there))
            yield f"{old!r} was changed to {here} here and to {there} there"
