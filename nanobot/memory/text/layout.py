"""A Markdown file as sections of lines that can change and stays tidy. Pure.

What is not changed stays byte for byte: line endings, blank lines, placeholders in parentheses. A
new line stands after the last of its kind in its section (a list item after the last list item),
and before a rule that closes the section; blank lines separate what is of different kinds, as the
rest of the file has it. A removed line leaves no double blank line behind.

Lines are compared without the white space at their end (`key`). Whether a line is a heading depends
on the line alone: code fences are not read. `blocks_of` gives lines that stand and go together: a
day's note or a fact that waits, and what is indented under it.
"""

from __future__ import annotations

import codecs
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

_HEADING = re.compile(r"#{1,6}\s+\S")
_KINDS = {
    "heading": _HEADING,
    "rule": re.compile(r"\s{0,3}([-*_])(\s*\1){2,}\s*$"),
    "item": re.compile(r"([-*+]|\d{1,9}[.)])\s+\S|\s"),  # or what belongs to one: it is indented
    "table": re.compile(r"\|"),
    "placeholder": re.compile(r"\(.*\)\s*$"),
}


def text_of(content: bytes | None) -> str:
    """What a file says; empty where there is none. A byte order mark is no part of it, and a line
    that is no UTF-8 is taken for Latin-1: an editor may save so."""
    try:
        return (content or b"").decode("utf-8-sig")
    except UnicodeDecodeError:
        assert content
        lines = content.removeprefix(codecs.BOM_UTF8).split(b"\n")
        return "\n".join(map(_line_of, lines))


def _line_of(line: bytes) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError:
        return line.decode("latin-1")


def split(text: str) -> list[str]:
    """The lines of a text, without their ends. Only a newline ends one: what else Python takes for
    a line break (U+2028, a form feed) stands within a line, for everybody who cuts lines."""
    *whole, last = (line.removesuffix("\r") for line in text.split("\n"))
    return [*whole, last] if last else whole


def key(line: str) -> str:
    """What makes a line the same line; one line even where `line` holds several."""
    return line.replace("\n", " ").rstrip()


def is_heading(line: str) -> bool:
    """Whether a line begins a section."""
    return _HEADING.match(line) is not None


def is_fixed(line: str) -> bool:
    """Whether a line belongs to the layout, so that it has no section to move to."""
    return is_heading(line) or _KINDS["rule"].match(line) is not None


def lines_of(text: str) -> Iterator[tuple[str, str]]:
    """The non-blank lines, each with the nearest heading above it."""
    section = ""
    for raw in text.split("\n"):
        if line := raw.rstrip():
            yield line, section
            if is_heading(line):
                section = line


@dataclass(slots=True, eq=False)
class _Line:
    text: str
    end: str
    section: _Section = field(repr=False)
    gone: bool = False
    added: bool = False

    @property
    def blank(self) -> bool:
        return not self.text.strip()

    @property
    def kind(self) -> str:
        matching = (kind for kind, pattern in _KINDS.items() if pattern.match(self.text))
        return next(matching, "text")


@dataclass(slots=True, eq=False)
class _Section:
    """A heading and what stands under it; the first section of a document has no heading."""

    lines: list[_Line] = field(default_factory=list)

    def last_visible(self, before: int) -> int:
        """The index of the last line before that index which is to be seen, -1 for none."""
        visible = (
            index
            for index in range(before - 1, -1, -1)
            if not (self.lines[index].gone or self.lines[index].blank)
        )
        return next(visible, -1)

    def end(self) -> int:
        """The index at which the section ends: before a rule with no list item after it."""
        for index in range(len(self.lines) - 1, -1, -1):
            line = self.lines[index]
            if line.gone or line.blank:
                continue
            if line.kind == "item":
                break
            if line.kind == "rule" and self.last_visible(index) >= 0:
                return index
        return len(self.lines)


