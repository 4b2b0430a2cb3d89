"""The unread entries of a scope, with the origin of their content.

Unread are history entries past the cursor, notes of past days, and digests of past months. An
entry's text was written by a model that may have repeated a web page. So an entry carries facts
about the raw messages behind it: the sources of untrusted content among them, and the person's own
words, which can be quoted. If the raw messages are gone (deleted, forgotten), there is nothing left
to learn from. Reading blocks. Forgotten messages and entries are skipped."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence, Set
from datetime import date, datetime, time, tzinfo

from msgspec import Struct
from msgspec.structs import replace

from nanobot.memory.digests import (
    DigestLine,
    digest_lines,
    digest_path,
    drop_unconfirmed,
    due_months,
    find_recurring,
    first_of,
    is_month,
)
from nanobot.memory.dream.state import ScopeState
from nanobot.memory.forget import ForgottenFacts
from nanobot.memory.history import HistoryEntry
from nanobot.memory.line_changes import number_blocks, split
from nanobot.memory.scopes import Memory
from nanobot.memory.store import note_path
from nanobot.memory.taint import NOTE, foreign_in, is_foreign, is_unconfirmed, origins_of
from nanobot.messages import Message
from nanobot.providers.port import estimate_tokens
from nanobot.tasks import pace

ReadMessages = Callable[[str, int, int, int], list[Message]]
"""Returns the messages of a session from one seq to another, both included, without retracted ones,
and at most so many before them, since `/new`. Blocks."""

LOOKBACK = 100
"""Messages before an entry's range that may also have been in the prompt: the model can repeat a
page from there. No prompt reaches over `/new`."""

_RAW = {"raw": " (raw)"}
_TITLE = r"^\[\d{4}-\d\d-\d\d[ T]\d\d:\d\d\]\s*"
_UNCONFIRMED = r"\(from [^\n]*?, unconfirmed\) "
_LONGEST_LINE, _LONGEST_ENTRY = 1_000, 16_000
"""Characters."""
_OWN_LINES = 60
"""The person's lines that are shown with an entry that untrusted content touched."""
_BATCH_TOKENS = 16_000
"""Tokens of entries in one request, which fit the context window of a small model."""


class DreamEntry(Struct, frozen=True):
    """One entry of a batch.

    `key` identifies it in the state. `cursor` is that of the history, 0 for notes. `said_at` is the
    time of its newest content. `said` are messages in which the person can be quoted, `origins` the
    sources of untrusted content."""

    key: str
    cursor: int
    said_at: datetime
    title: str
    lines: tuple[str, ...]
    said: tuple[Message, ...] = ()
    origins: tuple[str, ...] = ()

    @property
    def note(self) -> str:
        """The day or month of the notes, empty for an entry of the history."""
        return "" if self.cursor else self.key

    @property
    def text(self) -> str:
        """The text without the title."""
        return "\n".join(self.lines)

    def render(self, number: int) -> str:
        """Render the entry for the model. Only its first line is not indented."""
        marks = f" (from {', '.join(self.origins)})" if self.origins else ""
        first, *rest = self.lines or ("",)
        head = f"[{number}] {self.title}{marks}: {first}".rstrip()
        return "\n".join([head, *(f"  {line}" for line in rest)])


def entry_of_history(entry: HistoryEntry, read_messages: ReadMessages) -> DreamEntry | None:
    """Return a history entry with its sources, or None if no source is left."""
    behind: list[Message] = []
    if entry.last:
        behind = read_messages(entry.session, entry.first, entry.last, LOOKBACK)
    messages = [one for one in behind if one.seq >= entry.first]
    claimed = foreign_in(entry.origin)
    if not messages and (entry.last or not (claimed or entry.type == "import")):
        return None
    origins = claimed or origins_of(behind)
    times = (one.timestamp for one in messages)
    stamp = f"[{entry.timestamp:%Y-%m-%d %H:%M}] {entry.session}".rstrip()
    return DreamEntry(
        key=str(entry.cursor),
        cursor=entry.cursor,
        said_at=max(filter(None, times), default=entry.timestamp),
        title=f"{stamp}{_RAW.get(entry.type, '')}",
        lines=fit_lines(collect_lines(entry, messages, is_tainted=bool(origins))),
        said=tuple(messages),
        origins=origins,
    )


def collect_lines(
    entry: HistoryEntry, messages: Sequence[Message], *, is_tainted: bool
) -> list[str]:
    """Return the messages of a raw entry, or the summary of another. The person's words that are
    marked to keep are added whole, and their other lines if the entry is tainted."""
    if entry.type == "raw" and messages:
        return ["", *filter(None, map(render_raw_line, messages))]
    summary = re.sub(_TITLE, "", entry.summary.strip()).splitlines()
    facts = [f"- {fact}" for fact in entry.key_facts]
    own = [one for one in messages if one.own_words]
    kept = [f"- {' '.join(one.own_words.split())}" for one in own if one.kept]
    marked = ["Marked to keep by the person:", *kept] if kept else []
    return [*summary, *facts, *marked, *(_own_lines(own) if is_tainted else ())]


def _own_lines(messages: Iterable[Message]) -> list[str]:
    said = (line for message in messages for line in message.own_words.splitlines())
    lines = [f"> {line}" for line in said if line.strip()]
    return ["Lines of the person's own:", *lines[-_OWN_LINES:]] if lines else []


def render_raw_line(message: Message) -> str:
    content = " ".join(message.content.split())
    origin = f" (from {message.origin})" if is_foreign(message) else ""
    kept = " (marked to keep)" if message.kept else ""
    return f"{message.role.upper()}{origin}{kept}: {content}" if content else ""


