"""What an HTML page holds, read by a process of its own.

A page comes from anywhere and an HTML parser is a large program in C: so it runs in a child with
limits on memory, time and output and without this process's environment. Whatever happens there is
one `ToolError` here. The child is `page_worker`, which imports nothing of nanobot.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import BaseModel, ValidationError

from nanobot.errors import ToolError

T = TypeVar("T", bound=BaseModel)

_WORKER = Path(__file__).with_name("page_worker.py")


class Page(BaseModel):
    """A page as Markdown."""

    title: str
    text: str


class HitsPage(BaseModel):
    """The results on a page of a search engine: title, URL and snippet. `blocked`: it wants to see
    a person first."""

    hits: tuple[tuple[str, str, str], ...]
    blocked: bool


class _Unreadable(BaseModel):
    error: str


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


def read_hits(html: str, url: str, limits: PageLimits = _ORDINARY) -> HitsPage:
    """The results on a page of DuckDuckGo. Blocks. Raises `ToolError`."""
    return _read(HitsPage, "hits", html, url, limits)


def _read(
    kind: type[T], mode: Literal["page", "hits"], html: str, url: str, limits: PageLimits
) -> T:
    answer, code = _run(mode, html, url, limits)
    try:
        return kind.model_validate_json(answer)
    except ValidationError:
        pass
    try:
        reason = _Unreadable.model_validate_json(answer).error
    except ValidationError:
        reason = f"its reader ended with code {code}"
    raise ToolError(f"the page {url} cannot be read: {reason}")


def _run(
    mode: Literal["page", "hits"], html: str, url: str, limits: PageLimits
) -> tuple[bytes, int]:
    numbers = (limits.characters, int(limits.seconds) + 1, limits.megabytes)
    with tempfile.TemporaryFile() as output:
        try:
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
        except subprocess.TimeoutExpired as error:
            reason = f"reading took longer than {limits.seconds:g} seconds"
            raise ToolError(f"the page {url} cannot be read: {reason}") from error
        except OSError as error:
            reason = f"no process to read it with ({error.strerror})"
            raise ToolError(f"the page {url} cannot be read: {reason}") from error
        output.seek(0)
        return output.read(), done.returncode
