"""What the commands print for people: aligned tables and short paragraphs from JSON-able data.

Functions from data to text, which only ask how wide the terminal is. The data comes from the
gateway or the files, so every value passes `one_line` or `clean` before it is shown, and a field
that is missing shows as nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from shutil import get_terminal_size
from typing import TYPE_CHECKING

from nanobot_cli.text import clean, columns, one_line, wrapped

if TYPE_CHECKING:
    from typing import TextIO

Data = Mapping[str, object]

_NARROWEST_CELL = 24
_BENEATH = "    "


def table(rows: Iterable[Sequence[str]], left: int = 0) -> str:
    """Rows with their columns aligned; the last column of each is as long as it is. On a terminal,
    where `left` columns are taken already, its words go on beneath where they began, or beneath
    the row where that is too narrow."""
    rows = [tuple(row) for row in rows]
    count = max(map(len, rows), default=0)
    widths = [
        max((columns(row[at]) for row in rows if len(row) > at + 1), default=0)
        for at in range(count)
    ]
    room = get_terminal_size().columns - left if sys.stdout.isatty() else sys.maxsize
    return "".join(f"{_laid_out(row, widths, room)}\n" for row in rows)


def fitted(shown: str, to: TextIO | None = None) -> str:
    """Text in lines that a terminal holds (`to`: standard output by default); elsewhere as it is,
    because programs and files want whole lines."""
    is_terminal = (to or sys.stdout).isatty()
    return wrapped(shown, get_terminal_size().columns) if is_terminal else shown


def size(count: int) -> str:
    """So many bytes, as `12.3 kB` or `1,234.5 MB`."""
    return f"{count / 1_000:.1f} kB" if count < 1_000_000 else f"{count / 1_000_000:,.1f} MB"


def counts(data: Data, **labels: str) -> str:
    """`2 waiting, 1 failed`; `empty` where all are 0."""
    found = [f"{number(data, key)} {label}" for key, label in labels.items() if number(data, key)]
    return ", ".join(found) or "empty"


def indent(block: str) -> str:
    """The block moved two columns to the right."""
    return "".join(f"  {line}".rstrip() + "\n" for line in block.splitlines())


def field(data: Data, key: str, width: int = 200) -> str:
    """A value as one line; empty where it is missing."""
    value = data.get(key)
    return "" if value is None else one_line(str(value), width)


def text(data: Data, key: str) -> str:
    """A text as it is, several lines perhaps."""
    value = data.get(key)
    return "" if value is None else str(value)


def number(data: Data, key: str) -> int:
    """A count; 0 where it is missing."""
    value = data.get(key)
    return int(value) if isinstance(value, int | float) else 0


def warning(data: Data) -> str:
    """A line about the `trouble` that an operation met, before its result."""
    trouble = clean(text(data, "trouble"))
    return f"warning: {trouble}\n\n" if trouble else ""


def record(data: Data, key: str) -> Data:
    """An object in the data; empty where it is missing."""
    value = data.get(key)
    return value if isinstance(value, dict) else {}


def records(data: Data, key: str) -> list[Data]:
    """A list of objects in the data; empty where it is missing."""
    value = data.get(key)
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _laid_out(row: Sequence[str], widths: Sequence[int], room: int) -> str:
    *head, last = row or ("",)
    lines, line = list[str](), ""
    for cell, width in zip(head, widths, strict=False):
        if line.strip() and columns(line) + width > room:
            lines.append(line.rstrip())
            line = _BENEATH
        line += f"{cell}{' ' * (width - columns(cell))}  "
    begins = columns(line)
    longest = max(map(columns, last.split()), default=0)
    least = min(columns(last), max(longest, _NARROWEST_CELL), room - len(_BENEATH))
    if line.strip() and room - begins < least:
        lines.append(line.rstrip())
        line, begins = _BENEATH, len(_BENEATH)
    if begins + columns(last) > room:
        last = wrapped(last, room - begins).replace("\n", "\n" + " " * begins)
    return "\n".join([*lines, f"{line}{last}".rstrip()])
