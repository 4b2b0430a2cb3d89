"""Notes about what a message holds besides its words."""

from __future__ import annotations

from nanobot.channel.text import one_line

_LONGEST = 10_000
"""Characters of a detail: a checklist that is full has half of that."""


def note(kind: str, *details: str | None) -> str:
    """`kind: detail, detail`, or `kind` where no detail is known."""
    lines = (one_line(detail, _LONGEST) for detail in details if detail)
    known = ", ".join(filter(None, lines))
    return f"{kind}: {known}" if known else kind
