"""Find damage in the journal's file before it is opened.

`mend` runs at each start, by the owner of the home. A small file is checked whole, a large one as
far as a start needs it; `check_rest` looks at the rest while nanobot runs. Whatever finds damage
later leaves a note (`note_damage`), and the next start rebuilds (`nanobot.bus.repair`).

SQLite ignores everything in the write-ahead log behind its first damaged frame. Whether that was
stored before is known from the log's index (-shm), in which a killed process leaves the number of
the last frame: a log that a power loss cut short is no damage.
"""

from __future__ import annotations

import contextlib
import sqlite3
import struct
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path

from msgspec import Struct, field

from nanobot.bus.journal import QueueCounts
from nanobot.bus.journal_file import (
    COPY,
    SCHEMA,
    copied_documents,
    importable_files,
    is_json,
    queue_counts,
)
from nanobot.bus.sqlite import is_damaged, layout, opened_read_only
from nanobot.io import replace_file, sync_folder

SMALL = 2_000_000
"""Bytes of a journal that is checked whole at the start: it takes 4 ms per megabyte."""
ASIDE, REPORT = ".damaged-", "report.txt"
"""Part of the name of the folder with a damaged journal, and the report in it."""
NEW = ".rebuilt"
"""Ends the name of the journal that is to replace the damaged one."""
_NOTE = ".suspect"
PAGE = 4096
_TABLES_OF_START = ("cursor", "document", "helper", "spending", "step", "unfiled")
"""Small tables, which are checked in a large journal as well."""

Settle = Callable[[sqlite3.Connection, str], int]
"""Set the messages of a condition aside in the rebuilt file; how many."""


def note_damage(path: Path, cause: str) -> None:
    """Let the next start rebuild the journal at `path`."""
    with contextlib.suppress(OSError):  # it is found again, only later
        replace_file(path.with_name(path.name + _NOTE), cause.encode("utf-8", "replace"))


def find_damage(path: Path, log: Log) -> str:
    """Return the damage of the journal at `path`, whose log was `log`, or an empty text."""
    note = path.with_name(path.name + _NOTE)
    if note.exists():
        return note.read_text("utf-8", "replace")[:300] or "it could not be used"
    head = _content(path, 100)
    if not head:
        kind = "empty" if path.exists() else "missing"
        return f"it was {kind}" if (path.parent / COPY).exists() else ""
    if head[18:19] > b"\x02":
        return "its first page is damaged"  # to SQLite it is a file that may only be read
    try:
        with opened_read_only(path) as db:
            db.execute("SELECT count(*) FROM sqlite_master").fetchone()
            found = check(db, path.parent, whole=path.stat().st_size <= SMALL)
    except (sqlite3.Error, UnicodeDecodeError) as error:
        return str(error) if is_damaged(error) else ""
    lost = log.lost(Log(path).present)
    return f"its log is damaged: {lost} stored pages cannot be read" if lost else found


def check(db: sqlite3.Connection, state: Path, *, whole: bool) -> str:
    """What SQLite finds wrong in all of the journal in the folder `state`, or in its small
    tables."""
    if SCHEMA.mismatch(db):  # opening it says so
        return ""
    present = layout(db)
    if not present and not (state / COPY).exists():  # killed before it made its tables
        return ""
    if not SCHEMA.layout() <= present:
        return "its list of tables is damaged"
    pragmas = [f"integrity_check({name})" for name in _TABLES_OF_START]
    for pragma in ["integrity_check(1)"] if whole else pragmas:
        found = "; ".join(str(row[0]) for row in db.execute(f"PRAGMA {pragma}"))
        if found != "ok":
            return " ".join(found.removeprefix("*** in database main ***").split())[:300]
    copied = copied_documents(state / COPY) or {}
    for name, content in db.execute("SELECT name, content FROM document"):
        if name in copied and not is_json(content):
            return f"the document {name!r} in it is damaged"
    return ""


def check_rest(path: Path) -> str:
    """The same for all of a large journal while it is used; blocks for 4 ms per megabyte. Raises
    nothing."""
    if not path.exists() or path.stat().st_size <= SMALL:
        return ""
    try:
        with opened_read_only(path) as db:
            return check(db, path.parent, whole=True)
    except (sqlite3.Error, OSError, UnicodeDecodeError) as error:
        return str(error) if is_damaged(error) else ""


class JournalInspection(Struct, frozen=True):
    """A journal as it lies on the disk: of format `version`, with what `damage` says is wrong with
    it. `documents` are by name, those included that are to be taken in at the next start."""

    version: int = 0
    damage: str = ""
    counts: QueueCounts = field(default_factory=QueueCounts)
    documents: Mapping[str, bytes] = field(default_factory=dict)


def inspect_journal(path: Path) -> JournalInspection:
    """Look at the whole journal at `path` without changing it. Raises nothing."""
    version, counts, documents = 0, QueueCounts(), dict[str, bytes]()
    try:
        if path.exists():
            with opened_read_only(path) as db:
                (version,) = db.execute("PRAGMA user_version").fetchone()
                if found := SCHEMA.mismatch(db) or check(db, path.parent, whole=True):
                    return JournalInspection(version, found)
                if version:  # else it has no tables yet
                    counts = queue_counts(db)
                    rows = db.execute("SELECT name, content FROM document")
                    documents = {name: content.encode() for name, content in rows}
        documents |= {file.stem: file.read_bytes() for file in importable_files(path.parent)}
    except (sqlite3.Error, OSError, UnicodeDecodeError) as error:
        return JournalInspection(0, str(error))
    return JournalInspection(version, "", counts, documents)


