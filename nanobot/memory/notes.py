"""The texts of daily notes (`memory/YYYY-MM-DD.md`, one bullet a note) and of `memory/retired.md`
(facts that no longer hold, each with the day of its retirement). Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import date, datetime

from nanobot.memory.guard import bare
from nanobot.memory.lines import split
from nanobot.memory.taint import mark_of


def note_path(day: date) -> str:
    """Where the notes of `day` lie in the workspace."""
    return f"memory/{day.isoformat()}.md"


def day_of(name: str) -> date | None:
    """The day whose notes a file of this name holds; None where no day has that name."""
    try:
        day = date.fromisoformat(name.removesuffix(".md"))
    except ValueError:
        return None
    return day if name == f"{day.isoformat()}.md" else None


def with_note(existing: str, now: datetime, text: str, origins: Iterable[str] = ()) -> str:
    """`existing` (empty on the first note of a day) with a note after it; lines are indented.

    `origins` name the foreign content that an unconfirmed note may come from.
    """
    lines = [line.rstrip() for line in text.strip().splitlines()]
    mark = mark_of(origins)
    note = "\n".join(
        [f"- {now:%H:%M} {mark}{lines[0]}", *(f"  {line}".rstrip() for line in lines[1:])]
    )
    if not existing.strip():
        return f"# {now.date().isoformat()}\n\n{note}\n"
    end = "" if existing.endswith("\n") else "\n"
    return f"{existing}{end}{note}\n"


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
