"""The history of conversations: `memory/history.jsonl`, and `memory/HISTORY.md` for people.

Append-only, one JSON object per line. An entry is committed once its line is synced. Invariants:

- the files are the truth, and memory only caches the list of entries. `.cursor` holds the end of
  HISTORY.md's content and the highest cursor. Cursors are never reused, even after edits by hand;
- a broken line is skipped and left in place. A last line that was cut short is set aside;
- each entry's paragraph reaches HISTORY.md once, also after a crash or a full disk. Otherwise that
  file is the person's: deleted paragraphs stay deleted. Paragraphs without an entry, from people or
  HKUDS/nanobot, are searched and forgotten in place.

All file access blocks."""

from __future__ import annotations

import os
import re
import threading
from bisect import bisect_right
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from contextlib import suppress
from datetime import UTC, datetime, tzinfo
from functools import partial
from typing import Annotated, Literal, NamedTuple

from loguru import logger
from msgspec import Meta, Struct, ValidationError, convert, to_builtins
from msgspec.structs import replace

from nanobot.clock import Clock
from nanobot.errors import NanobotError, WriteConflict
from nanobot.io import FileState, json_line, lstate_of, without_long_lines
from nanobot.memory.documents import (
    LIMIT,
    LineFile,
    append_paragraph,
    redact_file,
    redact_lines,
    text_of,
)
from nanobot.memory.line_changes import Operation
from nanobot.providers.fields import items, string
from nanobot.security.paths import Place, Root
from nanobot.session.records import decode_fields, natural_number
from nanobot.tasks import pace

HISTORY = "memory/history.jsonl"
READABLE = "memory/HISTORY.md"
_CURSOR = "memory/.cursor"
_DREAM_CURSOR = "memory/.dream_cursor"
_APPLIED = "memory/.applied"

EntryType = Literal["consolidation", "raw", "import", "digest"]

STAMP = re.compile(r"\[(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d)\]")
_BLANK_LINES = re.compile(r"\n\s*\n")
_CURSOR_ON_LINE = re.compile(rb'"cursor"\s*:\s*([0-9]{1,15})\b')
NOTHING_LEFT = "(forgotten)"
"""Replaces a wholly forgotten entry in HISTORY.md."""
NUMBER_LIMIT = 10**15
"""Upper bound of cursors and message numbers."""


_Number = Annotated[int, Meta(ge=0, lt=NUMBER_LIMIT)]


class HistoryEntry(Struct, frozen=True):
    """The record of one stretch of a conversation.

    `cursor` is assigned by the log (0 before). `timestamp` is aware and in whole seconds once
    stored. `first` and `last` are the range of the session's message numbers, or 0. `origin` lists
    the sources of untrusted content, `set_aside` the rejected facts with the reasons."""

    cursor: _Number
    timestamp: datetime
    type: EntryType
    session: str
    first: int
    last: int
    summary: str
    key_facts: tuple[str, ...] = ()
    operations: tuple[Operation, ...] = ()
    origin: tuple[str, ...] = ()
    set_aside: tuple[str, ...] = ()


def encode(entry: HistoryEntry) -> bytes:
    fields = {
        "cursor": entry.cursor,
        "timestamp": entry.timestamp.isoformat(timespec="seconds"),
        "type": entry.type,
        "session": entry.session,
        "range": [entry.first, entry.last],
        "summary": entry.summary,
        "key_facts": list(entry.key_facts),
        "operations": to_builtins(entry.operations),
        "origin": list(entry.origin),
    }
    if entry.set_aside:
        fields["set_aside"] = list(entry.set_aside)
    return json_line(fields, compact=False).encode() + b"\n"


