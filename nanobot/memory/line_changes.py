"""Changes to long-term files by lines: comparison, application to a newer text, and merge. Pure.

A change is a tuple of operations, one per line, so that it can be stored and explained. Invariants:

- `apply_operations(base, operations_between(base, new))` has the lines of `new`, each as often as
  there, if not always in the same order or section;
- operations that were applied already change nothing;
- a merge never loses a line that one side added, and its lines do not depend on the side;
- unchanged text stays byte for byte: line endings, blank lines, placeholders in parentheses;
- an operation does not change the importance of a line (`importance`), but adding or rewording a
  line may bring one. It names lines with or without their marks."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from itertools import filterfalse
from operator import attrgetter
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from nanobot.memory.importance import (
    importance_mark,
    marks_of,
    strip_mark,
    with_marks,
    without_importance,
)
from nanobot.memory.similarity import rewordings

Value = TypeVar("Value", int, str)

_HEADING = re.compile(r"#{1,6}\s+\S")
_KINDS = {
    "heading": _HEADING,
    "rule": re.compile(r"\s{0,3}([-*_])(\s*\1){2,}\s*$"),
    "item": re.compile(r"([-*+]|\d{1,9}[.)])\s+\S|\s"),  # or an indented line, which belongs to one
    "table": re.compile(r"\|"),
    "placeholder": re.compile(r"\(.*\)\s*$"),
}


def split(text: str) -> list[str]:
    """Split a text at newlines, without the line ends. Other line breaks of Python (U+2028, a form
    feed) are part of a line, in all code that splits lines."""
    lines = text.split("\n")
    if "\r" in text:
        lines = [line.removesuffix("\r") for line in lines]
    return lines if lines[-1] else lines[:-1]


def is_heading(line: str) -> bool:
    return _HEADING.match(line) is not None


def find_heading(wanted: str, text: str) -> str:
    """Return the heading of `text` with these words, ignoring #s and case, or ""."""

    def name_of(line: str) -> str:
        return " ".join(line.split()).strip("# ").casefold()

    name = name_of(wanted)
    headings = (line.rstrip() for line in split(text) if name and is_heading(line))
    return next((line for line in headings if name_of(line) == name), "")


def lines_of(text: str) -> Iterator[tuple[str, str]]:
    """Yield the non-blank lines, each with the nearest heading above it."""
    section = ""
    for raw in text.split("\n"):
        if line := raw.rstrip():
            yield line, section
            if is_heading(line):
                section = line


_ENTRY = re.compile(r"- (?:\d\d:\d\d |\[\d{4}-\d\d-\d\d\] \(from )")


def blocks_of(text: str) -> list[str]:
    """Split a text, with its line ends, into entries and single lines. An entry is a day's note or
    a pending fact with all lines indented under it. A person's own indented lines are separate
    facts."""
    blocks, in_entry = list[str](), False
    for line in re.findall(r"[^\n]*\n|[^\n]+", text):
        if in_entry and (not line.strip() or line[0].isspace()):
            blocks[-1] += line
        else:
            blocks.append(line)
            in_entry = _ENTRY.match(line) is not None
    return blocks


def number_blocks(text: str, *, headings: bool = False) -> Iterator[tuple[int, str]]:
    """Yield the non-blank blocks, with or without `headings`, and the number of their first
    lines."""
    number = 1
    for block in blocks_of(text):
        if block.strip() and (headings or not is_heading(block)):
            yield number, block.rstrip()
        number += block.count("\n")


class Operation(Struct, frozen=True, omit_defaults=True):
    """Adds (`old` empty), removes (`new` empty) or rewords one line. If both are equal, it changes
    nothing.

    `section` is the nearest heading above the line, with its #s, or empty. The source is `cursor`,
    a history entry (or 0), or `note`, the day (YYYY-MM-DD) of notes or the month (YYYY-MM) of a
    digest."""

    old: str = ""
    new: str = ""
    section: str = ""
    cursor: int = 0
    note: str = ""

    @property
    def only_rates(self) -> bool:
        """True if it changes at most a line's importance."""
        return bool(self.old) and strip_mark(self.old) == strip_mark(self.new)

    @property
    def states(self) -> bool:
        """True if it adds a line that states more than an importance."""
        return bool(self.new) and not self.only_rates

    @property
    def rewords(self) -> bool:
        """True if it replaces a line with another."""
        return bool(self.old and self.new)


class ApplyResult(Struct, frozen=True):
    """The text after some operations. The operations in `left` no longer fit."""

    text: str
    left: tuple[Operation, ...] = ()


class MergeResult(Struct, frozen=True):
    """A text with both sides' changes, and their `conflicts` for people.

    For a conflict, the text keeps both sides' lines."""

    text: str
    conflicts: tuple[str, ...] = ()


