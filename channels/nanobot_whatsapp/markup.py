"""Markdown in WhatsApp's own marks: *bold*, _italic_, ~strike~, code, quotes and lists.

Path: Markdown to tokens (`nanobot.channel.outgoing`), inline tokens to lines of spans
(`_Inline`), spans to a line with marks (`_Writer`), and blocks around them (`_Blocks`).

WhatsApp knows lists and quotes of one level; what lies deeper is indented or has a `>` more.
Headings are bold. Code and tables stand on lines of their own, so that they can be copied. The
address of a link stands behind its text.

WhatsApp cannot escape a mark, and its phones do not all read marks alike. A mark counts where the
character outside it is no letter or digit and the one inside it is no space; it ends at the latest
with the line. So marks are written only where all phones see one, and a literal character that
would be taken for one gets a hair space on its inner side.

Invariant: nothing visible vanishes. Where the result would be empty, or the text is nested more
deeply than anyone writes, the source is shown as it is.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import chain, repeat
from typing import TYPE_CHECKING, Literal

from loguru import logger

from nanobot.bus.events import Button
from nanobot.bus.split import utf16_length
from nanobot.channel.outgoing import parse_markdown, table_text
from nanobot.text import valid_unicode

if TYPE_CHECKING:
    from markdown_it.token import Token

TEXT_LIMIT = 4096
"""UTF-16 units of a message: the limit of the Cloud API. A linked device may send more."""
CAPTION_LIMIT = 1024
"""UTF-16 units of the caption of a file."""

Style = Literal["strong", "em", "s"]

_MARKS: dict[Style, str] = {"strong": "*", "em": "_", "s": "~"}
_CODE = "`"
_DELIMITER = re.compile(r"[*_~`]")
_ADDRESS = re.compile(r"(https?://[^\s<>]+)", re.IGNORECASE)
_HAIR = "\u200a"
_JOINER = "\u2060"
_LOOKS_LIKE_BLOCK = re.compile(r">|[-*] ")
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


_Line = tuple[str, bool]


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of a line. Of `code`, and of what is `raw` (an address), every character stands for
    itself."""

    text: str
    styles: tuple[Style, ...] = ()
    code: bool = False
    raw: bool = False


def render(markdown: str) -> str:
    """`markdown` as WhatsApp shows it. Never raises; the work is bounded."""
    source = valid_unicode(markdown).replace("\r\n", "\n").replace("\r", "\n")
    source = source.replace("\0", "\ufffd")
    try:
        tokens = parse_markdown(source)
        rendered = _Blocks(tokens, source).text() if tokens else ""
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


