"""The other program's history as ours. Pure: text in, lines out.

It has one entry for each stretch of conversation that was put away: in `history.jsonl`, in older
versions in HISTORY.md. Both become entries of type `import`, numbered anew in their order. Dream is
told that it has read as far as it had there; of what only HISTORY.md holds it has read all, since
its facts went into MEMORY.md at the same time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from nanobot.importing.people import key_of
from nanobot.memory.history.entries import (
    HistoryEntry,
    decode,
    decode_foreign,
    paragraphs_in,
    time_of,
)
from nanobot.session.records import decode_fields


@dataclass(frozen=True, slots=True)
class History:
    """The entries, how far Dream has read them, and how many lines were none."""

    entries: tuple[HistoryEntry, ...] = ()
    dreamed: int = 0
    broken: int = 0


def from_lines(lines: Iterable[bytes], dreamed: int, now: datetime) -> History:
    """The history in a history.jsonl, of which Dream has read up to the cursor `dreamed`."""
    found: list[HistoryEntry] = []
    broken = 0
    for line in filter(bytes.strip, lines):
        entry = decode_foreign(line, now) or _ours(line, now)
        if entry is not None:
            found.append(entry)
        broken += decode_fields(line) is None
    found.sort(key=lambda entry: entry.cursor == 0)  # those without a number were not dreamt about
    entries = tuple(
        replace(entry, cursor=number, session=key_of(entry.session))
        for number, entry in enumerate(found, 1)
    )
    read = [number for number, entry in enumerate(found, 1) if 0 < entry.cursor <= dreamed]
    return History(entries, max(read, default=0), broken)


def _ours(line: bytes, now: datetime) -> HistoryEntry | None:
    """What this nanobot made of a line when it was used in that home before the import. The
    numbers of messages and what became of the facts belong to a memory that is left behind."""
    entry = decode(line, now.tzinfo)
    return entry and replace(entry, type="import", first=0, last=0, operations=())


def from_text(text: str, now: datetime) -> History:
    """The history in a HISTORY.md."""
    now = now.replace(microsecond=0)
    entries = tuple(
        HistoryEntry(number, time_of(paragraph, now), "import", "", 0, 0, paragraph)
        for number, paragraph in enumerate(paragraphs_in(text), 1)
    )
    return History(entries, len(entries))
