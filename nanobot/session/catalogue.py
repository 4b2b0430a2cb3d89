"""Index of the session files: one cache for all readers.

A scan lists the folder with one stat per file, and reads the files that changed, by any process or
person. The results are in a database that processes share and that may be deleted at any time.
Nothing is written at the end of a turn: the next scan reads the changed conversation.

A conversation's key is the one in its file, if nanobot or another program with this format would
find the file under that key. Any other file, such as a copy, is listed under its own name."""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import datetime
from itertools import groupby
from pathlib import Path
from secrets import token_hex
from typing import NamedTuple, TypeVar

from loguru import logger
from msgspec import DecodeError, convert, to_builtins
from msgspec.json import Decoder
from msgspec.json import encode as json_encode
from msgspec.structs import replace

from nanobot.bus.sqlite import open_cache, remove_cache, storable, storage_error, transaction
from nanobot.clock import Clock
from nanobot.errors import StorageError
from nanobot.io import FileState, storage_errors
from nanobot.session.jsonl_reader import glance, key_in
from nanobot.session.records import SUFFIX, foreign_stem_of, key_of, stem_of
from nanobot.session.session import SessionInfo
from nanobot.tasks import pace

ARCHIVE = "archive"
_VERSION = 3
_TABLES = """
CREATE TABLE file (
    place TEXT PRIMARY KEY, stem TEXT NOT NULL, states TEXT NOT NULL, updated REAL,
    is_sealed INTEGER NOT NULL, shelf INTEGER, scope TEXT, info TEXT,
    revision INTEGER NOT NULL
);
CREATE INDEX file_stem ON file (stem);
CREATE INDEX file_shelf ON file (shelf, updated, scope);
CREATE INDEX file_revision ON file (revision);
CREATE TABLE origin (id TEXT NOT NULL);
"""
"""A row for each live file, and one without `info` for each folder of archived segments. `shelf` is
NULL for a folder and for a deleted conversation.

`stem`, the file name for their key, joins the two. `states` are the states of the files, one per
line. `revision` is the number of the scan that found them. `origin` identifies the sequence of
revisions: a new one begins if a row is removed or gets another key."""

_INFO = Decoder(SessionInfo)

T = TypeVar("T")
_Row = tuple[str, str, str, float | None, bool, int | None, str | None, str | None]
_ARCHIVED, _USUAL, _PINNED = range(3)
"""Values of `shelf`: in lists, the highest comes first."""


class _Scan(NamedTuple):
    """The `states` of the existing files, by the place of their row, and the errors for unreadable
    folders of the archive, with the time and the value of `_now` when it began."""

    states: dict[str, str]
    refused: set[str]
    began: float
    now: object


class SessionChange(NamedTuple):
    """A conversation and its files: archived segments, oldest first, then the live one. Their
    names are relative to the folder."""

    key: str
    files: Sequence[tuple[str, FileState]]


class Changes(NamedTuple):
    """The `sessions` that changed after a mark, or all of them if `is_whole`. `mark` is the new
    mark."""

    sessions: Sequence[SessionChange]
    is_whole: bool
    mark: str


