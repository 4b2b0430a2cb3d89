"""Markdown as a rich message: a tree of blocks with real headings and tables.

It uses the same lines (`nanobot.channel.markdown`) as a message with entities, so that both forms
have the same text. Only a text with headings or tables becomes a rich message. Invariant: a text
that exceeds Telegram's limits has no rich form."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import groupby

from loguru import logger
from msgspec.structs import replace

from nanobot.channel.markdown import ItemList, Line, Span, clean_source, lay_out, table_rows
from nanobot_telegram.markdown import DIALECT, STYLES

Block = dict[str, object]
"""An `InputRichBlock`."""
RichText = str | list["str | Block"]

_LENGTH, _BLOCKS, _DEPTH, _COLUMNS = 32_768, 500, 16, 20
"""Telegram's limits: characters, blocks with items and rows, levels, table columns."""
MAY_BE_RICH = re.compile(r"[#|]|(?:^|[\r\n])[ >]*(?:=+|-+)[ \t]*(?:$|[\r\n])")
"""Every text with a heading or table matches. Most answers don't, and are not parsed twice."""
_NUMBER = re.compile(r"(\d+)[.)] ")
_CHECK_BOXES = {"☐ ": False, "☑ ": True}
_ALIGNED = frozenset({"left", "center", "right"})


def rich_blocks(markdown: str) -> list[Block]:
    """Return the blocks of a text with headings or tables. Empty for any other text, and for a text
    that is too large or invalid. Pure. Never raises. The work is bounded."""
    try:
        lines = lay_out(clean_source(markdown), DIALECT)
        if not any(line.table or (line.heading and not line.prefix) for line in lines):
            return []
        blocks = build_blocks(lines)
        return blocks if is_small(lines, blocks) else []
    except Exception as error:  # noqa: BLE001 - no text may prevent the answer
        logger.warning(
            "Markdown could not be converted to a rich message: {}", type(error).__name__
        )
        return []


def is_small(lines: Sequence[Line], blocks: Sequence[Block]) -> bool:
    """Return True if Telegram accepts this size."""
    rows = [row for line in lines if line.table for row in table_rows(line.table)]
    length = sum(len(span.text) + len(line.prefix) + 1 for line in lines for span in line.spans)
    if length > _LENGTH or any(len(row) > _COLUMNS for row in rows):
        return False
    return count_blocks(blocks) + len(rows) <= _BLOCKS and measure_depth(blocks) <= _DEPTH


def build_blocks(lines: Sequence[Line]) -> list[Block]:
    """Return the blocks of these lines, with lists as one block."""
    blocks: list[Block] = []
    start = at = 0
    while at < len(lines):
        found = lines[at].begins
        if found is None or lines[at].is_quoted or lines[at].prefix != found.items[0][0]:
            at += 1
            continue
        blocks += [*build_plain_blocks(lines[start:at]), build_list(found)]
        start = at = at + found.lines
    return [*blocks, *build_plain_blocks(lines[start:])]


def build_list(found: ItemList) -> Block:
    items = []
    for marker, lines in found.items:
        item: Block = {"blocks": build_blocks(lines) or [{"type": "paragraph", "text": ""}]}
        if number := _NUMBER.fullmatch(marker):
            item |= {"value": int(number[1]), "type": "1"}
        elif marker in _CHECK_BOXES:
            item |= {"has_checkbox": True}
            item |= {"is_checked": True} if _CHECK_BOXES[marker] else {}
        items.append(item)
    return {"type": "list", "items": items}


def build_plain_blocks(lines: Sequence[Line]) -> list[Block]:
    blocks: list[Block] = []
    for kind, group in groupby(lines, kind_of):
        members = list(group)
        match kind:
            case "quote":
                inner = [unquote(line) for line in members]
                blocks.append({"type": "blockquote", "blocks": build_blocks(inner)})
            case "text":
                blocks.append({"type": "paragraph", "text": build_text(members)})
            case "single":
                blocks += map(build_single, members)
    return blocks


def kind_of(line: Line) -> str:
    """Return the kind of block that a line belongs to. Blank lines only separate."""
    if line.is_quoted:
        return "quote"
    if line.is_code or (line.heading and not line.prefix):
        return "single"
    return "text" if line.spans or line.prefix.strip() else "blank"


def unquote(line: Line) -> Line:
    return replace(line, is_quoted=False, lead="", prefix=line.lead + line.prefix)


def build_single(line: Line) -> Block:
    """Return the block of one line: a heading, a table, or code."""
    if line.heading:
        spans = [replace(s, styles=tuple(x for x in s.styles if x != "strong")) for s in line.spans]
        return {
            "type": "heading",
            "text": build_text([replace(line, spans=spans)]),
            "size": line.heading,
        }
    if line.table:
        return {"type": "table", "cells": build_cells(line), "is_bordered": True}
    language = {"language": line.language} if line.language else {}
    return {"type": "pre", "text": line.spans[0].text, **language}


def build_cells(line: Line) -> list[list[Block]]:
    rows = []
    for row in table_rows(line.table, DIALECT):
        cells: list[Block] = []
        for cell in row:
            text = build_text([Line(spans) for spans in cell.lines])
            align = cell.align if cell.align in _ALIGNED else "left"
            header: Block = {"is_header": True} if cell.is_header else {}
            cells.append({"text": text, "align": align, "valign": "top", **header})
        rows.append(cells)
    return rows


def build_text(lines: Iterable[Line]) -> RichText:
    """Return the text of these lines, as a list only if a part has attributes."""
    pieces: list[str | Block] = []
    for number, line in enumerate(lines):
        before = "\n" * (number > 0) + (line.prefix if line.spans else line.prefix.rstrip())
        for piece in (before, *map(build_piece, line.spans)):
            if isinstance(piece, str) and pieces and isinstance(last := pieces[-1], str):
                pieces[-1] = last + piece
            elif piece:
                pieces.append(piece)
    if all(isinstance(piece, str) for piece in pieces):
        return "".join(piece for piece in pieces if isinstance(piece, str))
    return pieces


def build_piece(span: Span) -> str | Block:
    """Return a span's text. As with entities, code has no styles."""
    if span.code and not span.url:
        return {"type": "code", "text": span.text}
    piece: str | Block = span.text
    for style in reversed(span.styles):
        piece = {"type": STYLES[style], "text": piece}
    return {"type": "url", "text": piece, "url": span.url} if span.url else piece


def count_blocks(blocks: Iterable[Block]) -> int:
    """Count the blocks, with nested ones and items."""
    total = 0
    for block in blocks:
        inner = (block.get(name) for name in ("blocks", "items"))
        total += 1 + sum(count_blocks(one) for one in inner if isinstance(one, list))
    return total


def measure_depth(value: object) -> int:
    """Return the number of nested levels of objects."""
    if isinstance(value, list):
        return max(map(measure_depth, value), default=0)
    return 1 + measure_depth([*value.values()]) if isinstance(value, dict) else 0
