"""The history of conversations: `memory/history.jsonl`, and `memory/HISTORY.md` for people.

Append-only, one JSON object a line; an entry is committed once its line is synced. Invariants:

- the files are the truth. `.cursor` says how far HISTORY.md has been told, and how far cursors were
  given; cursors are never reused, whatever an editor does to the files;
- a broken line is skipped and left where it is; a last line that was cut short is set aside;
- each entry's paragraph reaches HISTORY.md once, also when a crash or a full disk kept it back.

Earlier versions moved old entries to `history/YYYY-MM.jsonl`; they are read there. An entry that
stands in two files is read once.

Everything here blocks. In memory is only where each entry stands: to be asked costs a few system
calls while nothing changed, and an entry is read when it is asked for.
"""

from __future__ import annotations

import sys
import threading
from bisect import bisect_right
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

from loguru import logger

from nanobot.clock import Clock
from nanobot.errors import NanobotError, StorageError, WriteConflict
from nanobot.io import FileState
from nanobot.memory.files import LIMIT, LineFile, Readable, redact_file, redacted_lines
from nanobot.memory.history import entries
from nanobot.memory.history.entries import EntryType, HistoryEntry
from nanobot.security.paths import Place, Root

__all__ = ["HISTORY", "EntryType", "HistoryEntry", "HistoryLog"]

HISTORY = "memory/history.jsonl"
_READABLE = "memory/HISTORY.md"
_ROTATED = "memory/history"
_CURSOR = "memory/.cursor"
_DREAM_CURSOR = "memory/.dream_cursor"
_APPLIED = "memory/.applied"
_ATTEMPTS = 5


class _Spot(NamedTuple):
    """Where an entry stands: its line is `size` bytes from `start` on. The rest as in the entry."""

    cursor: int
    start: int
    size: int
    session: str
    first: int
    last: int


@dataclass(slots=True)
class _Contents:
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

    def append(self, entry: HistoryEntry) -> HistoryEntry:
        """Commit an entry; return it with its cursor. Raises `StorageError`: nothing was committed.

        That HISTORY.md could not be written is only logged; it is made up for later.
        """
        with self._lock:
            if not self._recovered:
                self.recover()
            when = entry.timestamp.replace(microsecond=0)
            entry = replace(entry, cursor=self.last_cursor() + 1, timestamp=when)
            known, line = self._contents_of(self._live), entries.encode(entry)
            self._live.append(line)
            now = self._live.fingerprint
            if now is not None and _grew(known.fingerprint, now, len(line)):
                known.add(entry, now.size - len(line), len(line) - 1)
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
        """The entries whose changes of memory are not known to be carried out: none where the mark
        is missing or spoilt, so that an old change does not bring back what was forgotten since."""
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
        self._place(_APPLIED).write_bytes(b"%d\n" % cursor)

    def rewrite(self, redact: Callable[[str], str]) -> int:
        """Put every text in the history through `redact`; return how many files changed.

        Lines that were set aside and broken ones are included; cursors stay.
        """
        with self._lock:
            memory, rotated = self._place("memory"), self._place(_ROTATED)
            beside = [place for place in _files_in(memory) if ".jsonl.corrupt-" in place.relative]
            whole = [self._place(_READABLE), *beside]
            whole += [
                place for place in _files_in(rotated) if not place.relative.endswith(".jsonl")
            ]
            lines = [self._place(file.path) for file in self._files()]
            every_line = partial(redacted_lines, redact=redact)
            changed = sum(redact_file(place, every_line) for place in lines)
            changed += sum(redact_file(place, redact) for place in whole)
            self._contents.clear()
            return changed

    def _import_older(self) -> None:
        """Take over a HISTORY.md that has no history.jsonl beside it, which stays as it is. Each
        paragraph becomes an entry of type `import`."""
        if self._live.fingerprint is not None or len(self._files()) > 1:
            return
        now = self._clock.now().replace(microsecond=0)
        texts = entries.paragraphs_in(self._readable.text())
        imported = [
            HistoryEntry(number, entries.time_of(text, now), "import", "", 0, 0, text)
            for number, text in enumerate(texts, self.last_cursor() + 1)
        ]
        if imported:
            content = b"".join(map(entries.encode, imported))
            self._place(HISTORY).write_bytes(content, expected=None)
            logger.info("{} older history paragraphs were imported", len(imported))

    def _adopt_foreign(self) -> None:
        """Make entries of lines that another program wrote."""
        if not self._contents_of(self._live).foreign:
            return
        content = self._place(HISTORY).read_bytes(LIMIT) or b""
        taken = {spot.cursor for known in self._all() for spot in known.spots}
        new = entries.adopted(content, taken, self.last_cursor(), self._clock.now())
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
                    self._readable.ensure(entries.paragraph_of(entry))
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
            if entry := entries.decode(line, self._clock.now().tzinfo):
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
        if known is None or known.fingerprint != fingerprint:
            known = self._contents[file.path] = self._gone_through(file, fingerprint)
        return known

    def _gone_through(self, file: LineFile, fingerprint: FileState | None) -> _Contents:
        found, broken, now = _Contents(fingerprint), 0, self._clock.now()
        for start, line in file.lines() if fingerprint is not None else ():
            if (entry := entries.decode(line, now.tzinfo)) is not None:
                found.add(entry, start, len(line))
                continue
            foreign = entries.decode_foreign(line, now) is not None
            found.foreign = found.foreign or foreign
            broken += not foreign
            found.highest = max(found.highest, entries.cursor_on(line))
        if broken:
            logger.warning("{}: {} broken lines skipped, left in the file", file.path, broken)
        return found

    def _applied(self) -> int | None:
        applied = self._hint(_APPLIED)
        return applied if applied is not None and applied <= self.last_cursor() else None

    def _hint(self, path: str) -> int | None:
        """The number in a file; None where it cannot be read either."""
        with suppress(NanobotError):
            return self._number(path)
        return None

    def _number(self, path: str) -> int | None:
        text = (self._place(path).read_bytes(LIMIT) or b"").strip()
        return int(text) if text.isdigit() and len(text) < len(str(entries.MOST)) else None

    def _lines_of(self, place: Place) -> LineFile:
        return LineFile(place, self._clock, lambda line: entries.decode(line, None) is not None)

    def _place(self, path: str) -> Place:
        return self._root.place(f"{self._prefix}{path}")


def _files_in(folder: Place) -> list[Place]:
    entry = folder.stat()
    if entry is None or entry.kind != "folder":
        return []
    return [folder.child(one.name) for one in folder.entries() if one.kind == "file"]


def _grew(before: FileState | None, after: FileState, size: int) -> bool:
    """Whether a file only became longer by `size` bytes, so that it need not be read again."""
    if before is None:
        return after.size == size
    return after.inode == before.inode and after.size == before.size + size
