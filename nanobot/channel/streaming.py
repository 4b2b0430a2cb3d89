"""An answer while it streams, for the terminal and the page: complete Markdown blocks are taken off
and never change again. Only the last block is live. Pure.

A block is complete when the next one has begun, and only whole lines count, because the end of a
line decides what the line is (`abc` and `-` is a heading, `abc` and `- x` a list below a text). A
block beyond `_PART` characters is cut at a line, in the same place however the text arrives."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from nanobot.bus.split import close_fence
from nanobot.channel.markdown import clean_source, tokenize
from nanobot.text import clean

if TYPE_CHECKING:
    from markdown_it.token import Token

_PART = 7_900  # characters after which a block is cut, so that `render` does not

_BARE = re.compile(r"[ \t>]*(?:[-+*=_#|:~`.\s]*|\d+[.)]?\s*|(?:`{3,}|~{3,})[^\n]*)")
"""A last line of which only marks have come so far."""
_TABLE_HEAD = re.compile(r"(?:^|(?<=\n))[ \t]*\|[^\n]*(?:\n[ \t|:-]*)?\Z")
_OPEN_LINK = re.compile(r"!?\[([^\]\n]*)\]\([^)\n]*\Z")
_OPEN_FORMULA = re.compile(r"(?:\\\(|\\\[|\$\$|\$(?=\\))(?:(?!\\\)|\\\]|\$).){0,500}\Z", re.S)
_LONGEST_OPEN = 502  # characters of such a formula
_ENDED_BY_GAP = ("paragraph_open", "heading_open", "table_open", "hr")
"""Blocks that end before an empty line."""
_PAIRS = ("**", "__", "~~")
_OPENS = re.compile(r"(?<![\w*\\])[*](?=[^\s*])|(?<![\w_\\])_(?=[^\s_])")
_CLOSES = re.compile(r"(?<=[^\s*])[*](?![\w*])|(?<=[^\s_])_(?![\w_])")


class Piece(NamedTuple):
    """Markdown to print. `follows`: a blank line separates it from the piece before."""

    source: str
    follows: bool


class Answer:
    """The text of an answer so far. `parse` returns the tokens of a text, or None if that would
    take too long."""

    def __init__(self, parse: Callable[[str], Sequence[Token] | None] = tokenize) -> None:
        self._parse = parse
        self._done = ""
        """The source of the pieces that were taken."""
        self._tail = ""
        self._opening = ""
        """The line that opens the code block again in which a piece was cut."""
        self._has_new_line = False

    @property
    def text(self) -> str:
        """All of the text."""
        return self._done + self._tail

    @property
    def is_open(self) -> bool:
        """True if text has come."""
        return bool(self.text.strip())

    @property
    def has_taken(self) -> bool:
        """True if some of the text was taken."""
        return bool(self._done.strip())

    def add(self, text: str) -> None:
        """Add more text."""
        self._tail += text
        self._has_new_line = self._has_new_line or "\n" in text

    def take_blocks(self) -> list[Piece]:
        """Remove and return the complete blocks."""
        if not self._has_new_line:
            return []
        self._has_new_line = False
        end = self._tail.rfind("\n") + 1
        lines = clean(clean_source(self._tail[:end]))
        self._tail, end = lines + self._tail[end:], len(lines)
        taken: list[Piece] = []
        while more := self._take_window(end):
            end -= more[0]
            taken += more[1]
        return taken

    def _take_window(self, end: int) -> tuple[int, list[Piece]] | None:
        """Take the complete blocks of the first `_PART` characters of the lines up to `end`, or a
        part of a longer block. Return the number of characters too, or None if nothing is complete.
        """
        is_long = end > _PART
        most = self._tail.rfind("\n", 0, _PART) + 1 if is_long else end
        window = self._tail[: most or _PART]
        if size := self._measure_complete(window):
            return size, self._take(size)
        return (len(window), self._take(len(window), within=True)) if is_long else None

    def _measure_complete(self, window: str) -> int:
        """Return the number of characters of the complete blocks of `window`."""
        tokens = self._parse(self._opening + window) or ()
        blocks = [token for token in tokens if token.level == 0 and token.map]
        if not blocks:
            return 0
        if _is_complete(blocks[-1], self._opening + window):
            return len(window)
        first = (blocks[-1].map or (0,))[0] - bool(self._opening)
        return sum(len(line) + 1 for line in window.split("\n")[:first]) if first > 0 else 0

    def take_rest(self) -> list[Piece]:
        """Remove and return all text that is left."""
        self._tail = clean(clean_source(self._tail))
        return [*self._take_parts(len(self._tail)), *self._take(len(self._tail))]

    def complete(self, final: str) -> list[Piece] | None:
        """Return the pieces of the `final` text that were not taken yet, or None if the text that
        was taken is not its beginning. White space does not count."""
        final, wanted, at = clean(clean_source(final)), "".join(self._done.split()), 0
        for letter in wanted:
            while at < len(final) and final[at].isspace():
                at += 1
            if final[at : at + 1] != letter:
                return None
            at += 1
        self._tail = final[at:]
        return self.take_rest()

    def live(self, most: int) -> str:
        """Return about the last `most` characters of the last block, with its open marks closed."""
        return mend(_end_of(self._opening + self._tail, most)) if self._tail.strip() else ""

    def _take_parts(self, end: int) -> list[Piece]:
        """Take parts of a block that is too long to parse."""
        taken: list[Piece] = []
        while end > _PART:
            cut = self._tail.rfind("\n", 0, _PART) + 1 or _PART
            taken += self._take(cut, within=True)
            end -= cut
        return taken

    def _take(self, end: int, *, within: bool = False) -> list[Piece]:
        """Take the text up to `end`, `within` a block or between blocks."""
        follows = bool(self._done.strip()) and not self._opening
        raw, self._tail = self._tail[:end], self._tail[end:]
        source, self._opening = self._opening + raw.rstrip(), ""
        if within:
            source, self._opening = close_fence(source)
        self._done += raw
        return [Piece(source.lstrip("\n"), follows)] if raw.strip() else []


def _is_complete(last: Token, lines: str) -> bool:
    """Return True if no line after `lines` can belong to their last block."""
    if last.type == "fence":
        return not close_fence(lines)[1]
    return last.type in _ENDED_BY_GAP and lines.endswith("\n\n")


def _end_of(block: str, most: int) -> str:
    """Return the last lines of a long block, as a block of the same kind."""
    if len(block) <= most:
        return block
    cut = block.rfind("\n", 0, len(block) - most) + 1
    opening = close_fence(block[:cut])[1]
    if not opening and block.startswith("|"):  # the head of a table
        opening = "".join(block.splitlines(keepends=True)[:2])
    elif not opening and (item := re.compile(r"^(?=\S)", re.MULTILINE).search(block, cut)):
        cut = item.start()
    return opening + block[cut:]


def mend(source: str) -> str:
    """Return the last block of incomplete Markdown such that no marks are visible that will be
    hidden when it is complete."""
    before, _, last = source.rpartition("\n")
    if _BARE.fullmatch(last):
        source = before
    if close_fence(source)[1]:
        return source
    head, gap, text = source.rpartition("\n\n")
    text = _OPEN_LINK.sub(r"\1", _hide_formula(_hide_table_head(text)))
    if text.count("`") % 2:
        text = text[:-1] if text.endswith("`") else f"{text}`"
        return f"{head}{gap}{text}"
    for mark in _PAIRS:
        if text.count(mark) % 2:
            text = text.removesuffix(mark) if text.endswith(mark) else f"{text.rstrip()}{mark}"
    plain = text.replace("**", "").replace("__", "")
    if len(_OPENS.findall(plain)) > len(_CLOSES.findall(plain)):
        text = text.rstrip() + _OPENS.findall(plain)[-1]
    return f"{head}{gap}{text}"


def _hide_formula(text: str) -> str:
    """Remove a formula that has not ended."""
    found = _OPEN_FORMULA.search(text, max(0, len(text) - _LONGEST_OPEN))
    is_code = found is not None and text.count("`", 0, found.start()) % 2
    return text if found is None or is_code else text[: found.start()]


def _hide_table_head(text: str) -> str:
    """Remove the first line of a table at the end, which is text until the second is there."""
    found = _TABLE_HEAD.search(text)
    if found is None or text[: found.start()].rstrip("\n").rpartition("\n")[2].lstrip()[:1] == "|":
        return text
    second = found[0].partition("\n")[2]
    return text if "-" in second else text[: found.start()]
