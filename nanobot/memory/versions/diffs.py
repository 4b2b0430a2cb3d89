"""What changed between two texts, for people. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import unified_diff

from nanobot.memory.text.layout import split


def unified(path: str, before: str, after: str) -> str:
    """A unified diff, empty where nothing changed; it ends with a newline."""
    return "".join(_lines(path, before, after))


def _lines(path: str, before: str, after: str) -> Iterator[str]:
    old, new = split(before), split(after)
    for line in unified_diff(old, new, f"a/{path}", f"b/{path}", lineterm=""):
        yield f"{line}\n"