def operations_between(base: str, new: str) -> tuple[Operation, ...]:
    """Return the operations that turn `base` into `new`. A removed and an added line that are alike
    are a rewording.

    If a line occurs several times, and not as often as before, all its places are included."""
    if base == new:
        return ()
    before, after = map(_counts_of, (base, new))
    became = pair_rewordings([*_without(before, after)], [*_without(after, before)])
    was = {new: old for old, new in became.items()}
    steps = [
        Operation(was.pop(line, ""), line, section)
        for line, section in lines_of(new)
        if line in was or before[line] != after[line]
    ]
    places = dict(reversed([*lines_of(base)]))  # the first of several
    gone = sorted(_without(before - after, became), key=is_heading)
    return (*steps, *(Operation(old=line, section=places[line]) for line in gone))


def _counts_of(text: str) -> Counter[str]:
    return Counter(line for line, _ in lines_of(text))


def _without(lines: Iterable[str], others: Container[str]) -> Iterator[str]:
    return (line for line in lines if line not in others)


def apply_operations(text: str, operations: Sequence[Operation]) -> ApplyResult:
    """Apply the operations that still fit.

    An existing line is not added again, unless the operations add it several times. A missing
    section is created. A rewording of a missing line is left over."""
    asked = [(normalize_operation(step), step) for step in operations]
    document = _Document(without_importance(text))
    left = make_changes(document, [step for step, _ in asked if step.old != step.new])
    marks = marks_of(text)
    brought = collect_new_marks(marks, ((step, given) for step, given in asked if step not in left))
    if brought or document.is_changed:
        text = with_marks(document.text, marks | brought)
    return ApplyResult(text, tuple(given for step, given in asked if step in left))


def make_changes(document: _Document, steps: Sequence[Operation]) -> list[Operation]:
    target = Counter(step.new for step in steps if step.new)  # wanted count of each line
    for section in {step.section for step in steps if step.new} - {""}:
        target[section] = max(target[section], 1)  # a section with lines stays
    rewords = attrgetter("rewords")
    left = _change(document, [*filter(rewords, steps)], target)
    for step in left:
        target[step.new] = max(target[step.new] - 1, 1)
    _change(document, [*filterfalse(rewords, steps)], target)
    return left


def _three_way(base: Value, ours: Value, theirs: Value) -> Value:
    if ours == base:
        return theirs
    return ours if theirs in (base, ours) else max(ours, theirs)


def merge(
    base: str,
    ours: str,
    theirs: str,
    known: Sequence[Operation] = (),
    choose: Callable[[str, str, str], str] = _three_way,
) -> MergeResult:
    """Merge both sides' changes to `base`, in the layout of `ours`.

    A line that both added occurs once. A line that one side reworded and the other removed, or
    reworded otherwise, is a conflict: both versions stay. A line whose section was removed on the
    other side goes to the end. `choose` selects a line's mark from the base and both sides, by
    default the higher of two new ones. `known` are rewordings that similarity may not find."""
    if theirs in (base, ours):
        return MergeResult(ours)
    if ours == base:
        return MergeResult(theirs)
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
    steps = (*known, *mine, *other)
    text = with_marks(document.text, merge_marks(marks, counts[0], steps, choose))
    return MergeResult(text, tuple(find_conflicts(mine, other)))


def undo(after: str, now: str, before: str, made: Iterable[Operation]) -> MergeResult:
    """Merge the reverse of a change from `before` to `after` into the text `now`. An importance
    that was set since stays. `made` are the change's operations."""
    known = [Operation(strip_mark(one.new), strip_mark(one.old)) for one in made]

    def keep_newest(after: str, now: str, before: str) -> str:
        return before if now == after else now

    return merge(after, now, before, known, keep_newest)


def collect_new_marks(
    marks: Mapping[str, str], made: Iterable[tuple[Operation, Operation]]
) -> dict[str, str]:
    """Return new marks of lines without one: the mark of the line that they reword, or the given
    one. `made` has each operation without marks and as given."""
    mark_of = {step.new: marks.get(step.old) or importance_mark(given.new) for step, given in made}
    return {line: mark for line, mark in mark_of.items() if line and mark and line not in marks}


def merge_marks(
    sides: Sequence[Mapping[str, str]],
    present: Counter[str],
    operations: Sequence[Operation],
    choose: Callable[[str, str, str], str],
) -> dict[str, str]:
    """Return the marks after a merge. `sides` are the marks of the base and of both sides, of which
    `choose` selects one. A reworded line keeps its mark, unless the base already had the new line
    (`present` counts its lines)."""
    was: dict[str, set[str]] = {}
    for step in operations:
        if step.rewords and not present[step.new]:
            was.setdefault(step.new, set()).add(step.old)

    def mark_of(line: str, old: str) -> str:
        base, ours, theirs = (side.get(line) or side.get(old, "") for side in sides)
        return choose(base, ours, theirs)

    lines = {*was, *(line for side in sides for line in side)}
    return {line: max(mark_of(line, old) for old in was.get(line, {line})) for line in lines}


def kind_of(line: str) -> str:
    """Return heading, rule, item (a list item or an indented line), table, placeholder or text."""
    return next((kind for kind, pattern in _KINDS.items() if pattern.match(line)), "text")


