"""The small header in front of each of the person's messages in the prompt.

`[today, Sat 2026-11-21 14:03 +01:00, telegram:123]`; older ones read `[yesterday, …]`,
`[3 days ago, …]`. It is a pure function of what is stored and of today's date, so it changes at
most once a day and the provider's prompt cache holds until then. Days are differences of civil
dates in the offset of the message's receipt, which is stored with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime
from typing import Literal

from nanobot.memory.text.layout import split

Timestamps = Literal["relative", "absolute", "off"]

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_LATE_MINUTES = 5
"""From then on it matters to an answer that the question waited."""
_NOTICE_LINES = 8
_NOTICE_CHARACTERS = 160


def header(stamp: datetime | None, session_key: str, today: date, style: Timestamps) -> str:
    """The header line, empty when headers are off or the time is unknown."""
    if style == "off" or stamp is None:
        return ""
    written = stamp.isoformat(" ", "minutes")
    moment = f"{_DAYS[stamp.weekday()]} {written[:16]} {written[16:]}"
    if style == "absolute":
        return f"[{moment}, {session_key}]"
    return f"[{_day_label((today - stamp.date()).days)}, {moment}, {session_key}]"


def late_notice(stamp: datetime, now: datetime) -> str:
    """`[late: sent 3 h 5 min before this answer]` for what waited, else empty."""
    minutes = int((now - stamp).total_seconds() // 60)
    if minutes < _LATE_MINUTES:
        return ""
    days, rest = divmod(minutes, 24 * 60)
    parts = zip((days, *divmod(rest, 60)), ("days", "h", "min"), strict=True)
    words = " ".join([f"{number} {unit}" for number, unit in parts if number][:2])
    return f"[late: sent {words} before this answer]"


def memory_notice(before: str, after: str) -> str:
    """`[memory changed: added "…"; removed "…"]`: what differs between two texts, in one line.

    Empty when no line was added or removed. Long changes are cut, with a pointer to the file.
    """
    old, new = _lines(before), _lines(after)
    known, left = set(old), set(new)
    changes = [f'added "{_short(line)}"' for line in new if line not in known]
    changes += [f'removed "{_short(line)}"' for line in old if line not in left]
    if not changes:
        return ""
    if len(changes) > _NOTICE_LINES:
        more = len(changes) - _NOTICE_LINES
        changes = [*changes[:_NOTICE_LINES], f"and {more} more, see memory/MEMORY.md"]
    return f"[memory changed: {'; '.join(changes)}]"


def _day_label(days: int) -> str:
    if days <= 0:
        return "today"
    return "yesterday" if days == 1 else f"{days} days ago"


def _lines(text: str) -> Sequence[str]:
    lines = (line.strip().removeprefix("- ").strip() for line in split(text))
    return [line for line in lines if line and not line.startswith("#")]


def _short(line: str) -> str:
    text = line.replace('"', "'")
    return text if len(text) <= _NOTICE_CHARACTERS else f"{text[: _NOTICE_CHARACTERS - 1]}…"
