"""From tokens to text: paragraphs, headings, lists, quotes, code, tables.

WhatsApp knows lists and quotes of one level; what lies deeper is indented or has a `>` more.
Headings are bold. Code and tables stand on lines of their own, so that they can be copied.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nanobot_whatsapp.markup.inline import Line, lines_of
from nanobot_whatsapp.markup.marks import Span, Style, unbroken, write
from nanobot_whatsapp.markup.tables import table_text

if TYPE_CHECKING:
    from markdown_it.token import Token

_BULLETS = ("- ", "◦ ", "▪ ")
_TASKS = {"[ ] ": "☐ ", "[x] ": "☑ ", "[X] ": "☑ "}
_INDENT = "  "
_QUOTE = "> "
_FENCE = "```"
_RULE = "———"
_LANGUAGE = re.compile(r"[A-Za-z0-9+#._-]{0,32}")


@dataclass(slots=True)
class _List:
    """A list that is open. `number` is that of the next item, None where they have bullets;
    `loose`: its paragraphs have blank lines between them."""

    number: int | None
    loose: bool = False


@dataclass(slots=True)
class _Prefix:
    """What stands before the lines of a quote or an item: `now` before the next one, `later` before
    those after it."""

    now: str
    later: str

    @property
    def is_marker(self) -> bool:
        """Whether the next line is an item's first."""
        return self.now != self.later


class _Blocks:
    """`_around` are the quotes and items that are open; `_is_begun`: the next block goes on where
    something was begun, without a gap."""

    def __init__(self, tokens: Sequence[Token], source: str) -> None:
        self._tokens, self._source = tokens, source.split("\n")
        self._labels = {
            token.meta["id"]: token.meta["label"] for token in tokens if token.type == "definition"
        }
        self._written: list[str] = []
        self._lists: list[_List] = []
        self._around: list[_Prefix] = []
        self._is_begun = True
        self._styles: tuple[Style, ...] = ()

    def write(self) -> str:
        table = -1
        for at, token in enumerate(self._tokens):
            if token.type == "table_open":
                table = at
            elif token.type == "table_close":
                inside = self._tokens[table : at + 1]
                self._code(table_text(inside, self._source, self._labels))
                table = -1
            elif table < 0 and (handler := _HANDLERS.get(token.type)):
                handler(self, token)
        return "\n".join(line.rstrip() for line in self._written).strip("\n")

    def _begin(self) -> None:
        """Go to where a block begins: a blank line after the one before, except in quotes and tight
        lists."""
        in_quote = any(prefix.later == _QUOTE for prefix in self._around)
        apart = not in_quote and (not self._lists or self._lists[-1].loose)
        if apart and not self._is_begun:
            self._written.append("")
        self._is_begun = False

    def _lines(self, lines: Iterable[Line]) -> None:
        for line in lines:
            self._written.append(f"{self._prefix()}{write(line)}")

    def _prefix(self) -> str:
        text = "".join(prefix.now for prefix in self._around)
        for prefix in self._around:
            prefix.now = prefix.later
        return text

    @property
    def _has_marker(self) -> bool:
        return any(prefix.is_marker for prefix in self._around)

    def _literal(self, text: str) -> None:
        self._begin()
        self._lines([Span(line)] for line in text.split("\n"))

    def _paragraph(self, token: Token) -> None:
        if self._lists and not token.hidden:
            self._lists[-1].loose = True
        self._begin()

    def _heading(self, _: Token) -> None:
        self._begin()
        self._styles = ("strong",)

    def _end_of_heading(self, _: Token) -> None:
        self._styles = ()

    def _text(self, token: Token) -> None:
        if self._has_marker:
            self._draw_box(token)
        self._lines(lines_of(token.children or (), self._labels, self._styles))

    def _draw_box(self, token: Token) -> None:
        """An item that begins with a check box has that in place of its bullet."""
        first = next(iter(token.children or ()), None)
        if first is not None and first.type == "text" and first.content[:4] in _TASKS:
            self._around[-1].now = _TASKS[first.content[:4]]
            first.content = first.content[4:]

    def _fence(self, token: Token) -> None:
        """The language is left out, as WhatsApp shows none; what stands after it is not."""
        language, _, rest = token.info.strip().partition(" ")
        if not token.content.strip() or not _LANGUAGE.fullmatch(language):
            rest = f"{language} {rest}"
        if rest.strip():
            self._literal(rest.strip())
        self._code(token.content)

    def _code(self, content: str) -> None:
        if not content.strip():
            return
        self._begin()
        if self._has_marker:
            self._written.append(self._prefix())
        code = unbroken(content.rstrip("\n")).split("\n")
        self._written += [_FENCE, *code, _FENCE]

    def _definition(self, token: Token) -> None:
        meta = token.meta
        title = f' "{meta["title"]}"' if meta["title"] else ""
        self._begin()
        self._lines([[Span(f"[{meta['label']}]: {meta['url']}", raw=True), Span(title)]])

    def _open_list(self, number: int | None) -> None:
        if not self._lists:
            self._begin()
            self._is_begun = True
        self._lists.append(_List(number))

    def _end_of_list(self) -> None:
        self._lists.pop()
        self._is_begun = False

    def _item(self, token: Token) -> None:
        self._begin()
        here = self._lists[-1]
        if here.number is None:
            depth = sum(each.number is None for each in self._lists) - 1
            marker = _BULLETS[depth % len(_BULLETS)]
        else:
            marker = f"{here.number}{token.markup} "
            here.number += 1
        self._around.append(_Prefix(marker, _INDENT))
        self._is_begun = True

    def _end_of_item(self) -> None:
        if self._around[-1].is_marker:
            self._written.append(self._prefix())
        self._around.pop()
        self._is_begun = False

    def _quote(self) -> None:
        if not self._is_begun:
            self._begin()
        self._around.append(_Prefix(_QUOTE, _QUOTE))
        self._is_begun = True

    def _end_of_quote(self) -> None:
        self._around.pop()
        self._is_begun = False


_HANDLERS: Mapping[str, Callable[[_Blocks, Token], None]] = {
    "paragraph_open": _Blocks._paragraph,
    "heading_open": _Blocks._heading,
    "heading_close": _Blocks._end_of_heading,
    "inline": _Blocks._text,
    "fence": _Blocks._fence,
    "code_block": lambda blocks, token: blocks._code(token.content),
    "html_block": lambda blocks, token: blocks._literal(token.content.rstrip("\n")),
    "hr": lambda blocks, _: blocks._literal(_RULE),
    "definition": _Blocks._definition,
    "bullet_list_open": lambda blocks, _: blocks._open_list(None),
    "ordered_list_open": lambda blocks, token: blocks._open_list(int(token.attrs.get("start", 1))),
    "bullet_list_close": lambda blocks, _: blocks._end_of_list(),
    "ordered_list_close": lambda blocks, _: blocks._end_of_list(),
    "list_item_open": _Blocks._item,
    "list_item_close": lambda blocks, _: blocks._end_of_item(),
    "blockquote_open": lambda blocks, _: blocks._quote(),
    "blockquote_close": lambda blocks, _: blocks._end_of_quote(),
}
"""What writes each kind of token. They are not kept with an object of their own: it would refer to
itself, and wait for the collector with all that it holds."""


def write_blocks(tokens: Sequence[Token], source: str) -> str:
    """What `tokens`, which were made of `source`, look like; empty where that is nothing."""
    return _Blocks(tokens, source).write()
