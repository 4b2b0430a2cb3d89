"""Markdown in WhatsApp's own marks: *bold*, _italic_, ~strike~, code, quotes and lists.

The path is: Markdown to tokens (`_parse`, the work bounded), inline tokens to lines of spans
(`_Inline`), spans to text (`nanobot_whatsapp.marks`), and blocks around them (`_Blocks`).

WhatsApp knows lists and quotes of one level; what lies deeper is indented or has a `>` more.
Headings are bold. Code and tables stand on lines of their own, so that they can be copied. The
address of a link stands behind its text.

Invariant: nothing visible vanishes. Where the result would be empty, or the text is nested more
deeply than anyone writes, the source is shown as it is.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from loguru import logger

from nanobot.bus.events import Button
from nanobot.bus.split import utf16_length
from nanobot.channel.text import valid_unicode
from nanobot_whatsapp.marks import Span, Style, unbroken, write_line

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

TEXT_LIMIT = 4096
"""UTF-16 units of a message: the limit of the Cloud API. A linked device may send more."""
CAPTION_LIMIT = 1024
"""UTF-16 units of the caption of a file."""

_MAX_NESTING = 20
"""Levels of blocks, of which a list takes two; the parser drops what lies deeper."""
_MAX_LENGTH = 8_192
_MAX_BRACKETS = 1_000
"""Where brackets or quotes nest, the parser takes time by the square of the length; up to these
limits, which no message reaches, that is a fraction of a second."""

_STYLES: Mapping[str, Style] = {"strong": "strong", "em": "em", "s": "s"}
_BULLETS = ("- ", "◦ ", "▪ ")
_TASKS = {"[ ] ": "☐ ", "[x] ": "☑ ", "[X] ": "☑ "}
_INDENT = "  "
_QUOTE = "> "
_FENCE = "```"
_RULE = "———"
_LANGUAGE = re.compile(r"[A-Za-z0-9+#._-]{0,32}")

_WIDEST_COLUMN = 32
"""Columns of a table are not made wider for one long cell: a phone has about 40 characters."""
_CELL_BORDER = re.compile(r"(?<!\\)\|")


def render(markdown: str) -> str:
    """`markdown` as WhatsApp shows it. Never raises; the work is bounded."""
    source = valid_unicode(markdown).replace("\r\n", "\n").replace("\r", "\n")
    source = source.replace("\0", "\ufffd")
    try:
        tokens = _parse(source)
        rendered = _Blocks(source).write(tokens) if tokens else ""
    except Exception as error:  # noqa: BLE001 - an unforeseen text must not cost the answer
        logger.warning("Markdown is shown as it is: {}", type(error).__name__)
        rendered = ""
    return rendered or "\n".join(write_line([Span(line)]) for line in source.strip().split("\n"))


def fits(markdown: str, limit: int) -> bool:
    """Whether `markdown`, once rendered, has at most `limit` UTF-16 units."""
    return utf16_length(render(markdown)) <= limit


def with_choices(markdown: str, buttons: Sequence[Button]) -> str:
    """`markdown` with a line for each button whose value it does not name yet, for chats without
    buttons."""
    missing = [button for button in buttons if button.value not in markdown]
    lines = "\n".join(f"• {button.label}: {button.value}" for button in missing)
    return f"{markdown}\n\n{lines}".lstrip("\n") if lines else markdown


def _parse(source: str) -> list[Token] | None:
    """The tokens of `source`; None where it is too long or nested too deeply to be parsed."""
    if len(source) > _MAX_LENGTH or max(source.count("["), source.count(">")) > _MAX_BRACKETS:
        return None
    tokens = _parser().parse(source)
    if any(token.nesting == 1 and token.level >= _MAX_NESTING - 1 for token in tokens):
        return None
    return tokens


@cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"maxNesting": _MAX_NESTING})
    # Definitions of references stay what they are, text: resolved, an unused one would vanish.
    return parser.enable(["strikethrough", "table"]).disable("reference")


@dataclass(frozen=True, slots=True)
class _Link:
    """A link that is open; its text begins at `span` of `line`."""

    line: int
    span: int
    url: str
    title: str
    is_autolink: bool


class _Inline:
    """Turns inline tokens into `lines` of spans, all of them in the given `styles`."""

    def __init__(self, styles: Sequence[Style] = ()) -> None:
        self.lines: list[list[Span]] = [[]]
        self._styles = list(styles)
        self._links: list[_Link] = []

    def write(self, tokens: Iterable[Token] | None) -> list[list[Span]]:
        """The lines, with these tokens added."""
        for token in tokens or ():
            kind = token.type
            if kind in {"softbreak", "hardbreak"}:
                self.lines.append([])
            elif kind == "code_inline":
                self._add(token.content, code=True)
            elif kind == "link_open":
                self._open_link(token, "href")
            elif kind == "link_close":
                self._close_link()
            elif kind == "image":
                self._open_link(token, "src")
                self.write(token.children)
                self._close_link()
            elif token.tag in _STYLES and token.nesting > 0:
                self._styles.append(_STYLES[token.tag])
            elif token.tag in _STYLES and token.nesting < 0:
                self._styles.pop()  # they nest
            else:  # text, and HTML
                self._add(token.content)
        return self.lines

    def _add(self, text: str, *, code: bool = False, raw: bool = False) -> None:
        styles = () if raw else tuple(dict.fromkeys(self._styles))
        for number, piece in enumerate(text.split("\n")):
            if number:
                self.lines.append([])
            if piece:
                self.lines[-1].append(Span(piece, styles, code=code, raw=raw))

    def _open_link(self, token: Token, address: str) -> None:
        url, title = str(token.attrs.get(address, "")), str(token.attrs.get("title", ""))
        start = len(self.lines) - 1, len(self.lines[-1])
        self._links.append(_Link(*start, url, title, token.markup == "autolink"))

    def _close_link(self) -> None:
        link = self._links.pop()
        first, *others = self.lines[link.line :]
        shown = _plain([first[link.span :], *others])
        if not shown.strip():
            self._add(link.url, raw=True)
        elif not link.is_autolink and link.url not in {"", shown, f"mailto:{shown}"}:
            self._add(f" ({link.url})", raw=True)
        if link.title:
            self._add(f" ({link.title})")


def _plain(lines: Iterable[Iterable[Span]]) -> str:
    """The text of the lines without marks, on one line."""
    return " ".join("".join(span.text for span in line) for line in lines)


@dataclass(slots=True)
class _List:
    """An open list. `number` is that of the next item, None with bullets; `is_loose`: its
    paragraphs have blank lines between them."""

    number: int | None
    is_loose: bool = False


@dataclass(slots=True)
class _Prefix:
    """What stands before the lines of a quote or an item: `now` before the next one, `later` before
    those after it."""

    now: str
    later: str

    @property
    def is_marker(self) -> bool:
        """Whether the next line is the first of an item."""
        return self.now != self.later


class _Blocks:
    """`_around` are the open quotes and items; `_is_begun`: the next block continues where a quote
    or item was opened, without a gap."""

    def __init__(self, source: str) -> None:
        self._source = source.split("\n")
        self._written: list[str] = []
        self._lists: list[_List] = []
        self._around: list[_Prefix] = []
        self._is_begun = True
        self._styles: tuple[Style, ...] = ()

    def write(self, tokens: Sequence[Token]) -> str:
        """What `tokens` look like; empty if that is nothing."""
        table: list[Token] = []
        for token in tokens:
            if table or token.type == "table_open":
                table.append(token)
            if token.type == "table_close":
                self._code(_table_text(table, self._source))
                table = []
            elif not table and (handler := _HANDLERS.get(token.type)):
                handler(self, token)
        return "\n".join(line.rstrip() for line in self._written).strip("\n")

    def _begin(self) -> None:
        """Start a block: after a blank line, except in quotes and tight lists."""
        in_quote = any(prefix.later == _QUOTE for prefix in self._around)
        is_apart = not in_quote and (not self._lists or self._lists[-1].is_loose)
        if is_apart and not self._is_begun:
            self._written.append("")
        self._is_begun = False

    def _lines(self, lines: Iterable[Iterable[Span]]) -> None:
        for line in lines:
            self._written.append(f"{self._prefix()}{write_line(line)}")

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
            self._lists[-1].is_loose = True
        self._begin()

    def _heading(self, token: Token) -> None:
        if token.nesting > 0:
            self._begin()
        self._styles = ("strong",) if token.nesting > 0 else ()

    def _text(self, token: Token) -> None:
        first = next(iter(token.children or ()), None)
        if self._has_marker and first and first.type == "text" and first.content[:4] in _TASKS:
            self._around[-1].now = _TASKS[first.content[:4]]  # a check box in place of the bullet
            first.content = first.content[4:]
        self._lines(_Inline(self._styles).write(token.children))

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
        self._written += [_FENCE, *unbroken(content.rstrip("\n")).split("\n"), _FENCE]

    def _open_list(self, token: Token) -> None:
        if not self._lists:
            self._begin()
            self._is_begun = True
        is_ordered = token.type == "ordered_list_open"
        self._lists.append(_List(int(token.attrs.get("start", 1)) if is_ordered else None))

    def _close_list(self, _: Token) -> None:
        self._lists.pop()
        self._is_begun = False

    def _open_item(self, token: Token) -> None:
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

    def _open_quote(self, _: Token) -> None:
        if not self._is_begun:
            self._begin()
        self._around.append(_Prefix(_QUOTE, _QUOTE))
        self._is_begun = True

    def _close(self, _: Token) -> None:
        """The end of an item, which may be an empty one, or of a quote."""
        if self._around[-1].is_marker:
            self._written.append(self._prefix())
        self._around.pop()
        self._is_begun = False


_HANDLERS: Mapping[str, Callable[[_Blocks, Token], None]] = {
    "paragraph_open": _Blocks._paragraph,
    "heading_open": _Blocks._heading,
    "heading_close": _Blocks._heading,
    "inline": _Blocks._text,
    "fence": _Blocks._fence,
    "code_block": lambda blocks, token: blocks._code(token.content),
    "html_block": lambda blocks, token: blocks._literal(token.content.rstrip("\n")),
    "hr": lambda blocks, _: blocks._literal(_RULE),
    "bullet_list_open": _Blocks._open_list,
    "ordered_list_open": _Blocks._open_list,
    "bullet_list_close": _Blocks._close_list,
    "ordered_list_close": _Blocks._close_list,
    "list_item_open": _Blocks._open_item,
    "list_item_close": _Blocks._close,
    "blockquote_open": _Blocks._open_quote,
    "blockquote_close": _Blocks._close,
}
"""What writes each kind of token. Kept outside the object, which would otherwise refer to itself
and wait for the garbage collector."""


def _table_text(tokens: Sequence[Token], source: Sequence[str]) -> str:
    """The table of `tokens` in columns, for a font of fixed width; as it stands in the source where
    a row has more cells than the head, since the parser drops those."""
    rows: list[list[str]] = []
    aligns: list[str] = []
    for token in tokens:
        if token.type == "tr_open":
            if rows and token.map and _cell_count(source[token.map[0]]) > len(rows[0]):
                first, last = tokens[0].map or (0, 0)
                return "\n".join(source[first:last])
            rows.append([])
        elif token.type == "th_open":
            aligns.append(str(token.attrs.get("style", "")).rpartition(":")[2])
        elif token.type == "inline":
            rows[-1].append(_plain(_Inline().write(token.children)).strip())
    bare = [" | ".join(row).rstrip() for row in rows]
    widths = [
        max((width for cell in column if (width := _width(cell)) <= _WIDEST_COLUMN), default=3)
        for column in zip(*rows, strict=True)
    ]
    if (sum(widths) + 3 * len(widths)) * len(rows) > 3 * sum(map(len, bare)) + 400:
        return "\n".join(bare)  # mostly blanks otherwise
    lines = [
        " | ".join(_padded(*cell) for cell in zip(row, widths, aligns, strict=True)).rstrip()
        for row in rows
    ]
    return "\n".join((lines[0], "-+-".join("-" * width for width in widths), *lines[1:]))


def _padded(cell: str, width: int, align: str) -> str:
    room = max(0, width - _width(cell))
    before = {"center": room // 2, "right": room}.get(align, 0)
    return f"{' ' * before}{cell}{' ' * (room - before)}"


def _width(text: str) -> int:
    """How many columns `text` takes: East Asian wide characters two, combining ones none."""
    if text.isascii():
        return len(text)
    shown = (each for each in text if unicodedata.category(each) not in {"Mn", "Me", "Cf"})
    return sum(2 if unicodedata.east_asian_width(each) in {"W", "F"} else 1 for each in shown)


def _cell_count(line: str) -> int:
    """How many cells a line of a table has; marks of quotes may stand before it."""
    cells = _CELL_BORDER.split(line.lstrip(" \t>").rstrip())
    return len(cells) - (not cells[0]) - (not cells[-1])