class Document:
    """A text that is being changed; `text` is what it has become."""

    def __init__(self, text: str) -> None:
        self._original = text
        self._end = "\r\n" if text.count("\r\n") * 2 > text.count("\n") else "\n"
        self._sections = [_Section()]
        self._standing: dict[str, list[_Line]] = defaultdict(list)
        self._changed = False
        *whole, last = text.split("\n")
        for line in whole:
            stripped = line.removesuffix("\r")
            self._read(stripped, line[len(stripped) :] + "\n")
        if last:
            self._read(last, "")

    @property
    def text(self) -> str:
        """The file as it now is."""
        if not self._changed:
            return self._original
        return "".join(line.text + (line.end or self._end) for line in self._spaced(self._tidy()))

    def count(self, line: str) -> int:
        """How often `line` stands here."""
        return len(self._standing.get(line, ()))

    def standing(self) -> list[str]:
        """The lines that stand here, each once."""
        return [line for line, places in self._standing.items() if places]

    def is_under(self, line: str, heading: str) -> bool:
        """Whether `line` stands in the section of that heading."""
        wanted = self._find(heading)
        return any(place.section is wanted for place in self._standing.get(line, ()))

    def remove(self, line: str) -> None:
        """Take out the last `line`, which must stand here."""
        self._standing[line].pop().gone = True
        self._changed = True

    def reword(self, old: str, new: str) -> None:
        """Put `new` in the place of the first `old`, which must stand here."""
        line = self._standing[old].pop(0)
        line.text = new
        self._standing[new].append(line)
        self._changed = True

    def add(self, line: str, heading: str) -> None:
        """Put `line` into the section of that heading, which is made where it is missing."""
        self._changed = True
        if is_heading(line):
            self._add_section(line, heading)
            return
        section = self._find(heading)
        if section is None:
            section = self._add_section(heading, self._last_heading())
        end = section.end()
        same = _Line(line, self._end, section).kind
        index = section.last_visible(end)
        for candidate in range(end - 1, -1, -1):
            standing = section.lines[candidate]
            if not (standing.gone or standing.blank) and standing.kind == same:
                index = candidate
                break
        after = index + 1
        different = index >= 0 and section.lines[index].kind != same
        if different and after < end and section.lines[after].blank:
            after += 1
        self._place(section, after, line)

    def _read(self, text: str, end: str) -> None:
        if is_heading(text):
            self._sections.append(_Section())
        line = _Line(text, end, self._sections[-1])
        line.section.lines.append(line)
        if not line.blank:
            self._standing[key(text)].append(line)

    def _place(self, section: _Section, index: int, text: str) -> None:
        line = _Line(text, self._end, section, added=True)
        section.lines.insert(index, line)
        self._standing[text].append(line)

    def _find(self, heading: str) -> _Section | None:
        if heading:
            places = self._standing.get(heading)
            return places[0].section if places else None
        # Above the first heading a title would stand: no place for a fact in a file of sections.
        first = self._sections[0]
        alone = len(self._sections) == 1 or first.last_visible(len(first.lines)) >= 0
        return first if alone else self._sections[-1]

    def _last_heading(self) -> str:
        return next(
            (
                key(section.lines[0].text)
                for section in reversed(self._sections)
                if section.lines and is_heading(section.lines[0].text) and not section.lines[0].gone
            ),
            "",
        )

    def _add_section(self, heading: str, above: str) -> _Section:
        places = self._standing.get(above) or self._standing.get(self._last_heading())
        previous = places[0].section if above and places else self._sections[0]
        index = self._sections.index(previous) + 1
        section = _Section()
        if index == len(self._sections):  # what closes the file still does
            cut = previous.end()
            section.lines = previous.lines[cut:]
            del previous.lines[cut:]
            for line in section.lines:
                line.section = section
        self._sections.insert(index, section)
        self._place(section, 0, heading)
        return section

    def _tidy(self) -> list[_Line]:
        """The lines that are left, without the double blank lines that gone ones would leave."""
        lines: list[_Line] = []
        gap = False
        for section in self._sections:
            for line in section.lines:
                if line.gone:
                    gap = True
                elif not (gap and line.blank and (not lines or lines[-1].blank)):
                    lines.append(line)
                    gap = gap and line.blank
        while gap and lines and lines[-1].blank:
            lines.pop()
        return lines

    def _spaced(self, lines: list[_Line]) -> Iterator[_Line]:
        """The lines with a blank one wherever an added line meets one of another kind."""
        below, above = self._style()
        yield from lines[:1]
        for before, line in pairwise(lines):
            if (before.added or line.added) and not (before.blank or line.blank):
                kinds = before.kind, line.kind
                tight = (kinds[0] == "heading" and not below) or (
                    kinds[1] == "heading" and not above
                )
                if (kinds[0] != kinds[1] or "heading" in kinds) and not tight:
                    yield _Line("", self._end, line.section)
            yield line

    def _style(self) -> tuple[bool, bool]:
        """Whether headings of this file have a blank line below, and above."""
        below = above = True
        for before, line in pairwise(self._original.split("\n")):
            if before.strip() and line.strip():
                below = below and (not is_heading(before) or is_heading(line))
                above = above and (not is_heading(line) or is_heading(before))
        return below, above


_ENTRY = re.compile(r"- (?:\d\d:\d\d |\[\d{4}-\d\d-\d\d\] \(from )")


def blocks_of(text: str) -> Iterator[str]:
    """The text in pieces, with their line ends: such an entry with all that belongs to it, or else
    a single line. Only what was written as an entry is one; indented lines of a person's own are
    facts by themselves."""
    entry = list[str]()
    for line in _lines(text):
        belongs = not line.strip() or line[0].isspace()
        if entry and belongs:
            entry.append(line)
            continue
        if entry:
            yield "".join(entry)
            entry = []
        if _ENTRY.match(line):
            entry = [line]
        else:
            yield line
    if entry:
        yield "".join(entry)


def _lines(text: str) -> Iterator[str]:
    *whole, last = text.split("\n")
    yield from (f"{line}\n" for line in whole)
    if last:
        yield last
