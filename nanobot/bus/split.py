"""Cutting a long text into parts that a channel can send: pure, linear, loses no visible character.

Platforms count UTF-16 code units. A cut falls, in this order of preference, between paragraphs,
lines, words, or characters, and takes the blank lines around it away. A code fence that is open at
a cut is closed there and opened again in the next part.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from nanobot.bus.events import OutboundMessage

_FENCE = re.compile(r"^ {0,3}(?:(`{3,16})(?!`)([^`\n]*)|(~{3,16})(?!~)([^\n]*))$", re.MULTILINE)
_INFO = 24
_FENCE_ROOM = 16 + 2 * _INFO + 1 + 1 + 16
"""UTF-16 units that closing and reopening a fence may add to a part: the marks, as much of the
line after the opening one as is repeated, and two line ends."""


def utf16_length(text: str) -> int:
    """How many UTF-16 code units `text` takes."""
    if text.isascii():
        return len(text)
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def split_text(text: str, limit: int) -> list[str]:
    """Parts of at most `limit` UTF-16 units (0: no limit). A text that fits stays as it is.

    Where `limit` leaves no room to repeat fences (fewer than 200 units) they are cut like any line.
    """
    if limit <= 0 or utf16_length(text) <= limit:
        return [text]
    if limit < 200 or not _FENCE.search(text):
        return list(_cut(text, limit)) or [""]
    return list(_reopen_fences(_cut(text, limit - _FENCE_ROOM))) or [""]


def split_message(message: OutboundMessage, limit: int) -> tuple[OutboundMessage, ...]:
    """A message as the parts to send: files and reply mark go first, buttons last."""
    texts = split_text(message.content, limit)
    if len(texts) == 1:
        return (replace(message, content=texts[0]),)
    bare = replace(message, media=(), reply_to="", buttons=())
    parts = [replace(bare, content=text) for text in texts]
    parts[0] = replace(parts[0], media=message.media, reply_to=message.reply_to)
    parts[-1] = replace(parts[-1], buttons=message.buttons)
    return tuple(parts)


def _cut(text: str, limit: int) -> Iterator[str]:
    start = 0
    while start < len(text):
        end = _reach(text, start, limit)
        if end < len(text):
            end = _good_end(text, start, end)
        part = text[start:end].strip("\n")
        if part and not part.isspace():
            yield part
        start = end


def _reach(text: str, start: int, limit: int) -> int:
    """The furthest end such that `text[start:end]` takes at most `limit` units (at least one
    character)."""
    window = text[start : start + limit]
    excess = utf16_length(window) - limit
    end = start + len(window)
    while excess > 0 and end > start + 1:
        end -= 1
        excess -= 2 if text[end] > "\uffff" else 1
    return end


def _good_end(text: str, start: int, end: int) -> int:
    for separator in ("\n\n", "\n", " "):
        at = text.rfind(separator, start + (end - start) // 2, end)
        if at > start:
            return at + len(separator)
    if (
        end > start + 1
        and "\ud800" <= text[end - 1] <= "\udbff"
        and "\udc00" <= text[end] <= "\udfff"
    ):
        return end - 1  # two halves of one character that were never joined
    return end


def _reopen_fences(parts: Iterable[str]) -> Iterator[str]:
    mark = info = ""
    for part in parts:
        text = f"{mark}{info}\n{part}" if mark else part
        mark = info = ""
        for fence in _FENCE.finditer(text):
            found = fence[1] or fence[3]
            after = fence[2] or fence[4] or ""
            if not mark:
                mark, info = found, after.rstrip()[:_INFO]
            elif found.startswith(mark) and not after.strip():
                mark = info = ""
        yield f"{text}\n{mark}" if mark else text