class SessionCatalogue:
    """The conversations in `folder`, cached at `path`, or in memory if that is None or unusable.

    All methods block and may be called from any thread. Raises `StorageError` if the folder cannot
    be listed. An unreadable file is skipped, with one warning for as long as it lasts."""

    def __init__(self, folder: Path, clock: Clock, path: Path | None = None) -> None:
        self.folder = folder
        self._clock, self._path = clock, path
        self._lock = threading.RLock()
        self._memory: sqlite3.Connection | None = None
        self._looked, self._seen, self._now = float("-inf"), object(), object()
        self._refused: set[str] = set()
        self._last: tuple[str, int] | None = None  # the newest mark, and a hash of the files then

    def names(self) -> list[str]:
        """Return the names of the live files, without a scan."""
        return [name for name in list_names(self.folder) if is_session_file(name)]

    def sessions(
        self,
        *,
        sealed: bool = False,
        archived: bool | None = None,
        scope: str = "",
        within: float = 0.0,
        most: int | None = None,
    ) -> Iterator[SessionInfo]:
        """Return the sessions, or the first `most`, the last used first. With `sealed`, only those
        with unconsolidated messages before the newest epoch. `archived` selects the archived
        ones, or with False all others, the pinned ones first. With a `scope`, those of other
        known scopes are left out. A scan within the last `within` seconds is reused, unless
        `expire` was called since."""
        chosen, order = "is_sealed" if sealed else "shelf IS NOT NULL", "updated DESC"
        if archived is not None:
            chosen, order = _on_shelf(archived), "shelf DESC, updated DESC"
        if scope:
            chosen += " AND (scope = ? OR scope IS NULL)"
        query = f"SELECT place, info FROM file WHERE {chosen} ORDER BY {order} LIMIT ?"  # noqa: S608
        values = (*((scope,) if scope else ()), -1 if most is None else most)
        return self._decode(self._run(lambda db: db.execute(query, values).fetchall(), within))

    def select(self, names: Sequence[str], within: float = 0.0) -> Iterator[SessionInfo]:
        """Return the sessions with these file names."""
        places = json.dumps([encode_name(name) for name in names])
        query = "SELECT place, info FROM file JOIN json_each(?) ON place = value WHERE info != ''"
        return self._decode(self._run(lambda db: db.execute(query, (places,)).fetchall(), within))

    def _decode(self, rows: Sequence[tuple[str, str]]) -> Iterator[SessionInfo]:
        return (
            replace(decode_info(info), place=f"{self.folder}/{decode_name(place)}")
            for place, info in pace(rows)
        )

    def count(self, *, archived: bool, within: float = 0.0) -> Mapping[str | None, int]:
        """Return the number of sessions that a person archived, or of all others, by the scope in
        their metadata, if any."""
        query = f"SELECT scope, count(*) FROM file WHERE {_on_shelf(archived)} GROUP BY scope"  # noqa: S608
        return dict(self._run(lambda db: db.execute(query).fetchall(), within))

    def changes(self, mark: str, within: float = 0.0) -> Changes:
        """Return the changes since `mark`. `within` is as for `sessions`. If no file changed since
        this process returned it, the database is not opened."""
        if within:
            return self._run(lambda db: self._changes(db, mark), within)
        with self._lock:
            scan = self._scan()
            now = hash(tuple(scan.states.items()))
            if self._last == (mark, now):
                return Changes([], False, mark)
            found = self._run(lambda db: self._changes(db, mark), scan=scan)
            self._last = None if self._refused else (found.mark, now)
            return found

    def expire(self) -> None:
        """Require a new scan, because this process changed a file. Quick."""
        self._now = object()

    def forget(self, path: Path) -> None:
        """Drop the cached content of a file. The next scan reads it again."""
        blank = (
            "UPDATE file SET states = '', is_sealed = 0, shelf = NULL, info = NULL WHERE place = ?"
        )

        self._run(lambda db: db.execute(blank, (encode_name(path.name),)), None)
        self._last = None
        self.expire()

    def _run(
        self,
        work: Callable[[sqlite3.Connection], T],
        within: float | None = 0.0,
        scan: _Scan | None = None,
    ) -> T:
        """Run `work` after `scan`, by default a new one, or without one if `within` is None. An
        unusable database is created again. If that fails, or it is busy, memory is used."""
        with self._lock:
            for attempt in range(3):
                try:
                    with self._open() as db:
                        if within is not None:
                            self._look(db, within, scan)
                        return work(db)
                except (sqlite3.Error, OSError) as error:
                    if attempt == 2:
                        raise storage_error(self.folder, error) from error
                    self._set_aside(error, is_first=attempt == 0)
        raise AssertionError("unreachable")

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """Open the database for one use. At rest it is a single file, without deleted data in a
        second one."""
        if self._path is not None:
            with closing(open_cache(self._path, _TABLES, _VERSION)) as db:
                yield db
            return
        if self._memory is None:
            db = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
            db.executescript(_TABLES)
            self._memory = db
        yield self._memory

    def _set_aside(self, error: Exception, *, is_first: bool) -> None:
        is_busy = getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY
        if self._path is not None and is_first and not is_busy:
            with suppress(OSError):  # it may hold text that must be forgotten
                remove_cache(self._path)
            return
        logger.warning("{}: {}. The session index is kept in memory", self._path, error)
        self._path = None

    def _look(self, db: sqlite3.Connection, within: float, scan: _Scan | None) -> None:
        began, now = self._clock.monotonic(), self._now
        is_new = db.execute("SELECT id FROM origin").fetchone() is None
        self._last = None if is_new else self._last
        if not is_new and within and now is self._seen and began - self._looked <= within:
            return
        known = dict(db.execute("SELECT place, states FROM file"))
        scan = scan or self._scan()
        rows = self._read_changed(scan, known)
        gone = [place for place in known if place not in scan.states]
        if is_new or rows or gone:
            with transaction(db):
                store_rows(db, rows, gone, self._clock.now())
        self._refused, self._looked, self._seen = scan.refused, scan.began, scan.now

    def _read_changed(self, scan: _Scan, known: Mapping[str, str]) -> list[_Row]:
        """Return the rows of the files whose state is not the `known` one. Drop unreadable files
        from the scan, and report them once."""
        rows = list[_Row]()
        for place in pace([one for one, state in scan.states.items() if known.get(one) != state]):
            try:
                rows.append(self._row(place, scan.states[place]))
            except StorageError as error:
                scan.refused.add(str(error))
                del scan.states[place]
        for why in sorted(scan.refused - self._refused):
            logger.warning("{}", why)
        return rows

    def _scan(self) -> _Scan:
        """Read the states of the files."""
        began, now = self._clock.monotonic(), self._now  # `expire` during the scan ends its use
        # The live files first, so that lines archived during the scan are in at least one place.
        found, refused = list_states(self.folder), set[str]()
        for stem in list_names(self.folder / ARCHIVE):
            try:
                inside = list_states(self.folder / ARCHIVE / stem)
            except StorageError as error:
                refused.add(str(error))
                continue
            segments = [
                (int(number), f"{name} {state}")
                for name, state in inside.items()
                if (number := name.removesuffix(SUFFIX)).isdecimal()
            ]
            if segments:
                place = encode_name(f"{ARCHIVE}/{stem}")
                found[place] = "\n".join(line for _, line in sorted(segments))
        return _Scan(found, refused, began, now)

    def _row(self, place: str, states: str) -> _Row:
        name = decode_name(place)
        if "/" in name:
            return place, place.rpartition("/")[2], states, None, False, None, None, None
        path = self.folder / name
        try:
            info = glance(path)
            if info.key != (key := self._key_of(name, info.key)):
                info = replace(info, key=key)
            encoded = encode_info(info)
        except RecursionError as error:
            raise StorageError(path, "its metadata is nested too deeply") from error
        is_sealed = info.last_consolidated < info.epoch_seq
        stem = stem_of(info.key)
        shelf = None if info.is_deleted else _PINNED if info.is_pinned else _USUAL
        shelf = _ARCHIVED if shelf and info.is_archived else shelf
        scope = info.metadata.get("scope")
        scope = storable(scope) if isinstance(scope, str) else None
        return place, stem, states, info.updated_at.timestamp(), is_sealed, shelf, scope, encoded

    def _key_of(self, name: str, said: str) -> str:
        """Return the key of a file, given its name and the key stored in it."""
        own = f"{stem_of(said)}{SUFFIX}"
        if name == own:
            return said
        if name == f"{foreign_stem_of(said)}{SUFFIX}" and not (self.folder / own).exists():
            return said
        return key_of(name.removesuffix(SUFFIX))

    def _changes(self, db: sqlite3.Connection, mark: str) -> Changes:
        newest = "SELECT id, (SELECT max(revision) FROM file) FROM origin"
        id, revision = db.execute(newest).fetchone()
        origin, _, since = mark.partition(":")
        rows = db.execute(
            "SELECT stem, place, states, info FROM file WHERE states != '' AND stem IN"
            " (SELECT stem FROM file WHERE revision > ?) ORDER BY stem, info IS NOT NULL",
            (int(since) if origin == id else -1,),
        )
        by_stem = groupby(rows, key=lambda row: str(row[0]))
        sessions = [
            self._describe_change(stem, [row[1:] for row in group]) for stem, group in by_stem
        ]
        return Changes(sessions, origin != id, f"{id}:{revision or 0}")

    def _describe_change(
        self, stem: str, rows: Sequence[tuple[str, str, str | None]]
    ) -> SessionChange:
        key, files = "", list[tuple[str, FileState]]()
        for place, states, info in rows:
            if info is not None:
                key = decode_info(info).key
                files.append((decode_name(place), parse_state(states)))
                continue
            for name, _, state in (line.partition(" ") for line in states.split("\n")):
                files.append((f"{decode_name(place)}/{name}", parse_state(state)))
        if not key:
            with suppress(StorageError):
                key = key_in(self.folder / files[0][0])
        return SessionChange(key or key_of(decode_name(stem)), files)


