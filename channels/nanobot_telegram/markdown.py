"""Markdown as Telegram shows it: plain text with entities, which cannot fail to parse.

The path is: Markdown to tokens (`nanobot.channel.outgoing`), blocks (`_Blocks`) and what stands in
them (`_Inline`) to a `_Page`, which keeps to the rules that Telegram has for entities.

Telegram knows neither headings nor lists nor tables: headings become bold, list items get a bullet
or their number, tables are aligned in code. Quotes cannot be nested: inner ones get a `>`.

Invariant: nothing visible vanishes. Where the result would be empty, or the text is nothing but
markup or nested more deeply than anyone writes, the source is shown as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from loguru import logger
from telegram import MessageEntity

from nanobot.bus.split import utf16_length
from nanobot.channel.outgoing import is_parsed, parse_markdown, table_text
from nanobot.text import valid_unicode

if TYPE_CHECKING:
    from markdown_it.token import Token

TEXT_LIMIT = 4096
"""UTF-16 units of a message."""
CAPTION_LIMIT = 1024
"""UTF-16 units of the caption of a file."""
ENTITY_LIMIT = 100
"""Entities of a message; Telegram ignores any more."""

_DELIMITER = re.compile(
    r"(?<![\s*])\*++|(?<!\S)\*++(?=\S)|~~++|(?<![\w])_++(?=\S)|(?<=[^\s_])_++(?!\w)|`++"
)
"""The runs that begin or end most entities. They are matched whole, for linear time."""

_STYLES = {"em": "italic", "strong": "bold", "s": "strikethrough"}
_LINKABLE = re.compile(r"https?://[^/?#\s]*[^/?#\s.]\.[^/?#\s]+|tg://[\w-]+", re.IGNORECASE)
"""What Telegram makes a link to: it silently drops those to hosts without a dot, and takes
`mailto:a@b.c` for a web address."""
_BULLETS = ("• ", "◦ ", "▪ ")
_TASKS = {"[ ] ": "☐ ", "[x] ": "☑ ", "[X] ": "☑ "}
_INDENT = "    "
_RULE = "———"
_LANGUAGE = re.compile(r"[A-Za-z0-9+#._-]{1,32}")
_WIDEST_COLUMN = 40
"""Columns of a table are not made wider for one long cell."""


def render(markdown: str) -> Rendered:
    """`markdown` as text and entities. Never raises; the work is bounded.

    There are as many entities as there are; `fits` says whether Telegram takes so many.
    """
    source = _clean(markdown)
    try:
        tokens = parse_markdown(source)
        rendered = _Blocks(source).write(tokens) if tokens else None
    except Exception as error:  # noqa: BLE001 - an unforeseen text must not cost the answer
        logger.warning("Markdown is shown as it is: {}", type(error).__name__)
        rendered = None
    return rendered if rendered and rendered.text else Rendered(source.strip())


def fits(markdown: str, limit: int = TEXT_LIMIT) -> bool:
    """Whether `markdown`, once rendered, fits: UTF-16 units (`limit`) and number of entities.

    Says no, without a close look, to what has so many delimiters that it hardly can.
    """
    if is_parsed(markdown):
        delimiters = _DELIMITER.findall(markdown)
        edges = sum(min(2, (len(run) + 1) // 2) for run in delimiters)  # a long run may be two
        edges += 2 * min(markdown.count("["), markdown.count("]("))
        if edges > 2 * ENTITY_LIMIT:
            return False
    rendered = render(markdown)
    return utf16_length(rendered.text) <= limit and len(rendered.entities) <= ENTITY_LIMIT


def _clean(text: str) -> str:
    """`text` as the parser sees its lines, without what cannot be sent."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "\ufffd")
    return valid_unicode(text)


@dataclass(frozen=True, slots=True)
class _Link:
    start: int
    url: str
    title: str


class _Inline:
    """Writes what stands within a block."""

    def __init__(self, page: _Page) -> None:
        self._page = page
        self._links: list[_Link] = []

    def write(self, children: Iterable[Token] | None, newline: str) -> None:
        """Write tokens, with `newline` for each line break."""
        for token in children or ():
            kind = token.type
            if kind in {"softbreak", "hardbreak"}:
                self._page.write(newline)
            elif kind == "code_inline":
                write = self._page.write if self._links else self._page.code
                write(token.content)
            elif kind == "link_open":
                self._open_link(token, "href")
            elif kind == "link_close":
                self._close_link()
            elif kind == "image":
                self._open_link(token, "src")
                self.write(token.children, newline)
                self._close_link()
            elif token.tag in _STYLES:
                toggle = self._page.open if token.nesting > 0 else self._page.close
                toggle(_STYLES[token.tag])
            else:  # text, and HTML
                self._page.write(token.content.replace("\n", newline))

    def _open_link(self, token: Token, address: str) -> None:
        url, title = str(token.attrs.get(address, "")), str(token.attrs.get("title", ""))
        self._links.append(_Link(self._page.length, url, title))

    def _close_link(self) -> None:
        """Mark a link; one that cannot be a mark has its address behind it."""
        link = self._links.pop()
        shown = self._page.text_from(link.start)
        if not shown.strip():
            self._page.write(link.url)
            shown = link.url
        if not self._links and _LINKABLE.match(link.url):
            self._page.mark("text_link", link.start, url=link.url)
        elif link.url not in {"", shown, f"mailto:{shown}"}:
            self._page.write(f" ({link.url})")
        if link.title:
            self._page.write(f" ({link.title})")


