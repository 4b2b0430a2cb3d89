"""A damaged journal: find the damage before the file is opened, and rebuild the file.

`find_damage` runs at each start, in the process that owns the home. A small file is checked
completely, a large one as far as a start needs it, and `check_rest` checks the rest while nanobot
runs. Damage found later leaves a note (`note_damage`), and the next start rebuilds.

SQLite ignores everything in the write-ahead log after its first damaged frame. The log's index
(-shm) shows how much had been stored, because a killed process leaves the number of the last frame
in it. A log that a power loss cut short is not damage.

Nothing is changed in place. The file, its log (WAL) and its index are first copied to
`journal.db.damaged-<time>/`. The pages in the log are then written to a second copy, and the rows
of each table are copied to a new file with new indexes. Unreadable documents are restored from
`documents.json`. Health shows the report of the losses as long as `report.txt` is in that folder.

If rows of running turns or parts of the log are lost, a message may have been handled although the
journal shows it as waiting. Such messages don't run again automatically (`settle`)."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sqlite3
import struct
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from functools import cached_property
from operator import itemgetter
from pathlib import Path

from loguru import logger
from msgspec import Struct, field

from nanobot.bus.journal import QueueCounts
from nanobot.bus.journal_file import (
    COPY,
    SCHEMA,
    importable_files,
    is_json,
    load_copy,
    queue_counts,
)
from nanobot.bus.rows import WAITING_MESSAGES
from nanobot.bus.sqlite import Schema, is_damaged, layout, lenient_text, open_file, open_read_only
from nanobot.errors import StorageError
from nanobot.io import replace_file, sync_folder

SMALL = 2_000_000
"""Bytes up to which the start checks the whole journal. It takes 4 ms per megabyte."""
_ASIDE, _REPORT = ".damaged-", "report.txt"
"""Part of the name of the folder with a damaged journal, and the report in it."""
_NEW = ".rebuilt"
"""Suffix of the journal that replaces the damaged one."""
_NOTE = ".suspect"
_PAGE = 4096
_TABLES_OF_START = ("cursor", "document", "helper", "spending", "step", "unfiled")
"""Small tables, which the start also checks in a large journal."""

_WORK = ".salvage"
_TIME = "%Y%m%dT%H%M%S"
_MOST_AN_HOUR = 5
"""Most copies per hour and in total, so that a failing disk is not filled with copies."""
_TRIES = 2_000
"""Maximum reads between a table's damaged pages. A damaged rowid may make the gap huge."""
_MOST_MISSING = 1 << 30
"""Bytes. A header that claims more missing bytes is damaged."""
_UNUSED = 1_000_000
"""Row numbers skipped after a loss, because other files refer to rows that may be lost."""
_OWN_TABLES = Schema(SCHEMA.tables)

_NAMES = {
    "inbox": "messages",
    "outbox": "replies",
    "turn": "turn reports",
    "step": "steps of running turns",
    "unfiled": "newest conversation lines",
    "cursor": "read positions in the platforms' updates",
    "button": "buttons",
    "helper": "subagents",
    "prompt": "system prompts",
    "document": "jobs, pairings, and other documents",
    "spending": "usage by day",
    "used": "usage by conversation",
}
"""The tables' names in reports."""

Settle = Callable[[sqlite3.Connection, str], int]
"""Sets the messages that match a condition aside in the rebuilt file, and returns how many."""


def note_damage(path: Path, cause: str) -> None:
    """Make the next start rebuild the journal at `path`."""
    with contextlib.suppress(OSError):  # a later check finds it again
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
        return "its first page is damaged"  # SQLite would treat it as read-only
    try:
        with open_read_only(path) as db:
            found = _check(db, path.parent, whole=path.stat().st_size <= SMALL)
    except (sqlite3.Error, UnicodeDecodeError) as error:
        return str(error) if is_damaged(error) else ""
    lost = log.count_lost(Log(path).present)
    return f"its log is damaged: {lost} stored pages cannot be read" if lost else found


def check_rest(path: Path) -> str:
    """Return the damage of a large journal in use, or "". Never raise. Block for 4 ms per MB."""
    try:
        if path.stat().st_size > SMALL:
            with open_read_only(path) as db:
                return _check(db, path.parent, whole=True)
    except (sqlite3.Error, OSError, UnicodeDecodeError) as error:
        return str(error) if is_damaged(error) else ""
    return ""