def damage_reports(state: Path) -> Iterator[tuple[str, str, str]]:
    """Of each damage that was mended in the folder `state` and not put away by its owner: its name,
    what was lost, and what to do."""
    for folder in sorted(state.glob(f"*{ASIDE}*")):
        with contextlib.suppress(OSError):
            text = (folder / REPORT).read_text("utf-8", "replace").strip()
            hint = f"A copy from before is in {folder}. Remove that folder to end this notice."
            yield folder.name, text, hint


def finish(path: Path) -> None:
    """Put the rebuilt file in place, which must not meet the log of the one before."""
    new = path.with_name(path.name + NEW)
    if not new.exists():
        return
    for suffix in ("-wal", "-shm", _NOTE):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    sync_folder(path.parent)
    new.replace(path)
    sync_folder(path.parent)


def tables(db: sqlite3.Connection) -> list[str]:
    """Return the names of our tables in a database."""
    query = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    return [name for (name,) in db.execute(query)]


class Log:
    """The write-ahead log of the database at `path` as it is on the disk (sqlite.org/walformat.html
    and sqlite.org/fileformat2.html). By its index `last` is the number of the last frame that was
    stored, None if that is not known, and `copied` of the last that is in the database as well."""

    def __init__(self, path: Path) -> None:
        self._path = path.with_name(f"{path.name}-wal")
        head, index = _content(self._path, 48), _content(path.with_name(f"{path.name}-shm"), 136)
        size = self._path.stat().st_size if head else 0
        self._order = "<" if head[3:4] == b"\x82" else ">"
        is_log = head[:3] == b"\x37\x7f\x06"
        self._is_whole = is_log and _checksum(self._order, b"", head[:24]) == head[24:_HEAD]
        self._page = struct.unpack_from(">I", head, 8)[0] if self._is_whole else PAGE
        step = self._page + _FRAME_HEAD
        self._starts = range(_HEAD, size - step + 1, step)
        self._salt = head[16:24] if self._is_whole else head[_HEAD + 8 : _HEAD + 16]
        self.last: int | None = None
        self.copied = 0
        same_round = not self._is_whole or index[32:40] == self._salt
        if len(index) == 136 and index[:48] == index[48:96] and index[12] and same_round:
            self.last, self.copied = (struct.unpack_from("=I", index, at)[0] for at in (16, 96))
            self._salt = index[32:40]

    @property
    def present(self) -> int:
        """How many frames SQLite can read, if it has made the index since."""
        return min(self.last or 0, len(self._starts))

    @cached_property
    def _log(self) -> bytes:
        return _content(self._path)

    def lost(self, read: int) -> int:
        """How many stored frames are lost if SQLite can read this many of them. Without an index a
        transaction is known to be stored only if another one follows it: its last frames may also
        have been cut short by a power loss."""
        if self.last is not None:
            return max(0, self.last - read) if self.last > self.copied else 0
        ends = [at for at in range(read, len(self._starts)) if self._ends_transaction(at)]
        return ends[-1] + 1 - read if len(ends) > 1 and self._is_frame(ends[-1]) else 0

    def apply_to(self, path: Path) -> bool:
        """Write the pages of the stored frames to the database at `path`; whether some of them are
        damaged."""
        frames = range(len(self._starts))
        broken = next((at for at in frames if not self._is_frame(at)), len(frames))
        read = max((at + 1 for at in frames[:broken] if self._ends_transaction(at)), default=0)
        end = read + self.lost(read)  # the index of a power loss may be older than the log
        damaged = max(0, end - len(self._starts))
        with path.open("r+b") as file:
            for at, start in enumerate(self._starts[:end]):
                if not self._is_frame(at):
                    damaged += 1
                    continue
                file.seek((struct.unpack_from(">I", self._log, start)[0] - 1) * self._page)
                file.write(self._log[start + _FRAME_HEAD : start + _FRAME_HEAD + self._page])
        return damaged > 0 and self.copied < end

    def _ends_transaction(self, at: int) -> bool:
        """Whether a frame, counted from 0, is of this round of the log and the last of its
        transaction."""
        start = self._starts[at]
        return self._log[start + 8 : start + 16] == self._salt and any(
            self._log[start + 4 : start + 8]
        )

    def _is_frame(self, at: int) -> bool:
        """Whether a frame of this round is as it was written, after the one before it."""
        start = self._starts[at]
        head = self._log[start : start + _FRAME_HEAD]
        before = self._log[24:_HEAD]
        if at:
            before = self._log[self._starts[at - 1] + 16 : self._starts[at - 1] + _FRAME_HEAD]
        page = self._log[start + _FRAME_HEAD : start + _FRAME_HEAD + self._page]
        is_whole = _checksum(self._order, before, head[:8] + page) == head[16:]
        return head[8:16] == self._salt and (is_whole or not (at or self._is_whole))


_HEAD, _FRAME_HEAD = 32, 24


def _checksum(order: str, before: bytes, data: bytes) -> bytes:
    """That of frames, which goes on from the one before."""
    first, second = struct.unpack(">2I", before) if len(before) == 8 else (0, 0)
    words = struct.unpack(f"{order}{len(data) // 4}I", data[: len(data) // 4 * 4])
    for even, odd in zip(words[::2], words[1::2], strict=False):
        first = (first + even + second) & 0xFFFFFFFF
        second = (second + odd + first) & 0xFFFFFFFF
    return struct.pack(">2I", first, second)


def _content(path: Path, size: int = -1) -> bytes:
    """The first bytes of a file, all without a `size`; none if it is missing."""
    try:
        with path.open("rb") as file:
            return file.read(size)
    except FileNotFoundError:
        return b""
