"""Tables as text in columns, for a font in which all characters are equally wide."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from nanobot_telegram.markdown.entities import Page
from nanobot_telegram.markdown.inline import InlineWriter

if TYPE_CHECKING:
    from markdown_it.token import Token

_WIDEST = 40
"""A wider cell is not padded to, so that one long one does not widen every row."""
_GROWTH = 3
"""Padding that makes a table longer than this many times is left out."""
_BAR = re.compile(r"(?<!\\)\|")

Align = Literal["left", "center", "right"]


@dataclass(slots=True)
class Table:
    """Rows of plain text; the first is the head."""

    rows: list[list[str]] = field(default_factory=list)
    aligns: list[Align] = field(default_factory=list)

    def text(self) -> str:
        """The rows under each other, in columns."""
        plain = "\n".join(" | ".join(row).rstrip() for row in self.rows)
        widths = self._widths()
        if (sum(widths) + 3 * len(widths)) * len(self.rows) > _GROWTH * len(plain) + 400:
            return plain
        lines = [self._line(row, widths) for row in self.rows]
        lines.insert(1, "-+-".join("-" * width for width in widths))
        return "\n".join(lines)

    def _widths(self) -> list[int]:
        columns = range(len(self.aligns))
        sizes = [[display_width(row[column]) for row in self.rows] for column in columns]
        return [max((size for size in column if size <= _WIDEST), default=3) for column in sizes]

    def _line(self, row: Sequence[str], widths: Sequence[int]) -> str:
        cells = zip(row, widths, self.aligns, strict=True)
        return " | ".join(_pad(cell, width, align) for cell, width, align in cells).rstrip()


def read_table(tokens: Sequence[Token], lines: Sequence[str]) -> Table | None:
    """The table that `tokens` (from `table_open` to `table_close`) describe; None where a row has
    more cells than the head, because the parser drops those. `lines` are those of the source."""
    table = Table()
    for token in tokens:
        if token.type == "tr_open":
            if table.rows and token.map and _cells(lines[token.map[0]]) > len(table.aligns):
                return None
            table.rows.append([])
        elif token.type == "th_open":
            table.aligns.append(_align(str(token.attrs.get("style", ""))))
        elif token.type == "inline":
            table.rows[-1].append(_plain(token))
    return table


def _plain(token: Token) -> str:
    page = Page()
    InlineWriter(page, marks=False).write(token.children or (), " ")
    return page.finish().text


def _cells(line: str) -> int:
    """How many cells a line of a table has; quote marks may stand before it."""
    row = line.lstrip(" \t>").rstrip()
    cells = _BAR.split(row)
    return len(cells) - (cells[0] == "") - (cells[-1] == "")


def _align(style: str) -> Align:
    if style.endswith("center"):
        return "center"
    return "right" if style.endswith("right") else "left"


def _pad(cell: str, width: int, align: Align) -> str:
    room = max(0, width - display_width(cell))
    before = {"left": 0, "center": room // 2, "right": room}[align]
    return " " * before + cell + " " * (room - before)


def display_width(text: str) -> int:
    """How many columns `text` takes: East Asian wide characters two, combining ones none."""
    if text.isascii():
        return len(text)
    return sum(_width(character) for character in text)


def _width(character: str) -> int:
    if unicodedata.combining(character) or unicodedata.category(character) in {"Mn", "Me", "Cf"}:
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