def _check(db: sqlite3.Connection, state: Path, *, whole: bool) -> str:
    """Return the damage that SQLite finds in the whole journal, or only in its small tables."""
    if SCHEMA.mismatch(db):  # opening it reports that
        return ""
    if not SCHEMA.layout() <= (present := layout(db)):
        was_made = present or (state / COPY).exists()  # otherwise killed before creating its tables
        return "its list of tables is damaged" if was_made else ""
    for of in (1,) if whole else _TABLES_OF_START:
        found = "; ".join(str(row[0]) for row in db.execute(f"PRAGMA integrity_check({of})"))
        if found != "ok":
            return " ".join(found.removeprefix("*** in database main ***").split())[:300]
    copied = load_copy(state / COPY) or {}
    for name, content in db.execute("SELECT name, content FROM document"):
        if name in copied and not is_json(content):
            return f"its document {name!r} is damaged"
    return ""


class JournalInspection(Struct, frozen=True):
    """The journal on disk: its format `version` and its `damage`. `documents` are by name and
    include the files to be imported at the next start."""

    version: int = 0
    damage: str = ""
    counts: QueueCounts = field(default_factory=QueueCounts)
    documents: Mapping[str, bytes] = field(default_factory=dict)


def inspect_journal(path: Path) -> JournalInspection:
    """Inspect the whole journal at `path` without changing it. Never raises."""
    version, counts, documents = 0, QueueCounts(), dict[str, bytes]()
    try:
        if path.exists():
            with open_read_only(path) as db:
                (version,) = db.execute("PRAGMA user_version").fetchone()
                if found := SCHEMA.mismatch(db) or _check(db, path.parent, whole=True):
                    return JournalInspection(version, found)
                if version:  # otherwise it has no tables yet
                    counts = queue_counts(db)
                    rows = db.execute("SELECT name, content FROM document")
                    documents = {name: content.encode() for name, content in rows}
        documents |= {file.stem: file.read_bytes() for file in importable_files(path.parent)}
    except (sqlite3.Error, OSError, UnicodeDecodeError) as error:
        return JournalInspection(0, str(error))
    return JournalInspection(version, "", counts, documents)


def damage_reports(state: Path) -> Iterator[tuple[str, str, str]]:
    """Yield name, losses and remedy of each repaired damage that the owner has not dismissed."""
    for folder in sorted(state.glob(f"*{_ASIDE}*")):
        with contextlib.suppress(OSError):
            text = (folder / _REPORT).read_text("utf-8", "replace").strip()
            hint = f"The damaged copy is in {folder}. To dismiss this notice, remove that folder."
            yield folder.name, text, hint


def finish(path: Path) -> None:
    """Move the rebuilt file into place, after the log of the old file is removed."""
    new = path.with_name(path.name + _NEW)
    if not new.exists():
        return
    for suffix in ("-wal", "-shm", _NOTE):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    sync_folder(path.parent)
    new.replace(path)
    sync_folder(path.parent)


def tables(db: sqlite3.Connection) -> list[str]:
    """Return the names of nanobot's tables in a database."""
    query = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    return [name for (name,) in db.execute(query)]


