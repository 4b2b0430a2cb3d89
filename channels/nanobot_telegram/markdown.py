"""Markdown as Telegram shows it: plain text with entities, which cannot fail to parse.

Markdown becomes lines of spans (`nanobot.channel.markdown`), and these become a `_Page`, which
follows Telegram's rules for entities. Quotes cannot nest: inner ones get a `>`.

Invariant: no visible text is lost. If the result would be empty, or the text is only markup or
nested too deeply, the source is shown as it is."""

from __future__ import annotations

import re
from collections.abc import Sequence

from loguru import logger
from msgspec import Struct
from msgspec.structs import replace
from telegram import MessageEntity

from nanobot.bus.split import utf16_length
from nanobot.channel.markdown import Dialect, Line, clean_source, is_parsed, lay_out

TEXT_LIMIT = 4096
"""UTF-16 units of a message."""
CAPTION_LIMIT = 1024
"""UTF-16 units of a file's caption."""
ENTITY_LIMIT = 100
"""Entities of a message. Telegram ignores more."""

_DELIMITER = re.compile(
    r"(?<![\s*])\*++|(?<!\S)\*++(?=\S)|~~++|(?<![\w])_++(?=\S)|(?<=[^\s_])_++(?!\w)|`++"
)
"""The runs that begin or end most entities. Runs match as a whole, for linear time."""

_PLAIN = re.compile(r"[^\W\d_](?:[^\W_]|[ ,.;?!'’])*+(?<! )")
"""A line without markup, such as most short answers. It needs no parser."""

STYLES = {"em": "italic", "strong": "bold", "s": "strikethrough", "spoiler": "spoiler"}
_LINKABLE = re.compile(r"https?://[^/?#\s]*[^/?#\s.]\.[^/?#\s]+|tg://[\w-]+", re.IGNORECASE)
"""Addresses that Telegram accepts as links. It silently drops links to hosts without a dot, and
reads `mailto:a@b.c` as a web address."""
_QUOTE = ("blockquote", "")
DIALECT = Dialect(
    bullets=("• ", "◦ ", "▪ "),
    indent="    ",
    widest_column=40,
    linkable=_LINKABLE,
    marks_quotes=False,
    hides=True,
)


def render(markdown: str) -> FormattedText:
    """Render `markdown` as text and entities. Never raises. The work is bounded.

    The number of entities is not limited: see `fits`."""
    if _PLAIN.fullmatch(markdown):
        return FormattedText(markdown)
    source = clean_source(markdown)
    page = _Page()
    try:
        for line in lay_out(source, DIALECT):
            page.add(line)
        rendered: FormattedText | None = page.finish()
    except Exception as error:  # noqa: BLE001 - no text may prevent the answer
        logger.warning("Markdown could not be formatted: {}", type(error).__name__)
        rendered = None
    return rendered if rendered and rendered.text else FormattedText(source.strip())


def fits(markdown: str, limit: int = TEXT_LIMIT) -> bool:
    """Return True if the rendered `markdown` fits in `limit` UTF-16 units and the number of
    entities.

    A text with too many delimiters is rejected without rendering."""
    if _PLAIN.fullmatch(markdown) and 2 * len(markdown) <= limit:
        return True
    if is_parsed(markdown):
        delimiters = _DELIMITER.findall(markdown)
        edges = sum(min(2, (len(run) + 1) // 2) for run in delimiters)  # a long run may count twice
        edges += 2 * min(markdown.count("["), markdown.count("]("))
        if edges > 2 * ENTITY_LIMIT:
            return False
    rendered = render(markdown)
    return utf16_length(rendered.text) <= limit and len(rendered.entities) <= ENTITY_LIMIT


class FormattedText(Struct, frozen=True):
    """A text and its entities, outer ones before inner ones."""

    text: str
    entities: tuple[MessageEntity, ...] = ()


class _Range(Struct, frozen=True):
    """A future entity. `start` and `end` (exclusive) are in characters. `detail` is a link's
    address or a code block's language."""

    type: str
    start: int
    end: int
    detail: str = ""


class _Page:
    """The written text, and the marked ranges.

    Invariant: the entities follow Telegram's rules. A range lies within the text, has visible text
    and does not cut a character. Two ranges are nested or disjoint. `pre` and `code` contain no
    others, and are contained only in quotes."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._ranges: list[_Range] = []
        self._open: dict[tuple[str, str], int] = {}
        self._length = 0

    def add(self, line: Line) -> None:
        """Write a line. Styles end with it. A quote continues to its last line."""
        if self._pieces:
            self._write("\n")
        quote = [_QUOTE] if line.is_quoted else []
        self._style(quote if _QUOTE in self._open else ())
        if not line.is_code:
            self._write(line.lead)
        self._style(quote)
        if not line.is_code:
            self._write(line.prefix if line.spans else line.prefix.rstrip())
        for span in line.spans:
            marks = [(STYLES[style], "") for style in span.styles]
            if span.url:
                marks.append(("text_link", span.url))
            elif line.is_code:
                marks = [("pre", line.language)]
            elif span.code:  # Telegram allows no code in styles
                marks = [("code", "")]
            self._style([*quote, *marks])
            self._write(span.text)
        self._style(quote)

    def _write(self, text: str) -> None:
        self._pieces.append(text)
        self._length += len(text)

    def _style(self, wanted: Sequence[tuple[str, str]]) -> None:
        """Set the marks of the following text: kinds, and their addresses or languages."""
        for mark in [mark for mark in self._open if mark not in wanted]:
            self._ranges.append(_Range(mark[0], self._open.pop(mark), self._length, mark[1]))
        for mark in wanted:
            self._open.setdefault(mark, self._length)

    def finish(self) -> FormattedText:
        """Return the text without surrounding blanks (code keeps its indentation), and the sorted
        entities."""
        self._style(())
        text = "".join(self._pieces).rstrip()
        lead = len(text) - len(text.lstrip())
        if any(one.type == "pre" and one.start < lead for one in self._ranges):
            lead = 0
        text = text[lead:]
        ranges = [kept for one in self._ranges if (kept := trim(text, one, lead))]
        ranges.sort(key=lambda one: (one.start, -one.end, _ORDER.index(one.type)))
        units: dict[int, int] = {}  # UTF-16 code units by character offset
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
                url=one.detail if one.type == "text_link" else None,
                language=(one.detail or None) if one.type == "pre" else None,
            )
            for one in ranges
        )
        return FormattedText(text, tuple(entities))


_LONG_QUOTE, _LONG_QUOTE_LINES = 600, 8
"""A quote with this many characters or lines is folded. A tap expands it."""
_EXPANDABLE = "expandable_blockquote"
_ORDER = (
    *("blockquote", _EXPANDABLE, "text_link", "bold", "italic", "strikethrough", "spoiler"),
    *("pre", "code"),
)


def trim(text: str, one: _Range, lead: int) -> _Range | None:
    """Return the range moved by `lead`, without surrounding blanks. None if nothing is left."""
    start = max(one.start - lead, 0)
    inside = text[start : max(one.end - lead, 0)].rstrip()
    end, kind = start + len(inside), one.type
    if kind == "pre":  # code keeps leading blank lines
        shown = inside
    elif kind == "blockquote":
        shown = inside.lstrip("\n")
        is_long = len(shown) >= _LONG_QUOTE or shown.count("\n") >= _LONG_QUOTE_LINES
        kind = _EXPANDABLE if is_long else kind
    else:
        shown = inside.lstrip()
    return replace(one, type=kind, start=end - len(shown), end=end) if shown else None