def decode(line: bytes, zone: tzinfo | None) -> HistoryEntry | None:
    """Decode an entry, or return None. `zone` applies to a time without an offset. Editors may have
    added a byte order mark or line breaks. Half of an emoji survives as a JSON escape."""
    fields = decode_fields(unwrap_entry(line))
    if fields is None:
        return None
    first = last = 0
    with suppress(ValidationError):  # a broken range does not spoil the entry
        first, last = convert(fields.pop("range", None), tuple[_Number, _Number])
    try:
        entry = convert({"session": "", **fields, "first": first, "last": last}, HistoryEntry)
    except ValidationError:
        return None
    when = entry.timestamp
    when = when if when.tzinfo else when.replace(tzinfo=zone)
    # Forgotten facts are empty.
    entry = replace(entry, timestamp=when, key_facts=tuple(filter(None, entry.key_facts)))
    return entry if entry.cursor else None


def decode_foreign(line: bytes, now: datetime) -> HistoryEntry | None:
    """Decode an entry of HKUDS/nanobot, or return None: it has `content`, or a `summary` but no
    cursor. An entry without a cursor gets 0, one without a time `now`."""
    fields = decode_fields(unwrap_entry(line))
    if fields is None or "role" in fields or ("summary" in fields and "cursor" in fields):
        return None
    text = fields.get("content") or fields.get("summary")
    if not isinstance(text, str) or not text.strip():
        return None
    cursor = natural_number(fields.get("cursor"))
    cursor = cursor if cursor < NUMBER_LIMIT else 0
    when = parse_time(fields.get("timestamp"), now).replace(microsecond=0)
    session = string(fields.get("session_key") or fields.get("session"))
    facts = tuple(filter(None, map(string, items(fields.get("key_facts")))))
    return HistoryEntry(cursor, when, "import", session, 0, 0, text, facts)


def unwrap_entry(line: bytes) -> bytes:
    """Join an entry that an editor wrapped over several lines."""
    return b" ".join(map(bytes.strip, line.split(b"\n"))) if b"\n" in line else line


_LAST = datetime.max.replace(tzinfo=UTC)
_MOST_WRAPPED = 500
"""Maximum number of lines of a wrapped entry."""