def _on_shelf(archived: bool) -> str:
    """Return the condition for a list."""
    return f"shelf {'=' if archived else '>'} {_ARCHIVED}"


def store_rows(
    db: sqlite3.Connection,
    rows: Sequence[_Row],
    gone: Collection[str],
    when: datetime,
) -> None:
    """Store the results of a scan."""
    (revision,) = db.execute("SELECT coalesce(max(revision), 0) + 1 FROM file").fetchone()
    # From the time: a power cut may lose the last revisions, which must not be reused.
    revision = max(revision, int(when.timestamp() * 1000))
    stems = dict(db.execute("SELECT place, stem FROM file"))
    new = "INSERT OR REPLACE INTO file VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
    db.executemany(new, [(*row, revision) for row in rows])
    db.executemany("DELETE FROM file WHERE place = ?", [(place,) for place in gone])
    has_moved = any(stems.get(place, stem) != stem for place, stem, *_ in rows)
    if gone or has_moved or not db.execute("SELECT 1 FROM origin").fetchone():
        db.execute("DELETE FROM origin")
        db.execute("INSERT INTO origin VALUES (?)", (token_hex(8),))


def list_names(folder: Path) -> list[str]:
    with storage_errors(folder):
        try:
            return os.listdir(folder)  # noqa: PTH208 - fast, for tens of thousands of files
        except (FileNotFoundError, NotADirectoryError):
            return []


