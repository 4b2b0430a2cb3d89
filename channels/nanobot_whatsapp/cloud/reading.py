"""Reading JSON that somebody else wrote: whatever is of another type than documented counts as not
there. Nothing in here raises.

Notes and names come to stand in lines in brackets, which are nanobot's: what people choose freely
never holds a bracket or a line end of its own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from nanobot.channel.text import one_line

Raw = Mapping[str, object]
"""A JSON object."""

_NOTE = 500
"""Characters of a detail in a note."""


def object_in(raw: Raw, key: str) -> Raw:
    """The object there; an empty one where there is none."""
    value = raw.get(key)
    return value if isinstance(value, dict) else {}


def list_in(raw: Raw, key: str) -> Sequence[object]:
    """The list there; an empty one where there is none."""
    value = raw.get(key)
    return value if isinstance(value, list) else ()


def objects_in(raw: Raw, key: str) -> list[Raw]:
    """The objects of the list there."""
    return [item for item in list_in(raw, key) if isinstance(item, dict)]


def text_in(raw: Raw, key: str) -> str:
    """The text there; a whole number is one as well."""
    value = raw.get(key)
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else ""


def number_in(raw: Raw, key: str) -> float | None:
    """The number there, also where it is written as a text; None for none that is finite."""
    value = raw.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def flag_in(raw: Raw, key: str) -> bool:
    """Whether it is there and true."""
    return raw.get(key) is True


def note(kind: str, *details: str) -> str:
    """`kind: detail, detail`, or `kind` where no detail is known."""
    known = ", ".join(filter(None, (one_line(detail, _NOTE) for detail in details)))
    return f"{kind}: {known}" if known else kind
