"""The text of secrets.env, for those who read and write it: a line `NAME=value` for each secret.
Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

_ENTRY = re.compile(r"\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=(.*)", re.DOTALL)
_BOM = "\ufeff"
"""What some editors put at the beginning of a file."""


def fits(value: str) -> bool:
    """Whether a value can stand on a line: without line breaks of any kind, which would let it say
    more than itself, and characters that nobody sees."""
    return value.isprintable()


def entry_in(line: str) -> tuple[str, str] | None:
    """The name and the value in a line, with `export` before and quotes around taken off; None
    where there are none."""
    found = _ENTRY.fullmatch(line)
    return (found[1], _unquoted(found[2].strip())) if found else None


def entries(text: str) -> dict[str, str]:
    """The values by name."""
    found = map(entry_in, text.removeprefix(_BOM).splitlines())
    return dict(entry for entry in found if entry)


def with_entries(text: str, values: Mapping[str, str]) -> str:
    """`text` with these values in it; other lines stay as they are. Raises `ValueError` for a value
    that does not fit."""
    start = _BOM if text.startswith(_BOM) else ""
    lines = text.removeprefix(_BOM).splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    for name, value in values.items():
        if not fits(value):
            raise ValueError(f"{name} does not fit on a line")
        entries_at = ((at, entry_in(line)) for at, line in enumerate(lines))
        known = (at for at, entry in entries_at if entry and entry[0] == name)
        at = next(known, len(lines))
        lines[at : at + 1] = [f"{name}={_quoted(value)}\n"]
    return start + "".join(lines)


def _quoted(value: str) -> str:
    """A value whose own quotes, or blanks at its ends, are not taken for the file's."""
    if value == value.strip() and _unquoted(value) == value:
        return value
    return f"'{value}'" if '"' in value else f'"{value}"'


def _unquoted(value: str) -> str:
    quoted = len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'"
    return value[1:-1] if quoted else value
