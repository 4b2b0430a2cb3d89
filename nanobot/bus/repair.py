"""Find damage in the journal's file before it is opened, and rebuild it from what can be read.

`mend` runs at each start, by the owner of the home. A small file is checked whole, a large one as
far as a start needs it; `check` looks at the rest while nanobot runs. Whatever finds damage later
leaves a note (`note_damage`) and the next start rebuilds.

Rebuilding changes nothing in place. The file, its log (WAL) and its index (-shm) are first copied
to `journal.db.damaged-<time>/`. The pages in the log are then applied to a second copy, and the
rows of each table are read by rowid from both ends, and between damaged pages, into a new file.
Indexes are made there from the rows. Documents that cannot be read come from `documents.json`. What
was lost is in `report.txt` beside the copy: as long as that folder is there, health shows it.

SQLite ignores everything in a log behind its first damaged frame. Whether that was stored before is
known from the index, in which a killed process leaves the number of the last frame: a log that a
power loss cut short is no damage.

If rows of running turns or parts of the log are lost, a message may have been worked on although
the journal says that it waits. Such messages are not run again by themselves (`settle`).
"""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3
import struct
import tempfile
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path

from loguru import logger

from nanobot.bus.journal_file import COPY, SCHEMA, copied_documents, is_json
from nanobot.bus.rows import WAITING_MESSAGES
from nanobot.bus.sqlite import Schema, is_corruption, lenient_text, open_file, opened_read_only
from nanobot.errors import StorageError
from nanobot.io import replace_file, storage_errors, sync_folder

SMALL = 2_000_000
"""Bytes of a journal that is checked whole at the start: it takes 4 ms per megabyte."""
_ASIDE, _NOTE, _NEW, _WORK = ".damaged-", ".suspect", ".rebuilt", ".salvage"
_REPORT = "report.txt"
_TIME = "%Y%m%dT%H%M%S"
_MOST_AN_HOUR = 5
"""Copies of an hour, and copies that are kept: a disk that damages the journal again and again is
not written full."""
_TRIES = 20_000
"""Rows that are looked for in vain between damaged pages."""
_PAGE = 4096
_MOST_MISSING = 1 << 30
"""Bytes: a header that speaks of more is damaged."""
_OWN_TABLES = Schema(SCHEMA.migrations, SCHEMA.first)
_HIGHEST_VERSION = 1_000
"""No nanobot writes such a format: the number is damaged."""
_TABLES_OF_START = ("cursor", "document", "helper", "learning", "spending", "step", "unfiled")
"""Small tables, which are checked in a large journal as well."""

_NAMES = {
    "inbox": "messages",
    "outbox": "replies",
    "turn": "reports of turns",
    "step": "steps of running turns",
    "unfiled": "newest lines of conversations",
    "cursor": "positions on platforms",
    "button": "buttons",
    "helper": "subagents",
    "prompt": "system prompts",
    "document": "documents",
    "learning": "usage of memory",
    "spending": "usage by day",
    "used": "usage by conversation",
}
"""What people read of a table."""

Settle = Callable[[sqlite3.Connection, str], int]
"""Set the messages of a condition aside in the rebuilt file; how many."""


def mend(path: Path, now: datetime, settle: Settle) -> None:
    """Rebuild the journal at `path` if it is damaged. Only for the owner of the home, while the
    file is not open. Raises `StorageError`."""
    with storage_errors(path):
        _finish(path)
        log = _Log.of(path)  # SQLite makes the index again when it opens the file
        if cause := find_damage(path, log):
            rebuild(path, cause, log, now, settle)


def note_damage(path: Path, cause: str) -> None:
    """Let the next start rebuild the journal at `path`."""
    with contextlib.suppress(OSError):  # it is found again, only later
        replace_file(path.with_name(path.name + _NOTE), cause.encode("utf-8", "replace"))


