"""Markdown in WhatsApp's own marks: *bold*, _italic_, ~strike~, code, quotes and lists.

Markdown becomes lines of spans (`nanobot.channel.markdown`), and spans become a line with marks
(`_Writer`). WhatsApp supports one level of lists and quotes. Deeper ones are indented or get
another `>`. A link's address follows its text.

WhatsApp cannot escape a mark, and its phones differ in reading them. A mark counts if the character
outside it is not a letter or digit and the one inside is not a space. It ends with the line at the
latest. So marks are written only if all phones recognize them, and a literal character that would
count as one gets a hair space on its inner side.

Invariant: no visible text is lost. If the result would be empty, or nesting is too deep, the source
is shown as it is."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence, Set

from loguru import logger

from nanobot.bus.events import Button
from nanobot.bus.split import utf16_length
from nanobot.channel.markdown import Dialect, Line, Span, Style, clean_source, lay_out

TEXT_LIMIT = 4096
"""UTF-16 units of a message: the limit of the Cloud API. A linked device may send more."""
CAPTION_LIMIT = 1024
"""UTF-16 units of a file's caption."""

_MARKS: dict[Style, str] = {"strong": "*", "em": "_", "s": "~"}
_CODE = "`"
_DELIMITER = re.compile(r"[*_~`]")
_ADDRESS = re.compile(r"(https?://[^\s<>]+)", re.IGNORECASE)
_HAIR = "\u200a"
_JOINER = "\u2060"
_LOOKS_LIKE_BLOCK = re.compile(r">|[-*] ")
_FENCE = "```"
# One long cell does not widen its column: a phone has about 40 characters per line.
_DIALECT = Dialect(bullets=("- ", "◦ ", "▪ "), indent="  ", widest_column=32)


def render(markdown: str) -> str:
    """Render `markdown` for WhatsApp. Never raises. The work is bounded."""
    source = clean_source(markdown)
    try:
        rendered = "\n".join(map(render_line, lay_out(source, _DIALECT))).strip("\n")
    except Exception as error:  # noqa: BLE001 - no text may prevent the answer
        logger.warning("Markdown could not be formatted: {}", type(error).__name__)
        rendered = ""
    return rendered or "\n".join(write_line([Span(line)]) for line in source.strip().split("\n"))


def fits(markdown: str, limit: int) -> bool:
    """Return True if the rendered `markdown` has at most `limit` UTF-16 units."""
    return utf16_length(render(markdown)) <= limit


def with_choices(markdown: str, buttons: Sequence[Button]) -> str:
    """Add a line for each button whose value is not in `markdown`, for chats without buttons."""
    missing = [button for button in buttons if button.value not in markdown]
    lines = "\n".join(f"• {button.label}: {button.value}" for button in missing)
    return f"{markdown}\n\n{lines}".lstrip("\n") if lines else markdown


def render_line(line: Line) -> str:
    if not line.is_code:
        return f"{line.prefix}{write_line(line.spans)}".rstrip()
    content = line.spans[0].text.replace(_FENCE, _JOINER.join(_CODE * 3))
    return f"{_FENCE}\n{content}\n{_FENCE}"


def write_line(spans: Iterable[Span]) -> str:
    """Return the line of these spans, without trailing blanks."""
    writer = _Writer()
    for span in spans:
        writer.add(span)
    return writer.finish()


class _Writer:
    """Writer that puts marks around words, never around blanks."""

    def __init__(self) -> None:
        self._pieces: list[tuple[str, bool]] = []  # a text, and whether it is literal
        self._open: list[Style] = []
        self._blank = ""
        self._last = ""
        self._closed = False

    def add(self, span: Span) -> None:
        words = span.text.strip()
        if not words:
            self._close(self._count_kept(span.styles))
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
        line = escape_pieces(self._pieces)
        return f"{_JOINER}{line}" if _LOOKS_LIKE_BLOCK.match(line) else line

    def _code(self, words: str) -> None:
        self._restyle(())
        if _CODE in words:  # three mark code too, and may contain single ones
            fence, words = _FENCE, words.replace(_CODE * 2, _JOINER.join(_CODE * 2))
            words = f"{_JOINER * words.startswith(_CODE)}{words}{_JOINER * words.endswith(_CODE)}"
        else:
            fence = _CODE
        self._mark(fence)
        self._text(words, literal=False)
        self._put(fence, literal=False)
        self._closed = True

    def _restyle(self, wanted: Sequence[Style]) -> None:
        """Set the styles of the following text."""
        self._close(self._count_kept(wanted))
        if self._blank:
            self._put(self._blank, literal=False)
            self._blank, self._closed = "", False
        for style in dict.fromkeys(wanted):
            if style not in self._open:
                self._open.append(style)
                self._mark(_MARKS[style])

    def _count_kept(self, wanted: Sequence[Style]) -> int:
        """Return the number of open styles that continue."""
        ended = (number for number, style in enumerate(self._open) if style not in wanted)
        return next(ended, len(self._open))

    def _close(self, kept: int) -> None:
        while len(self._open) > kept:
            self._put(_MARKS[self._open.pop()], literal=False)
            self._closed = True

    def _mark(self, mark: str) -> None:
        """Write an opening mark, separated from a letter before it."""
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

    def _put(self, text: str, *, literal: bool) -> None:
        self._pieces.append((text, literal))
        self._last = text[-1]


def escape_pieces(pieces: Sequence[tuple[str, bool]]) -> str:
    """Join the pieces. Literal characters that would count as marks get a hair space."""
    line = "".join(text for text, _ in pieces)
    counts = Counter(_DELIMITER.findall(line))
    pairs = frozenset(mark for mark, count in counts.items() if count > 1)
    written: list[str] = []
    start = 0
    for text, literal in pieces:
        end = start + len(text)
        if literal and pairs:
            written.extend(escape_mark(line, at, pairs, start, end) for at in range(start, end))
        else:
            written.append(text)
        start = end
    return "".join(written)


def escape_mark(line: str, at: int, pairs: Set[str], start: int, end: int) -> str:
    """Return the character at `at`, separated from text that would make it a mark. Its piece is
    from `start` to `end`. Neighbours outside may be real marks, so they stay adjacent."""
    mark = line[at]
    if mark not in pairs:
        return mark
    before, after = line[at - 1 : at] if at else "", line[at + 1 : at + 2]
    is_tied_before = bool(before) and not before.isspace()
    is_tied_after = bool(after) and not after.isspace()
    anywhere = mark == _CODE
    ends = is_tied_before and (anywhere or not _is_word(after))
    begins = is_tied_after and (anywhere or not _is_word(before))
    # The hair space replaces a neighbouring letter, so the mark may now count the other way.
    if ends and at + 1 < end:
        begins = is_tied_after
    elif begins and at > start:
        ends = is_tied_before
    return f"{_HAIR * ends}{mark}{_HAIR * begins}"


def _is_word(character: str) -> bool:
    """Return True if all phones treat the character as part of a word."""
    return character.isascii() and character.isalnum()
