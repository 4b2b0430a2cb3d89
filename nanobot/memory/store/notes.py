"""The text of daily notes: `memory/YYYY-MM-DD.md`, one bullet a note. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date, datetime, timedelta

from nanobot.memory.text.unconfirmed import mark_of


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


def days_back(today: date, days: int) -> list[date]:
    """`today` and the days before it, newest first, `days` in all."""
    return [today - timedelta(days=ago) for ago in range(days)]