def find_damage(path: Path, log: _Log) -> str:
    """Return what is wrong with the journal at `path`, whose log was `log`; empty for nothing."""
    note = path.with_name(path.name + _NOTE)
    if note.exists():
        return note.read_text("utf-8", "replace")[:300] or "it could not be used"
    had_one = (path.parent / COPY).exists()
    if not path.exists():
        return "it was missing" if had_one else ""
    if path.stat().st_size == 0:
        return "it was empty" if had_one else ""
    try:
        with opened_read_only(path) as db:
            db.execute("SELECT count(*) FROM sqlite_master").fetchone()
            if lost := log.lost(_Log.of(path).last or 0):
                return f"its log is damaged: {lost} stored pages cannot be read"
            return check(db, path.parent, whole=path.stat().st_size <= SMALL)
    except sqlite3.Error as error:
        return str(error) if is_corruption(error) else ""


def check(db: sqlite3.Connection, state: Path, *, whole: bool) -> str:
    """What SQLite finds wrong in all of the journal in the folder `state`, or in its small
    tables."""
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if not 0 < version < _HIGHEST_VERSION and "inbox" in _tables(db):
        return f"its format is given as {version}"
    pragmas = [f"integrity_check({name})" for name in _TABLES_OF_START]
    for pragma in ["integrity_check(1)"] if whole else pragmas:
        found = "; ".join(str(row[0]) for row in db.execute(f"PRAGMA {pragma}"))
        if found != "ok":
            return " ".join(found.removeprefix("*** in database main ***").split())[:300]
    if "document" not in _tables(db):  # of an earlier format
        return ""
    copied = copied_documents(state / COPY)
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
    except (sqlite3.Error, OSError) as error:
        return str(error) if is_corruption(error) else ""


def damage_reports(state: Path) -> Iterator[tuple[str, str, str]]:
    """Of each damage that was mended in the folder `state` and not put away by its owner: its name,
    what was lost, and what to do."""
    for folder in sorted(state.glob(f"*{_ASIDE}*")):
        with contextlib.suppress(OSError):
            text = (folder / _REPORT).read_text("utf-8", "replace").strip()
            hint = f"A copy from before is in {folder}. Remove that folder to end this notice."
            yield folder.name, text, hint


