"""What goes out, for every adapter: the facts of a file to send; Markdown, parsed with a bound on
the work, and its tables in columns.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import cache
from mimetypes import guess_type
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from nanobot.bus.events import Media
from nanobot.errors import SendRefused
from nanobot.text import one_line

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

_MAX_NESTING = 20
"""Levels of blocks, of which a list takes two; the parser drops what lies deeper."""
_MAX_LENGTH = 8_192
_MAX_BRACKETS = 1_000
"""Where brackets nest, the parser takes time by the square of the length; up to these limits, which
no message reaches, that is a tenth of a second."""
_MAX_CELLS = 5_000
"""The parser makes up the cells that a row of a table lacks."""
_CELL_BORDER = re.compile(r"(?<!\\)\|")


class FileFacts(NamedTuple):
    """Of a file to send: its name for people, its MIME type without parameters (empty: unknown),
    its size in bytes."""

    name: str
    mime: str
    size: int


def file_facts(media: Media, path: Path, limit: int, platform: str) -> FileFacts:
    """Raises `SendRefused` where the file is gone, empty, or larger than `limit` bytes."""
    name = one_line(media.name or path.name)
    try:
        size = path.stat().st_size
    except OSError:
        hint = "Ask for it to be made again."
        raise SendRefused(f"the file {name} is gone", hint=hint) from None
    if size > limit:
        raise SendRefused(
            f"{name} has {size / 1e6:.0f} MB; {platform} takes at most {limit / 1e6:.0f} MB",
            hint="Make it smaller or put it where it can be downloaded.",
        )
    if size == 0:
        raise SendRefused(f"{name} is empty, and {platform} takes no empty files")
    mime = media.mime or guess_type(name)[0] or ""
    return FileFacts(name, mime.partition(";")[0].strip().lower(), size)


def is_parsed(source: str) -> bool:
    """Whether parsing `source` takes a reasonable time, as that of real messages does."""
    if len(source) > _MAX_LENGTH or source.count("[") > _MAX_BRACKETS:
        return False
    lines = source.split("\n")
    return max(line.count("|") for line in lines) * len(lines) <= _MAX_CELLS


def parse_markdown(source: str) -> list[Token] | None:
    """The tokens of `source`, in which HTML and definitions of references are text; None where it
    takes too long to parse or is nested so deeply that some of it would be missing."""
    if not is_parsed(source):
        return None
    tokens = _parser().parse(source)
    if any(token.nesting == 1 and token.level >= _MAX_NESTING - 1 for token in tokens):
        return None
    return tokens


def plain_text(children: Iterable[Token] | None) -> str:
    """The text of inline tokens on one line, with the addresses of links and images."""
    pieces: list[str] = []
    links: list[tuple[int, Token]] = []
    for token in children or ():
        if token.type in {"softbreak", "hardbreak"}:
            pieces.append(" ")
        elif token.type == "image":
            pieces.append(_with_address(plain_text(token.children), token, "src"))
        elif token.type == "link_open":
            links.append((len(pieces), token))
        elif token.type == "link_close":
            start, link = links.pop()
            pieces[start:] = [_with_address("".join(pieces[start:]), link, "href")]
        else:
            pieces.append(token.content)
    return "".join(pieces).strip()


def table_text(tokens: Sequence[Token], source: Sequence[str], *, widest: int) -> str:
    """The table of `tokens` (from `table_open` to `table_close`) in columns, for a font of fixed
    width; as it stands in the lines of the `source` where a row has more cells than the head, since
    the parser drops those. Cells of more than `widest` columns do not widen theirs."""
    rows: list[list[str]] = []
    aligns: list[str] = []
    for token in tokens:
        if token.type == "tr_open":
            if rows and token.map and _cell_count(source[token.map[0]]) > len(rows[0]):
                first, last = tokens[0].map or (0, 0)
                return "\n".join(source[first:last])
            rows.append([])
        elif token.type == "th_open":
            aligns.append(str(token.attrs.get("style", "")).rpartition(":")[2])
        elif token.type == "inline":
            rows[-1].append(plain_text(token.children))
    bare = [" | ".join(row).rstrip() for row in rows]
    widths = [
        max((width for cell in column if (width := _width(cell)) <= widest), default=3)
        for column in zip(*rows, strict=True)
    ]
    if (sum(widths) + 3 * len(widths)) * len(rows) > 3 * sum(map(len, bare)) + 400:
        return "\n".join(bare)  # mostly blanks otherwise
    lines = [
        " | ".join(_padded(*cell) for cell in zip(row, widths, aligns, strict=True)).rstrip()
        for row in rows
    ]
    return "\n".join((lines[0], "-+-".join("-" * width for width in widths), *lines[1:]))


@cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"maxNesting": _MAX_NESTING})
    # Definitions of references stay what they are, text: resolved, an unused one would vanish.
    return parser.enable(["strikethrough", "table"]).disable("reference")


def _with_address(text: str, link: Token, address: str) -> str:
    url, title = str(link.attrs.get(address, "")), str(link.attrs.get("title", ""))
    text = text if text.strip() else url
    about = f" ({url})" if url not in {"", text, f"mailto:{text}"} else ""
    return text + about + (f" ({title})" if title else "")


def _padded(cell: str, width: int, align: str) -> str:
    room = max(0, width - _width(cell))
    before = {"center": room // 2, "right": room}.get(align, 0)
    return f"{' ' * before}{cell}{' ' * (room - before)}"


def _width(text: str) -> int:
    """How many columns `text` takes: East Asian wide characters two, combining ones none."""
    if text.isascii():
        return len(text)
    shown = (each for each in text if unicodedata.category(each) not in {"Mn", "Me", "Cf"})
    return sum(2 if unicodedata.east_asian_width(each) in {"W", "F"} else 1 for each in shown)


def _cell_count(line: str) -> int:
    """How many cells a line of a table has; marks of quotes may stand before it."""
    cells = _CELL_BORDER.split(line.lstrip(" \t>").rstrip())
    return len(cells) - (not cells[0]) - (not cells[-1])
