"""Markdown in WhatsApp's own marks: *bold*, _italic_, ~strike~, code, quotes and lists.

Path: Markdown to lines of spans (`nanobot.channel.markdown`), and spans to a line with marks
(`_Writer`). WhatsApp knows lists and quotes of one level; what lies deeper is indented or has a `>`
more. The address of a link stands behind its text.

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
from collections.abc import Iterable, Sequence, Set

from loguru import logger

from nanobot.bus.events import Button
from nanobot.bus.split import utf16_length
from nanobot.channel.markdown import Dialect, Line, Span, Style, clean_source, lay_out

TEXT_LIMIT = 4096
"""UTF-16 units of a message: the limit of the Cloud API. A linked device may send more."""
CAPTION_LIMIT = 1024
"""UTF-16 units of the caption of a file."""

_MARKS: dict[Style, str] = {"strong": "*", "em": "_", "s": "~"}
_CODE = "`"
_DELIMITER = re.compile(r"[*_~`]")
_ADDRESS = re.compile(r"(https?://[^\s<>]+)", re.IGNORECASE)
_HAIR = "\u200a"
_JOINER = "\u2060"
_LOOKS_LIKE_BLOCK = re.compile(r">|[-*] ")
_FENCE = "```"
# Columns of a table are not made wider for one long cell: a phone has about 40 characters.
_DIALECT = Dialect(bullets=("- ", "◦ ", "▪ "), indent="  ", widest_column=32)


def render(markdown: str) -> str:
    """`markdown` as WhatsApp shows it. Never raises; the work is bounded."""
    source = clean_source(markdown)
    try:
        rendered = "\n".join(map(_shown, lay_out(source, _DIALECT))).strip("\n")
    except Exception as error:  # noqa: BLE001 - an unforeseen text must not cost the answer
        logger.warning("Markdown is sent unformatted: {}", type(error).__name__)
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


def _shown(line: Line) -> str:
    if not line.is_code:
        return f"{line.prefix}{write_line(line.spans)}".rstrip()
    content = line.spans[0].text.replace(_FENCE, _JOINER.join(_CODE * 3))
    return f"{_FENCE}\n{content}\n{_FENCE}"


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
