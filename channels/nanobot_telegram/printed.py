"""The end of what a running tool prints, as a preview shows it. Pure."""

from __future__ import annotations

import re

_KEPT = 4_000
_LINES = 6
_COLUMNS = 100

_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)|[ -/]*[0-~])")
_CONTROLS = {code: None for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"}


def kept(before: str, more: str) -> str:
    """What to remember of an output that goes on: enough for `last_lines`, whatever its length."""
    return (before + more)[-_KEPT:]


def last_lines(output: str) -> str:
    """The last lines that say something, as a terminal would show them: a line that was written
    over (`\\r`) counts as it is now, and colours are left out."""
    lines = [_as_shown(line) for line in output.split("\n")]
    return "\n".join([line for line in lines if line.strip()][-_LINES:])


def _as_shown(line: str) -> str:
    plain = _SEQUENCE.sub("", line).rstrip("\r").rpartition("\r")[2].translate(_CONTROLS).rstrip()
    return plain if len(plain) <= _COLUMNS else plain[: _COLUMNS - 1] + "…"
