"""Markdown to tokens, with a bound on the work; HTML is read, so that it can be shown as it is."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

MAX_NESTING = 20
"""Levels of blocks, of which a list takes two; the parser leaves out what lies deeper."""

_LONGEST = 8_192
"""No message is longer. The parser takes time by the square of the length where brackets or quotes
nest; up to here that is a fraction of a second."""
_MOST_BRACKETS = 1_000
_MOST_QUOTES = 1_000


def parse(markdown: str) -> list[Token] | None:
    """The tokens of `markdown`; None where reading it takes longer than any message is worth, or it
    is nested so deeply that some of it would be missing."""
    if len(markdown) > _LONGEST or markdown.count("[") > _MOST_BRACKETS:
        return None
    if markdown.count(">") > _MOST_QUOTES:
        return None
    tokens = _parser().parse(markdown)
    if any(token.nesting == 1 and token.level >= MAX_NESTING - 1 for token in tokens):
        return None
    return tokens


@cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    options = {"maxNesting": MAX_NESTING, "inline_definitions": True, "store_labels": True}
    return MarkdownIt("commonmark", options).enable(["strikethrough", "table"])
