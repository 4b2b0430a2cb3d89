"""The Bot API's rules for rich messages: their size and their visible text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tests.doubles.telegram.values import Json, objects

_LENGTH, _BLOCKS, _DEPTH, _COLUMNS = 32_768, 500, 16, 20
"""Characters, blocks with rows of tables, levels, and columns of a table."""


def rich_problem(message: Json) -> str:
    """Return the problem of an `InputRichMessage` with the right types, or ""."""
    if [name for name in ("blocks", "html", "markdown") if name in message] != ["blocks"]:
        return "this double reads blocks, and exactly one form must be used"
    blocks = objects(message["blocks"])
    if not blocks:
        return "rich message must be non-empty"
    rows = [*_rows(blocks)]
    if len(visible_text(blocks)) > _LENGTH or _count(blocks) + len(rows) > _BLOCKS:
        return "rich message is too long"
    if any(len(row) > _COLUMNS for row in rows):
        return "a table has too many columns"
    return "rich message is nested too deeply" if _depth(blocks) > _DEPTH else ""


def visible_text(blocks: Sequence[Json]) -> str:
    """Return the visible text, with a block or a row of a table per line."""
    return "\n".join(_lines(blocks))


def _lines(blocks: Iterable[Json]) -> Iterator[str]:
    for block in blocks:
        if "text" in block:
            yield _plain(block["text"])
        yield from _lines(objects(block.get("blocks")))
        for item in objects(block.get("items")):
            yield f"{_label(item)} {visible_text(objects(item.get('blocks')))}"
        for row in _rows([block], nested=False):
            yield " | ".join(_plain(cell.get("text", "")) for cell in row)


def _label(item: Json) -> str:
    if item.get("has_checkbox"):
        return "☑" if item.get("is_checked") else "☐"
    return f"{item['value']}." if "value" in item else "•"


def _inside(block: Json) -> tuple[Json, ...]:
    """Return the blocks or items in a block or item."""
    return (*objects(block.get("blocks")), *objects(block.get("items")))


def _rows(blocks: Iterable[Json], *, nested: bool = True) -> Iterator[tuple[Json, ...]]:
    for block in blocks:
        cells = block.get("cells")
        yield from map(objects, cells if isinstance(cells, list) else ())
        if nested:
            yield from _rows(_inside(block))


def _plain(text: object) -> str:
    if isinstance(text, list):
        return "".join(map(_plain, text))
    return _plain(text.get("text")) if isinstance(text, dict) else str(text or "")


def _count(blocks: Iterable[Json]) -> int:
    return sum(1 + _count(_inside(block)) for block in blocks)


def _depth(value: object) -> int:
    """Return the levels of blocks and of texts in them."""
    if isinstance(value, list | tuple):
        return max(map(_depth, value), default=0)
    if not isinstance(value, dict):
        return 0
    return 1 + max(
        (_depth(value.get(name)) for name in ("text", "blocks", "items", "cells")), default=0
    )