def entry_lines(content: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a file with their offsets. A wrapped entry is one line.

    Text after the last newline is left out, unless an entry ends there."""
    at = 0
    while at < len(content):
        end = find_entry_end(content, at)
        line = content[at:end].rstrip(b"\r")
        if line and (end < len(content) or _is_entry(line)):
            yield at, line
        at = end + 1


def find_entry_end(content: bytes, at: int) -> int:
    """Return the end of the line, or of the wrapped entry, that begins at `at`."""
    first = end = _line_end(content, at)
    begins = content.startswith((b"{", BOM_UTF8 + b"{"), at)
    for _ in range(_MOST_WRAPPED if begins else 0):
        is_end = content.endswith((b"}", b"}\r"), at, end)
        if is_end and (end == first or decode_fields(unwrap_entry(content[at:end])) is not None):
            return end
        if end == len(content) or content.startswith(b"{", end + 1):  # the next entry
            break
        end = _line_end(content, end + 1)
    return first


def _line_end(content: bytes, at: int) -> int:
    end = content.find(b"\n", at)
    return len(content) if end < 0 else end


def adopt_foreign_lines(content: bytes, taken: Set[int], highest: int, now: datetime) -> bytes:
    """Return a file with its foreign lines as entries, each on one line. They keep their cursors,
    unless these are `taken`: then they get the next ones after `highest`."""
    known, pieces, at = set(taken), list[bytes](), 0
    for start, line in entry_lines(content):
        new = unwrap_entry(line)
        if (entry := decode_foreign(line, now)) is not None:
            cursor = entry.cursor if entry.cursor not in {0, *known} else (highest := highest + 1)
            known.add(cursor)
            new = encode(replace(entry, cursor=cursor)).rstrip()
        pieces += [content[at:start], new]
        at = start + len(line)
    return b"".join([*pieces, content[at:]])


def with_stamp(text: str, when: datetime) -> str:
    """Put `[YYYY-MM-DD HH:MM]` in front of `text`, from `when` if it has no time."""
    stamp = STAMP.match(text)
    if stamp is None:
        return f"[{when:%Y-%m-%d %H:%M}] {text}".rstrip()
    return f"[{stamp[1]} {stamp[2]}]{text[stamp.end() :]}"


def paragraph_of(entry: HistoryEntry) -> str:
    """Return an entry's paragraph for HISTORY.md: the time in front, no blank lines."""
    text = _BLANK_LINES.sub("\n", entry.summary.strip().replace("\r\n", "\n"))
    aside = (f"\n(not remembered: {one})" for one in filter(None, entry.set_aside))
    return "".join([with_stamp(text, entry.timestamp), *aside])


def find_unlisted_paragraphs(
    text: str, entries: Iterable[HistoryEntry]
) -> Iterator[tuple[int, str, str]]:
    """Yield the paragraphs of a HISTORY.md without one of the `entries`: the number of the first
    line, the text, and the time `YYYY-MM-DD HH:MM` at its beginning or above. Pure."""
    known = set[tuple[str, str]]()
    for entry in entries:
        for piece in (paragraph_of(entry), *_BLANK_LINES.split(entry.summary)):
            day, words = split_stamp(piece)
            known |= {(day or f"{entry.timestamp:%Y-%m-%d}", words), ("", words)}
    when, number = "", 1
    for piece in re.split(r"((?:\n[^\S\n]*){2,})", text.replace("\r\n", "\n")):
        paragraph, begins = piece.strip(), number + len(piece) - len(piece.lstrip("\n"))
        number += piece.count("\n")
        if stamp := STAMP.match(paragraph):
            when = f"{stamp[1]} {stamp[2]}"
        is_title = paragraph.startswith("#") and "\n" not in paragraph
        day, words = split_stamp(paragraph)
        if words not in ("", NOTHING_LEFT) and not is_title and (day, words) not in known:
            yield begins, paragraph, when


def split_stamp(paragraph: str) -> tuple[str, str]:
    """Return the day at the beginning of a paragraph, or "", and its words."""
    stamp = STAMP.match(paragraph.strip())
    words = paragraph.strip()[stamp.end() :] if stamp else paragraph
    return stamp[1] if stamp else "", " ".join(words.split())


def parse_time(value: object, now: datetime) -> datetime:
    """Parse a foreign time. One without an offset is in the zone of `now`."""
    try:
        when = datetime.fromisoformat(value) if isinstance(value, str) else now
    except ValueError:
        return now
    return when if when.tzinfo else when.replace(tzinfo=now.tzinfo)


class LatestEntry(NamedTuple):
    """The newest entry of a session: its cursor, the last message of its range, its time."""

    cursor: int
    last: int
    when: datetime

    def since(self, begun: datetime) -> int:
        """Return the last message of the range in a session that began at `begun`, or 0 if the
        entry is of an earlier session with the same key."""
        return self.last if self.when >= begun.replace(microsecond=0) else 0


class _FileSummary(Struct, frozen=True):
    """Summary of the file with this `state`. `highest` is the highest cursor on any line, even if
    that is not an entry. `foreign`: it has wrapped lines or lines of another program. `broken` is
    the number of unreadable lines."""

    state: FileState | None = None
    cursors: tuple[int, ...] = ()
    newest: Mapping[str, LatestEntry] = {}
    highest: int = 0
    foreign: bool = False
    broken: int = 0


class HistoryLog:
    """The history of one scope, whose files are below `prefix` in `root`.

    No file is created before the first write. Thread-safe, but one process writes at a time."""

    def __init__(self, root: Root, clock: Clock, *, prefix: str = "") -> None:
        self._root, self._clock, self._prefix = root, clock, prefix
        self._lock = threading.RLock()
        self._live = self._place(HISTORY)
        self._lines = LineFile(self._live, clock, _is_entry)
        self._summary = _FileSummary()
        self._recovered = False
        self._applied_mark: int | None = None

    def append(self, entry: HistoryEntry) -> HistoryEntry:
        """Commit an entry and return it with its cursor. Raise `StorageError` if nothing was
        committed.

        If HISTORY.md could not be written, that is logged, and the next call makes up for it."""
        with self._lock:
            if not self._recovered:
                self.recover()
            if (applied := self._load_applied()) != self._hint(_APPLIED):
                with suppress(NanobotError):  # only needed after a crash
                    self.set_applied(applied)
            when = entry.timestamp.replace(microsecond=0)
            entry = replace(entry, cursor=self.last_cursor() + 1, timestamp=when)
            self._lines.append(encode(entry))
            self._write_readable()
            return entry

    def entries(self, after: int = 0) -> list[HistoryEntry]:
        """Return the entries with a higher cursor than `after`, in order."""
        with self._lock:
            found = dict[int, HistoryEntry]()
            for _, entry in self._read() if self.cursors(after) else ():
                if entry is not None and entry.cursor > after:
                    found.setdefault(entry.cursor, entry)
            return [found[cursor] for cursor in sorted(found)]

    def cursors(self, after: int = 0) -> list[int]:
        with self._lock:
            known = self._load_summary().cursors
            return list(known[bisect_right(known, after) :])

    def get(self, cursor: int) -> HistoryEntry | None:
        with self._lock:
            lines = self._read() if cursor in self._load_summary().cursors else ()
            return next((one for _, one in lines if one and one.cursor == cursor), None)

    def last_cursor(self) -> int:
        """Return the highest cursor ever assigned, or 0."""
        with self._lock:
            hints = self._hint(_CURSOR) or 0, self._hint(_DREAM_CURSOR) or 0
            return max(self._load_summary().highest, *hints)

    def newest(self) -> dict[str, LatestEntry]:
        """Return the newest entry of each session, among entries with messages."""
        with self._lock:
            return dict(self._load_summary().newest)

    def paragraphs(self) -> list[tuple[int, str, str]]:
        """Return the paragraphs of HISTORY.md without an entry (`find_unlisted_paragraphs`)."""
        text = text_of(self._content(READABLE))
        return list(find_unlisted_paragraphs(text, self.entries())) if text else []

    def recover(self) -> None:
        """Finish the work of a crashed process and convert lines of HKUDS/nanobot to entries.

        For the process that writes. It also happens before the first append."""
        with self._lock:
            # First, or a wrapped entry would look like a torn line.
            if self._load_summary().foreign:
                content, taken = self._content(HISTORY), {*self._load_summary().cursors}
                now = self._clock.now()
                new = adopt_foreign_lines(content, taken, self.last_cursor(), now)
                with suppress(WriteConflict):  # an editor saved just now: retry next time
                    self._live.write_bytes(new, expected=content)
                    logger.info("{}: imported lines from another program", self._live.relative)
            self._lines.mend()
            self._recovered = True
            self._write_readable()

    def dream_cursor(self) -> int:
        """Return the last entry that Dream has read, or 0."""
        return self._number(_DREAM_CURSOR) or 0

    def set_dream_cursor(self, cursor: int) -> None:
        self._place(_DREAM_CURSOR).write_bytes(b"%d\n" % cursor)

    def load_unapplied(self) -> list[HistoryEntry]:
        """Return the entries whose memory changes may be pending. If the mark is missing or
        damaged, only entries of this process count, so that an old change does not restore a
        forgotten fact."""
        with self._lock:
            return self.entries(self._load_applied())

    def count_broken_lines(self) -> int:
        """Return the number of unreadable lines at the last read. Does not read."""
        return self._summary.broken + self._lines.was_damaged

    def reread(self) -> None:
        """Drop the cached mark, because another worker of a team may have written. Opening the
        file makes an NFS client fetch its attributes (nfs(5), "Close-to-open cache
        consistency"), so the next use sees whether it changed."""
        with self._lock:
            self._applied_mark = None
            with suppress(NanobotError), self._live.open(os.O_RDONLY):
                pass

    def set_applied(self, cursor: int) -> None:
        """Durably record that the changes up to this entry are applied."""
        self._applied_mark = cursor
        self._place(_APPLIED).write_bytes(b"%d\n" % cursor)

    def rewrite(self, redact: Callable[[str], str]) -> int:
        """Redact every text in the history and return how many files changed.

        Lines that were set aside and broken lines are included. Cursors stay."""
        with self._lock:
            every_line = partial(redact_lines, redact=redact)
            changed = int(redact_file(self._place(READABLE), redact))
            folder, name = self._place("memory"), self._live.names[-1]
            for entry in folder.entries() if folder.stat() else ():
                if entry.kind == "file" and entry.name.startswith(name):
                    changed += redact_file(folder.child(entry.name), every_line)
            self._summary = _FileSummary()
            return changed

    def _write_readable(self) -> None:
        """Add missing paragraphs to HISTORY.md; the next call makes up for a failure. If the mark
        is missing, only the newest entry is checked: deleted paragraphs stay deleted."""
        last, mark = self.last_cursor(), self._hint(_CURSOR)
        try:
            for entry in self.entries(mark or last - 1):
                if entry.type != "import":
                    append_paragraph(self._place(READABLE), paragraph_of(entry))
            if last and last != mark:
                self._place(_CURSOR).write_bytes(b"%d\n" % last)
        except NanobotError as error:
            logger.warning("HISTORY.md is out of date: {}", error)

    def _load_summary(self) -> _FileSummary:
        """Return the summary of the file, which is only read again if it changed."""
        state = lstate_of(f"{self._root.path}/{self._live.relative}")
        if state != self._summary.state:
            self._summary = self._summarise_file(state)
        return self._summary

    def _summarise_file(self, state: FileState | None) -> _FileSummary:
        newest, cursors = dict[str, LatestEntry](), set[int]()
        highest = broken = 0
        foreign = False
        for line, entry in self._read() if state else ():
            if seems := _CURSOR_ON_LINE.search(line):  # also on a broken line
                highest = max(highest, int(seems[1]))
            if entry is None:
                is_foreign = decode_foreign(line, _LAST) is not None
                foreign |= is_foreign
                broken += not is_foreign
            elif entry.cursor not in cursors:
                cursors.add(entry.cursor)
                foreign |= b"\n" in line
                known = newest.get(entry.session)
                if entry.last and (known is None or known.cursor < entry.cursor):
                    newest[entry.session] = LatestEntry(entry.cursor, entry.last, entry.timestamp)
        if broken:
            path = self._live.relative
            logger.warning("{}: skipped {} broken lines, which are still in the file", path, broken)
        highest = max(highest, *cursors, 0)
        return _FileSummary(state, tuple(sorted(cursors)), newest, highest, foreign, broken)

    def _read(self) -> Iterator[tuple[bytes, HistoryEntry | None]]:
        zone = self._clock.now().tzinfo
        with self._live.open(os.O_RDONLY) as descriptor:
            content = without_long_lines(descriptor)[0]
        for _, line in pace(entry_lines(content)):
            yield line, decode(line, zone)

    def _load_applied(self) -> int:
        if self._applied_mark is None:
            mark, last = self._hint(_APPLIED), self.last_cursor()
            self._applied_mark = last if mark is None or mark > last else mark
        return self._applied_mark

    def _hint(self, path: str) -> int | None:
        """Return the number in a file, or None if it is missing or unreadable."""
        with suppress(NanobotError):
            return self._number(path)
        return None

    def _number(self, path: str) -> int | None:
        text = self._content(path).strip()
        return int(text) if text.isdigit() and len(text) < len(str(NUMBER_LIMIT)) else None

    def _content(self, path: str) -> bytes:
        return self._place(path).read_bytes(LIMIT) or b""

    def _place(self, path: str) -> Place:
        return self._root.place(f"{self._prefix}{path}")


def _is_entry(line: bytes) -> bool:
    return decode(line, None) is not None or decode_foreign(line, _LAST) is not None
