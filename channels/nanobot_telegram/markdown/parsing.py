"""Markdown to tokens, with a bound on the work; HTML is read, so that it can be shown as it is.

The parser is quick on prose and slow on text that is nothing but markup: some 10 microseconds a
mark, 20 times that where brackets nest. `too_much` estimates the work from counts alone, before
any of it is done, and allows enough for any real text.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

MAX_NESTING = 20
"""Levels of blocks, of which a list takes two; the parser leaves out what lies deeper."""

_WEIGHTS = (
    (re.compile(r"\n"), 2.5),
    (re.compile(r"\n#"), 2),
    (re.compile(r"(?<!\S)(?:[-+*]|\d{1,9}[.)])(?=\s)"), 4),
    (re.compile(r"^[ \t]*>|(?<=>)[ \t]*>", re.MULTILINE), 2),
    (re.compile(r"([*_~])\1*"), 2),
    (re.compile(r"!?\["), 4),
    (re.compile(r"!\["), 6),
    (re.compile(r"<[\w.+-]+[:@]"), 7),
    (re.compile(r"[<&]"), 2),
    (re.compile(r"`"), 1.2),
    (re.compile(r"[!#$%+\-:=>@\]^{}\\|]"), 0.4),
)
"""What each match costs, in units of ten microseconds on a slow machine."""
_ALLOWED = 800
_ALLOWED_PER_CHARACTER = 0.17
_TABLE_ROW = re.compile(r"^[ \t>]*[|:-][-:| \t]*\|[-:| \t]*$", re.MULTILINE)
_CELL = 3
_QUOTES = re.compile(r"^[-+*\d.) \t>]*>", re.MULTILINE)


def parse(markdown: str) -> list[Token] | None:
    """The tokens of `markdown`; None where it is nested so deeply that some would be missing."""
    tokens = _parser().parse(markdown)
    if any(token.nesting == 1 and token.level >= MAX_NESTING - 1 for token in tokens):
        return None
    return tokens


@cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    options = {"maxNesting": MAX_NESTING, "inline_definitions": True, "store_labels": True}
    return MarkdownIt("commonmark", options).enable(["strikethrough", "table"])


def too_much(markdown: str) -> bool:
    """Whether reading `markdown` would take longer than any text is worth."""
    allowed = _ALLOWED + _ALLOWED_PER_CHARACTER * len(markdown)
    cost = 0.0
    for pattern, weight in _WEIGHTS:
        cost += weight * len(pattern.findall(markdown))
        if cost > allowed:
            return True
    lines = markdown.count("\n") + 1
    depth = max((quotes.group().count(">") for quotes in _QUOTES.finditer(markdown)), default=0)
    cost += max(0, depth - 2) * lines  # each level of quotes goes over all lines that go on
    return cost + _table_work(markdown, allowed - cost) > allowed


def _table_work(markdown: str, allowed: float) -> float:
    """What the cells of tables cost; cells that a row lacks are made up, so columns count for every
    line."""
    cost = 0.0
    for row in _TABLE_ROW.finditer(markdown):
        end = markdown.find("\n\n", row.end())
        lines = markdown.count("\n", row.start(), end if end >= 0 else len(markdown)) + 1
        cost += _CELL * row.group().count("|") * lines
        if cost > allowed:
            break
    return cost