class _Blocks:
    """Turns block tokens into lines; a line is a text, and whether it is code, which is never
    indented."""

    def __init__(self, tokens: Sequence[Token], source: str) -> None:
        self._tokens, self._source = tokens, source.split("\n")
        self._at = 0
        self._quotes = self._bullet_lists = 0

    def text(self) -> str:
        """What the tokens look like; empty if that is nothing."""
        lines = self._until("", has_gaps=True)
        return "\n".join(line.rstrip() for line, _ in lines).strip("\n")

    def _next(self) -> Token:
        self._at += 1
        return self._tokens[self._at - 1]

    def _until(self, end: str, *, has_gaps: bool) -> list[_Line]:
        """The blocks up to the token `end`; `has_gaps`: with blank lines between them."""
        lines: list[_Line] = []
        while self._at < len(self._tokens) and (token := self._next()).type != end:
            block = self._block(token)
            lines += [("", False)] * (has_gaps and bool(lines and block)) + block
        return lines

    def _block(self, token: Token) -> list[_Line]:
        block: list[_Line] = []  # the end of a paragraph is none
        match token.type:
            case "paragraph_open" | "heading_open":
                styles: tuple[Style, ...] = ("strong",) if token.tag != "p" else ()
                content = _Inline(styles).write(self._next().children)
                block = [(write_line(line), False) for line in content]
            case "fence":
                block = _fence(token)
            case "code_block":
                block = _code(token.content)
            case "html_block":
                block = _literal(token.content.rstrip("\n"))
            case "hr":
                block = _literal(_RULE)
            case "bullet_list_open" | "ordered_list_open":
                block = self._list(token)
            case "blockquote_open":
                self._quotes += 1
                inner = self._until("blockquote_close", has_gaps=False)
                self._quotes -= 1
                block = _prefixed(inner, _QUOTE, _QUOTE) if inner else []
            case "table_open":
                table = [token]
                while table[-1].type != "table_close":
                    table.append(self._next())
                block = _code(table_text(table, self._source, widest=_WIDEST_COLUMN))
        return block

    def _list(self, token: Token) -> list[_Line]:
        """The items up to the end of the list, which may nest."""
        is_ordered = token.type == "ordered_list_open"
        number = int(token.attrs.get("start", 1))
        bullet = _BULLETS[self._bullet_lists % len(_BULLETS)]
        self._bullet_lists += not is_ordered
        lines: list[_Line] = []
        while (item := self._next()).type == "list_item_open":
            marker = f"{number}{item.markup} " if is_ordered else self._check_box() or bullet
            first = self._tokens[self._at]
            is_loose = first.type == "paragraph_open" and not first.hidden and not self._quotes
            inner = self._until("list_item_close", has_gaps=is_loose)
            lines += [("", False)] * (is_loose and bool(lines)) + _prefixed(inner, marker, _INDENT)
            number += 1
        self._bullet_lists -= not is_ordered
        return lines

    def _check_box(self) -> str:
        """Removes the check box that the next item begins with, and returns it as a marker."""
        inline = self._tokens[min(self._at + 1, len(self._tokens) - 1)]
        first = next(iter(inline.children or ()), None)
        if first is None or first.type != "text" or first.content[:4] not in _TASKS:
            return ""
        box, first.content = first.content[:4], first.content[4:]
        return _TASKS[box]


def _prefixed(lines: Sequence[_Line], first: str, others: str) -> list[_Line]:
    if not lines or lines[0][1]:  # nothing, or code: the marker of an item stands alone
        lines = [("", False), *lines]
    prefixes = chain([first], repeat(others))
    return [
        (line, True) if is_code else (prefix + line, False)
        for prefix, (line, is_code) in zip(prefixes, lines, strict=False)
    ]


def _literal(text: str) -> list[_Line]:
    return [(write_line([Span(line)]), False) for line in text.split("\n")]


def _fence(token: Token) -> list[_Line]:
    """The language is left out, as WhatsApp shows none; what stands after it is not."""
    language, _, rest = token.info.strip().partition(" ")
    if not token.content.strip() or not _LANGUAGE.fullmatch(language):
        rest = f"{language} {rest}"
    about, code = _literal(rest.strip()) if rest.strip() else [], _code(token.content)
    return [*about, *([("", False)] if about and code else []), *code]


def _code(content: str) -> list[_Line]:
    if not content.strip():
        return []
    lines = content.replace(_FENCE, _JOINER.join(_CODE * 3)).rstrip("\n").split("\n")
    return [(line, True) for line in (_FENCE, *lines, _FENCE)]


def write_line(spans: Iterable[Span]) -> str:
    """The line that these make, without blanks at its end."""
    writer = _Writer()
    for span in spans:
        writer.add(span)
    return writer.finish()


