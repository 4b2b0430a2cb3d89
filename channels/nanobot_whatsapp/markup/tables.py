"""Tables as text in columns, for a font in which all characters are equally wide."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from nanobot_whatsapp.markup.inline import plain

if TYPE_CHECKING:
    from markdown_it.token import Token

_WIDEST = 32
"""Columns are not made wider than that for one long cell: a phone has about 40 characters."""
_GROWTH = 3
"""Blanks that make a table longer than so many times its words are left out."""
_BAR = re.compile(r"(?<!\\)\|")


def table_text(tokens: Sequence[Token], source: Sequence[str], labels: Mapping[str, str]) -> str:
    """The table that `tokens` (from `table_open` to `table_close`) are, in columns; as it stands in
    the lines of the source where a row has more cells than the head, since the parser drops those.
    """
    rows: list[list[str]] = []
    aligns: list[str] = []
    for token in tokens:
        if token.type == "tr_open":
            if rows and token.map and _cells(source[token.map[0]]) > len(rows[0]):
                first, last = tokens[0].map or (0, 0)
                return "\n".join(source[first:last])
            rows.append([])
        elif token.type == "th_open":
            aligns.append(str(token.attrs.get("style", "")).rpartition(":")[2])
        elif token.type == "inline":
            rows[-1].append(plain(token.children or (), labels).strip())
    return _columns(rows, aligns)


def _columns(rows: Sequence[Sequence[str]], aligns: Sequence[str]) -> str:
    bare = [" | ".join(row).rstrip() for row in rows]
    widths = [_width_of(column) for column in zip(*rows, strict=True)]
    if (sum(widths) + 3 * len(widths)) * len(rows) > _GROWTH * sum(map(len, bare)) + 400:
        return "\n".join(bare)
    lines = [
        " | ".join(_padded(*cell) for cell in zip(row, widths, aligns, strict=True)).rstrip()
        for row in rows
    ]
    return "\n".join((lines[0], "-+-".join("-" * width for width in widths), *lines[1:]))


def _width_of(column: Sequence[str]) -> int:
    return max((width for cell in column if (width := _width(cell)) <= _WIDEST), default=3)


def _padded(cell: str, width: int, align: str) -> str:
    room = max(0, width - _width(cell))
    before = {"center": room // 2, "right": room}.get(align, 0)
    return f"{' ' * before}{cell}{' ' * (room - before)}"


def _width(text: str) -> int:
    """How many columns `text` takes: East Asian wide characters two, combining ones none."""
    if text.isascii():
        return len(text)
    return sum(_columns_of(character) for character in text)


def _columns_of(character: str) -> int:
    if unicodedata.category(character) in {"Mn", "Me", "Cf"}:
        return 0
    return 2 if unicodedata.east_asian_width(character) in {"W", "F"} else 1


def _cells(line: str) -> int:
    """How many cells a line of a table has; marks of quotes may stand before it."""
    cells = _BAR.split(line.lstrip(" \t>").rstrip())
    return len(cells) - (not cells[0]) - (not cells[-1])