@dataclass(slots=True)
class _List:
    """An open list. `is_loose`: its paragraphs have blank lines between them."""

    is_ordered: bool
    items: int = 0
    first: int = 0
    is_counted: bool = False
    is_loose: bool = False

    def number(self, written: str) -> str:
        """The number of the next item: as written, but counted where each repeats the first."""
        if self.items == 0:
            self.first = int(written)
        elif self.items == 1:
            self.is_counted = int(written) == self.first
        return str(self.first + self.items) if self.is_counted else written


class _Blocks:
    """Writes blocks to a page. `_quotes` are where open quotes begin; `_is_begun`: the next block
    continues in the line that a quote or item was opened in."""

    def __init__(self, source: str) -> None:
        self._source = source.split("\n")
        self._page = _Page()
        self._inline = _Inline(self._page)
        self._lists: list[_List] = []
        self._quotes: list[int] = []
        self._prefixes: list[str] = []
        self._is_begun = True

    def write(self, tokens: Sequence[Token]) -> Rendered:
        """What `tokens` look like."""
        table: list[Token] = []
        for at, token in enumerate(tokens):
            if table or token.type == "table_open":
                table.append(token)
            if token.type == "table_close":
                self._pre(table_text(table, self._source, widest=_WIDEST_COLUMN))
                table = []
            elif token.type == "list_item_open":
                self._open_item(token, tokens[at + 1 : at + 3])
            elif not table and (handler := _HANDLERS.get(token.type)):
                handler(self, token)
        return self._page.finish()

    @property
    def _newline(self) -> str:
        return "\n" + "".join(self._prefixes)

    def _begin(self, newlines: int = 0) -> None:
        """Go to where a block begins: after as many line ends, behind the prefixes."""
        newlines = newlines or (1 if self._lists else 2)
        if not self._is_begun:
            self._page.write("\n" * (newlines - 1) + self._newline)
        self._is_begun = False

    def _literal(self, text: str) -> None:
        self._begin()
        self._page.write(text.replace("\n", self._newline))

    def _paragraph(self, token: Token) -> None:
        if self._lists and not token.hidden:
            self._lists[-1].is_loose = True
        self._begin(1 if token.hidden else 2)

    def _heading(self, _: Token) -> None:
        self._begin(2)
        self._page.open("bold")

    def _fence(self, token: Token) -> None:
        language, _, rest = token.info.strip().partition(" ")
        if not _LANGUAGE.fullmatch(language) or not token.content.strip():
            language, rest = "", token.info.strip()
        if rest.strip():
            self._literal(rest.strip())
        self._pre(token.content, language)

    def _pre(self, content: str, language: str = "") -> None:
        """Code on lines of its own, without prefixes, so that it can be copied."""
        if not content.strip():
            return
        if not self._is_begun:
            self._page.write("\n" if self._lists else "\n\n")
        elif self._page.length and not self._quotes:
            self._page.write("\n")
        self._is_begun = False
        start = self._page.length
        self._page.write(content.rstrip("\n"))
        self._page.mark("pre", start, language=language)

    def _open_list(self, token: Token) -> None:
        self._lists.append(_List(token.type == "ordered_list_open"))

    def _close_list(self, _: Token) -> None:
        self._lists.pop()

    def _open_item(self, token: Token, inside: Sequence[Token]) -> None:
        here = self._lists[-1]
        if here.items:
            self._begin(2 if here.is_loose else 1)
        else:
            self._begin(1 if len(self._lists) > 1 else 2)
        if here.is_ordered:
            self._page.write(f"{here.number(token.info)}{token.markup} ")
        elif not (inside and inside[-1].type == "inline" and _is_task(inside[-1])):
            depth = sum(1 for each in self._lists if not each.is_ordered) - 1
            self._page.write(_BULLETS[depth % len(_BULLETS)])
        here.items += 1
        self._prefixes.append(_INDENT)
        self._is_begun = True

    def _close_item(self, _: Token) -> None:
        self._prefixes.pop()
        self._is_begun = False

    def _open_quote(self, _: Token) -> None:
        if self._quotes:
            if self._is_begun:
                self._page.write("> ")
            self._prefixes.append("> ")
        else:
            self._begin()
            self._is_begun = True
        self._quotes.append(self._page.length)

    def _close_quote(self, _: Token) -> None:
        start = self._quotes.pop()
        if self._quotes:
            self._prefixes.pop()
        else:
            self._page.mark("blockquote", start)


