"""The history of conversations: `memory/history.jsonl`, and `memory/HISTORY.md` for people.

Append-only, one JSON object a line; an entry is committed once its line is synced. Invariants:

- the files are the truth. `.cursor` says how far HISTORY.md has been told, and how far cursors were
  given; cursors are never reused, whatever an editor does to the files;
- a broken line is skipped and left where it is; a last line that was cut short is set aside;
- each entry's paragraph reaches HISTORY.md once, also when a crash or a full disk kept it back.

Decoding forgives what a person's editor may do to a line, such as a byte order mark in front. Half
of an emoji that a program cut survives as a JSON escape. Earlier versions moved old entries to
`history/YYYY-MM.jsonl`: they are read there, and once where they stand in both files.

Everything about files blocks. In memory is only where each entry stands: to be asked costs a few
system calls while nothing changed, and an entry is read when it is asked for.
"""

from __future__ import annotations

import json
import re
import sys
import threading
from bisect import bisect_right
from codecs import BOM_UTF8
from collections.abc import Callable, Set
from contextlib import suppress
from datetime import datetime, tzinfo
from functools import partial
from typing import Literal, NamedTuple, cast, get_args

from loguru import logger
from msgspec import Struct, field
from msgspec.structs import replace

from nanobot.clock import Clock
from nanobot.errors import NanobotError, StorageError, WriteConflict
from nanobot.io import FileState, json_line
from nanobot.memory.files import LIMIT, LineFile, Readable, redact_file, redacted_lines
from nanobot.memory.lines import Operation
from nanobot.providers.endpoint import items, string
from nanobot.security.paths import Place, Root
from nanobot.session.records import decode_fields, natural

HISTORY = "memory/history.jsonl"
_READABLE = "memory/HISTORY.md"
_ROTATED = "memory/history"
_CURSOR = "memory/.cursor"
_DREAM_CURSOR = "memory/.dream_cursor"
_APPLIED = "memory/.applied"
_ATTEMPTS = 5

EntryType = Literal["consolidation", "raw", "import", "digest"]

_STAMP = re.compile(r"\[(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d)")
_BLANK_LINES = re.compile(r"\n\s*\n")
_CURSOR_ON_LINE = re.compile(rb'"cursor"\s*:\s*([0-9]{1,15})\b')
MOST = 10**15
"""What a cursor, or the number of a message, is below."""


