"""Text with entities as Telegram takes it: plain text, and marks on ranges of it.

`Page` collects both. What it gives always holds to Telegram's rules: a range lies within the text,
has something visible in it and does not cut a character; two ranges are nested or apart; `pre` and
`code` contain nothing and, but for quotes, are in nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from nanobot.bus.split import utf16_length


@dataclass(frozen=True, slots=True)
class Entity:
    """A mark on a range of a text, as the Bot API's `MessageEntity`.

    `offset` and `length` are in UTF-16 code units; `url` is set for a `text_link`, `language` may
    be for a `pre`.
    """

    type: str
    offset: int
    length: int
    url: str = ""
    language: str = ""

    @property
    def end(self) -> int:
        """Where the range ends, exclusive."""
        return self.offset + self.length

    @property
    def extras(self) -> tuple[str, str]:
        """What it has besides its type and range."""
        return self.url, self.language


@dataclass(frozen=True, slots=True)
class Rendered:
    """A text and its entities, outer ones before the ones inside them."""

    text: str
    entities: tuple[Entity, ...] = ()


@dataclass(slots=True)
class Page:
    """Text that is being written, with the ranges marked so far (offsets in characters)."""

    _pieces: list[str] = field(default_factory=list)
    _ranges: list[Entity] = field(default_factory=list)
    _styles: dict[str, list[int]] = field(default_factory=dict)
    length: int = 0

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
        self._ranges.append(Entity(kind, start, self.length - start, url, language))

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
        """What was written from `start` on."""
        found: list[str] = []
        end = self.length
        for piece in reversed(self._pieces):
            if end <= start:
                break
            found.append(piece[max(0, start - (end - len(piece))) :])
            end -= len(piece)
        return "".join(reversed(found))

    def finish(self) -> Rendered:
        """The text without blanks around it, and the entities in order."""
        text = "".join(self._pieces).rstrip()
        lead = _blank_lead(text, self._ranges)
        text = text[lead:]
        trimmed = [kept for range_ in self._ranges if (kept := _trim(text, range_, lead))]
        return Rendered(text, tuple(_in_utf16(text, trimmed)))


_BLOCKS = frozenset({"pre", "blockquote"})
_ORDER = ("blockquote", "text_link", "bold", "italic", "strikethrough", "pre", "code")


def _blank_lead(text: str, ranges: Iterable[Entity]) -> int:
    """How many blanks before the text go; the indentation of code stays."""
    lead = len(text) - len(text.lstrip())
    if lead and any(range_.type == "pre" and range_.offset < lead for range_ in ranges):
        return 0
    return lead


def _trim(text: str, range_: Entity, lead: int) -> Entity | None:
    """The range, moved by `lead`, without the blanks around it; None where nothing is left."""
    start = max(range_.offset - lead, 0)
    inside = text[start : max(range_.end - lead, 0)].rstrip()
    shown = inside.lstrip("\n") if range_.type in _BLOCKS else inside.lstrip()
    if not shown:
        return None
    start += len(inside) - len(shown)
    return Entity(range_.type, start, len(shown), *range_.extras)


def _in_utf16(text: str, ranges: Sequence[Entity]) -> list[Entity]:
    """Ranges in order, with offsets in UTF-16 units instead of characters."""
    ordered = sorted(ranges, key=lambda one: (one.offset, -one.length, _ORDER.index(one.type)))
    if text.isascii():
        return ordered
    units: dict[int, int] = {}
    at = before = 0
    for position in sorted({edge for one in ordered for edge in (one.offset, one.end)}):
        at += utf16_length(text[before:position])
        before = position
        units[position] = at
    return [
        Entity(one.type, units[one.offset], units[one.end] - units[one.offset], *one.extras)
        for one in ordered
    ]
