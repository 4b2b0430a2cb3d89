"""What of memory a prompt holds, and what it is told of changes. Pure.

A text that fits its budget is shown as it is. One that has outgrown it gives its place to the facts
that matter most, in their order in the file, under their headings, with a line that says how many
more there are and how they are found. A fact is a line with what is indented under it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from msgspec import Struct

from nanobot.memory.guard import fact_lines, without_list_mark
from nanobot.memory.lines import is_heading, split
from nanobot.providers.port import estimate_tokens
from nanobot.text import shortened


def cut_at_line(text: str, budget: int, note: str, path: str = "") -> str:
    """`text`, or as many of its first lines as fit `budget` tokens and a note where the rest is.

    `note` may name the `{path}` and the first `{line}` that is left out.
    """
    if estimate_tokens(text) <= budget:
        return text
    kept: list[str] = []
    room = budget
    for line in text.splitlines():
        room -= estimate_tokens(line) + 1
        if room < 0:
            break
        kept.append(line)
    return "\n".join([*kept, note.format(path=path, line=len(kept) + 1)])


_LINE_END = 1.5
"""Tokens, with what an estimate of a line leaves out."""


class Selection(Struct, frozen=True):
    """The lines of a text that are shown, and how many facts are not."""

    text: str
    left_out: int = 0


class _Fact(Struct):
    """The numbers of its lines, and of the headings above it."""

    lines: list[int]
    headings: tuple[int, ...]


def select_facts(
    text: str, facts: Collection[str], budget: int, weight: Callable[[str], float]
) -> Selection:
    """The text where it fits `budget` tokens, else as many of its `facts` as do: those with the
    highest `weight`, of equals the last ones. `facts` are lines without blanks around them."""
    if estimate_tokens(text) <= budget:
        return Selection(text)
    lines = split(text)
    found = _facts_of(lines, facts)
    weighed = [(max(weight(lines[at]) for at in fact.lines), fact) for fact in found]
    kept, count, room = set[int](), 0, float(budget)
    for _, fact in sorted(weighed, key=lambda one: (-one[0], -one[1].lines[0])):
        new = [at for at in (*fact.headings, *fact.lines) if at not in kept]
        cost = sum(estimate_tokens(lines[at]) + _LINE_END for at in new)
        if cost <= room:
            kept.update(new)
            room, count = room - cost, count + 1
    return Selection(_with_blanks(lines[at] for at in sorted(kept)), len(found) - count)


def _with_blanks(lines: Iterable[str]) -> str:
    """The lines as a text, with blank ones around headings."""
    shown = list[str]()
    for line in lines:
        if shown and (is_heading(line) or is_heading(shown[-1])):
            shown.append("")
        shown.append(line)
    return "\n".join(shown)


def _facts_of(lines: Sequence[str], facts: Collection[str]) -> list[_Fact]:
    found, above = list[_Fact](), list[int]()
    for at, line in enumerate(lines):
        if is_heading(line):
            above = [one for one in above if _level(lines[one]) < _level(line)] + [at]
        elif line.strip() in facts:
            headings = tuple(above)
            if line[0].isspace() and found and found[-1].headings == headings:
                found[-1].lines.append(at)
            else:
                found.append(_Fact([at], headings))
    return found


def _level(heading: str) -> int:
    return len(heading) - len(heading.lstrip("#"))


_NOTICE_LINES, _NOTICE_CHARACTERS = 8, 160
_SINGLE = str.maketrans('"', "'")


def memory_notice(before: str, after: str) -> str:
    """`[memory changed: added "…"; removed "…"]`: what differs between two texts, in one line.

    Empty when no line was added or removed. Long changes are cut, with a pointer to the file.
    """
    old, new = ([without_list_mark(line) for line in fact_lines(text)] for text in (before, after))
    known, left = set(old), set(new)
    changes = [("added", line) for line in new if line not in known]
    changes += [("removed", line) for line in old if line not in left]
    if not changes:
        return ""
    shown = [
        f'{verb} "{shortened(line.translate(_SINGLE), _NOTICE_CHARACTERS)}"'
        for verb, line in changes[:_NOTICE_LINES]
    ]
    if more := len(changes) - len(shown):
        shown.append(f"and {more} more, see memory/MEMORY.md")
    return f"[memory changed: {'; '.join(shown)}]"
