"""Rebuild a damaged journal from what can be read of it. `nanobot.bus.damage` finds the damage.

Nothing is changed in place. The file, its log (WAL) and its index (-shm) are first copied to
`journal.db.damaged-<time>/`. The pages in the log are then written to a second copy, and the rows
of each table are read, row by row, into a new file; indexes are made there. Documents that cannot
be read come from `documents.json`. What was lost is in `report.txt` in that folder: as long as it
is there, health shows it.

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
from datetime import datetime, timedelta
from pathlib import Path

from loguru import logger

from nanobot.bus.damage import ASIDE, NEW, PAGE, REPORT, Log, Settle, finish, tables
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
"""Reads between damaged pages of a table, of which a damaged number may make a desert."""
_MOST_MISSING = 1 << 30
"""Bytes: a header that speaks of more is damaged."""
_UNUSED = 1_000_000
"""Numbers that are skipped after a loss: other files name rows by numbers that may be lost."""
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
        lost = _salvage(work, path.name, log, settle)
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)  # a full disk has no room for half a copy
        raise
    shown = "".join(filter(str.isprintable, cause))
    report = f"The journal was damaged ({shown}) and has been rebuilt. {lost}\n"
    (work / REPORT).write_text(report)
    ready = (work / "new.db").replace(path.with_name(path.name + NEW + "-part"))
    os.sync()  # all of that is on the disk before the damaged file goes
    work.rename(path.with_name(f"{path.name}{ASIDE}{now:{_TIME}}"))
    ready.replace(path.with_name(path.name + NEW))
    finish(path)
    logger.error("{}", report.strip())
    for copy in copies[: 1 - _MOST_AN_HOUR]:
        shutil.rmtree(copy)


def _salvage(work: Path, name: str, log: Log, settle: Settle) -> str:
    """Make `new.db` in the folder `work` of the copies there. Return a report of the losses."""
    source, new = work / "source.db", work / "new.db"
    source.touch(mode=0o600)
    with contextlib.suppress(FileNotFoundError):
        shutil.copyfile(work / name, source)
    is_log_damaged = log.apply_to(source)
    with contextlib.closing(open_file(new, _OWN_TABLES)) as target:
        make_readable(source)
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
    """Bring the readable rows of a journal to a new one. Return a report of the losses."""
    lost = {name: _Table(source, target, name).copy() for name in tables(target)}
    with contextlib.suppress(sqlite3.Error):  # of `sends.log`, which goes by numbers of rows
        ((identity,),) = source.execute("PRAGMA application_id")
        target.execute(f"PRAGMA application_id = {identity}")
    restored = _fill_documents(target, copy, lost)
    set_aside = 0
    if is_log_damaged:
        set_aside = settle(target, WAITING_MESSAGES)
    elif lost["step"] or lost["turn"]:
        set_aside = settle(target, "state = 'working'")
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
    """Put in the documents that could not be read, from their copy. Return their names."""
    copied = copied_documents(copy) or {}
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
    list of tables is damaged, those of a new journal: each has its tables in the same places."""
    with work.open("r+b") as file:
        head, size = file.read(100), file.seek(0, 2)
        (pages,) = struct.unpack(">I", head[28:32]) if len(head) == 100 else (0,)
        if size < pages * PAGE <= size + _MOST_MISSING:
            file.truncate(pages * PAGE)
    try:
        with contextlib.closing(sqlite3.connect(work)) as db:
            if {*_NAMES} <= {*tables(db)}:
                return
    except (sqlite3.Error, UnicodeDecodeError):
        pass
    new = work.with_name("tables.db")
    open_file(new, _OWN_TABLES).close()
    content = new.read_bytes()
    new.unlink()
    if size < PAGE:
        return
    with work.open("r+b") as file:
        for page in _list_of_tables(content):
            file.seek(page * PAGE)
            file.write(content[page * PAGE : (page + 1) * PAGE])
        file.seek(28)
        file.write(bytes(4))  # the size, which SQLite takes from the file then
        if head.startswith(b"SQLite format 3\0"):
            file.seek(68)
            file.write(head[68:72])  # the identity, of `sends.log`


def _list_of_tables(content: bytes) -> list[int]:
    """The pages of a database that list its tables: its first one, whose cells lead to the others
    (sqlite.org/fileformat2.html#b_tree_pages)."""
    (cells,) = struct.unpack_from(">H", content, 103)
    places = struct.unpack_from(f">{cells}H", content, 112)
    below = [struct.unpack_from(">I", content, place)[0] for place in (108, *places)]
    return [0, *(page - 1 for page in below)]


class _Table:
    """A table whose rows are brought from one database to another, as far as they can be read."""

    def __init__(self, source: sqlite3.Connection, target: sqlite3.Connection, name: str) -> None:
        self._source, self._target, self._name = source, target, name
        query = "SELECT sql FROM sqlite_master WHERE name = ?"
        (self._sql,) = target.execute(query, (name,)).fetchone()
        self._info = target.execute(f"PRAGMA table_info({name})").fetchall()
        self._found, self._tries = 0, _TRIES

    def copy(self) -> str:
        """Bring the readable rows. Return how much is lost: nothing (""), some or all."""
        has_rowid = "WITHOUT ROWID" not in self._sql
        ordered = sorted((row for row in self._info if row[5]), key=lambda row: int(row[5]))
        keys = ["rowid"] if has_rowid else [row[1] for row in ordered]
        is_whole, low = self._read("1", keys, "ASC")
        if not is_whole:
            _, high = self._read("1", keys, "DESC")
            if has_rowid and low is not None and high is not None:
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
        is_whole, read = self._read(f"rowid BETWEEN {middle} AND {last}", ["rowid"], "ASC")
        self._read_between(first, middle - 1)
        if not is_whole:
            self._read_between((middle if read is None else read) + 1, last)

    def _read(self, condition: str, keys: list[str], order: str) -> tuple[bool, int | None]:
        """Bring rows until one cannot be read. Return whether all could be, and the last rowid."""
        columns, last = ", ".join(row[1] for row in self._info), None
        by = ", ".join(f"{key} {order}" for key in keys)
        marks = ", ".join("?" * len(self._info))
        insert = f"INSERT OR IGNORE INTO {self._name} ({columns}) VALUES ({marks})"
        number = "rowid" if keys == ["rowid"] else "0"
        query = f"SELECT {number}, {columns} FROM {self._name} NOT INDEXED WHERE {condition}"
        try:
            for rowid, *row in self._source.execute(f"{query} ORDER BY {by}"):
                with contextlib.suppress(sqlite3.IntegrityError):  # garbage is no row of ours
                    self._found += self._target.execute(insert, row).rowcount
                last = rowid
        except (sqlite3.Error, OverflowError, MemoryError, UnicodeDecodeError) as error:
            if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_FULL:
                raise
            return False, last
        return True, last

    def _keep_numbers(self) -> None:
        """Skip numbers, so that none is used twice: other files name rows by them."""
        known = 0
        with contextlib.suppress(sqlite3.Error):
            query = "SELECT max(seq) FROM sqlite_sequence WHERE name = ?"
            known = self._source.execute(query, (self._name,)).fetchone()[0] or 0
        query = f"SELECT coalesce(max(id), 0) FROM {self._name}"
        highest = max(known, self._target.execute(query).fetchone()[0])
        self._target.execute("DELETE FROM sqlite_sequence WHERE name = ?", (self._name,))
        row = (self._name, highest + _UNUSED)
        self._target.execute("INSERT INTO sqlite_sequence VALUES (?, ?)", row)
