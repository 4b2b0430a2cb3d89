"""The digest of a month: what its daily notes come to, as lines that name the days they rest on.

A digest is `memory/YYYY-MM.md`, beside the notes, which stay. Dream writes it once, when all days
of the month are older than a month; from then on it is a text of the person's, which they may edit
or delete. A line ends with its days, so that it can be followed to the notes, by people and code:

    - Ran three times a week (09-03, 09-05, 09-12)

Notes that foreign content may have caused are left out: they wait for the person's word as they
did, and a digest is never a way around it. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date

from msgspec import Struct

from nanobot.memory.answers import json_object
from nanobot.memory.guard import without_bullet, without_list_mark
from nanobot.memory.line_changes import numbered_blocks
from nanobot.memory.similarity import share, words
from nanobot.memory.taint import is_unconfirmed
from nanobot.providers.fields import items, mapping, string
from nanobot.providers.port import ToolSpec

_NAME = re.compile(r"(\d{4}-(?:0[1-9]|1[0-2]))\.md")
_DAYS = re.compile(r"(?<!\s)\s*\(((?:\d\d-\d\d(?:, )?)+)\)$")
_MOST_LINES, _LONGEST_LINE = 40, 300
_MOST_SHOWN = 40_000
"""Characters of a month's notes in the question; where there are more, each day gets its share."""
_OFTEN = 3
"""A line that rests on so many days recurs."""
_SAME = 0.6
"""A line of which another month's digest says this share of the words recurs."""


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
    """A line without its list mark, and the days whose notes it rests on."""

    text: str
    days: tuple[date, ...]

    @classmethod
    def of(cls, line: str, month: str) -> DigestLine:
        """What stands on a line of the digest of `month`; a line of a person's own may name no
        days."""
        bare, found = without_list_mark(line), _DAYS.search(line)
        days = list[date]()
        for day in found[1].strip(", ").split(", ") if found else ():
            with suppress(ValueError):
                days.append(date.fromisoformat(f"{month[:4]}-{day}"))
        return cls(_DAYS.sub("", bare), tuple(days))

    def __str__(self) -> str:
        days = ", ".join(f"{day:%m-%d}" for day in self.days)
        return f"- {self.text} ({days})" if days else f"- {self.text}"


def month_of(name: str) -> str:
    """The month, as YYYY-MM, whose digest a file of this name holds; empty for another file."""
    found = _NAME.fullmatch(name)
    return found[1] if found else ""


def is_month(key: str) -> bool:
    """Whether `key` names a month, as YYYY-MM."""
    return bool(month_of(f"{key}.md"))


def digest_path(month: str) -> str:
    """Where the digest of a month lies."""
    return f"memory/{month}.md"


def first_of(month: str) -> date:
    """Its first day."""
    return date.fromisoformat(f"{month}-01")


def due_months(days: Iterable[date], today: date) -> list[str]:
    """The months of `days` whose last day is more than a month ago, in order."""
    present = today.year * 12 + today.month
    past = (day for day in days if present - (day.year * 12 + day.month) >= 2)
    return sorted({f"{day:%Y-%m}" for day in past})


def confirmed_notes(text: str) -> str:
    """A day's notes without those that foreign content may have caused."""
    return "\n".join(block for _, block in numbered_blocks(text) if not is_unconfirmed(block))


def digest_request(month: str, notes: Mapping[date, str]) -> str:
    """The message that shows the notes of a month by their days, each cut where there are many."""
    is_long = sum(map(len, notes.values())) > _MOST_SHOWN
    most = _MOST_SHOWN // len(notes) if is_long else _MOST_SHOWN
    parts = [f"## Notes of {month}"]
    parts += [f"### {day}\n\n{_cut(text, most)}" for day, text in sorted(notes.items())]
    return "\n\n".join(parts)


def read_digest(answer: str, days: Collection[date]) -> list[DigestLine] | None:
    """The lines of an answer about the notes of these days; None where it is none. A line that
    names none of the days rests on nothing and is left out."""
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
    """The file; empty where there is no line."""
    listed = [f"{line}\n" for line in lines]
    return "".join([f"# {month}\n\n", *listed]) if listed else ""


def digest_lines(month: str, text: str) -> Iterator[tuple[int, DigestLine]]:
    """The lines of a digest with their numbers."""
    for number, block in numbered_blocks(text):
        yield number, DigestLine.of(block, month)


def recurring(
    lines: Iterable[DigestLine], other_months: Sequence[DigestLine]
) -> Iterator[DigestLine]:
    """Those lines that rest on several days, or that the digest of another month says as well."""
    for line in lines:
        wanted = words(line.text)
        again = (share(wanted, other.text) >= _SAME for other in other_months)
        if len(line.days) >= _OFTEN or any(again):
            yield line


def _cut(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    shown = text[:most]
    return "\n".join([shown.rpartition("\n")[0] or shown, "…"])
