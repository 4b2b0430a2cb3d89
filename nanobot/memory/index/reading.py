"""From a line of a file to a passage of the index.

A session line is read here and not by `session.records` because first indexing reads hundreds of
thousands: the fields of an ordinary message are taken as they are. Whatever looks unusual (content
in parts, a missing number or offset) goes through `records`, so that both read the same.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from datetime import datetime, time, tzinfo
from typing import NamedTuple, cast
from zlib import crc32

from nanobot.memory.history.entries import MOST
from nanobot.memory.history.entries import decode as decode_entry
from nanobot.memory.index.tokenise import prepared
from nanobot.memory.store.guard import fact_lines
from nanobot.memory.store.notes import day_of
from nanobot.memory.text.unconfirmed import NOTE, is_unconfirmed
from nanobot.messages import TURN_FAILED, TURN_STOPPED, Message
from nanobot.session.records import (
    Foreign,
    JsonValue,
    Metadata,
    Record,
    Retraction,
    decode_fields,
    record_of,
)

LONGEST_SAID = 200_000
LONGEST_OUTPUT = 2_000
"""Characters of a message, and of a tool's output, that are indexed: who called the tool said what
mattered, and the rest drowns it."""

_ENDS_ASKING = re.compile(r"[?？][^\w]*\Z")
_BULLET = re.compile(r"[-*] (?:(\d\d):(\d\d) )?")
_SEARCH = "search_memory"
"""The tool whose output is never indexed: it repeats what is."""

_scan = json.JSONDecoder().raw_decode
_TALKERS = frozenset({"user", "assistant"})
_LINE_ENDS = frozenset({"\n", "", "\r\n"})
_NEVER = {TURN_FAILED, TURN_STOPPED, ""}


class Entry(NamedTuple):
    """A passage before it has an id. `seq` is unique in its stream; `moment` is ISO or empty.

    `hash` stands for the line it came from. `first` and `last` are what a history entry sums up.
    """

    seq: int
    text: str
    moment: str = ""
    role: str = ""
    speaker: str = ""
    origin: str = ""
    turn: str = ""
    place: str = ""
    hash: int = 0
    first: int = 0
    last: int = 0

    @property
    def asks(self) -> bool:
        """Whether a question stands in it."""
        return "?" in self.text or "？" in self.text

    @property
    def ends_asking(self) -> bool:
        """Whether it ends with a question."""
        return _ENDS_ASKING.search(self.text[-12:]) is not None


class SessionLines:
    """Reads the lines of one session's files in order; `number` is that of the last message.

    What comes out are passages and retractions; `metadata` is the newest that was seen.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.metadata: Metadata | None = None

    def read(self, lines: Iterable[bytes]) -> Iterator[Entry | Retraction]:
        """What `lines` say, in order; lines that are no message of interest say nothing."""
        for raw in lines:
            fields = _fields(raw)
            if fields is None:
                self.number += b'"role"' in raw
                continue
            found = self._ordinary(fields, raw) or self._other(record_of(fields), raw)
            if found is not None:
                yield found

    def _ordinary(self, fields: dict[str, JsonValue], raw: bytes) -> Entry | None:
        role, text, seq = fields.get("role"), fields.get("content"), fields.get("seq")
        moment = fields.get("timestamp", "")
        if (
            type(role) is not str
            or role not in _TALKERS
            or type(text) is not str
            or type(seq) is not int
            or type(moment) is not str
            or not 0 < seq < MOST
            or "_type" in fields
            or not _is_whole(moment)
        ):
            return None
        self.number = seq
        if text in _NEVER or text.isspace():
            return None
        name, turn = fields.get("name", ""), fields.get("turn_id", "")
        origin = fields.get("origin", "")
        return Entry(
            seq,
            text[:LONGEST_SAID],
            moment,
            role,
            name if type(name) is str and name else role,
            origin if type(origin) is str else "",
            turn if type(turn) is str else "",
            "",
            line_hash(raw),
        )

    def _other(self, record: Record, raw: bytes) -> Entry | Retraction | None:
        match record:
            case Message():
                self.number = record.seq if 0 < record.seq < MOST else self.number + 1
                return _passage_of(record, self.number, raw)
            case Metadata():
                self.metadata = record
                self.number = max(self.number, min(record.first_seq, MOST) - 1)
            case Foreign(numbered=True):
                self.number += 1
            case Retraction():
                return record
        return None


