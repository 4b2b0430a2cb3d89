"""The words of a rich message: a tree of blocks that the library hands on as it came.

What is not text becomes a line in brackets. Parts of an unknown shape are passed over; nothing is
raised, however the tree grew.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from nanobot.channel.text import valid_unicode

_DEPTH = 32
"""Levels that are read; what is nested deeper than any person would is left out."""
_SHOWN = ("animation", "audio", "photo", "video", "voice_note", "location")


def rich_text(message: object) -> str:
    """The text of a `RichMessage` as the Bot API sends it; empty where there is none."""
    return valid_unicode("\n".join(_blocks(_field(message, "blocks"), _DEPTH)))


def _blocks(blocks: object, depth: int) -> Iterator[str]:
    if isinstance(blocks, list) and depth:
        for block in blocks:
            yield from _block(block, depth - 1)


def _block(block: object, depth: int) -> Iterator[str]:
    """The lines of a block, whatever its type: the kinds differ in which fields they have."""
    if not isinstance(block, Mapping) or block.get("type") == "thinking":
        return
    yield from (f"[{kind.replace('_', ' ')}]" for kind in _SHOWN if kind in block)
    own = (_inline(block.get(name), depth) for name in ("summary", "text", "expression"))
    yield from filter(None, own)
    yield from _blocks(block.get("blocks"), depth)
    yield from _items(block.get("items"), depth)
    yield from _rows(block.get("cells"), depth)
    caption = block.get("caption")
    spoken = (caption, _field(caption, "credit"), block.get("credit"))
    yield from filter(None, (_inline(value, depth) for value in spoken))


def _items(items: object, depth: int) -> Iterator[str]:
    for item in items if isinstance(items, list) else ():
        label = _inline(_field(item, "label"), depth)
        lines = "\n  ".join(_blocks(_field(item, "blocks"), depth))
        yield f"{label} {lines}".strip()


def _rows(rows: object, depth: int) -> Iterator[str]:
    for row in rows if isinstance(rows, list) else ():
        cells = row if isinstance(row, list) else ()
        yield " | ".join(_inline(_field(cell, "text"), depth) for cell in cells)


def _inline(value: object, depth: int) -> str:
    """A `RichText`: a string, a list of them, or one that is dressed up."""
    if isinstance(value, str) or not depth:
        return value if isinstance(value, str) else ""
    if isinstance(value, list):
        return "".join(_inline(part, depth - 1) for part in value)
    if not isinstance(value, Mapping):
        return ""
    text = _inline(value.get("text"), depth - 1)
    url = value.get("url")
    if isinstance(url, str) and url.rstrip("/") != text.rstrip("/"):
        return f"{text} ({url})"
    return text or _inline(value.get("alternative_text") or value.get("expression"), depth - 1)


def _field(value: object, name: str) -> object:
    return value.get(name) if isinstance(value, Mapping) else None