def entry_of_note(day: date, text: str, zone: tzinfo | None) -> DreamEntry | None:
    """Return a day's notes, dated from its beginning, or None without notes.

    Notes that are marked as unconfirmed are untrusted."""
    notes = (block for _, block in number_blocks(text, headings=True))
    blocks = [block for block in notes if not block.startswith("# ")]
    lines = filter(str.strip, split("\n".join(blocks)))
    if not blocks:
        return None
    said = [
        Message(
            *("user", re.sub(_UNCONFIRMED, "", block, count=1)),
            origin=NOTE if is_unconfirmed(block) else "",
        )
        for block in blocks
    ]
    return DreamEntry(
        key=day.isoformat(),
        cursor=0,
        said_at=datetime.combine(day, time(), zone),
        title=f"[{day.isoformat()}] note",
        lines=("", *fit_lines(lines)),
        said=tuple(one for one in said if not one.origin),
        origins=origins_of(said),
    )


def entry_of_digest(
    month: str, text: str, others: Sequence[DigestLine], zone: tzinfo | None
) -> DreamEntry | None:
    """Return the lines of a digest that recur on several days or in `others`, the digests of other
    months, or None. A single event is not worth a fact by itself."""
    lines = list(find_recurring((line for _, line in digest_lines(month, text)), others))
    if not lines:
        return None
    newest = max((day for line in lines for day in line.days), default=first_of(month))
    return DreamEntry(
        key=month,
        cursor=0,
        said_at=datetime.combine(newest, time(), zone),
        title=f"[{month}] digest of the month's notes, what recurs",
        lines=("", *fit_lines(map(str, lines))),
    )


def fit_lines(lines: Iterable[str]) -> tuple[str, ...]:
    """Shorten `lines` so that one entry cannot fill a prompt. Search still finds the rest."""
    fitted: list[str] = []
    left = _LONGEST_ENTRY
    for line in lines:
        cut = line if len(line) <= _LONGEST_LINE else f"{line[:_LONGEST_LINE]} …"
        left -= len(cut)
        if left < 0:
            return (*fitted, "…")
        fitted.append(cut)
    return tuple(fitted)


class Reader:
    """Reads one scope.

    Each unread entry has a key: the cursor of a history entry, the day of a note (YYYY-MM-DD), or
    the month of a digest (YYYY-MM). Notes of the day of `now` are not complete yet, and a month is
    due if all of its days are older than a month."""

    def __init__(self, memory: Memory, read_messages: ReadMessages, now: datetime) -> None:
        self._memory, self._read_messages, self.now = memory, read_messages, now
        self.forgotten = ForgottenFacts(memory.root)

    def unread_keys(self, state: ScopeState) -> list[str]:
        """Return the keys of unread entries in reading order, without opening any file."""
        history, today = self._memory.history, self.now.date().isoformat()
        days = (day.isoformat() for day in self._memory.store.note_days())
        cursors = map(str, history.cursors(history.dream_cursor()))
        return [*cursors, *(day for day in days if state.note < day < today)]

    def due_months(self, state: ScopeState) -> list[str]:
        """Return the months that are due, in order."""
        months = due_months(self._memory.store.note_days(), self.now.date())
        return [month for month in months if month > state.digest]

    def notes_of(self, month: str) -> dict[date, str]:
        """Return the confirmed notes of a month, by day."""
        store = self._memory.store
        days = [day for day in store.note_days() if f"{day:%Y-%m}" == month]
        notes = {day: drop_unconfirmed(store.read(note_path(day))) for day in pace(days)}
        return {day: text for day, text in notes.items() if text}

    def digest_of(self, month: str) -> DreamEntry | None:
        """Return the recurring lines of a month's digest as an entry, or None."""
        store = self._memory.store
        others = [other for other in store.digest_months() if other != month]
        texts = ((other, store.read(digest_path(other))) for other in others)
        lines = [line for other, text in texts for _, line in digest_lines(other, text)]
        return entry_of_digest(month, store.read(digest_path(month)), lines, self.now.tzinfo)

    def next_batch(
        self, state: ScopeState, most: int, refused: Set[str]
    ) -> tuple[list[DreamEntry], set[str]]:
        """Return the next entries to read, at most `most`, except the `refused` keys, and the keys
        of the empty entries between them."""
        entries: list[DreamEntry] = []
        empty: set[str] = set()
        size = 0
        for key in pace(self.unread_keys(state)):
            entry = self._open(key) if key not in refused else None
            if entry is None:
                empty |= {key} - refused
                continue
            size += estimate_tokens(entry.render(0))
            if entries and (size > _BATCH_TOKENS or len(entries) >= most):
                break
            entries.append(entry)
        return entries, empty

    def move_on(self, state: ScopeState, done: Set[str]) -> ScopeState:
        """Move the history's cursor past these entries and return the new state."""
        if cursors := [int(key) for key in done if key.isdecimal()]:
            self._memory.history.set_dream_cursor(max(cursors))
        days = [key for key in done if not key.isdecimal() and not is_month(key)]
        months = filter(is_month, done)
        note, digest = max([state.note, *days]), max([state.digest, *months])
        return replace(state, note=note, digest=digest, plan=None)

    def _open(self, key: str) -> DreamEntry | None:
        store, zone = self._memory.store, self.now.tzinfo
        if not key.isdecimal():
            day = date.fromisoformat(key)
            return entry_of_note(day, store.read(note_path(day)), zone)
        entry = self._memory.history.get(int(key))
        # A digest repeats entries that were read.
        if entry is None or entry.type == "digest" or self.forgotten.hides_entry(entry.cursor):
            return None

        def read_unforgotten(session: str, first: int, last: int, before: int) -> list[Message]:
            messages = self._read_messages(session, first, last, before)
            return [one for one in messages if not self.forgotten.hides_message(session, one)]

        return entry_of_history(entry, read_unforgotten)
