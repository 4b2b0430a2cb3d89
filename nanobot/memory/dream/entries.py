"""What Dream reads: a stretch of conversation, or a day's notes, and what it rests on.

What an entry says was written by a model that may have repeated a web page, so an entry carries
what is known of the raw messages behind it: where foreign text among them came from, and what the
person said themselves, which can be quoted. Where raw messages are gone (deleted, forgotten) there
is nothing left to learn from.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import date, datetime, time, tzinfo

from nanobot.memory.grounds.marks import is_foreign, origins_of
from nanobot.memory.history.log import HistoryEntry
from nanobot.memory.text.layout import split
from nanobot.memory.text.unconfirmed import NOTE, is_unconfirmed
from nanobot.messages import Message
from nanobot.tokens import estimate_tokens

Evidence = Callable[[str, int, int], list[Message]]
"""The messages of a session from one seq to another, both included, without retracted ones.
Blocks."""

LOOKBACK = 100
"""Messages before an entry's own that may have been in the prompt as well: what a page told the
model there, it can say again here without the page."""

_OWN = frozenset({"", "nanobot"})
_TITLE = re.compile(r"^\[\d{4}-\d\d-\d\d[ T]\d\d:\d\d\]\s*")
_UNCONFIRMED = re.compile(r"\(from [^\n]*?, unconfirmed\) ")
_LONGEST_LINE, _LONGEST_ENTRY = 1_000, 16_000
"""Characters."""
_OWN_LINES = 60
"""Lines of the person's that are shown with an entry that foreign content touched."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a batch.

    `key` names it in what is remembered about runs; `cursor` is that of the history, 0 for notes.
    `said_at` is the time of what is newest in it. `said` are the messages in which the person can
    be quoted, `origins` where foreign content in it came from, empty where there is none.
    """

    key: str
    cursor: int
    said_at: datetime
    title: str
    lines: tuple[str, ...]
    said: tuple[Message, ...] = ()
    origins: tuple[str, ...] = ()

    @property
    def is_tainted(self) -> bool:
        """Whether anything in it came from elsewhere than the person and the agent."""
        return bool(self.origins)

    @property
    def text(self) -> str:
        """What it says, without its title."""
        return "\n".join(self.lines)

    def shown(self, number: int) -> str:
        """The entry as the model reads it; only its first line begins at the margin."""
        marks = f" (from {', '.join(self.origins)})" if self.origins else ""
        first, *rest = self.lines or ("",)
        head = f"[{number}] {self.title}{marks}: {first}".rstrip()
        return "\n".join([head, *(f"  {line}" for line in rest)])

    @property
    def size(self) -> int:
        """About how many tokens it takes."""
        return estimate_tokens(self.shown(0))


def of_history(entry: HistoryEntry, evidence: Evidence) -> Entry | None:
    """A history entry with what it rests on; None where nothing of that is left."""
    behind: list[Message] = []
    if entry.session and entry.last:
        behind = evidence(entry.session, max(1, entry.first - LOOKBACK), entry.last)
    messages = [one for one in behind if one.seq >= entry.first]
    if entry.session and entry.last and not messages:
        return None
    lines = _raw(messages) if entry.type == "raw" and messages else _told(entry)
    claimed = tuple(origin for origin in entry.origin if origin not in _OWN)
    if not claimed and not messages and entry.type != "import":
        return None
    origins = claimed or origins_of(behind)
    if origins and entry.type != "raw":
        lines = _fitted([*lines, *_own_lines(messages)])
    stamp = f"[{entry.timestamp:%Y-%m-%d %H:%M}] {entry.session}".rstrip()
    raw = " (raw)" if entry.type == "raw" else ""
    return Entry(
        key=str(entry.cursor),
        cursor=entry.cursor,
        said_at=_newest(messages, entry.timestamp),
        title=stamp + raw,
        lines=lines,
        said=tuple(messages),
        origins=origins,
    )


def of_note(day: date, text: str, zone: tzinfo | None) -> Entry | None:
    """A day's notes, dated from its beginning; None where nothing stands there.

    Notes that are marked as unconfirmed are untrusted.
    """
    lines = [line for line in split(text) if line.strip() and not line.startswith("# ")]
    if not lines:
        return None
    said, origin = [], ""
    for line in lines:
        if not line.startswith(" "):  # what is indented belongs to the note above
            origin = NOTE if is_unconfirmed(line) else ""
        said.append(_said(_UNCONFIRMED.sub("", line, count=1), origin))
    return Entry(
        key=day.isoformat(),
        cursor=0,
        said_at=datetime.combine(day, time(), zone),
        title=f"[{day.isoformat()}] note",
        lines=("", *_fitted(lines)),
        said=tuple(one for one in said if not one.origin),
        origins=origins_of(said),
    )


def _told(entry: HistoryEntry) -> tuple[str, ...]:
    summary = _TITLE.sub("", entry.summary.strip())
    facts = [f"- {fact}" for fact in entry.key_facts]
    return _fitted([*summary.splitlines(), *facts])


def _own_lines(messages: Iterable[Message]) -> list[str]:
    """What the person wrote themselves, to be quoted from."""
    said = (line for message in messages for line in message.own_words.splitlines())
    lines = [f"> {line}" for line in said if line.strip()]
    return ["Lines of the person's own:", *lines[-_OWN_LINES:]] if lines else []


def _raw(messages: Iterable[Message]) -> tuple[str, ...]:
    lines = []
    for message in messages:
        if message.content.strip():
            origin = f" (from {message.origin})" if is_foreign(message) else ""
            content = " ".join(message.content.split())
            lines.append(f"{message.role.upper()}{origin}: {content}")
    return _fitted(["", *lines])


def _fitted(lines: Iterable[str]) -> tuple[str, ...]:
    """`lines` shortened so that one entry cannot fill a prompt; search still finds the rest."""
    fitted: list[str] = []
    left = _LONGEST_ENTRY
    for line in lines:
        cut = line if len(line) <= _LONGEST_LINE else f"{line[:_LONGEST_LINE]} …"
        left -= len(cut)
        if left < 0:
            return (*fitted, "…")
        fitted.append(cut)
    return tuple(fitted)


def _newest(messages: Iterable[Message], otherwise: datetime) -> datetime:
    times = [message.timestamp for message in messages if message.timestamp is not None]
    return max(times, default=otherwise)


def _said(text: str, origin: str) -> Message:
    return Message("user", text, origin=origin)
