"""The owner's documents in `workspace/library/`: what there is, and its passages for the index.

Markdown, PDF, and whatever else is UTF-8 text. A passage is cited by place, `library/notes.md:12`
or `library/book.pdf p. 3`. Invariants: files are opened through `nanobot.security.paths`, so no
link is followed and nothing outside the folder is read; names that begin with a dot are passed
over; a document that cannot be read is one warning and no passages, never an error; sizes, pages,
characters and time are bounded. Everything here blocks; callers on the event loop use a thread.

A PDF comes from anywhere and its parser is a large program: so it runs in a child (`pdf_worker`,
which imports nothing of nanobot) with limits on memory, time and output and without this process's
environment. Whatever happens there is one `PdfUnreadable` here.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from loguru import logger

from nanobot.errors import StorageError, ToolError
from nanobot.memory.search.passages import cut_text
from nanobot.memory.search.values import Document
from nanobot.security.paths import Entry, Place, Root
from nanobot.text import printable

_WORKER = Path(__file__).with_name("pdf_worker.py")


class PdfUnreadable(Exception):
    """This file cannot be read; `str(error)` says why."""


@dataclass(frozen=True, slots=True)
class PdfLimits:
    """`seconds` for one file, `megabytes` of memory; `characters` are counted over all pages."""

    pages: int = 3_000
    characters: int = 5_000_000
    seconds: float = 60.0
    megabytes: int = 1_024


def read_pages(content: bytes, limits: PdfLimits) -> list[tuple[int, str]]:
    """The pages that hold text, numbered from 1. Blocks. Raises `PdfUnreadable`."""
    with tempfile.TemporaryFile() as output:
        arguments = (limits.pages, limits.characters, int(limits.seconds) + 1, limits.megabytes)
        try:
            done = subprocess.run(  # noqa: S603 - our own interpreter and our own file
                [sys.executable, "-P", str(_WORKER), *map(str, arguments)],
                input=content,
                stdout=output,
                stderr=subprocess.DEVNULL,
                timeout=limits.seconds,
                # Where modules are, and nothing else: no key, no proxy, no home.
                env={"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "LC_ALL": "C.UTF-8"},
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise PdfUnreadable(f"reading took longer than {limits.seconds:g} seconds") from error
        except OSError as error:
            raise PdfUnreadable(f"no process to read it with: {error.strerror}") from error
        output.seek(0)
        return _parsed(output.read(), done.returncode)


def _parsed(answer: bytes, code: int) -> list[tuple[int, str]]:
    """What the child wrote: `{"pages": [[1, "text"], …]}` or `{"error": "why"}`."""
    try:
        value = json.loads(answer)
    except ValueError as error:
        raise PdfUnreadable(f"its parser ended with code {code}") from error
    if isinstance(value, dict) and isinstance(value.get("error"), str):
        raise PdfUnreadable(value["error"])
    pages = value.get("pages") if isinstance(value, dict) else None
    if not isinstance(pages, list):
        raise PdfUnreadable("its parser gave no pages")
    return [(int(number), str(text)) for number, text in pages]


_MARKDOWN = (".md", ".markdown", ".mdown")
_HYPHEN = re.compile(r"(?<=[^\W\d_])[-\u00ad]\n(?=[a-z\u00df-\u00ff])")
_SPACES = re.compile(r"[ \t\u00a0]+")


@dataclass(frozen=True, slots=True)
class LibraryLimits:
    """Sizes in bytes; `characters` bounds the text taken from one document."""

    entries: int = 20_000
    text_bytes: int = 20 * 1024 * 1024
    pdf_bytes: int = 100 * 1024 * 1024
    characters: int = 5_000_000
    pdf: PdfLimits = field(default_factory=PdfLimits)


_LIMITS = LibraryLimits()


def documents(folder: Path, limits: LibraryLimits = _LIMITS) -> Iterator[Document]:
    """What there is to read below `folder`, by path; nothing without one. No file is opened."""
    root = _place(folder)
    for place, entry in sorted(root.walk(limits.entries), key=lambda found: found[0].names):
        if _is_document(place, entry):
            path = folder.joinpath(*place.names[1:])
            yield Document(path, entry.mtime_ns, entry.size)


def passages(path: Path, folder: Path, limits: LibraryLimits = _LIMITS) -> list[tuple[str, str]]:
    """The passages of the document at `path` below `folder`, in order, each with the place by
    which it is cited; empty where it cannot be read."""
    try:
        place = _place(folder)
        for name in path.relative_to(folder).parts:
            place = place.child(name)
        return _read(place, limits)
    except (StorageError, ToolError, PdfUnreadable, UnicodeDecodeError, ValueError) as error:
        why = "it is not UTF-8 text" if isinstance(error, UnicodeDecodeError) else str(error)
        logger.warning("{} in the library is not searched: {}", printable(path.name), why)
        return []


def _place(folder: Path) -> Place:
    """The library. Its parent is the root, so that a library which is a link is not followed."""
    return Root(folder.parent).place(folder.name)


def _read(place: Place, limits: LibraryLimits) -> list[tuple[str, str]]:
    shown = printable(place.relative)
    if place.names[-1].lower().endswith(".pdf"):
        content = place.read_bytes(limits.pdf_bytes) or b""
        pages = read_pages(content, limits.pdf) if content else []
        return [
            (f"{shown} p. {number}", cut.searchable)
            for number, page in pages
            for cut in cut_text(_flowing(page))
        ]
    text = _text(place.read_bytes(limits.text_bytes) or b"")[: limits.characters]
    markdown = place.names[-1].lower().endswith(_MARKDOWN)
    cuts = cut_text(text, headings=markdown)
    return [(f"{shown}:{cut.line}", cut.searchable) for cut in cuts]


def _is_document(place: Place, entry: Entry) -> bool:
    hidden = any(name.startswith(".") for name in place.names[1:])
    return entry.kind == "file" and entry.size > 0 and not hidden


def _text(content: bytes) -> str:
    """The text of a file; raises `UnicodeDecodeError` for what is none."""
    if b"\0" in content[:8_192]:
        raise UnicodeDecodeError("utf-8", content[:1], 0, 1, "a NUL byte")
    text = content.decode("utf-8-sig")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _flowing(page: str) -> str:
    """A page's text with hyphenated words put together and runs of spaces as one."""
    return _SPACES.sub(" ", _HYPHEN.sub("", page))
