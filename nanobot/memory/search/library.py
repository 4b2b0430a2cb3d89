"""The owner's documents in `workspace/library/`, and their passages for the index.

Markdown, PDF and any other UTF-8 text. A passage is cited by place, `library/notes.md:12` or
`library/book.pdf p. 3`. Invariants: files are opened through `nanobot.security.paths`, so no link
is followed and nothing outside the folder is read. Hidden files are skipped. An unreadable document
causes a warning and has no passages, but is never an error. Sizes, pages, characters and time are
limited. All functions block: callers on the event loop use a thread.

A PDF is parsed in a child process (`pdf_worker`)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from loguru import logger
from msgspec import Struct

from nanobot.errors import StorageError, ToolError
from nanobot.security.paths import FolderEntry, Place, Root
from nanobot.security.worker import WorkerFailed, WorkerLimits, run_worker
from nanobot.text import printable

_WORKER = Path(__file__).with_name("pdf_worker.py")


class PdfLimits(Struct, frozen=True):
    """Limits for one file. `characters` is the total over all pages."""

    pages: int = 3_000
    characters: int = 5_000_000
    seconds: float = 60.0
    megabytes: int = 1_024


_LIMITS = PdfLimits()


def reads_pdf() -> bool:
    """Return True if the extra `pdf` is installed."""
    return find_spec("pypdf") is not None


def read_pages(content: bytes, limits: PdfLimits) -> list[tuple[int, str]]:
    """Return the pages with text, numbered from 1. Blocks. Raise `ToolError`."""
    if not reads_pdf():
        from nanobot.origin import how_to_install

        raise ToolError("it needs the extra `pdf`", hint=how_to_install("pdf"))
    bounds = WorkerLimits(limits.seconds, limits.megabytes)
    try:
        output = run_worker(_WORKER, (limits.pages, limits.characters), (content,), bounds)
        answer = json.loads(output)
        if isinstance(answer, str):
            raise ToolError(answer)
        return [(int(number), str(text)) for number, text in answer]
    except WorkerFailed as error:
        raise ToolError(f"its parser {error}") from error
    except (ValueError, TypeError) as error:
        raise ToolError("its parser returned no valid answer") from error


_MARKDOWN = (".md", ".markdown", ".mdown")
_HYPHEN = r"(?<=[^\W\d_])[-\u00ad]\n(?=[a-z\u00df-\u00ff])"
_SPACES = r"[ \t\u00a0]+"
_MOST_ENTRIES = 20_000
_TEXT_BYTES, _PDF_BYTES = 20 * 1024 * 1024, 100 * 1024 * 1024
_CHARACTERS = 5_000_000


def documents(folder: Path) -> Iterator[tuple[Place, FolderEntry]]:
    """Yield the readable files below `folder`, by path, without opening them. PDF files count only
    if the extra `pdf` is installed, so they are indexed after its installation."""
    without_pdf = not reads_pdf()
    # The folder's parent is the root, so that a linked library is not followed.
    root = Root(folder.parent).place(folder.name)
    for place, entry in sorted(root.walk_tree(_MOST_ENTRIES), key=lambda found: found[0].names):
        hidden = any(name.startswith(".") for name in place.names[1:])
        if entry.kind != "file" or entry.size <= 0 or hidden:
            continue
        if without_pdf and place.names[-1].lower().endswith(".pdf"):
            _warn_of_pdf()
        else:
            yield place, entry


@cache
def _warn_of_pdf() -> None:
    from nanobot.origin import how_to_install

    logger.warning("PDF files in the library are not searched. {}", how_to_install("pdf"))


def passages(place: Place, limits: PdfLimits = _LIMITS) -> list[tuple[str, str]]:
    """Return the passages of a document, in order, each with the place that cites it, or [] if it
    is unreadable."""
    shown, name = printable(place.relative), place.names[-1].lower()
    try:
        if name.endswith(".pdf"):
            content = place.read_bytes(_PDF_BYTES)
            return [
                (f"{shown} p. {number}", cut.searchable)
                for number, page in (read_pages(content, limits) if content else [])
                for cut in cut_text(re.sub(_SPACES, " ", re.sub(_HYPHEN, "", page)))
            ]
        text = _text(place.read_bytes(_TEXT_BYTES) or b"")[:_CHARACTERS]
    except (StorageError, ToolError) as error:
        logger.warning("{} in the library is not searched: {}", printable(place.names[-1]), error)
        return []
    cuts = cut_text(text, headings=name.endswith(_MARKDOWN))
    return [(f"{shown}:{cut.line}", cut.searchable) for cut in cuts]


def _text(content: bytes) -> str:
    try:
        if b"\0" not in content[:8_192]:
            text = content.decode("utf-8-sig")
            return text.replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError:
        pass
    raise ToolError("it is not UTF-8 text")


LONGEST = 1_200
"""Maximum characters of a passage, without its heading."""

_ENOUGH = 500  # a passage of this length is not merged with the text under a new heading

_HEADING = r"^ {0,3}#{1,6}[ \t]+(\S.*)$"
_PARAGRAPH = r"(?m)()(?:^.*\S.*\n?)+"
_MARKDOWN_PARAGRAPH = rf"(?m){_HEADING}|(?:(?!{_HEADING})^.*\S.*\n?)+"
_SENTENCE = r"[.!?…][\"'”’)\]]*\s|[。！？；][”」』）]*|\n"


class Cut(NamedTuple):
    """A piece of a text: `line` is its first line, counted from 1. `heading` is the one above it,
    unless the piece begins with it."""

    line: int
    text: str
    heading: str = ""

    @property
    def searchable(self) -> str:
        """The text with its heading."""
        return f"{self.heading}\n{self.text}" if self.heading else self.text


def cut_text(text: str, *, headings: bool = False) -> list[Cut]:
    """Return the passages of `text`: runs of whole paragraphs below one heading, at most `LONGEST`
    characters. Small neighbours are merged, a longer paragraph is cut at the end of a sentence,
    else of a word. A passage carries its heading if it does not begin with it. No text is lost or
    repeated, except for headings. With `headings`, lines such as `## Plan` are headings."""
    cuts: list[Cut] = []
    heading, line, end = "", 1, 0
    for found in re.finditer(_MARKDOWN_PARAGRAPH if headings else _PARAGRAPH, text):
        line, end = line + text.count("\n", end, found.start()), found.start()
        title = (found[1] or "").rstrip("# \t")
        paragraph, size = found[0].rstrip(), len(cuts[-1].text) if cuts else LONGEST
        if size + 2 + len(paragraph) > LONGEST or (title and size >= _ENOUGH):
            # The heading often has the words of a question.
            cuts += cut_paragraph(line, paragraph, "" if title else heading)
        else:
            cuts[-1] = cuts[-1]._replace(text=f"{cuts[-1].text}\n\n{paragraph}")
        heading = title or heading
    return cuts


def cut_paragraph(line: int, text: str, heading: str) -> Iterator[Cut]:
    """Yield a paragraph in pieces of at most `LONGEST` characters."""
    while text:
        end = len(text)
        if end > LONGEST:  # cut after the last sentence of the second half, else after a word
            sentences = re.compile(_SENTENCE).finditer(text, LONGEST // 2, LONGEST)
            ends = [match.end() for match in sentences]
            end = ends[-1] if ends else text.rfind(" ", LONGEST // 2, LONGEST) + 1 or LONGEST
        if piece := text[:end].strip():
            blank = text[: len(text) - len(text.lstrip())]
            yield Cut(line + blank.count("\n"), piece, heading)
        line += text.count("\n", 0, end)
        text = text[end:]
