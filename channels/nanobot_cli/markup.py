"""Markdown as a chat writes it: a line break breaks the line, and `<b>` is three letters.

Models write for chat windows, which show both so. HTML is never interpreted.
"""

from __future__ import annotations

from collections.abc import Iterable

from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich.markdown import Markdown

_PARSER = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"])


class ChatMarkdown(Markdown):
    """`markup` with every line break of a paragraph kept; links are text, not hyperlinks."""

    def __init__(self, markup: str) -> None:
        super().__init__(markup, hyperlinks=False)
        self.parsed = _PARSER.parse(markup)
        _harden(self.parsed)


def _harden(tokens: Iterable[Token]) -> None:
    for token in tokens:
        if token.type == "softbreak":
            token.type = "hardbreak"
        _harden(token.children or ())
