"""A history entry: its line in `history.jsonl`, and its paragraph in HISTORY.md. Pure.

Decoding forgives what a person's editor may do to a line, such as a byte order mark in front; what
is no entry is None. Lone surrogates (half of an emoji that a program cut) survive as JSON escapes.
"""

from __future__ import annotations

import json
import re
from codecs import BOM_UTF8
from collections.abc import Set
from dataclasses import dataclass, replace
from datetime import datetime, tzinfo
from typing import Literal, cast, get_args

from nanobot.io import json_line
from nanobot.memory.text.lines import Operation
from nanobot.providers.endpoint import items, string
from nanobot.session.records import decode_fields, natural

EntryType = Literal["consolidation", "raw", "import", "digest"]

_STAMP = re.compile(r"\[(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d)")
_BLANK_LINES = re.compile(r"\n\s*\n")
_CURSOR = re.compile(rb'"cursor"\s*:\s*([0-9]{1,15})\b')
MOST = 10**15
"""What a cursor, or the number of a message, is below."""


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """What one stretch of a conversation came to.

    `cursor` is given by the log (0 before). `timestamp` is aware and in whole seconds once stored.
    `first` and `last` are the seqs of the session's messages that it stands for, 0 where there are
    none. `origin` names where content came from that is not the person's own.
    """

    cursor: int
    timestamp: datetime
    type: EntryType
    session: str
    first: int
    last: int
    summary: str
    key_facts: tuple[str, ...] = ()
    operations: tuple[Operation, ...] = ()
    origin: tuple[str, ...] = ()


def encode(entry: HistoryEntry) -> bytes:
    """The line of an entry, newline included."""
    fields = {
        "cursor": entry.cursor,
        "timestamp": entry.timestamp.isoformat(timespec="seconds"),
        "type": entry.type,
        "session": entry.session,
        "range": [entry.first, entry.last],
        "summary": entry.summary,
        "key_facts": list(entry.key_facts),
        "operations": [operation.as_json() for operation in entry.operations],
        "origin": list(entry.origin),
    }
    return json_line(fields, compact=False).encode() + b"\n"


def decode(line: bytes, zone: tzinfo | None) -> HistoryEntry | None:
    """The entry on a line, None where there is none. `zone` is for a time that names no offset."""
    try:
        text = line.removeprefix(BOM_UTF8).decode("utf-8", "surrogatepass")
        return _entry(json.loads(text), zone)
    except (ValueError, RecursionError, OverflowError):
        return None


def decode_foreign(line: bytes, now: datetime) -> HistoryEntry | None:
    """The entry on a line as HKUDS/nanobot writes it, None where there is none: `content`, or a
    `summary` that has no cursor. One without a cursor gets 0; `now` is for one without a time."""
    fields = decode_fields(line)
    if fields is None or "role" in fields or ("summary" in fields and "cursor" in fields):
        return None
    text = fields.get("content") or fields.get("summary")
    facts, key = _texts(fields.get("key_facts")), fields.get("session_key") or fields.get("session")
    if not isinstance(text, str) or not text.strip():
        return None
    cursor = natural(fields.get("cursor"))
    return HistoryEntry(
        cursor=cursor if cursor < MOST else 0,
        timestamp=_time(fields.get("timestamp"), now).replace(microsecond=0),
        type="import",
        session=string(key),
        first=0,
        last=0,
        summary=text,
        key_facts=facts,
    )


def adopted(content: bytes, taken: Set[int], highest: int, now: datetime) -> bytes:
    """A file with its foreign lines as entries. They keep their cursors where these are not among
    the `taken` ones; the others follow the `highest`."""
    known = set(taken)
    lines = content.splitlines(keepends=True)
    for at, line in enumerate(lines):
        entry = decode_foreign(line, now)
        if entry is not None:
            cursor = entry.cursor if entry.cursor not in {0, *known} else (highest := highest + 1)
            known.add(cursor)
            lines[at] = encode(replace(entry, cursor=cursor))
    return b"".join(lines)


def cursor_on(line: bytes) -> int:
    """The cursor that a line which is no entry seems to have held, 0 for none."""
    found = _CURSOR.search(line)
    return int(found[1]) if found else 0


def paragraph_of(entry: HistoryEntry) -> str:
    """The entry as it stands in HISTORY.md: without blank lines, its time in front."""
    text = _BLANK_LINES.sub("\n", entry.summary.strip().replace("\r\n", "\n"))
    return text if _STAMP.match(text) else f"[{entry.timestamp:%Y-%m-%d %H:%M}] {text}".rstrip()


def paragraphs_in(text: str) -> list[str]:
    """The paragraphs of a HISTORY.md, headings that stand alone left out."""
    pieces = (piece.strip() for piece in _BLANK_LINES.split(text.replace("\r\n", "\n")))
    return [piece for piece in pieces if piece and ("\n" in piece or not piece.startswith("#"))]


def time_of(paragraph: str, otherwise: datetime) -> datetime:
    """The time at the beginning of a paragraph, in the zone of `otherwise`."""
    if stamp := _STAMP.match(paragraph):
        try:
            return datetime.fromisoformat(f"{stamp[1]}T{stamp[2]}").replace(tzinfo=otherwise.tzinfo)
        except ValueError:
            pass  # the 31st of February
    return otherwise


def _time(value: object, now: datetime) -> datetime:
    """A time from elsewhere; one without an offset is in the zone of `now`."""
    try:
        when = datetime.fromisoformat(value) if isinstance(value, str) else now
    except ValueError:
        return now
    return when if when.tzinfo else when.replace(tzinfo=now.tzinfo)


def _entry(fields: dict[str, object], zone: tzinfo | None) -> HistoryEntry | None:
    match fields:
        case {"cursor": bool()}:
            return None
        case {
            "cursor": int(cursor),
            "timestamp": str(time),
            "type": str(kind),
            "summary": str(text),
        }:
            if not (0 < cursor < MOST and kind in get_args(EntryType)):
                return None
        case _:
            return None
    when = datetime.fromisoformat(time)
    first, last = _range(fields.get("range"))
    operations = map(Operation.from_json, items(fields.get("operations")))
    return HistoryEntry(
        cursor=cursor,
        timestamp=when if when.tzinfo else when.replace(tzinfo=zone),
        type=cast("EntryType", kind),
        session=string(fields.get("session")),
        first=first,
        last=last,
        summary=text,
        key_facts=_texts(fields.get("key_facts")),
        operations=tuple(operation for operation in operations if operation),
        origin=_texts(fields.get("origin")),
    )


def _range(value: object) -> tuple[int, int]:
    match value:
        case [bool(), _] | [_, bool()]:
            return 0, 0
        case [int(first), int(last)] if 0 <= first <= last < MOST:
            return first, last
    return 0, 0


def _texts(value: object) -> tuple[str, ...]:
    return tuple(item for item in items(value) if isinstance(item, str) and item)