class HistoryEntry(Struct, frozen=True):
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
    if not isinstance(text, str) or not text.strip():
        return None
    cursor = natural(fields.get("cursor"))
    return HistoryEntry(
        cursor=cursor if cursor < MOST else 0,
        timestamp=_time(fields.get("timestamp"), now).replace(microsecond=0),
        type="import",
        session=string(fields.get("session_key") or fields.get("session")),
        first=0,
        last=0,
        summary=text,
        key_facts=_texts(fields.get("key_facts")),
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
    stamp = _STAMP.match(paragraph)
    return _time(f"{stamp[1]}T{stamp[2]}" if stamp else "", otherwise)


def _time(value: object, now: datetime) -> datetime:
    """A time from elsewhere; one without an offset is in the zone of `now`."""
    try:
        when = datetime.fromisoformat(value) if isinstance(value, str) else now
    except ValueError:
        return now
    return when if when.tzinfo else when.replace(tzinfo=now.tzinfo)


def _entry(fields: dict[str, object], zone: tzinfo | None) -> HistoryEntry | None:
    match fields:
        case {"cursor": int(cursor), "timestamp": str(at), "type": str(kind), "summary": str(text)}:
            when = datetime.fromisoformat(at)
        case _:
            return None
    if isinstance(cursor, bool) or not 0 < cursor < MOST or kind not in get_args(EntryType):
        return None
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
        case [int(first), int(last)] if 0 <= first <= last < MOST:
            return first, last
    return 0, 0


def _texts(value: object) -> tuple[str, ...]:
    return tuple(item for item in items(value) if isinstance(item, str) and item)


class _Spot(NamedTuple):
    """Where an entry stands: its line is `size` bytes from `start` on. The rest as in the entry."""

    cursor: int
    start: int
    size: int
    session: str
    first: int
    last: int


class _Contents(Struct):
    """What a file with this fingerprint holds: its entries in the order of their cursors, and the
    highest seq of each session that one of them stands for. `highest` is the highest cursor on any
    line, also where that is no entry; `foreign`: some lines are of another program's kind."""

    fingerprint: FileState | None
    spots: list[_Spot] = field(default_factory=list)
    committed: dict[str, int] = field(default_factory=dict)
    highest: int = 0
    foreign: bool = False

    def add(self, entry: HistoryEntry, start: int, size: int) -> None:
        """One more entry, wherever it belongs; of two with one cursor the first counts."""
        at = bisect_right(self.spots, entry.cursor, key=lambda spot: spot.cursor)
        if at and self.spots[at - 1].cursor == entry.cursor:
            return
        session = sys.intern(entry.session)
        spot = _Spot(entry.cursor, start, size, session, entry.first, entry.last)
        self.spots.insert(at, spot)
        self.highest = max(self.highest, entry.cursor)
        self.committed[session] = max(entry.last, self.committed.get(session, 0))

    def after(self, cursor: int) -> list[_Spot]:
        """The entries with a higher cursor, in order."""
        return self.spots[bisect_right(self.spots, cursor, key=lambda spot: spot.cursor) :]


class HistoryLog:
    """The history of one scope, whose files lie below `prefix` in `root`.

    No file is made before something is written. Thread-safe; one process writes at a time.
    """

    def __init__(self, root: Root, clock: Clock, *, prefix: str = "") -> None:
        self._root, self._clock, self._prefix = root, clock, prefix
        self._lock = threading.RLock()
        self._live = self._lines_of(self._place(HISTORY))
        self._readable = Readable(self._place(_READABLE))
        self._contents: dict[str, _Contents] = {}
        self._recovered = False
        self._carried_out: int | None = None

    def append(self, entry: HistoryEntry) -> HistoryEntry:
        """Commit an entry; return it with its cursor. Raises `StorageError`: nothing was committed.

        That HISTORY.md could not be written is only logged; it is made up for later.
        """
        with self._lock:
            if not self._recovered:
                self.recover()
            when = entry.timestamp.replace(microsecond=0)
            entry = replace(entry, cursor=self.last_cursor() + 1, timestamp=when)
            known, line = self._contents_of(self._live), encode(entry)
            self._live.append(line)
            before, now = known.fingerprint, self._live.fingerprint
            start = before.size if before else 0
            # Else another program wrote, too, and all is read again.
            if now and now.size == start + len(line) and (not before or before.inode == now.inode):
                known.add(entry, start, len(line) - 1)
                known.fingerprint = now
            self._write_readable()
            return entry

    def entries(self, after: int = 0) -> list[HistoryEntry]:
        """The entries with a higher cursor than `after`, in order."""
        return self._read(lambda contents: contents.after(after))

    def cursors(self, after: int = 0) -> list[int]:
        """The cursors higher than `after`, in order; no entry is read."""
        with self._lock:
            return sorted({spot.cursor for known in self._all() for spot in known.after(after)})

    def count(self) -> int:
        """How many entries there are."""
        return len(self.cursors())

    def get(self, cursor: int) -> HistoryEntry | None:
        """The entry with this cursor."""
        found = self._read(lambda contents: contents.after(cursor - 1)[:1])
        return found[0] if found and found[0].cursor == cursor else None

    def last_cursor(self) -> int:
        """The highest cursor that was ever given, 0 for none."""
        with self._lock:
            given = (known.highest for known in self._all())
            return max(0, *given, self._hint(_CURSOR) or 0, self._hint(_DREAM_CURSOR) or 0)

    def committed(self, session: str) -> int:
        """The highest seq of a session that an entry stands for, 0 for none."""
        with self._lock:
            return max(known.committed.get(session, 0) for known in self._all())

    def covering(self, session: str, seq: int) -> HistoryEntry | None:
        """The latest entry that stands for message `seq` of a session."""

        def chosen(contents: _Contents) -> list[_Spot]:
            spots = (s for s in reversed(contents.spots) if s.session == session)
            return [spot for spot in spots if spot.first <= seq <= spot.last][:1]

        found = self._read(chosen)
        return found[-1] if found else None

    def recover(self) -> None:
        """Finish what a crash cut short; import a HISTORY.md of the older kind, and lines of
        history.jsonl that HKUDS/nanobot wrote.

        For the process that writes; it also happens before the first append.
        """
        with self._lock:
            self._live.mend()
            self._import_older()
            self._adopt_foreign()
            self._recovered = True
            self._write_readable()

    def dream_cursor(self) -> int:
        """Up to which entry Dream has learned, 0 for none."""
        return self._number(_DREAM_CURSOR) or 0

    def set_dream_cursor(self, cursor: int) -> None:
        """Remember it, durably."""
        self._place(_DREAM_CURSOR).write_bytes(b"%d\n" % cursor)

    def unapplied(self) -> list[HistoryEntry]:
        """The entries whose changes of memory are not known to be carried out. Where the mark is
        missing or spoilt, only what this process appended: so an old change does not bring back
        what was forgotten since."""
        with self._lock:
            applied = self._applied()
            return [] if applied is None else self.entries(applied)

    def begin_applying(self) -> None:
        """Before an entry is appended: see to it that the mark names the last one carried out."""
        with self._lock, suppress(NanobotError):
            if self._applied() is None:
                self.set_applied(self.last_cursor())

    def set_applied(self, cursor: int) -> None:
        """Remember, durably, that the changes up to this entry are carried out."""
        self._carried_out = cursor
        self._place(_APPLIED).write_bytes(b"%d\n" % cursor)

    def rewrite(self, redact: Callable[[str], str]) -> int:
        """Put every text in the history through `redact`; return how many files changed.

        Lines that were set aside and broken ones are included; cursors stay.
        """
        with self._lock:
            name = self._place(HISTORY).relative
            beside = [one for one in _files_in(self._place("memory")) if name in one.relative]
            every_line = partial(redacted_lines, redact=redact)
            changed = 0
            for place in (self._place(_READABLE), *beside, *_files_in(self._place(_ROTATED))):
                by_line = place.relative.endswith(".jsonl")
                changed += redact_file(place, every_line if by_line else redact)
            self._contents.clear()
            return changed

    def _import_older(self) -> None:
        """Take over a HISTORY.md that has no history.jsonl beside it, which stays as it is. Each
        paragraph becomes an entry of type `import`."""
        if self._live.fingerprint is not None or len(self._files()) > 1:
            return
        now = self._clock.now().replace(microsecond=0)
        texts = paragraphs_in(self._readable.text())
        imported = [
            HistoryEntry(number, time_of(text, now), "import", "", 0, 0, text)
            for number, text in enumerate(texts, self.last_cursor() + 1)
        ]
        if imported:
            self._place(HISTORY).write_bytes(b"".join(map(encode, imported)), expected=None)
            logger.info("{} older history paragraphs were imported", len(imported))

    def _adopt_foreign(self) -> None:
        """Make entries of lines that another program wrote."""
        if not self._contents_of(self._live).foreign:
            return
        content = self._place(HISTORY).read_bytes(LIMIT) or b""
        taken = {spot.cursor for known in self._all() for spot in known.spots}
        new = adopted(content, taken, self.last_cursor(), self._clock.now())
        with suppress(WriteConflict):  # an editor saved just now: next time
            self._place(HISTORY).write_bytes(new, expected=content)
            logger.info("{}: lines of another program were taken over", self._live.path)
        self._contents.clear()

    def _write_readable(self) -> None:
        """Add to HISTORY.md what it lacks, whole or in part; a failure is made up for by the next
        call. Where the mark is missing, the newest entry alone is looked at: what a person took out
        stays out."""
        last = self.last_cursor()
        told = self._hint(_CURSOR) or last - 1
        try:
            for entry in self.entries(told):
                if entry.type != "import":
                    self._readable.ensure(paragraph_of(entry))
            if last and last != self._hint(_CURSOR):
                self._place(_CURSOR).write_bytes(b"%d\n" % last)
        except NanobotError as error:
            logger.warning("HISTORY.md is behind: {}", error)

    def _read(self, chosen: Callable[[_Contents], list[_Spot]]) -> list[HistoryEntry]:
        """The entries that `chosen` names in each file, in order, each once."""
        with self._lock:
            for _ in range(_ATTEMPTS):
                found = dict[int, HistoryEntry]()
                if all(self._add_from(file, chosen, found) for file in self._files()):
                    return [found[cursor] for cursor in sorted(found)]
        raise StorageError(self._place(HISTORY).shown, "another program changes it again and again")

    def _add_from(
        self,
        file: LineFile,
        chosen: Callable[[_Contents], list[_Spot]],
        found: dict[int, HistoryEntry],
    ) -> bool:
        """Add to `found` what it lacks; False where an editor saved the file just now."""
        contents = self._contents_of(file)
        spots = [spot for spot in chosen(contents) if spot.cursor not in found]
        if not spots:
            return True
        begin = min(spot.start for spot in spots)
        end = max(spot.start + spot.size for spot in spots)
        content = file.part(begin, end, contents.fingerprint)
        if content is None:
            return False
        for spot in spots:
            line = content[spot.start - begin : spot.start - begin + spot.size]
            if entry := decode(line, self._clock.now().tzinfo):
                found[entry.cursor] = entry
        return True

    def _all(self) -> list[_Contents]:
        return [self._contents_of(file) for file in self._files()]

    def _files(self) -> list[LineFile]:
        """The older ones first: they count where an entry stands in two files."""
        moved = _files_in(self._place(_ROTATED))
        lines = [self._lines_of(place) for place in moved if place.relative.endswith(".jsonl")]
        return [*lines, self._live]

    def _contents_of(self, file: LineFile) -> _Contents:
        """What a file holds; it is gone through only if it changed since the last time."""
        fingerprint = file.fingerprint  # before the read: a change in between is seen next time
        known = self._contents.get(file.path)
        if known is not None and known.fingerprint == fingerprint:
            return known
        found, broken, now = _Contents(fingerprint), 0, self._clock.now()
        for start, line in file.lines() if fingerprint is not None else ():
            if (entry := decode(line, now.tzinfo)) is not None:
                found.add(entry, start, len(line))
                continue
            foreign = decode_foreign(line, now) is not None
            found.foreign = found.foreign or foreign
            broken += not foreign
            if seems := _CURSOR_ON_LINE.search(line):
                found.highest = max(found.highest, int(seems[1]))
        if broken:
            logger.warning("{}: {} broken lines skipped, left in the file", file.path, broken)
        self._contents[file.path] = found
        return found

    def _applied(self) -> int | None:
        applied = self._hint(_APPLIED)
        if applied is None or applied > self.last_cursor():
            return self._carried_out
        return applied

    def _hint(self, path: str) -> int | None:
        """The number in a file; None where it cannot be read either."""
        with suppress(NanobotError):
            return self._number(path)
        return None

    def _number(self, path: str) -> int | None:
        text = (self._place(path).read_bytes(LIMIT) or b"").strip()
        return int(text) if text.isdigit() and len(text) < len(str(MOST)) else None

    def _lines_of(self, place: Place) -> LineFile:
        return LineFile(place, self._clock, lambda line: decode(line, None) is not None)

    def _place(self, path: str) -> Place:
        return self._root.place(f"{self._prefix}{path}")


def _files_in(folder: Place) -> list[Place]:
    entry = folder.stat()
    if entry is None or entry.kind != "folder":
        return []
    return [folder.child(one.name) for one in folder.entries() if one.kind == "file"]
