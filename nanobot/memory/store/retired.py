"""`memory/retired.md`: facts that no longer hold, each with the day of its retirement. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import date

from nanobot.memory.store.guard import bare
from nanobot.memory.text.layout import split

RETIRED = "memory/retired.md"

_HEADING = "# Retired facts"
_LINE = re.compile(r"- (\d{4}-\d\d-\d\d): (.*)")


def with_retired(existing: str, today: date, lines: Iterable[str]) -> str:
    """`existing` with the facts on `lines` after it; what was retired today already stays as is."""
    standing = set(split(existing))
    marked = dict.fromkeys(f"- {today.isoformat()}: {bare(line)}" for line in lines)
    new = [line for line in marked if line not in standing]
    if not new:
        return existing
    if not existing.strip():
        existing = f"{_HEADING}\n\n"
    end = "" if existing.endswith("\n") else "\n"
    return existing + end + "\n".join(new) + "\n"


def retired_in(text: str) -> list[tuple[date, str]]:
    """The retired facts and the days of their retirement, in the order in which they stand."""
    found = []
    for line in split(text):
        if match := _LINE.fullmatch(line.strip()):
            try:
                found.append((date.fromisoformat(match[1]), match[2]))
            except ValueError:
                continue  # a day that no calendar has, typed by hand
    return found