_HANDLERS: Mapping[str, Callable[[_Blocks, Token], None]] = {
    "paragraph_open": _Blocks._paragraph,
    "heading_open": _Blocks._heading,
    "heading_close": lambda blocks, _: blocks._page.close("bold"),
    "inline": lambda blocks, token: blocks._inline.write(token.children, blocks._newline),
    "fence": _Blocks._fence,
    "code_block": lambda blocks, token: blocks._pre(token.content),
    "html_block": lambda blocks, token: blocks._literal(token.content.rstrip("\n")),
    "hr": lambda blocks, _: blocks._literal(_RULE),
    "bullet_list_open": _Blocks._open_list,
    "ordered_list_open": _Blocks._open_list,
    "bullet_list_close": _Blocks._close_list,
    "ordered_list_close": _Blocks._close_list,
    "list_item_close": _Blocks._close_item,
    "blockquote_open": _Blocks._open_quote,
    "blockquote_close": _Blocks._close_quote,
}
"""What writes each kind of token. Kept outside the object, which would otherwise refer to itself
and wait for the garbage collector."""


def _is_task(token: Token) -> bool:
    """Whether a list item begins with a check box, which is then drawn."""
    first = next(iter(token.children or ()), None)
    if first is None or first.type != "text" or first.content[:4] not in _TASKS:
        return False
    first.content = _TASKS[first.content[:4]] + first.content[4:]
    return True


# --- the page: text, and marks on ranges of it


@dataclass(frozen=True, slots=True)
class Rendered:
    """A text and its entities, outer ones before the ones inside them."""

    text: str
    entities: tuple[MessageEntity, ...] = ()


@dataclass(frozen=True, slots=True)
class _Range:
    """A future entity; `start` and `end` (exclusive) are in characters."""

    type: str
    start: int
    end: int
    url: str = ""
    language: str = ""


class _Page:
    """Text that is being written, with the ranges marked so far.

    Invariant: the entities keep to Telegram's rules. A range lies within the text, has something
    visible in it and does not cut a character; two ranges are nested or apart; `pre` and `code`
    contain nothing and, but for quotes, are in nothing.
    """

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._ranges: list[_Range] = []
        self._styles: dict[str, list[int]] = {}
        self.length = 0

    def write(self, text: str) -> None:
        """Add plain text."""
        self._pieces.append(text)
        self.length += len(text)

    def open(self, style: str) -> None:
        """Begin `bold`, `italic` or `strikethrough`; within the same one it changes nothing."""
        self._styles.setdefault(style, []).append(self.length)

    def close(self, style: str) -> None:
        """End what was opened last."""
        starts = self._styles[style]
        start = starts.pop()
        if not starts:
            del self._styles[style]
            self.mark(style, start)

    def mark(self, kind: str, start: int, *, url: str = "", language: str = "") -> None:
        """Mark what was written from `start` on."""
        self._ranges.append(_Range(kind, start, self.length, url, language))

    def code(self, text: str) -> None:
        """Write code within a line. Styles pause for it: Telegram takes no code inside them."""
        for style, starts in self._styles.items():
            self.mark(style, starts[0])
        start = self.length
        self.write(text)
        self.mark("code", start)
        for starts in self._styles.values():
            starts[0] = self.length

    def text_from(self, start: int) -> str:
        """What was written from `start` on, where a piece began."""
        at, end = len(self._pieces), self.length
        while end > start:
            at -= 1
            end -= len(self._pieces[at])
        return "".join(self._pieces[at:])

    def finish(self) -> Rendered:
        """The text without blanks around it (the indentation of code stays), and the entities in
        order."""
        text = "".join(self._pieces).rstrip()
        lead = len(text) - len(text.lstrip())
        if any(one.type == "pre" and one.start < lead for one in self._ranges):
            lead = 0
        text = text[lead:]
        ranges = [kept for one in self._ranges if (kept := _trimmed(text, one, lead))]
        ranges.sort(key=lambda one: (one.start, -one.end, _ORDER.index(one.type)))
        units: dict[int, int] = {}  # an offset in characters in UTF-16 code units
        at = before = 0
        for position in sorted({edge for one in ranges for edge in (one.start, one.end)}):
            at += utf16_length(text[before:position])
            before = position
            units[position] = at
        entities = (
            MessageEntity(
                one.type,
                units[one.start],
                units[one.end] - units[one.start],
                url=one.url or None,
                language=one.language or None,
            )
            for one in ranges
        )
        return Rendered(text, tuple(entities))


_ORDER = ("blockquote", "text_link", "bold", "italic", "strikethrough", "pre", "code")


def _trimmed(text: str, one: _Range, lead: int) -> _Range | None:
    """The range, moved by `lead`, without the blanks around it; None where nothing is left."""
    start = max(one.start - lead, 0)
    inside = text[start : max(one.end - lead, 0)].rstrip()
    shown = inside.lstrip("\n" if one.type in {"pre", "blockquote"} else None)
    end = start + len(inside)
    return replace(one, start=end - len(shown), end=end) if shown else None
