"""Quoting: how a fact enters memory unasked once foreign text is in a conversation. Pure.

The model points at a line that the person wrote, by some of its words, and code copies the whole
line. So nothing can be cut off that turns a line into its opposite ("not", "if", "says Bob"), and
nothing can be added. Whatever the model words itself waits for the person.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import date

from nanobot.errors import CallRefused
from nanobot.messages import EDITED, Message

_LONGEST = 1_000
"""Characters of a line; a longer one is no fact."""

_SHOWN = 80


def quotation(words: str, messages: Iterable[Message], today: date) -> str:
    """The one line of the person's that `words` stand in, whole, as a fact: `“…” (2026-11-23)`,
    with the day on which it was said.

    Case and spaces make no difference to which line is meant. Raises `ToolError` where that is not
    exactly one, or it is too long.
    """
    wanted = _plain(words)
    found = {line: day for line, day in _lines(messages) if wanted and wanted in _plain(line)}
    if not found:
        raise CallRefused(
            f"the person wrote no line with the words {words.strip()[:_SHOWN]!r}",
            hint="Give the first words of a line of theirs, exactly as they wrote them.",
        )
    exact = [line for line in found if _plain(line) == wanted]
    if len(found) > 1 and len(exact) != 1:
        shown = "; ".join(line[:_SHOWN] for line in list(found)[:3])
        raise CallRefused(f"more than one line has these words: {shown}", hint="Quote more of it.")
    line = exact[0] if exact else next(iter(found))
    if len(line) > _LONGEST:
        raise CallRefused(
            f"this line has {len(line):,} characters; only up to {_LONGEST:,} are kept"
        )
    return f"“{line}” ({found[line] or today})"


def _lines(messages: Iterable[Message]) -> Iterator[tuple[str, date | None]]:
    """The lines that the person wrote, and the days on which they did; the latest come last. What
    was written before something was edited may be what they took back by that."""
    own = [message for message in messages if message.own_words]
    edited = [at for at, message in enumerate(own) if EDITED in message.content.split("\n")]
    for message in own[edited[-1] if edited else 0 :]:
        day = message.timestamp.date() if message.timestamp else None
        for line in message.own_words.split("\n"):
            if line != EDITED and (told := " ".join(line.split())):
                yield told, day


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())