class HistoryLines:
    """The same for history files. `zone` is for times without an offset."""

    metadata: Metadata | None = None

    def __init__(self, zone: tzinfo | None) -> None:
        self.number = 0
        self._zone = zone

    def read(self, lines: Iterable[bytes]) -> Iterator[Entry | Retraction]:
        """An entry for each: the summary, and under it the key facts."""
        for raw in lines:
            entry = decode_entry(raw, self._zone)
            if entry is None:
                continue
            facts = [f"- {fact}" for fact in entry.key_facts]
            yield Entry(
                seq=entry.cursor,
                text="\n".join([entry.summary.strip(), *facts])[:LONGEST_SAID],
                moment=entry.timestamp.isoformat(),
                origin=",".join(entry.origin),
                turn=entry.session,
                place=f"history {entry.cursor}",
                hash=line_hash(raw),
                first=entry.first,
                last=entry.last,
            )


def note_passages(name: str, text: str, zone: tzinfo | None) -> Iterator[Entry]:
    """The passages of the daily note called `name`: its bullets, and other paragraphs."""
    day, origin = day_of(name), ""
    if day is None:
        return
    for number, (line, passage) in enumerate(_blocks(text), 1):
        bullet = _BULLET.match(passage)
        hour, minute = (int(bullet[1]), int(bullet[2])) if bullet and bullet[1] else (0, 0)
        said_at = time(hour, minute) if hour < 24 and minute < 60 else time()
        moment = datetime.combine(day, said_at, zone).isoformat()
        if not passage.startswith(" "):  # what is indented belongs to the note above
            origin = NOTE if is_unconfirmed(passage) else ""
        yield Entry(number, passage, moment, origin=origin, place=f"{name}:{line}")


def fact_passages(path: str, text: str, template: str) -> Iterator[Entry]:
    """The facts of the long-term file at `path`, beyond its template."""
    for number, (line, passage) in enumerate(_blocks(text), 1):
        if fact_lines(passage, template):
            yield Entry(number, passage, place=f"{path}:{line}")


def well_formed(text: str) -> str:
    """`text` as the database takes it: half an emoji, or a byte of a name that is not UTF-8, is
    written as its escape."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def stored(text: str) -> tuple[str, str | None]:
    """`text` as the full-text table takes it, and itself where that differs."""
    if text.isascii():
        return text, None
    whole = text.encode("utf-8", "replace").decode()
    spelled = prepared(whole)
    return spelled, None if spelled == whole else whole


def _is_whole(moment: str) -> bool:
    """Whether it is a time with an offset, in the form in which it is stored."""
    try:
        return datetime.fromisoformat(moment).tzinfo is not None and moment[10] == "T"
    except ValueError:
        return False


def _fields(raw: bytes) -> dict[str, JsonValue] | None:
    """The object on a line. The usual line needs none of the checks that `decode_fields` makes."""
    try:
        text = raw.decode()
        fields, end = _scan(text)
    except (ValueError, RecursionError):
        return decode_fields(raw)
    if type(fields) is dict and text[end:] in _LINE_ENDS:
        return cast("dict[str, JsonValue]", fields)
    return decode_fields(raw)


def _passage_of(message: Message, number: int, raw: bytes) -> Entry | None:
    text = message.content
    if not text.strip() or text in _NEVER:
        return None
    tool = message.role == "tool"
    if tool and message.name == _SEARCH:
        return None
    return Entry(
        number,
        text[: LONGEST_OUTPUT if tool else LONGEST_SAID],
        message.timestamp.isoformat() if message.timestamp else "",
        message.role,
        message.name or message.role,
        message.origin,
        message.turn_id,
        "",
        line_hash(raw),
    )


def _blocks(text: str) -> Iterator[tuple[int, str]]:
    """Bullets with what is indented under them, and paragraphs, each with its line number."""
    begun, block = 0, list[str]()
    for number, line in enumerate(text.splitlines(), 1):
        fresh = not line.strip() or line.startswith("#") or _BULLET.match(line)
        if fresh and block:
            yield begun, "\n".join(block)
            block = []
        if line.strip() and not line.startswith("# "):
            begun, block = (begun if block else number), [*block, line]
    if block:
        yield begun, "\n".join(block)


def line_hash(raw: bytes) -> int:
    """Stands for a line, whatever ends it."""
    raw = raw.rstrip(b"\r\n")
    return (len(raw) & 0x7FFFFFFF) << 32 | crc32(raw)