def list_states(folder: Path) -> dict[str, str]:
    """Return the states of the session files or segments in a folder, by place."""
    found, names = dict[str, str](), [one for one in list_names(folder) if is_session_file(one)]
    if not names:
        return found
    with storage_errors(folder):
        opened = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        for name in pace(names):
            try:
                seen = os.stat(name, dir_fd=opened)
            except OSError:  # removed, or a dangling link
                continue
            found[encode_name(name)] = f"{seen.st_ino} {seen.st_size} {seen.st_mtime_ns}"
    finally:
        os.close(opened)
    return found


def parse_state(text: str) -> FileState:
    return FileState(*map(int, text.split(" ")))


def is_session_file(name: str) -> bool:
    return name.endswith(SUFFIX) and not name.startswith(".")


def encode_name(name: str) -> str:
    """Return a file name, which may contain any bytes, as the database stores it."""
    return name if name.isascii() else os.fsencode(name).decode("latin-1")


def decode_name(place: str) -> str:
    return place if place.isascii() else os.fsdecode(place.encode("latin-1"))


def encode_info(info: SessionInfo) -> str:
    try:
        return json_encode(info).decode()
    except UnicodeEncodeError:  # half an emoji is not valid UTF-8
        return json.dumps(to_builtins(info))


def decode_info(text: str) -> SessionInfo:
    try:
        return _INFO.decode(text)
    except DecodeError:  # half an emoji
        return convert(json.loads(text), SessionInfo)
