"""Digests of months: daily notes condensed to lines that name their days. Pure.

A digest is `memory/YYYY-MM.md`, next to the notes, which remain. Dream writes it once, when all
days of the month are more than a month old. From then on the person may edit or delete it. A line
ends with its days, which lead people and code to the notes:

    - Ran three times a week (09-03, 09-05, 09-12)

Notes that untrusted content may have caused are left out, so a digest never bypasses approval."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date

from msgspec import Struct

from nanobot.memory.answers import json_object
from nanobot.memory.guard import without_bullet, without_list_mark
from nanobot.memory.line_changes import number_blocks
from nanobot.memory.similarity import share, words
from nanobot.memory.taint import is_unconfirmed
from nanobot.providers.fields import items, mapping, string
from nanobot.providers.port import ToolSpec

_NAME = r"(\d{4}-(?:0[1-9]|1[0-2]))\.md"
_DAYS = r"(?<!\s)\s*\(((?:\d\d-\d\d(?:, )?)+)\)$"
_MOST_LINES, _LONGEST_LINE = 40, 300
_MOST_SHOWN = 40_000
"""Characters of a month's notes in the request. If there are more, each day gets its share."""
_OFTEN = 3
"""Days that make a line recurrent."""
_SAME = 0.6
"""Share of a line's words that recurs in the digest of another month."""


_LINE = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "days": {"type": "array", "items": {"type": "integer"}},
    },
    "required": ["text", "days"],
}
DIGEST = ToolSpec(
    "digest",
    "The lines of a digest.",
    {
        "type": "object",
        "properties": {"lines": {"type": "array", "items": _LINE}},
        "required": ["lines"],
    },
)


class DigestLine(Struct, frozen=True):
    """A line without its list mark, and the days of its notes."""

    text: str
    days: tuple[date, ...]

    @classmethod
    def of(cls, line: str, month: str) -> DigestLine:
        """Parse a line of the digest of `month`. A line that a person wrote may name no days."""
        bare, found = without_list_mark(line), re.search(_DAYS, line)
        days = list[date]()
        for day in found[1].strip(", ").split(", ") if found else ():
            with suppress(ValueError):
                days.append(date.fromisoformat(f"{month[:4]}-{day}"))
        return cls(re.sub(_DAYS, "", bare), tuple(days))

    def __str__(self) -> str:
        days = ", ".join(f"{day:%m-%d}" for day in self.days)
        return f"- {self.text} ({days})" if days else f"- {self.text}"


def month_of(name: str) -> str:
    """Return the month (YYYY-MM) of a digest's file name, or "" for another file."""
    found = re.fullmatch(_NAME, name)
    return found[1] if found else ""


def is_month(key: str) -> bool:
    """Return True if `key` is a month (YYYY-MM)."""
    return bool(month_of(f"{key}.md"))


def digest_path(month: str) -> str:
    return f"memory/{month}.md"


def first_of(month: str) -> date:
    """Return the first day of a month."""
    return date.fromisoformat(f"{month}-01")


def due_months(days: Iterable[date], today: date) -> list[str]:
    """Return the months of `days` whose last day is more than a month ago, in order."""
    present = today.year * 12 + today.month
    past = (day for day in days if present - (day.year * 12 + day.month) >= 2)
    return sorted({f"{day:%Y-%m}" for day in past})


def drop_unconfirmed(text: str) -> str:
    """Return a day's notes without the unconfirmed ones, which untrusted content may have
    caused."""
    return "\n".join(block for _, block in number_blocks(text) if not is_unconfirmed(block))


def digest_request(month: str, notes: Mapping[date, str]) -> str:
    """Return the message that shows a month's notes by day, cut if they are long."""
    is_long = sum(map(len, notes.values())) > _MOST_SHOWN
    most = _MOST_SHOWN // len(notes) if is_long else _MOST_SHOWN
    parts = [f"## Notes of {month}"]
    parts += [f"### {day}\n\n{cut_lines(text, most)}" for day, text in sorted(notes.items())]
    return "\n\n".join(parts)


def read_digest(answer: str, days: Collection[date]) -> list[DigestLine] | None:
    """Return the lines of an answer about the notes of these days, or None if it is not an answer.
    Lines without any of the days are dropped."""
    found = json_object(answer, {"lines"})
    if found is None:
        return None
    numbers, lines = {day.day: day for day in days}, list[DigestLine]()
    for raw in items(found.get("lines")):
        fields = mapping(raw)
        text = without_bullet(" ".join(string(fields.get("text")).split()))[:_LONGEST_LINE]
        # A day may come as a number, or as a date.
        named = (re.findall(r"\d+", str(day)) for day in items(fields.get("days")))
        known = {numbers.get(int(day[-1][:9])) for day in named if day}
        if text and (rests_on := sorted(filter(None, known))):
            lines.append(DigestLine(text, tuple(rests_on)))
    return lines[:_MOST_LINES]


def digest_text(month: str, lines: Iterable[DigestLine]) -> str:
    """Return the file's text, or "" without lines."""
    listed = [f"{line}\n" for line in lines]
    return "".join([f"# {month}\n\n", *listed]) if listed else ""


def digest_lines(month: str, text: str) -> Iterator[tuple[int, DigestLine]]:
    """Yield the lines of a digest with their line numbers."""
    for number, block in number_blocks(text):
        yield number, DigestLine.of(block, month)


def find_recurring(
    lines: Iterable[DigestLine], other_months: Sequence[DigestLine]
) -> Iterator[DigestLine]:
    """Yield the lines that have several days or recur in the digest of another month."""
    for line in lines:
        wanted = words(line.text)
        again = (share(wanted, other.text) >= _SAME for other in other_months)
        if len(line.days) >= _OFTEN or any(again):
            yield line


def cut_lines(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    shown = text[:most]
    return "\n".join([shown.rpartition("\n")[0] or shown, "…"])
