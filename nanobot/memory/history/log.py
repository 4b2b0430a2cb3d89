"""The history of conversations: `memory/history.jsonl`, and `memory/HISTORY.md` for people.

Append-only, one JSON object a line; an entry is committed once its line is synced. What always
holds:

- the files are the truth. `.cursor` says how far HISTORY.md has been told, and how far cursors were
  given; cursors are never reused, whatever an editor does to the files;
- a broken line is skipped and left where it is; a last line that was cut short is set aside;
- an entry that moved to `history/YYYY-MM.jsonl` may for a moment stand in both files, and is read
  once;
- each entry's paragraph reaches HISTORY.md once, also when a crash or a full disk kept it back.

Everything here blocks. Reads cost a few system calls while nothing changed.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

from loguru import logger

from nanobot.clock import Clock
from nanobot.errors import NanobotError, WriteConflict
from nanobot.memory.files.linefile import LIMIT, Fingerprint, LineFile
from nanobot.memory.files.readable import Readable
from nanobot.memory.files.redacting import redact_file, redacted_line
from nanobot.memory.history import entries
from nanobot.memory.history.entries import EntryType, HistoryEntry
from nanobot.security.paths import Place, Root

__all__ = ["HISTORY", "READABLE", "ROTATED", "EntryType", "HistoryEntry", "HistoryLog"]

HISTORY = "memory/history.jsonl"
READABLE = "memory/HISTORY.md"
ROTATED = "memory/history"
_CURSOR = "memory/.cursor"
_DREAM_CURSOR = "memory/.dream_cursor"
_MOST = 10**15


@dataclass(frozen=True, slots=True)
class _Loaded:
    """A file's entries. `highest` is the highest cursor on any line, broken ones included."""

    fingerprint: Fingerprint
    entries: tuple[HistoryEntry, ...] = ()
    highest: int = 0


