"""From tokens to a page: paragraphs, headings, lists, quotes, code, tables.

Telegram knows neither headings nor lists nor tables: headings become bold, list items get a bullet
or their number, tables are aligned in code. Quotes cannot be nested: inner ones get a `>`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nanobot_telegram.markdown.entities import Page, Rendered
from nanobot_telegram.markdown.inline import InlineWriter, hidden_definitions
from nanobot_telegram.markdown.tables import read_table

if TYPE_CHECKING:
    from markdown_it.token import Token

_BULLETS = ("• ", "◦ ", "▪ ")
_TASKS = {"[ ] ": "☐ ", "[x] ": "☑ ", "[X] ": "☑ "}
_INDENT = "    "
_RULE = "———"
_LANGUAGE = re.compile(r"[A-Za-z0-9+#._-]{1,32}")


@dataclass(slots=True)
class _List:
    """A list that is open. `loose`: its paragraphs have blank lines between them."""

    ordered: bool
    items: int = 0
    first: int = 0
    counts: bool = False
    loose: bool = False

    def number(self, written: str) -> str:
        """The number of the next item: as written, but counted where each repeats the first."""
        if self.items == 0:
            self.first = int(written)
        elif self.items == 1:
            self.counts = int(written) == self.first
        return str(self.first + self.items) if self.counts else written


def write_blocks(tokens: Sequence[Token], source: str) -> Rendered:
    """What `tokens`, which were made of `source`, look like."""
    return _Blocks(tokens, source).write()


class _Blocks:
    def __init__(self, tokens: Sequence[Token], source: str) -> None:
        self._tokens = tokens
        self._lines = source.split("\n")
        self._page = Page()
        self._inline = InlineWriter(self._page)
        self._hidden = hidden_definitions(tokens)
        self._defined: set[str] = set()
        self._lists: list[_List] = []
        self._quotes: list[int] = []
        self._prefixes: list[str] = []
        self._on_line = True  # the next block goes on in the line that was begun

    def write(self) -> Rendered:
        at = 0
        while at < len(self._tokens):
            token = self._tokens[at]
            if token.type == "list_item_open":
                self._open_item(token, self._tokens[at + 1 : at + 3])
            elif token.type == "table_open":
                start, at = at, self._end_of_table(at)
                self._table(self._tokens[start:at])
            elif handler := _HANDLERS.get(token.type):
                handler(self, token)
            at += 1
        return self._page.finish()

    @property
    def _newline(self) -> str:
        return "\n" + "".join(self._prefixes)

    def _begin(self, newlines: int) -> None:
        """Go to where a block begins: after as many line ends, behind the prefixes."""
        if self._on_line:
            self._on_line = False
        else:
            self._page.write("\n" * (newlines - 1) + self._newline)

    def _begin_block(self) -> None:
        self._begin(1 if self._lists else 2)

    def _line(self, text: str) -> None:
        self._begin_block()
        self._page.write(text.replace("\n", self._newline))

    def _paragraph(self, token: Token) -> None:
        if self._lists and not token.hidden:
            self._lists[-1].loose = True
        self._begin(1 if token.hidden else 2)

    def _heading(self, _: Token) -> None:
        self._begin(2)
        self._page.open("bold")

    def _text(self, token: Token) -> None:
        self._inline.write(token.children or (), self._newline)

    def _fence(self, token: Token) -> None:
        language, _, rest = token.info.strip().partition(" ")
        if not _LANGUAGE.fullmatch(language) or not token.content.strip():
            language, rest = "", token.info.strip()
        if rest.strip():
            self._line(rest.strip())
        self._pre(token.content, language)

    def _code_block(self, token: Token) -> None:
        self._pre(token.content)

    def _pre(self, content: str, language: str = "") -> None:
        """Code on lines of its own, without prefixes, so that it can be copied."""
        if not content.strip():
            return
        if not self._on_line:
            self._page.write("\n" if self._lists else "\n\n")
        elif self._page.length and not self._quotes:
            self._page.write("\n")
        self._on_line = False
        start = self._page.length
        self._page.write(content.rstrip("\n"))
        self._page.mark("pre", start, language=language)

    def _html(self, token: Token) -> None:
        self._line(token.content.rstrip("\n"))

    def _definition(self, token: Token) -> None:
        """Shown unless all it says is in the marks of links."""
        meta = token.meta
        if meta["id"] not in self._hidden or meta["id"] in self._defined:
            title = f' "{meta["title"]}"' if meta["title"] else ""
            self._line(f"[{meta['label']}]: {meta['url']}{title}")
        self._defined.add(meta["id"])

    def _open_list(self, token: Token) -> None:
        self._lists.append(_List(token.type == "ordered_list_open"))

    def _close_list(self, _: Token) -> None:
        self._lists.pop()

    def _open_item(self, token: Token, inside: Sequence[Token]) -> None:
        here = self._lists[-1]
        if here.items:
            self._begin(2 if here.loose else 1)
        else:
            self._begin(1 if len(self._lists) > 1 else 2)
        if here.ordered:
            self._page.write(f"{here.number(token.info)}{token.markup} ")
        elif not (inside and inside[-1].type == "inline" and _is_task(inside[-1])):
            depth = sum(1 for each in self._lists if not each.ordered) - 1
            self._page.write(_BULLETS[depth % len(_BULLETS)])
        here.items += 1
        self._prefixes.append(_INDENT)
        self._on_line = True

    def _close_item(self, _: Token) -> None:
        self._prefixes.pop()
        self._on_line = False

    def _open_quote(self, _: Token) -> None:
        if self._quotes:
            if self._on_line:
                self._page.write("> ")
            self._prefixes.append("> ")
        else:
            self._begin_block()
            self._on_line = True
        self._quotes.append(self._page.length)

    def _close_quote(self, _: Token) -> None:
        start = self._quotes.pop()
        if self._quotes:
            self._prefixes.pop()
        else:
            self._page.mark("blockquote", start)

    def _end_of_table(self, at: int) -> int:
        while self._tokens[at].type != "table_close":
            at += 1
        return at

    def _table(self, tokens: Sequence[Token]) -> None:
        table = read_table(tokens, self._lines)
        first, last = tokens[0].map or (0, 0)
        self._pre(table.text() if table else "\n".join(self._lines[first:last]))


_HANDLERS: Mapping[str, Callable[[_Blocks, Token], None]] = {
    "paragraph_open": _Blocks._paragraph,
    "heading_open": _Blocks._heading,
    "heading_close": lambda blocks, _: blocks._page.close("bold"),
    "inline": _Blocks._text,
    "fence": _Blocks._fence,
    "code_block": _Blocks._code_block,
    "html_block": _Blocks._html,
    "hr": lambda blocks, _: blocks._line(_RULE),
    "definition": _Blocks._definition,
    "bullet_list_open": _Blocks._open_list,
    "ordered_list_open": _Blocks._open_list,
    "bullet_list_close": _Blocks._close_list,
    "ordered_list_close": _Blocks._close_list,
    "list_item_close": _Blocks._close_item,
    "blockquote_open": _Blocks._open_quote,
    "blockquote_close": _Blocks._close_quote,
}
"""What writes each kind of token. They are not kept with an object of their own: it would refer to
itself, and wait for the collector with all that it holds."""


def _is_task(token: Token) -> bool:
    """Whether a list item begins with a check box, which is then drawn."""
    children = token.children or ()
    if not children or children[0].type != "text" or children[0].content[:4] not in _TASKS:
        return False
    content = children[0].content
    children[0].content = _TASKS[content[:4]] + content[4:]
    return True