class Log:
    """The write-ahead log on disk of the database at `path` (sqlite.org/walformat.html and
    sqlite.org/fileformat2.html). By its index, `last` is the number of the last stored frame, or
    None if unknown, and `copied` that of the last frame that is also in the database."""

    def __init__(self, path: Path) -> None:
        self._path = path.with_name(f"{path.name}-wal")
        head, index = _content(self._path, 48), _content(path.with_name(f"{path.name}-shm"), 136)
        size = self._path.stat().st_size if head else 0
        self._order = "<" if head[3:4] == b"\x82" else ">"
        is_log = head[:3] == b"\x37\x7f\x06"
        self._is_whole = is_log and _checksum(self._order, b"", head[:24]) == head[24:_HEAD]
        self._page = struct.unpack_from(">I", head, 8)[0] if self._is_whole else _PAGE
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
        """Number of frames that SQLite can read, if it has rebuilt the index."""
        return min(self.last or 0, len(self._starts))

    @cached_property
    def _log(self) -> bytes:
        return _content(self._path)

    def count_lost(self, read: int) -> int:
        """Return how many stored frames are lost if SQLite can read `read` frames.

        Without an index, a transaction is known to be stored only if another one follows it,
        because a power loss may also have cut short the last frames."""
        if self.last is not None:
            return max(0, self.last - read) if self.last > self.copied else 0
        ends = [at for at in range(read, len(self._starts)) if self._ends_transaction(at)]
        return ends[-1] + 1 - read if len(ends) > 1 and self._is_frame(ends[-1]) else 0

    def apply_to(self, path: Path) -> bool:
        """Write the stored frames' pages to the database. Return True if frames are damaged."""
        frames = range(len(self._starts))
        broken = next((at for at in frames if not self._is_frame(at)), len(frames))
        read = max((at + 1 for at in frames[:broken] if self._ends_transaction(at)), default=0)
        end = read + self.count_lost(read)  # a power loss may leave an older index
        damaged = max(0, end - len(self._starts))
        with path.open("r+b") as file:
            for at in frames[:end]:
                if not self._is_frame(at):
                    damaged += 1
                    continue
                frame = self._frame(at)
                file.seek((struct.unpack_from(">I", frame)[0] - 1) * self._page)
                file.write(frame[_FRAME_HEAD:])
        return damaged > 0 and self.copied < end

    def _frame(self, at: int) -> bytes:
        """Return a frame, counted from 0: its head and a page."""
        start = self._starts[at]
        return self._log[start : start + _FRAME_HEAD + self._page]

    def _ends_transaction(self, at: int) -> bool:
        """Return True if a frame belongs to this round of the log and ends its transaction."""
        frame = self._frame(at)
        return frame[8:16] == self._salt and any(frame[4:8])

    def _is_frame(self, at: int) -> bool:
        """Return True if a frame of this round is intact and follows the one before it."""
        frame = self._frame(at)
        before = self._frame(at - 1)[16:_FRAME_HEAD] if at else self._log[24:_HEAD]
        written = _checksum(self._order, before, frame[:8] + frame[_FRAME_HEAD:])
        is_whole = written == frame[16:_FRAME_HEAD] or not (at or self._is_whole)
        return frame[8:16] == self._salt and is_whole


_HEAD, _FRAME_HEAD = 32, 24


