"""Content of web pages: bytes of any encoding as text, and HTML as Markdown.

Pages declare wrong encodings. Text in other encodings is rarely valid UTF-8, so UTF-8 comes first,
then the server's charset, the page's charset, and finally Windows-1252, which decodes every byte.

An HTML parser is a large C program, so it runs in a child process (`page_worker`). Each failure
there becomes one `ToolError`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

from nanobot.errors import ToolError
from nanobot.security.worker import WorkerFailed, WorkerLimits, run_worker

_KNOWN = re.compile(
    r"utf-?(8|16|16le|16be|32)|us-ascii|ascii|iso-?8859-?[0-9]{1,2}|latin-?[0-9]{1,2}"
    r"|(windows|cp)-?125[0-8]|windows-874|koi8-[ru]|gb2312|gbk|gb18030|big5|big5-hkscs|euc-jp|euc-kr"
    r"|shift[_-]jis|sjis|iso-2022-(jp|kr)|macintosh|tis-620"
)
"""Allowed encodings. Python has others that are slow or not for text."""

_NOT_LIKE_ASCII = ("utf-16", "utf16", "utf-32", "utf32", "iso-2022")
"""Text in these encodings may look like valid UTF-8."""

_MARKS = ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"))
_META = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?\s*([a-zA-Z0-9_-]{2,20})", re.IGNORECASE)
_HEADER = re.compile(r"charset\s*=\s*[\"']?\s*([a-zA-Z0-9_-]{2,20})", re.IGNORECASE)


def decode(content: bytes, content_type: str = "") -> str:
    """Decode `content`. `content_type` is the header with its parameters."""
    for mark, name in _MARKS:
        if content.startswith(mark):
            return content.decode(name, "replace")
    for name in list_encodings(content, content_type):
        try:
            return content.decode(name)
        except (UnicodeDecodeError, LookupError):
            continue
    return content.decode("windows-1252", "replace")


def list_encodings(content: bytes, content_type: str) -> list[str]:
    head, meta = _HEADER.search(content_type), _META.search(content[:4_096])
    declared = head[1].lower() if head else ""
    inside = meta[1].decode("ascii").lower() if meta else ""
    names = ["utf-8", declared, inside]
    if declared.startswith(_NOT_LIKE_ASCII):
        names = [declared, "utf-8", inside]
    elif not declared and inside.startswith("iso-2022"):
        names = [inside, "utf-8"]
    return [name for name in names if _KNOWN.fullmatch(name)]


T = TypeVar("T", "Page", "HitsPage")

_WORKER = Path(__file__).with_name("page_worker.py")


class Page(Struct, frozen=True):
    """A page as Markdown. `error` is the reason if it could not be read."""

    title: str = ""
    text: str = ""
    error: str = ""


class HitsPage(Struct, frozen=True):
    """A page of search results: title, URL and snippet. `blocked`: the engine requires a captcha.
    `error` is the reason if it could not be read."""

    hits: tuple[tuple[str, str, str], ...] = ()
    blocked: bool = False
    error: str = ""


MOST_CHARACTERS = 1_000_000
"""Of the text of one page."""

_LIMITS = WorkerLimits(seconds=10.0)


def read_page(
    html: str, url: str, limits: WorkerLimits = _LIMITS, characters: int = MOST_CHARACTERS
) -> Page:
    """Return a page as Markdown. Blocks. Raises `ToolError`."""
    return run_page_worker(Page, ("page", url, characters), html, limits)


def read_hits(html: str, url: str) -> HitsPage:
    """Return the results on a DuckDuckGo page. Blocks. Raises `ToolError`."""
    return run_page_worker(HitsPage, ("hits", url, MOST_CHARACTERS), html, _LIMITS)


def run_page_worker(
    kind: type[T], asked: tuple[str, str, int], html: str, limits: WorkerLimits
) -> T:
    try:
        content = html.encode("utf-8", "replace")
        page = msgspec.json.decode(run_worker(_WORKER, asked, (content,), limits), type=kind)
        reason = page.error
    except WorkerFailed as error:
        reason = f"its reader {error}"
    except msgspec.DecodeError:
        reason = "its reader did not answer"
    if reason:
        raise ToolError(f"can't read the page {asked[1]}: {reason}")
    return page
