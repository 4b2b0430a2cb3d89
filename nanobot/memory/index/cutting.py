"""Documents to passages: pieces of about a paragraph or two, each of which says where it stands.

Pure. A passage is a run of whole paragraphs below one heading, at most `MOST` characters; small
neighbours are put together, a paragraph longer than that is cut at the end of a sentence, else of a
word. A passage that does not begin with its heading carries it, because that is often where the
words of a question are. No text is lost and none is repeated, save for headings.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

MOST = 1_200
"""Characters of a passage, its heading aside."""

_ENOUGH = 500
"""A passage this long is not put together with what a new heading begins."""

_HEADING = re.compile(r" {0,3}#{1,6}\s+(?P<title>\S.*?)\s*#*\s*$")
_FENCE = re.compile(r" {0,3}(?:```|~~~)")
_SENTENCE = re.compile(r"[.!?…][\"'”’)\]]*\s|[。！？；][”」』）]*|\n")


@dataclass(frozen=True, slots=True)
class Cut:
    """A piece of a text: `line` is where it begins, counted from 1; `heading` is carried, not its
    own."""

    line: int
    text: str
    heading: str = ""

    @property
    def searchable(self) -> str:
        """The text with the heading that it stands under."""
        return f"{self.heading}\n{self.text}" if self.heading else self.text


@dataclass(frozen=True, slots=True)
class _Paragraph:
    line: int
    text: str
    title: str = ""  # where it is a heading


def cut_text(text: str, *, headings: bool = False) -> list[Cut]:
    """The passages of `text`; `headings` says that lines such as `## Plan` are headings."""
    cuts: list[Cut] = []
    together: list[_Paragraph] = []
    heading = above = ""
    for paragraph in _paragraphs(text, headings=headings):
        size = sum(len(part.text) + 2 for part in together)
        full = size + len(paragraph.text) > MOST
        if together and (full or (paragraph.title and size >= _ENOUGH)):
            cuts += _joined(together, above)
            together = []
        if not together:
            above = "" if paragraph.title else heading
        together.append(paragraph)
        heading = paragraph.title or heading
    return cuts + _joined(together, above)


def _joined(paragraphs: list[_Paragraph], heading: str) -> list[Cut]:
    if not paragraphs:
        return []
    if len(paragraphs) == 1:
        only = paragraphs[0]
        return [Cut(line, text, heading) for line, text in _pieces(only.line, only.text)]
    text = "\n\n".join(part.text for part in paragraphs)
    return [Cut(paragraphs[0].line, text, heading)]


def _paragraphs(text: str, *, headings: bool) -> Iterator[_Paragraph]:
    """What blank lines separate; a heading is one by itself, fenced code is never one."""
    lines: list[str] = []
    start, fenced = 1, False
    for number, line in enumerate(text.split("\n"), 1):
        fence = headings and _FENCE.match(line) is not None
        match = _HEADING.match(line) if headings and not (fenced or fence) else None
        if match or (not line.strip() and not fenced):
            if lines:
                yield _Paragraph(start, "\n".join(lines).rstrip())
                lines = []
            if match:
                yield _Paragraph(number, line.strip(), match["title"])
            continue
        if not lines:
            start = number
        lines.append(line.rstrip())
        fenced ^= fence
    if rest := "\n".join(lines).rstrip():
        yield _Paragraph(start, rest)


def _pieces(line: int, text: str) -> Iterator[tuple[int, str]]:
    """A long paragraph in pieces of at most `MOST` characters, with the line of each."""
    while len(text) > MOST:
        end = _end(text)
        if piece := text[:end].strip():
            yield line + _blank_lines(text), piece
        line += text.count("\n", 0, end)
        text = text[end:]
    if piece := text.strip():
        yield line + _blank_lines(text), piece


def _blank_lines(text: str) -> int:
    return text[: len(text) - len(text.lstrip())].count("\n")


def _end(text: str) -> int:
    """Where to cut: after the last sentence that ends in the second half, else after a word."""
    ends = [match.end() for match in _SENTENCE.finditer(text, MOST // 2, MOST)]
    if ends:
        return ends[-1]
    space = text.rfind(" ", MOST // 2, MOST)
    return space + 1 if space > 0 else MOST
