"""The history of conversations: `memory/history.jsonl`, and `memory/HISTORY.md` for people.

Append-only, one JSON object a line; an entry is committed once its line is synced. What always
holds:

- the files are the truth. `.cursor` says how far HISTORY.md has been told, and how far cursors were
  given; cursors are never reused, whatever an editor does to the files;
- a broken line is skipped and left where it is; a last line that was cut short is set aside;
- an entry that moved to `history/YYYY-MM.jsonl` may for a moment stand in both files, and is read
  once;
- each entry's paragraph reaches HISTORY.md once, also when a crash or a full disk kept it back.

Everything here blocks. In memory is only where each entry stands (`contents`): to be asked costs a
few system calls while nothing changed, and an entry is read when it is asked for.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from heapq import merge
from itertools import groupby

from loguru import logger

from nanobot.clock import Clock
from nanobot.errors import NanobotError, StorageError, WriteConflict
from nanobot.io import FileState
from nanobot.memory.files import LIMIT, LineFile, Readable, redact_file, redacted_lines
from nanobot.memory.history import entries
from nanobot.memory.history.entries import Contents, EntryType, HistoryEntry, Spot
from nanobot.security.paths import Place, Root

__all__ = ["HISTORY", "READABLE", "ROTATED", "EntryType", "HistoryEntry", "HistoryLog"]

HISTORY = "memory/history.jsonl"
READABLE = "memory/HISTORY.md"
ROTATED = "memory/history"
_CURSOR = "memory/.cursor"
_DREAM_CURSOR = "memory/.dream_cursor"
_APPLIED = "memory/.applied"
_ATTEMPTS = 5


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
        self._contents: dict[str, Contents] = {}
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
            known, line = self._contents_of(self._live), entries.encode(entry)
            self._live.append(line)
            now = self._live.fingerprint
            if now is not None and _grew(known.fingerprint, now, len(line)):
                known.grow(now, Spot.of(entry, now.size - len(line), len(line) - 1))
            self._tell_people()
            return entry

    def entries(self, after: int = 0) -> list[HistoryEntry]:
        """The entries with a higher cursor than `after`, in order."""
        return self._read(lambda contents: contents.after(after))

    def cursors(self, after: int = 0) -> list[int]:
        """The cursors higher than `after`, in order; no entry is read."""
        with self._lock:
            return list(self._cursors(after))

    def count(self) -> int:
        """How many entries there are."""
        with self._lock:
            return sum(1 for _ in self._cursors(0))

    def get(self, cursor: int) -> HistoryEntry | None:
        """The entry with this cursor."""
        return next(iter(self._read(lambda contents: _one(contents.get(cursor)))), None)

    def last_cursor(self) -> int:
        """The highest cursor that was ever given, 0 for none."""
        with self._lock:
            given = (known.highest for known in self._all())
            return max(0, *given, self._hint(_CURSOR), self._hint(_DREAM_CURSOR))

    def committed(self, session: str) -> int:
        """The highest seq of a session that an entry stands for, 0 for none."""
        with self._lock:
            return max(known.committed.get(session, 0) for known in self._all())

    def covering(self, session: str, seq: int) -> HistoryEntry | None:
        """The latest entry that stands for message `seq` of a session."""
        return next(
            reversed(self._read(lambda contents: _one(contents.covering(session, seq)))), None
        )

    def recover(self) -> None:
        """Finish what a crash cut short; import a HISTORY.md of the older kind, and lines of
        history.jsonl that HKUDS/nanobot wrote.

        For the process that writes; it also happens before the first append.
        """
        with self._lock:
            self._live.mend()
            self._told = self._hint(_CURSOR) or -1
            self.import_older()
            self._adopt_foreign()
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

    def _adopt_foreign(self) -> None:
        """Make entries of lines that another program wrote."""
        if not self._contents_of(self._live).foreign:
            return
        content = self._place(HISTORY).read_bytes(LIMIT) or b""
        taken = {spot.cursor for known in self._all() for spot in known.after(0)}
        new = entries.adopted(content, taken, self.last_cursor(), self._clock.now())
        with suppress(WriteConflict):  # an editor saved just now: next time
            self._place(HISTORY).write_bytes(new, expected=content)
            logger.info("{}: lines of another program were taken over", self._live.path)
        self._contents.clear()

    def dream_cursor(self) -> int:
        """Up to which entry Dream has learned, 0 for none."""
        return self._number(_DREAM_CURSOR)

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

    def _applied(self) -> int | None:
        with suppress(NanobotError):
            content = (self._place(_APPLIED).read_bytes(LIMIT) or b"").strip()
            if content.isdigit() and len(content) < len(str(entries.MOST)):
                return int(content) if int(content) <= self.last_cursor() else None
        return None

    def rotate(self, least_bytes: int = 2_000_000) -> int:
        """Where history.jsonl has that size, move what Dream has read to a file per month.

        Returns how many entries moved. They are copied and synced before they are taken away, so a
        crash in between leaves them in both places, which is harmless.
        """
        with self._lock:
            standing = self._live.fingerprint
            if standing is None or standing.size < least_bytes:
                return 0
            content = self._place(HISTORY).read_bytes(LIMIT) or b""
            zone = self._clock.now().tzinfo
            kept, moving = entries.parted(content, self.dream_cursor(), zone)
            for name, lines in moving.items():
                file = self._lines_of(self._place(f"{ROTATED}/{name}.jsonl"))
                there = {line for _, line in file.lines()}
                if missing := [line for line in lines if line not in there]:
                    file.append(b"".join(line + b"\n" for line in missing))
            moved = sum(map(len, moving.values()))
            if moved:
                try:
                    self._place(HISTORY).write_bytes(kept, expected=content)
                except WriteConflict:  # an editor saved just now: next time
                    return 0
            self._contents.clear()
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
            every_line = partial(redacted_lines, redact=redact)
            by_line = sum(redact_file(place, every_line) for place in lines)
            by_text = sum(redact_file(place, redact) for place in whole)
            self._contents.clear()
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

    def _read(self, chosen: Callable[[Contents], list[Spot]]) -> list[HistoryEntry]:
        """The entries that `chosen` names in each file, in order, each once."""
        with self._lock:
            for _ in range(_ATTEMPTS):
                found = dict[int, HistoryEntry]()
                for file in self._files():
                    contents = self._contents_of(file)
                    spots = [spot for spot in chosen(contents) if spot.cursor not in found]
                    read = self._read_at(file, contents.fingerprint, spots)
                    if read is None:  # an editor saved just now
                        break
                    found |= {entry.cursor: entry for entry in read}
                else:
                    return [found[cursor] for cursor in sorted(found)]
        raise StorageError(self._place(HISTORY).shown, "another program changes it again and again")

    def _read_at(
        self, file: LineFile, standing: FileState | None, spots: list[Spot]
    ) -> list[HistoryEntry] | None:
        """The entries at these spots; None where the file changed."""
        if not spots:
            return []
        begin = min(spot.start for spot in spots)
        content = file.part(begin, max(spot.start + spot.size for spot in spots), standing)
        if content is None:
            return None
        zone = self._clock.now().tzinfo
        starts = ((spot.start - begin, spot.size) for spot in spots)
        found = (entries.decode(content[start : start + size], zone) for start, size in starts)
        return [entry for entry in found if entry]

    def _cursors(self, after: int) -> Iterator[int]:
        """In order, each once; an entry that is moving stands in two files."""
        every = merge(*(known.cursors(after) for known in self._all()))
        return (cursor for cursor, _ in groupby(every))

    def _all(self) -> list[Contents]:
        return [self._contents_of(file) for file in self._files()]

    def _files(self) -> list[LineFile]:
        """What moved first: it is what counts where an entry stands in two files."""
        return [*map(self._lines_of, self._rotated()), self._live]

    def _contents_of(self, file: LineFile) -> Contents:
        """What a file holds; it is gone through only if it changed since the last time."""
        fingerprint = file.fingerprint  # before the read: a change in between is seen next time
        known = self._contents.get(file.path)
        if known is None or known.fingerprint != fingerprint:
            known = self._gone_through(file, fingerprint)
            self._contents[file.path] = known
        return known

    def _gone_through(self, file: LineFile, fingerprint: FileState | None) -> Contents:
        if fingerprint is None:
            return Contents(None)
        now = self._clock.now()
        found, broken, highest, foreign = list[Spot](), 0, 0, False
        for start, line in file.lines():
            entry = entries.decode(line, now.tzinfo)
            if entry is None:
                is_foreign = entries.decode_foreign(line, now) is not None
                foreign = foreign or is_foreign
                broken += not is_foreign
                highest = max(highest, entries.cursor_on(line))
            else:
                found.append(Spot.of(entry, start, len(line)))
        if broken:
            logger.warning("{}: {} broken lines skipped, left in the file", file.path, broken)
        return Contents(fingerprint, found, highest, foreign=foreign)

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
        return int(text) if text.isdigit() and len(text) < len(str(entries.MOST)) else 0

    def _lines_of(self, place: Place) -> LineFile:
        return LineFile(place, self._clock, lambda line: entries.decode(line, None) is not None)

    def _place(self, path: str) -> Place:
        return self._root.place(f"{self._prefix}{path}")


def _one(spot: Spot | None) -> list[Spot]:
    return [spot] if spot else []


def _grew(before: FileState | None, after: FileState | None, size: int) -> bool:
    """Whether a file only became longer by `size` bytes, so that it need not be read again."""
    if before is None:
        return after is not None and after.size == size
    return after is not None and after.inode == before.inode and after.size == before.size + size
