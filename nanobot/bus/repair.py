"""Rebuild a damaged journal from what can be read of it. `nanobot.bus.damage` finds the damage.

Nothing is changed in place. The file, its log (WAL) and its index (-shm) are first copied to
`journal.db.damaged-<time>/`. The pages in the log are then applied to a second copy, and the rows
of each table are read by rowid from both ends, and between damaged pages, into a new file. Indexes
are made there from the rows. Documents that cannot be read come from `documents.json`. What was
lost is in `report.txt` beside the copy: as long as that folder is there, health shows it.

If rows of running turns or parts of the log are lost, a message may have been worked on although
the journal says that it waits. Such messages are not run again by themselves (`settle`).
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sqlite3
import struct
import tempfile
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

from loguru import logger

from nanobot.bus.damage import ASIDE, NEW, REPORT, Log, Settle, finish, tables
from nanobot.bus.journal_file import COPY, SCHEMA, copied_documents, is_json
from nanobot.bus.rows import WAITING_MESSAGES
from nanobot.bus.sqlite import Schema, lenient_text, open_file
from nanobot.errors import StorageError

_WORK = ".salvage"
_TIME = "%Y%m%dT%H%M%S"
_MOST_AN_HOUR = 5
"""Copies of an hour, and copies that are kept: a disk that damages the journal again and again is
not written full."""
_TRIES = 2_000
"""Rows that are looked for in vain between damaged pages."""
_PAGE = 4096
_MOST_MISSING = 1 << 30
"""Bytes: a header that speaks of more is damaged."""
_OWN_TABLES = Schema(SCHEMA.tables)

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
    "document": "jobs, pairings and other documents",
    "learning": "usage of memory",
    "spending": "usage by day",
    "used": "usage by conversation",
}
"""What people read of a table."""


def rebuild(path: Path, cause: str, log: Log, now: datetime, settle: Settle) -> None:
    """Rebuild the journal at `path`. Raises `StorageError`, `sqlite3.Error` or `OSError`; it is as
    it was then."""
    work = path.with_name(path.name + _WORK)
    shutil.rmtree(work, ignore_errors=True)  # of an attempt that was killed, or met a full disk
    copies = sorted(path.parent.glob(f"{path.name}{ASIDE}*"))
    hour_ago = f"{path.name}{ASIDE}{now - timedelta(hours=1):{_TIME}}"
    if sum(copy.name > hour_ago for copy in copies) >= _MOST_AN_HOUR:
        raise StorageError(
            path,
            "it is damaged again and again",
            hint="Check the disk. Try again in an hour.",
        )
    work.mkdir(mode=0o700)
    try:
        for name in (path.name, f"{path.name}-wal", f"{path.name}-shm", COPY):
            with contextlib.suppress(FileNotFoundError):
                shutil.copyfile(path.with_name(name), work / name)
        source, new = work / "source.db", work / "new.db"
        shutil.copyfile(path, source) if path.exists() else source.touch(mode=0o600)
        damaged_log = log.apply_to(source)
        with source.open("rb") as file:
            head = file.read(100)
        is_head = head.startswith(b"SQLite format 3\0")
        identity = struct.unpack(">i", head[68:72])[0] if is_head else 0
        make_readable(source)
        lost = _fill(source, new, identity, is_log_damaged=damaged_log, settle=settle)
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)  # a full disk has no room for half a copy
        raise
    shown = "".join(filter(str.isprintable, cause))
    report = f"The journal was damaged ({shown}) and has been rebuilt. {lost}\n"
    (work / REPORT).write_text(report)
    ready = new.replace(path.with_name(path.name + NEW + "-part"))
    for rest in work.glob(f"{source.name}*"):
        rest.unlink()
    os.sync()  # all of that is on the disk before the damaged file goes
    work.rename(path.with_name(f"{path.name}{ASIDE}{now:{_TIME}}"))
    ready.replace(path.with_name(path.name + NEW))
    finish(path)
    logger.error("{}", report.strip())
    for copy in copies[: 1 - _MOST_AN_HOUR]:
        shutil.rmtree(copy)


def _fill(work: Path, new: Path, identity: int, *, is_log_damaged: bool, settle: Settle) -> str:
    """Bring the readable rows of `work` to a new journal. Return a report of the losses."""
    with contextlib.ExitStack() as stack:
        target = stack.enter_context(contextlib.closing(open_file(new, _OWN_TABLES)))
        source = stack.enter_context(contextlib.closing(sqlite3.connect(work)))
        source.text_factory = lenient_text
        target.execute("BEGIN")
        lost = {
            name: _Table(source, target, name).copy(is_log_damaged=is_log_damaged)
            for name in tables(target)
        }
        if identity and lost["outbox"] != "all":  # of `sends.log`, which goes by these numbers
            target.execute(f"PRAGMA application_id = {identity}")
        restored = _fill_documents(target, work.with_name(COPY), lost)
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
            if {*_NAMES} <= {*tables(db)}:
                return
    except (sqlite3.Error, UnicodeDecodeError):
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
        for name in tables(db):
            table = _Table(db, db, name)
            short.execute(table.short_form())
        short.execute("PRAGMA writable_schema = ON")
        for name, root in db.execute(query):
            short.execute("UPDATE sqlite_master SET rootpage = ? WHERE name = ?", (root, name))
        short.execute(f"PRAGMA user_version = {SCHEMA.version}")
    return path.read_bytes()[:_PAGE]


def _misfits(page: bytes, work: Path) -> int:
    """Try this first page in the file `work`. Return how many tables it does not find."""
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
            except (sqlite3.Error, UnicodeDecodeError):
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

    def copy(self, *, is_log_damaged: bool) -> str:
        """Bring what can be read; how much could not be, in words, empty for nothing."""
        try:
            info = self._source.execute(f"PRAGMA table_info({self._name})").fetchall()
        except (sqlite3.Error, UnicodeDecodeError):
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
            self._keep_numbers(are_known=not (lost or is_log_damaged))
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
        except (sqlite3.Error, OverflowError, MemoryError, UnicodeDecodeError) as error:
            if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_FULL:
                raise
            return False, last
        return True, last

    def _keep_numbers(self, *, are_known: bool) -> None:
        """See to it that no number is given a second time: other files name rows by them."""
        try:
            query = "SELECT max(seq) FROM sqlite_sequence WHERE name = ?"
            known = self._source.execute(query, (self._name,)).fetchone()[0] or 0
        except sqlite3.Error:
            known = 0
        query = f"SELECT coalesce(max(id), 0) FROM {self._name}"
        highest = max(known, self._target.execute(query).fetchone()[0])
        highest += 0 if are_known and known else 1_000_000
        self._target.execute("DELETE FROM sqlite_sequence WHERE name = ?", (self._name,))
        self._target.execute("INSERT INTO sqlite_sequence VALUES (?, ?)", (self._name, highest))