class HistoryLog:
    """The history of one scope, whose files lie below `prefix` in `root`.

    No file is made before something is written. Thread-safe; one process writes at a time.
    """

    def __init__(self, root: Root, clock: Clock, *, prefix: str = "") -> None:
        self._root = root
        self._clock = clock
        self._prefix = prefix
        self._lock = threading.RLock()
        self._live = self._lines_of(self._place(HISTORY))
        self._readable = Readable(self._place(READABLE))
        self._loaded: dict[str, _Loaded] = {}
        self._seen: tuple[_Loaded, ...] = ()
        self._all: list[HistoryEntry] = []
        self._by_cursor: dict[int, HistoryEntry] = {}
        self._committed: dict[str, int] = {}
        self._told: int | None = None

    def append(self, entry: HistoryEntry) -> HistoryEntry:
        """Commit an entry; return it with its cursor. Raises `StorageError`: nothing was committed.

        That HISTORY.md could not be written is only logged; it is made up for later.
        """
        with self._lock:
            if self._told is None:
                self.recover()
            when = entry.timestamp.replace(microsecond=0)
            entry = replace(entry, cursor=self.last_cursor() + 1, timestamp=when)
            known = self._load(HISTORY, self._live)
            self._live.append(entries.encode(entry))
            now = self._live.fingerprint
            if _grew(known.fingerprint, now, len(entries.encode(entry))):
                stored = _Loaded(now, (*known.entries, entry), entry.cursor)
                self._loaded[HISTORY] = stored
            self._tell_people()
            return entry

    def entries(self, after: int = 0) -> list[HistoryEntry]:
        """The entries with a higher cursor than `after`, in order."""
        with self._lock:
            self._refresh()
            return self._all[bisect_right(self._all, after, key=lambda entry: entry.cursor) :]

    def get(self, cursor: int) -> HistoryEntry | None:
        """The entry with this cursor."""
        with self._lock:
            self._refresh()
            return self._by_cursor.get(cursor)

    def last_cursor(self) -> int:
        """The highest cursor that was ever given, 0 for none."""
        with self._lock:
            self._refresh()
            given = (loaded.highest for loaded in self._seen)
            return max(0, *given, self._hint(_CURSOR), self._hint(_DREAM_CURSOR))

    def committed(self, session: str) -> int:
        """The highest seq of a session that an entry stands for, 0 for none."""
        with self._lock:
            self._refresh()
            return self._committed.get(session, 0)

    def covering(self, session: str, seq: int) -> HistoryEntry | None:
        """The latest entry that stands for message `seq` of a session."""
        with self._lock:
            self._refresh()
            latest = (e for e in reversed(self._all) if e.session == session)
            return next((entry for entry in latest if entry.first <= seq <= entry.last), None)

    def recover(self) -> None:
        """Finish what a crash cut short, and import a HISTORY.md of the older kind.

        For the process that writes; it also happens before the first append.
        """
        with self._lock:
            self._live.mend()
            self._told = self._hint(_CURSOR) or -1
            self.import_older()
            self._tell_people(after_a_crash=True)

    def import_older(self) -> int:
        """Take over a HISTORY.md that has no history.jsonl beside it; return its paragraphs.

        Each becomes an entry of type `import`. HISTORY.md stays as it is.
        """
        with self._lock:
            if self._live.fingerprint is not None or self._rotated():
                return 0
            now = self._clock.now().replace(microsecond=0)
            found = entries.paragraphs_in(self._readable.text())
            start = self.last_cursor() + 1
            imported = [
                HistoryEntry(number, entries.time_of(text, now), "import", "", 0, 0, text)
                for number, text in enumerate(found, start)
            ]
            if imported:
                content = b"".join(map(entries.encode, imported))
                self._place(HISTORY).write_bytes(content, expected=None)
                logger.info("{} older history paragraphs were imported", len(imported))
            return len(imported)

    def dream_cursor(self) -> int:
        """Up to which entry Dream has learned, 0 for none."""
        return self._number(_DREAM_CURSOR)

    def set_dream_cursor(self, cursor: int) -> None:
        """Remember it, durably."""
        self._place(_DREAM_CURSOR).write_bytes(b"%d\n" % cursor)

    def rotate(self, least_bytes: int = 2_000_000) -> int:
        """Where history.jsonl has that size, move what Dream has read to a file per month.

        Returns how many entries moved. They are copied and synced before they are taken away, so a
        crash in between leaves them in both places, which is harmless.
        """
        with self._lock:
            standing = self._live.fingerprint
            if standing is None or standing[1] < least_bytes:
                return 0
            content = self._place(HISTORY).read_bytes(LIMIT) or b""
            zone = self._clock.now().tzinfo
            kept, moving = entries.parted(content, self.dream_cursor(), zone)
            for name, lines in moving.items():
                file = self._lines_of(self._place(f"{ROTATED}/{name}.jsonl"))
                there = set(file.lines())
                if missing := [line for line in lines if line not in there]:
                    file.append(b"".join(line + b"\n" for line in missing))
            moved = sum(map(len, moving.values()))
            if moved:
                try:
                    self._place(HISTORY).write_bytes(kept, expected=content)
                except WriteConflict:  # an editor saved just now: next time
                    return 0
            self._loaded.clear()
            return moved

    def rewrite(self, redact: Callable[[str], str]) -> int:
        """Put every text in the history through `redact`; return how many files changed.

        Lines that were set aside and broken ones are included; cursors stay.
        """
        with self._lock:
            folder = self._place("memory")
            if folder.stat() is None:
                return 0
            lines, whole = [*self._rotated(), self._place(HISTORY)], [self._place(READABLE)]
            whole += [
                folder.child(entry.name)
                for entry in folder.entries()
                if entry.kind == "file" and entry.name.startswith("history.jsonl.corrupt-")
            ]
            rotated = self._place(ROTATED)
            if rotated.stat() is not None:
                names = (entry.name for entry in rotated.entries() if entry.kind == "file")
                whole += [rotated.child(name) for name in names if not name.endswith(".jsonl")]
            by_line = sum(redact_file(place, redacted_line(redact)) for place in lines)
            by_text = sum(redact_file(place, redact) for place in whole)
            self._loaded.clear()
            return by_line + by_text

    def _tell_people(self, *, after_a_crash: bool = False) -> None:
        """Add to HISTORY.md what it was not told; a failure is made up for by the next call."""
        last = self.last_cursor()
        told = self._told if self._told is not None and self._told >= 0 else last - 1
        new = [entry for entry in self.entries(told) if entry.type != "import"]
        try:
            for number, entry in enumerate(new):
                paragraph = entries.paragraph_of(entry)
                # What an attempt before may have written, wholly or in part.
                if after_a_crash or number < len(new) - 1:
                    self._readable.ensure(paragraph)
                else:
                    self._readable.append(paragraph)
            if last and last != self._hint(_CURSOR):
                self._place(_CURSOR).write_bytes(b"%d\n" % last)
            self._told = last
        except NanobotError as error:
            logger.warning("HISTORY.md is behind: {}", error)

    def _refresh(self) -> None:
        """Read what changed since last time; nothing else is read again."""
        files = [(place.relative, self._lines_of(place)) for place in self._rotated()]
        loaded = [self._load(path, file) for path, file in files]
        seen = (*loaded, self._load(HISTORY, self._live))
        before, self._seen = self._seen, seen
        if len(before) == len(seen) and all(a is b for a, b in zip(before, seen, strict=True)):
            return
        self._by_cursor = {}
        for entry in (entry for loaded in seen for entry in loaded.entries):
            self._by_cursor.setdefault(entry.cursor, entry)
        self._all = [self._by_cursor[cursor] for cursor in sorted(self._by_cursor)]
        self._committed = {}
        for entry in self._all:
            reached = max(entry.last, self._committed.get(entry.session, 0))
            self._committed[entry.session] = reached

    def _load(self, path: str, file: LineFile) -> _Loaded:
        fingerprint = file.fingerprint  # before the read: a change in between is seen next time
        known = self._loaded.get(path)
        if known is None or known.fingerprint != fingerprint:
            known = self._read(path, file, fingerprint)
            self._loaded[path] = known
        return known

    def _read(self, path: str, file: LineFile, fingerprint: Fingerprint) -> _Loaded:
        if fingerprint is None:
            return _Loaded(None)
        zone = self._clock.now().tzinfo
        found, broken, highest = [], 0, 0
        for line in file.lines():
            entry = entries.decode(line, zone)
            if entry is None:
                broken += 1
                highest = max(highest, entries.cursor_on(line))
            else:
                found.append(entry)
                highest = max(highest, entry.cursor)
        if broken:
            logger.warning("{}: {} broken lines skipped, left in the file", path, broken)
        return _Loaded(fingerprint, tuple(found), highest)

    def _rotated(self) -> list[Place]:
        folder = self._place(ROTATED)
        entry = folder.stat()
        if entry is None or entry.kind != "folder":
            return []
        names = (entry.name for entry in folder.entries() if entry.kind == "file")
        return [folder.child(name) for name in names if name.endswith(".jsonl")]

    def _hint(self, path: str) -> int:
        """The number in a file; 0 where it cannot be read either."""
        with suppress(NanobotError):
            return self._number(path)
        return 0

    def _number(self, path: str) -> int:
        content = self._place(path).read_bytes(LIMIT) or b""
        text = content.strip()
        return int(text) if text.isdigit() and len(text) < len(str(_MOST)) else 0

    def _lines_of(self, place: Place) -> LineFile:
        return LineFile(place, self._clock, lambda line: entries.decode(line, None) is not None)

    def _place(self, path: str) -> Place:
        return self._root.place(f"{self._prefix}{path}")


def _grew(before: Fingerprint, after: Fingerprint, size: int) -> bool:
    """Whether a file only became longer by `size` bytes, so that it need not be read again."""
    if before is None:
        return after is not None and after[1] == size
    return after is not None and after[2] == before[2] and after[1] == before[1] + size