def _checksum(order: str, before: bytes, data: bytes) -> bytes:
    """Return the checksum of a frame, which continues the previous frame's."""
    first, second = struct.unpack(">2I", before) if len(before) == 8 else (0, 0)
    words = struct.unpack(f"{order}{len(data) // 4}I", data[: len(data) // 4 * 4])
    for even, odd in zip(words[::2], words[1::2], strict=False):
        first = (first + even + second) & 0xFFFFFFFF
        second = (second + odd + first) & 0xFFFFFFFF
    return struct.pack(">2I", first, second)


def _content(path: Path, size: int = -1) -> bytes:
    """Return the first `size` bytes of a file (-1: all), or nothing if it is missing."""
    try:
        with path.open("rb") as file:
            return file.read(size)
    except FileNotFoundError:
        return b""


def rebuild(path: Path, cause: str, log: Log, now: datetime, settle: Settle) -> None:
    """Rebuild the journal. On `StorageError`, `sqlite3.Error` or `OSError`, it is unchanged."""
    work = path.with_name(path.name + _WORK)
    shutil.rmtree(work, ignore_errors=True)  # from a killed or failed attempt
    copies = sorted(path.parent.glob(f"{path.name}{_ASIDE}*"))
    hour_ago = f"{path.name}{_ASIDE}{now - timedelta(hours=1):{_TIME}}"
    if sum(copy.name > hour_ago for copy in copies) >= _MOST_AN_HOUR:
        hint = "Check the disk. Try again in an hour."
        raise StorageError(path, "it keeps getting damaged", hint=hint)
    work.mkdir(mode=0o700)
    try:
        for name in (path.name, f"{path.name}-wal", f"{path.name}-shm", COPY):
            with contextlib.suppress(FileNotFoundError):
                shutil.copyfile(path.with_name(name), work / name)
        lost = _salvage(work, path.name, log, settle)
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)  # a full disk has no room for half a copy
        raise
    shown = "".join(filter(str.isprintable, cause))
    report = f"The journal was damaged ({shown}) and has been rebuilt. {lost}\n"
    (work / _REPORT).write_text(report)
    ready = (work / "new.db").replace(path.with_name(path.name + _NEW + "-part"))
    os.sync()  # before the damaged file is moved away
    work.rename(path.with_name(f"{path.name}{_ASIDE}{now:{_TIME}}"))
    ready.replace(path.with_name(path.name + _NEW))
    finish(path)
    logger.error("{}", report.strip())
    for copy in copies[: 1 - _MOST_AN_HOUR]:
        shutil.rmtree(copy)


def _salvage(work: Path, name: str, log: Log, settle: Settle) -> str:
    """Build `new.db` from the copies in the folder `work`. Return a report of the losses."""
    source, new = work / "source.db", work / "new.db"
    source.touch(mode=0o600)
    with contextlib.suppress(FileNotFoundError):
        shutil.copyfile(work / name, source)
    is_log_damaged = log.apply_to(source)
    with contextlib.closing(open_file(new, _OWN_TABLES)) as target:
        _make_readable(source)
        with contextlib.closing(sqlite3.connect(source)) as damaged:
            damaged.text_factory = lenient_text
            target.execute("BEGIN")
            report = _fill(damaged, target, work / COPY, settle, is_log_damaged=is_log_damaged)
            target.execute("COMMIT")
        target.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    for rest in (*work.glob(f"{source.name}*"), *work.glob(f"{new.name}-*")):
        rest.unlink()
    return report


def _fill(
    source: sqlite3.Connection,
    target: sqlite3.Connection,
    copy: Path,
    settle: Settle,
    *,
    is_log_damaged: bool,
) -> str:
    """Copy a journal's readable rows to a new one. Return a report of the losses."""
    lost = {name: some for name in tables(target) if (some := _Table(source, target, name).copy())}
    with contextlib.suppress(sqlite3.Error):  # `sends.log` refers to this identity
        ((identity,),) = source.execute("PRAGMA application_id")
        target.execute(f"PRAGMA application_id = {identity}")
    restored, set_aside = _fill_documents(target, copy, lost), 0
    if is_log_damaged or lost.keys() & {"step", "turn"}:
        set_aside = settle(target, WAITING_MESSAGES if is_log_damaged else "state = 'working'")
    texts = [f"{_NAMES[name]} ({extent})" for name, extent in lost.items()]
    texts += ["the newest changes"] if is_log_damaged else []
    may_lack = is_log_damaged or lost.keys() & {"inbox", "outbox"}
    told = (
        (True, f"Lost: {', '.join(texts)}." if texts else "Nothing was lost."),
        (may_lack, "If a message gets no answer, send it again."),
        (restored, f"Restored from {COPY}: {', '.join(restored)}."),
        (
            set_aside,
            f"Messages that may be partly done: {set_aside}. Send /retry to rerun them.",
        ),
    )
    return " ".join(text for is_so, text in told if is_so)


def _fill_documents(target: sqlite3.Connection, copy: Path, lost: dict[str, str]) -> list[str]:
    """Restore unreadable documents from their copy. Return their names."""
    copied = load_copy(copy) or {}
    query = "SELECT name, content FROM document"
    whole = {name for name, content in target.execute(query) if is_json(content)}
    missing = sorted(copied.keys() - whole)
    for name in missing:
        row = (name, json.dumps(copied[name], indent=1))
        target.execute("INSERT OR REPLACE INTO document VALUES (?, ?, 1)", row)
    if missing and set(copied) <= whole | {*missing}:
        lost.pop("document", None)
    return missing


def _make_readable(work: Path) -> None:
    """Extend a damaged copy of a journal to the size in its header, and replace a damaged first
    page or list of tables with a new journal's, which has its tables on the same pages."""
    with work.open("r+b") as file:
        head, size = file.read(100), file.seek(0, 2)
        (pages,) = struct.unpack(">I", head[28:32]) if len(head) == 100 else (0,)
        if size < pages * _PAGE <= size + _MOST_MISSING:
            file.truncate(pages * _PAGE)
    unreadable = contextlib.suppress(sqlite3.Error, UnicodeDecodeError)
    with unreadable, contextlib.closing(sqlite3.connect(work)) as db:
        if size < _PAGE or {*_NAMES} <= {*tables(db)}:
            return
    new = work.with_name("tables.db")
    open_file(new, _OWN_TABLES).close()
    content = new.read_bytes()
    new.unlink()
    # The first page lists the tables. Its cells refer to further pages of the list
    # (sqlite.org/fileformat2.html#b_tree_pages).
    (cells,) = struct.unpack_from(">H", content, 103)
    places = struct.unpack_from(f">{cells}H", content, 112)
    below = [struct.unpack_from(">I", content, place)[0] for place in (108, *places)]
    with work.open("r+b") as file:
        for page in (0, *(page - 1 for page in below)):
            file.seek(page * _PAGE)
            file.write(content[page * _PAGE : (page + 1) * _PAGE])
        file.seek(28)
        file.write(bytes(4))  # no size: SQLite uses the file's
        if head.startswith(b"SQLite format 3\0"):
            file.seek(68)
            file.write(head[68:72])  # the identity to which `sends.log` refers


class _Table:
    """A table whose readable rows are copied from one database to another."""

    def __init__(self, source: sqlite3.Connection, target: sqlite3.Connection, name: str) -> None:
        self._source, self._target, self._name = source, target, name
        query = "SELECT sql FROM sqlite_master WHERE name = ?"
        (self._sql,) = target.execute(query, (name,)).fetchone()
        info = target.execute(f"PRAGMA table_info({name})").fetchall()
        self._columns = [row[1] for row in info]
        self._keys = ["rowid"]
        if "WITHOUT ROWID" in self._sql:
            self._keys = [row[1] for row in sorted(info, key=itemgetter(5)) if row[5]]
        self._found, self._tries = 0, _TRIES

    def copy(self) -> str:
        """Copy the readable rows. Return how much is lost: nothing (""), some or all."""
        is_whole, low = self._read("1")
        if not is_whole:
            _, high = self._read("1", "DESC")
            if self._keys == ["rowid"] and low is not None and high is not None:
                self._read_between(low + 1, high - 1)
        if "AUTOINCREMENT" in self._sql:
            self._keep_numbers()
        return "" if is_whole else "some" if self._found else "all"

    def _read_between(self, first: int, last: int) -> None:
        """Look for rows between damaged pages."""
        if first > last or self._tries <= 0:
            return
        self._tries -= 1
        middle = (first + last) // 2
        is_whole, read = self._read(f"rowid BETWEEN {middle} AND {last}")
        self._read_between(first, middle - 1)
        if not is_whole:
            self._read_between((middle if read is None else read) + 1, last)

    def _read(self, condition: str, order: str = "ASC") -> tuple[bool, int | None]:
        """Copy rows until one is unreadable. Return True if all were read, and the last rowid."""
        columns, last = ", ".join(self._columns), None
        by = ", ".join(f"{key} {order}" for key in self._keys)
        marks = ", ".join("?" * len(self._columns))
        insert = f"INSERT OR IGNORE INTO {self._name} ({columns}) VALUES ({marks})"
        number = "rowid" if self._keys == ["rowid"] else "0"
        query = f"SELECT {number}, {columns} FROM {self._name} NOT INDEXED WHERE {condition}"
        try:
            for rowid, *row in self._source.execute(f"{query} ORDER BY {by}"):
                with contextlib.suppress(sqlite3.IntegrityError):  # garbage, not a row
                    self._found += self._target.execute(insert, row).rowcount
                last = rowid
        except (sqlite3.Error, OverflowError, MemoryError, UnicodeDecodeError) as error:
            if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_FULL:
                raise
            return False, last
        return True, last

    def _keep_numbers(self) -> None:
        """Skip row numbers to avoid using one twice. Other files refer to rows by them."""
        known = 0
        with contextlib.suppress(sqlite3.Error):
            query = "SELECT max(seq) FROM sqlite_sequence WHERE name = ?"
            known = self._source.execute(query, (self._name,)).fetchone()[0] or 0
        query = f"SELECT coalesce(max(id), 0) FROM {self._name}"
        highest = max(known, self._target.execute(query).fetchone()[0])
        self._target.execute("DELETE FROM sqlite_sequence WHERE name = ?", (self._name,))
        row = (self._name, highest + _UNUSED)
        self._target.execute("INSERT INTO sqlite_sequence VALUES (?, ?)", row)
