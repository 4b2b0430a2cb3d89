"""The text of secrets.env, for those who write it: a line `NAME=value` for each secret. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

_ENTRY = re.compile(r"\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=(.*)", re.DOTALL)


def fits(value: str) -> bool:
    """Whether a value can stand on a line: without line breaks of any kind, which would let it say
    more than itself, and characters that nobody sees."""
    return value.isprintable()


def entries(text: str) -> dict[str, str]:
    """The values by name."""
    found = (_ENTRY.fullmatch(line) for line in text.splitlines())
    return {match[1]: _unquoted(match[2].strip()) for match in found if match}


def with_entries(text: str, values: Mapping[str, str]) -> str:
    """`text` with these values in it; other lines stay as they are. Raises `ValueError` for a value
    that does not fit."""
    lines = text.splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    for name, value in values.items():
        if not fits(value):
            raise ValueError(f"{name} does not fit on a line")
        entry = f"{name}={_quoted(value)}\n"
        at = next((at for at, line in enumerate(lines) if _name_in(line) == name), len(lines))
        lines[at : at + 1] = [entry]
    return "".join(lines)


def _name_in(line: str) -> str:
    found = _ENTRY.fullmatch(line)
    return found[1] if found else ""


def _quoted(value: str) -> str:
    """A value whose own quotes, or blanks at its ends, are not taken for the file's."""
    if value == value.strip() and _unquoted(value) == value:
        return value
    return f"'{value}'" if '"' in value else f'"{value}"'


def _unquoted(value: str) -> str:
    quoted = len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'"
    return value[1:-1] if quoted else value