class _Writer:
    """Puts marks around words and never around blanks."""

    def __init__(self) -> None:
        self._pieces: list[tuple[str, bool]] = []  # a text, and whether it stands for itself
        self._open: list[Style] = []
        self._blank = ""
        self._last = ""
        self._closed = False

    def add(self, span: Span) -> None:
        words = span.text.strip()
        if not words:
            self._close(self._kept(span.styles))
            self._blank += span.text
            return
        before, _, after = span.text.partition(words)
        self._blank += before
        if span.code:
            self._code(words)
        else:
            self._restyle(span.styles)
            parts = [words] if span.raw else _ADDRESS.split(words)
            for number, part in enumerate(parts):
                self._text(part, literal=not span.raw and number % 2 == 0)
        self._blank += after

    def finish(self) -> str:
        self._close(0)
        line = _set_apart(self._pieces)
        return f"{_JOINER}{line}" if _LOOKS_LIKE_BLOCK.match(line) else line

    def _code(self, words: str) -> None:
        self._restyle(())
        if _CODE in words:  # three of them make code too, and hold single ones
            fence, words = _FENCE, words.replace(_CODE * 2, _JOINER.join(_CODE * 2))
            words = f"{_JOINER * words.startswith(_CODE)}{words}{_JOINER * words.endswith(_CODE)}"
        else:
            fence = _CODE
        self._mark(fence)
        self._text(words, literal=False)
        self._put(fence, literal=False)
        self._closed = True

    def _restyle(self, wanted: Sequence[Style]) -> None:
        """From here on the text has these styles."""
        self._close(self._kept(wanted))
        self._flush()
        for style in dict.fromkeys(wanted):
            if style not in self._open:
                self._open.append(style)
                self._mark(_MARKS[style])

    def _kept(self, wanted: Sequence[Style]) -> int:
        """How many of the styles that are open go on."""
        ended = (number for number, style in enumerate(self._open) if style not in wanted)
        return next(ended, len(self._open))

    def _close(self, kept: int) -> None:
        while len(self._open) > kept:
            self._put(_MARKS[self._open.pop()], literal=False)
            self._closed = True

    def _mark(self, mark: str) -> None:
        """Begin something, apart from a letter before it."""
        if self._last.isalnum():
            self._put(_HAIR, literal=False)
        self._put(mark, literal=False)
        self._closed = False

    def _text(self, text: str, *, literal: bool) -> None:
        if not text:
            return
        if self._closed and text[0].isalnum():
            self._put(_HAIR, literal=False)
        self._put(text, literal=literal)
        self._closed = False

    def _flush(self) -> None:
        if self._blank:
            self._put(self._blank, literal=False)
            self._blank, self._closed = "", False

    def _put(self, text: str, *, literal: bool) -> None:
        self._pieces.append((text, literal))
        self._last = text[-1]


def _set_apart(pieces: Sequence[tuple[str, bool]]) -> str:
    """The pieces together, with what looks like a mark and is none set apart."""
    line = "".join(text for text, _ in pieces)
    counts = Counter(_DELIMITER.findall(line))
    pairs = frozenset(mark for mark, count in counts.items() if count > 1)
    written: list[str] = []
    start = 0
    for text, literal in pieces:
        end = start + len(text)
        if literal and pairs:
            written.extend(_apart(line, at, pairs, start, end) for at in range(start, end))
        else:
            written.append(text)
        start = end
    return "".join(written)


def _apart(line: str, at: int, pairs: Set[str], start: int, end: int) -> str:
    """The character there, set apart from what it could begin or end. The piece that it is in goes
    from `start` to `end`; what borders on that may be a mark that counts, and keeps its place."""
    mark = line[at]
    if mark not in pairs:
        return mark
    before, after = line[at - 1 : at] if at else "", line[at + 1 : at + 2]
    is_tied_before = bool(before) and not before.isspace()
    is_tied_after = bool(after) and not after.isspace()
    anywhere = mark == _CODE
    ends = is_tied_before and (anywhere or not _is_word(after))
    begins = is_tied_after and (anywhere or not _is_word(before))
    # A hair space takes the letter away that kept the mark from counting the other way.
    if ends and at + 1 < end:
        begins = is_tied_after
    elif begins and at > start:
        ends = is_tied_before
    return f"{_HAIR * ends}{mark}{_HAIR * begins}"


def _is_word(character: str) -> bool:
    """Whether every phone takes it for a part of a word."""
    return character.isascii() and character.isalnum()
