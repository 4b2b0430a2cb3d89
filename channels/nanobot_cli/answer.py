"""An answer while it streams: complete Markdown blocks are taken off and never change again. Only
the last block is live. Pure.

A block is complete when the next one has begun, and only whole lines count, because the end of a
line decides what the line is (`abc` and `-` is a heading, `abc` and `- x` a list below a text)."""

from __future__ import annotations

import re
from typing import NamedTuple

from nanobot.bus.split import close_fence
from nanobot.channel.markdown import clean_source, tokenize
from nanobot.text import clean

_PART = 7_900  # characters after which a block is cut, so that `render` does not

_BARE = re.compile(r"[ \t>]*(?:[-+*=_#|:~`.\s]*|\d+[.)]?\s*|(?:`{3,}|~{3,})[^\n]*)")
"""A last line of which only marks have come so far."""
_TABLE_HEAD = re.compile(r"(?:^|(?<=\n))[ \t]*\|[^\n]*(?:\n[ \t|:-]*)?\Z")
_OPEN_LINK = re.compile(r"!?\[([^\]\n]*)\]\([^)\n]*\Z")
_PAIRS = ("**", "__", "~~")
_OPENS = re.compile(r"(?<![\w*\\])[*](?=[^\s*])|(?<![\w_\\])_(?=[^\s_])")
_CLOSES = re.compile(r"(?<=[^\s*])[*](?![\w*])|(?<=[^\s_])_(?![\w_])")


class Piece(NamedTuple):
    """Markdown to print. `follows`: a blank line separates it from the piece before."""

    source: str
    follows: bool


class Answer:
    """The text of an answer so far."""

    def __init__(self) -> None:
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
        tokens = tokenize(self._opening + lines) or ()
        starts = [token.map[0] for token in tokens if token.level == 0 and token.map]
        if starts and (number := starts[-1] - bool(self._opening)) > 0:
            return self._take(sum(len(line) + 1 for line in lines.split("\n")[:number]))
        return self._take_parts(end)

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
    text = _OPEN_LINK.sub(r"\1", _hide_table_head(text))
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


def _hide_table_head(text: str) -> str:
    """Remove the first line of a table at the end, which is text until the second is there."""
    found = _TABLE_HEAD.search(text)
    if found is None or text[: found.start()].rstrip("\n").rpartition("\n")[2].lstrip()[:1] == "|":
        return text
    second = found[0].partition("\n")[2]
    return text if "-" in second else text[: found.start()]