def _need_gap(upper: str, lower: str) -> bool:
    return kind_of(upper) != kind_of(lower) or is_heading(upper)


class _Document:
    """A text during changes. Lines are identified by their keys.

    Blank lines and trailing white space are layout. A new line is placed after the last of its kind
    in its section (a list item after the last list item), and before a rule that closes the
    section. Blank lines separate kinds, and removing a line leaves no two of them. Code fences do
    not count."""

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
        """Remove the last `line`, which must exist."""
        at = len(self._keys) - 1 - self._keys[::-1].index(line)
        self._replace(slice(at, at + 1), [])
        while at < len(self._keys) and not self._keys[at] and not (at and self._keys[at - 1]):
            self._replace(slice(at, at + 1), [])
        while at == len(self._keys) > 0 and not self._keys[-1]:
            at -= 1
            self._replace(slice(at, at + 1), [])

    def reword(self, old: str, new: str) -> None:
        """Replace the first `old`, which must exist."""
        at = self._keys.index(old)
        end = "\r" if self._lines[at].endswith("\r") else ""
        self._replace(slice(at, at + 1), [new + end])

    def add(self, line: str, heading: str) -> None:
        """Add `line` to the section of that heading, which is created if it is missing."""
        end = len(self._keys) if heading else 0
        if is_heading(line):
            at = self._keys.index(heading) if self._counts[heading] else end
            self._insert(self._find_end(self._section_at(at)), line)
            return
        if heading and not self._counts[heading]:
            self._insert(self._find_end(self._section_at(end)), heading)
        self._insert(self._find_place(kind_of(line), self._find_section(heading)), line)

    def _find_place(self, kind: str, section: range) -> int:
        """Return the place for a line of this kind in a section."""
        end = self._find_end(section)
        visible = [at for at in range(section.start, end) if self._keys[at]]
        same = [at for at in visible if kind_of(self._lines[at]) == kind]
        return (same or visible or [section.start - 1])[-1] + 1

    def _insert(self, at: int, line: str) -> None:
        """Insert a line, with blank lines between it and lines of another kind."""
        lines = [line]
        if at and self._keys[at - 1] and _need_gap(self._lines[at - 1], line):
            lines.insert(0, "")
        if at < len(self._keys) and self._keys[at] and _need_gap(line, self._lines[at]):
            lines.append("")
        self._replace(slice(at, at), [each + self._end for each in lines])

    def _replace(self, place: slice, lines: list[str]) -> None:
        keys = [line.rstrip() for line in lines]
        self._counts.subtract(filter(None, self._keys[place]))
        self._counts.update(filter(None, keys))
        self._lines[place], self._keys[place], self.is_changed = lines, keys, True

    def _find_section(self, heading: str) -> range:
        if heading:
            return self._section_at(self._keys.index(heading))
        # Above the first heading only a title belongs, so facts go to the last section.
        above = range(self._next_heading(0))
        if len(above) == len(self._keys) or any(self._keys[at] for at in above):
            return above
        return self._section_at(len(self._keys))

    def _section_at(self, at: int) -> range:
        before = range(min(at, len(self._keys) - 1), 0, -1)
        start = next((n for n in before if is_heading(self._keys[n])), 0)
        return range(start, self._next_heading(start + 1))

    def _next_heading(self, start: int) -> int:
        later = range(start, len(self._keys))
        return next((at for at in later if is_heading(self._keys[at])), len(self._keys))

    def _find_end(self, section: range) -> int:
        """Return the end of a section, before a rule with no list item after it."""
        for at in reversed(section):
            kind = kind_of(self._lines[at]) if self._keys[at] else ""
            if kind == "item":
                break
            if kind == "rule" and any(self._keys[section.start : at]):
                return at
        return section.stop


def pair_rewordings(removed: Sequence[str], added: Sequence[str]) -> dict[str, str]:
    """Map removed lines to their rewordings. A heading becomes a heading only."""
    return {
        old: new
        for kind in (True, False)
        for old, new in rewordings(
            [line for line in removed if is_heading(line) is kind],
            [line for line in added if is_heading(line) is kind],
        ).items()
    }


def normalize_operation(step: Operation) -> Operation:
    """Return the operation with its lines in the form for comparison, each on one line."""
    texts = (step.old, step.new, step.section)
    old, new, section = (strip_mark(text.replace("\n", " ").rstrip()) for text in texts)
    return replace(step, old=old, new=new, section=section)


def _change(
    document: _Document, operations: Sequence[Operation], target: Mapping[str, int]
) -> list[Operation]:
    """Add, reword and remove lines until each occurs as often as in `target`.

    Return the rewordings whose old line is missing. These change nothing."""
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


def find_conflicts(mine: Sequence[Operation], other: Sequence[Operation]) -> Iterator[str]:
    ours, theirs = ({step.old: step.new for step in side if step.old} for side in (mine, other))
    for old, new in ours.items():
        if (there := theirs.get(old, new)) != new:
            here, there = (f"changed to {line!r}" if line else "removed" for line in (new, there))
            yield f"{old!r} was {here} on this device and {there} on another"
