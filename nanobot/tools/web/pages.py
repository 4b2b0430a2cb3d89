"""What a page holds: bytes as text, whatever they claim to be, and HTML as Markdown.

Pages lie about their encoding. Text in another encoding is hardly ever valid UTF-8, so what is
valid UTF-8 is taken for it; then what the server says, what the page says, and at last
Windows-1252, in which every byte means something.

A page comes from anywhere and an HTML parser is a large program in C: so it runs in a child with
limits on memory, time and output and without this process's environment. Whatever happens there is
one `ToolError` here. The child is `page_worker`, which imports nothing of nanobot.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import BaseModel, ValidationError

from nanobot.errors import ToolError

_KNOWN = re.compile(
    r"utf-?(8|16|16le|16be|32)|us-ascii|ascii|iso-?8859-?[0-9]{1,2}|latin-?[0-9]{1,2}"
    r"|(windows|cp)-?125[0-8]|windows-874|koi8-[ru]|gb2312|gbk|gb18030|big5|big5-hkscs|euc-jp|euc-kr"
    r"|shift[_-]jis|sjis|iso-2022-(jp|kr)|macintosh|tis-620"
)
"""Only these: Python knows others that are slow, or no encodings of text at all."""

_NOT_LIKE_ASCII = ("utf-16", "utf16", "utf-32", "utf32", "iso-2022")
"""In these, text may look like valid UTF-8 and is not."""

_MARKS = ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"))
_META = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?\s*([a-zA-Z0-9_-]{2,20})", re.IGNORECASE)
_HEADER = re.compile(r"charset\s*=\s*[\"']?\s*([a-zA-Z0-9_-]{2,20})", re.IGNORECASE)


def decode(content: bytes, content_type: str = "") -> str:
    """The text of `content`; `content_type` is the header with its parameters."""
    for mark, name in _MARKS:
        if content.startswith(mark):
            return content.decode(name, "replace")
    for name in _candidates(content, content_type):
        try:
            return content.decode(name)
        except (UnicodeDecodeError, LookupError):
            continue
    return content.decode("windows-1252", "replace")


def is_wide(content: bytes, content_type: str) -> bool:
    """Whether text may hold NUL bytes because its characters have several."""
    declared = _declared(content_type)
    return declared.startswith(_NOT_LIKE_ASCII) or content.startswith((b"\xff\xfe", b"\xfe\xff"))


def _candidates(content: bytes, content_type: str) -> list[str]:
    declared = _declared(content_type)
    found = _META.search(content[:4_096])
    inside = found[1].decode("ascii").lower() if found else ""
    names = ["utf-8", declared, inside]
    if declared.startswith(_NOT_LIKE_ASCII):
        names = [declared, "utf-8", inside]
    elif not declared and inside.startswith("iso-2022"):
        names = [inside, "utf-8"]
    return [name for name in names if _KNOWN.fullmatch(name)]


def _declared(content_type: str) -> str:
    found = _HEADER.search(content_type)
    return found[1].lower() if found else ""


T = TypeVar("T", "Page", "HitsPage")

_WORKER = Path(__file__).with_name("page_worker.py")


class Page(BaseModel):
    """A page as Markdown. `error` is why it could not be read."""

    title: str = ""
    text: str = ""
    error: str = ""


class HitsPage(BaseModel):
    """The results on a page of a search engine: title, URL and snippet. `blocked`: it wants to see
    a person first. `error` is why it could not be read."""

    hits: tuple[tuple[str, str, str], ...] = ()
    blocked: bool = False
    error: str = ""


@dataclass(frozen=True, slots=True)
class PageLimits:
    """`characters` of text for one page, `seconds` and `megabytes` to read it."""

    characters: int = 1_000_000
    seconds: float = 10.0
    megabytes: int = 1_024


_ORDINARY = PageLimits()


def read_page(html: str, url: str, limits: PageLimits = _ORDINARY) -> Page:
    """The text of a page. Blocks. Raises `ToolError`."""
    return _read(Page, "page", html, url, limits)


def read_hits(html: str, url: str) -> HitsPage:
    """The results on a page of DuckDuckGo. Blocks. Raises `ToolError`."""
    return _read(HitsPage, "hits", html, url, _ORDINARY)


def _read(
    kind: type[T], mode: Literal["page", "hits"], html: str, url: str, limits: PageLimits
) -> T:
    try:
        answer, code = _run(mode, html, url, limits)
        page = kind.model_validate_json(answer)
        reason = page.error
    except subprocess.TimeoutExpired:
        reason = f"reading took longer than {limits.seconds:g} seconds"
    except OSError as error:
        reason = f"no process to read it with ({error.strerror})"
    except ValidationError:
        reason = f"its reader ended with code {code}"
    if reason:
        raise ToolError(f"the page {url} cannot be read: {reason}")
    return page


def _run(mode: str, html: str, url: str, limits: PageLimits) -> tuple[bytes, int]:
    numbers = (limits.characters, int(limits.seconds) + 1, limits.megabytes)
    with tempfile.TemporaryFile() as output:
        done = subprocess.run(  # noqa: S603 - our own interpreter and our own file
            [sys.executable, "-P", "-S", str(_WORKER), mode, url, *map(str, numbers)],
            input=html.encode("utf-8", "replace"),
            stdout=output,
            stderr=subprocess.DEVNULL,
            timeout=limits.seconds,
            # Where modules are, and nothing else: no key, no proxy, no home.
            env={"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "LC_ALL": "C.UTF-8"},
            check=False,
        )
        output.seek(0)
        return output.read(), done.returncode