def rebuild(path: Path, cause: str, log: _Log, now: datetime, settle: Settle) -> None:
    """Rebuild the journal at `path`. Raises `StorageError` or `OSError`; it is as it was then."""
    aside = path.with_name(f"{path.name}{_ASIDE}{now:{_TIME}}")
    copies = sorted(path.parent.glob(f"{path.name}{_ASIDE}*"))
    hour_ago = f"{path.name}{_ASIDE}{now - timedelta(hours=1):{_TIME}}"
    if sum(copy.name > hour_ago for copy in copies) >= _MOST_AN_HOUR:
        raise StorageError(
            path,
            "it is damaged again and again",
            hint="Check the disk. Try again in an hour.",
        )
    for copy in copies[: 1 - _MOST_AN_HOUR]:
        shutil.rmtree(copy)
    aside.mkdir(mode=0o700, exist_ok=True)
    for suffix in ("", "-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            shutil.copyfile(path.with_name(path.name + suffix), aside / (path.name + suffix))
    work, new = path.with_name(path.name + _WORK), path.with_name(path.name + _NEW + "-part")
    for one in (work, new):
        for suffix in ("", "-wal", "-shm", "-journal"):
            one.with_name(one.name + suffix).unlink(missing_ok=True)
    source = aside / path.name
    shutil.copyfile(source, work) if source.exists() else work.touch(mode=0o600)
    damaged_log = log.apply_to(work)
    with work.open("rb") as file:
        head = file.read(100)
    identity = struct.unpack(">i", head[68:72])[0] if head.startswith(b"SQLite format 3\0") else 0
    make_readable(work)
    lost = _fill(work, new, identity, is_log_damaged=damaged_log, settle=settle)
    report = f"The journal was damaged ({cause}) and has been rebuilt. {lost}\n"
    replace_file(aside / _REPORT, report.encode())
    logger.error("{}", report.strip())
    new.replace(path.with_name(path.name + _NEW))
    sync_folder(path.parent)
    _finish(path)
    work.unlink(missing_ok=True)


def _finish(path: Path) -> None:
    """Put the rebuilt file in place, which must not meet the log of the one before."""
    new = path.with_name(path.name + _NEW)
    if not new.exists():
        return
    for suffix in ("-wal", "-shm", _NOTE):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    sync_folder(path.parent)
    new.replace(path)
    sync_folder(path.parent)


def _fill(work: Path, new: Path, identity: int, *, is_log_damaged: bool, settle: Settle) -> str:
    """Bring the rows that can be read in `work` to a new journal, and say what is lost."""
    with contextlib.ExitStack() as stack:
        target = stack.enter_context(contextlib.closing(open_file(new, _OWN_TABLES)))
        source = stack.enter_context(contextlib.closing(sqlite3.connect(work)))
        source.text_factory = lenient_text
        target.execute("BEGIN")
        lost = {name: _Table(source, target, name).copy() for name in _tables(target)}
        if identity and lost["outbox"] != "all":  # of `sends.log`, which goes by these numbers
            target.execute(f"PRAGMA application_id = {identity}")
        restored = _fill_documents(target, new.parent / COPY, lost)
        set_aside = 0
        if is_log_damaged:
            set_aside = settle(target, WAITING_MESSAGES)
        elif lost["step"]:
            set_aside = settle(target, "state = 'working'")
        elif lost["turn"]:
            set_aside = settle(target, "state = 'working' AND turn_id NOT IN (SELECT id FROM turn)")
        target.execute("COMMIT")
        target.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    for suffix in ("-wal", "-shm"):
        new.with_name(new.name + suffix).unlink(missing_ok=True)
    texts = [f"{_NAMES.get(name, name)} ({extent})" for name, extent in lost.items() if extent]
    texts += ["the newest changes"] if is_log_damaged else []
    told = [f"Lost: {', '.join(texts)}." if texts else "Nothing was lost."]
    if is_log_damaged or lost["inbox"] or lost["outbox"]:
        told.append("If a message gets no answer, send it again.")
    if restored:
        told.append(f"Restored from {COPY}: {', '.join(restored)}.")
    if set_aside:
        told.append(f"Messages that may have been worked on: {set_aside}; /retry runs them again.")
    return " ".join(told)


def _fill_documents(target: sqlite3.Connection, copy: Path, lost: dict[str, str]) -> list[str]:
    """Put in the documents that could not be read; their names."""
    copied = copied_documents(copy)
    query = "SELECT name, content FROM document"
    whole = {name for name, content in target.execute(query) if is_json(content)}
    missing = sorted(copied.keys() - whole)
    for name in missing:
        row = (name, json.dumps(copied[name], indent=1))
        target.execute("INSERT OR REPLACE INTO document VALUES (?, ?, 1)", row)
    if missing and set(copied) <= whole | {*missing}:
        lost["document"] = ""
    return missing


def _tables(db: sqlite3.Connection) -> list[str]:
    query = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    return [name for (name,) in db.execute(query)]


def make_readable(work: Path) -> None:
    """Give a damaged copy of a journal the size that it says to have, and, if its first page or its
    list of tables is damaged, a first page that names the tables where this version has them."""
    with work.open("r+b") as file:
        head, size = file.read(100), file.seek(0, 2)
        (pages,) = struct.unpack(">I", head[28:32]) if len(head) == 100 else (0,)
        if size < pages * _PAGE <= size + _MOST_MISSING:
            file.truncate(pages * _PAGE)
    try:
        with contextlib.closing(sqlite3.connect(work)) as db:
            if {*_NAMES} <= {*_tables(db)}:
                return
    except sqlite3.Error:
        pass
    if size >= _PAGE:
        with tempfile.TemporaryDirectory(dir=work.parent) as folder:
            best = min(_first_pages(Path(folder)), key=lambda page: _misfits(page, work))
        _misfits(best, work)


def _first_pages(folder: Path) -> Iterator[bytes]:
    """Yield first pages with the places of the tables in a new and in a compacted journal."""
    with contextlib.closing(open_file(folder / "new.db", _OWN_TABLES)) as new:
        for compacted in (False, True):
            if compacted:
                new.execute("VACUUM")
            yield _first_page(new, folder / f"{compacted}.db")


def _first_page(db: sqlite3.Connection, path: Path) -> bytes:
    """One that fits into a page: the tables of `db` without their indexes and constraints."""
    query = "SELECT name, rootpage FROM sqlite_master WHERE type = 'table'"
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as short:
        for name in _tables(db):
            table = _Table(db, db, name)
            short.execute(table.short_form())
        short.execute("PRAGMA writable_schema = ON")
        for name, root in db.execute(query):
            short.execute("UPDATE sqlite_master SET rootpage = ? WHERE name = ?", (root, name))
        short.execute(f"PRAGMA user_version = {SCHEMA.version}")
    return path.read_bytes()[:_PAGE]


def _misfits(page: bytes, work: Path) -> int:
    """Try this first page in the file `work`; how many tables are not where it says."""
    pages = struct.pack(">I", work.stat().st_size // _PAGE)
    # The size counts only if the change counter before it is repeated behind it.
    counted = page[:28] + pages + bytes(8) + page[40:92] + page[24:28] + page[96:]
    with work.open("r+b") as file:
        file.write(counted)
    misfits = 0
    with contextlib.closing(sqlite3.connect(work)) as db:
        for name in _NAMES:
            try:
                db.execute(f"SELECT count(*) FROM {name} NOT INDEXED").fetchone()
            except sqlite3.Error:
                misfits += 1
    return misfits


class _Table:
    """A table whose rows are brought from one database to another, as far as they can be read."""

    def __init__(self, source: sqlite3.Connection, target: sqlite3.Connection, name: str) -> None:
        self._source, self._target, self._name = source, target, name
        (sql,) = target.execute("SELECT sql FROM sqlite_master WHERE name = ?", (name,)).fetchone()
        self._is_counted = "AUTOINCREMENT" in sql
        info = target.execute(f"PRAGMA table_info({name})").fetchall()
        self._columns = [row[1] for row in info]
        keys = [row[1] for row in sorted(info, key=lambda row: int(row[5])) if row[5]]
        self._keys = keys if "WITHOUT ROWID" in sql else ["rowid"]
        self._unread = 0

    def short_form(self) -> str:
        """Return a statement that makes a table with the same rows, without constraints."""
        columns = ", ".join(self._columns)
        if self._is_counted:
            columns = columns.replace("id", "id INTEGER PRIMARY KEY AUTOINCREMENT", 1)
        if self._keys == ["rowid"]:
            return f"CREATE TABLE {self._name} ({columns})"
        keys = ", ".join(self._keys)
        return f"CREATE TABLE {self._name} ({columns}, PRIMARY KEY ({keys})) WITHOUT ROWID"

    def copy(self) -> str:
        """Bring what can be read; how much could not be, in words, empty for nothing."""
        try:
            info = self._source.execute(f"PRAGMA table_info({self._name})").fetchall()
        except sqlite3.Error:
            return "all"
        present = {row[1] for row in info}
        if not present:
            return "all"
        self._columns = [name for name in self._columns if name in present]
        is_whole, low = self._read("1", "ASC")
        if not is_whole and self._keys != ["rowid"]:
            self._read("1", "DESC")
            lost = "some"
        elif not is_whole:
            _, high = self._read(f"rowid > {low}" if low is not None else "1", "DESC")
            lost = self._between(low, high)
        else:
            lost = ""
        if self._is_counted:
            self._keep_numbers(lost)
        return lost

    def _between(self, low: int | None, high: int | None) -> str:
        """Look between damaged pages."""
        if low is None or high is None:
            return "most"
        gaps, tries = [(low + 1, high - 1)], 0
        while gaps and tries < _TRIES:
            first, last = gaps.pop()
            if first > last:
                continue
            middle, tries = (first + last) // 2, tries + 1
            is_whole, read = self._read(f"rowid BETWEEN {middle} AND {last}", "ASC")
            self._unread += not is_whole
            gaps.append((first, middle - 1))
            if not is_whole:
                gaps.append(((middle if read is None else read) + 1, last))
        return f"up to {self._unread}" if not gaps else "most"

    def _read(self, condition: str, order: str) -> tuple[bool, int | None]:
        """Bring rows until one cannot be read; whether all could be, and the last rowid."""
        columns, last = ", ".join(self._columns), None
        first = "rowid" if self._keys == ["rowid"] else "0"
        by = ", ".join(f"{key} {order}" for key in self._keys)
        marks = ", ".join("?" * len(self._columns))
        insert = f"INSERT OR IGNORE INTO {self._name} ({columns}) VALUES ({marks})"
        query = f"SELECT {first}, {columns} FROM {self._name} NOT INDEXED"
        try:
            for rowid, *row in self._source.execute(f"{query} WHERE {condition} ORDER BY {by}"):
                with contextlib.suppress(sqlite3.IntegrityError):  # garbage is no row of ours
                    self._target.execute(insert, row)
                last = rowid
        except (sqlite3.Error, OverflowError, MemoryError) as error:
            if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_FULL:
                raise
            return False, last
        return True, last

    def _keep_numbers(self, lost: str) -> None:
        """See to it that no number is given a second time: other files name rows by them."""
        try:
            query = "SELECT max(seq) FROM sqlite_sequence WHERE name = ?"
            known = self._source.execute(query, (self._name,)).fetchone()[0] or 0
        except sqlite3.Error:
            known = 0
        query = f"SELECT coalesce(max(id), 0) FROM {self._name}"
        highest = max(known, self._target.execute(query).fetchone()[0])
        highest += 1_000_000 if lost and not known else 0
        self._target.execute("DELETE FROM sqlite_sequence WHERE name = ?", (self._name,))
        self._target.execute("INSERT INTO sqlite_sequence VALUES (?, ?)", (self._name, highest))


class _Log:
    """The write-ahead log of a database as it is on the disk (sqlite.org/fileformat2.html and
    sqlite.org/walformat.html). By its index `last` is the number of the last frame that was stored,
    None if that is not known, and `copied` of the last that is in the database as well."""

    def __init__(self, log: bytes, index: bytes) -> None:
        self._log, self.copied = log, 0
        self.last: int | None = None
        self._order = "<" if log[3:4] == b"\x82" else ">"
        is_log = log[:3] == b"\x37\x7f\x06"
        self._is_whole = is_log and _checksum(self._order, b"", log[:24]) == log[24:_HEAD]
        self._page = struct.unpack_from(">I", log, 8)[0] if self._is_whole else _PAGE
        step = self._page + _FRAME_HEAD
        self._starts = range(_HEAD, len(log) - step + 1, step)
        self._salt = log[16:24] if self._is_whole else log[_HEAD + 8 : _HEAD + 16]
        same_round = not self._is_whole or index[32:40] == self._salt
        if len(index) >= 136 and index[:48] == index[48:96] and index[12] and same_round:
            self.last, self.copied = (struct.unpack_from("=I", index, at)[0] for at in (16, 96))
            self._salt = index[32:40]

    @classmethod
    def of(cls, path: Path) -> _Log:
        """The log beside the database at `path`."""
        return cls(*(_content(path.with_name(path.name + end)) for end in ("-wal", "-shm")))

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
        end = self.last
        if end is None:
            ends = (at + 1 for at in range(len(self._starts)) if self._ends_transaction(at))
            end = max(ends, default=0)
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


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
