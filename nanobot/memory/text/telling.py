"""What a change of a file did, in a few words for the list of changes. Pure.

A line is quoted whole or only counted, so that one that must be erased later is found here as well.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from nanobot.memory.text.layout import is_fixed, split

_MOST = 3
_LONGEST = 100
_PLACEHOLDER = re.compile(r"[-*+]?\s*\(.*\)")
_MARK = re.compile(r"(?:[-*+]|\d{1,9}[.)])\s+")


def told(name: str, before: str, after: str) -> str:
    """`wrote: Tom's birthday is on 3 May and 2 lines more`; `edited NAME` where no line that says
    something came or went."""
    old, new = _said(before), _said(after)
    if wrote := [line for line in new if line not in old]:
        return f"wrote: {_listed(wrote)}"
    if gone := [line for line in old if line not in new]:
        return f"took out: {_listed(gone)}"
    return f"edited {name}"


def _said(text: str) -> dict[str, None]:
    lines = (line.strip() for line in split(text))
    said = (line for line in lines if line and not is_fixed(line))
    return dict.fromkeys(line for line in said if not _PLACEHOLDER.fullmatch(line))


def _listed(lines: Sequence[str]) -> str:
    short = [_MARK.sub("", line, count=1) for line in lines[:_MOST] if len(line) <= _LONGEST]
    more = len(lines) - len(short)
    rest = f"{more} {'line' if more == 1 else 'lines'}"
    if not short:
        return rest
    return "; ".join(short) + (f" and {rest} more" if more else "")
