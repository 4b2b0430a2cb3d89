"""What conversations there are: one cache over the session files, for all who would read them all.

A look lists the folder, with one stat for each file, and reads those that changed, whoever changed
them. What it found stays in a database that processes share and that may be deleted at any time.
Nothing is written when a turn ends: the next look reads a conversation that changed.

A conversation goes by the key that its file says if nanobot or another program of this format would
find it there; any other file, such as a copy, goes by its own name.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import datetime
from itertools import groupby
from pathlib import Path
from secrets import token_hex
from typing import NamedTuple, TypeVar

from loguru import logger
from msgspec import DecodeError, convert, to_builtins
from msgspec.json import Decoder
from msgspec.structs import replace

from nanobot.bus.sqlite import open_cache, remove_cache, storage_error, transaction
from nanobot.clock import Clock
from nanobot.errors import StorageError
from nanobot.io import FileState, storage_errors
from nanobot.session.jsonl_reader import glance, key_in
from nanobot.session.records import SUFFIX, foreign_stem_of, key_of, stem_of
from nanobot.session.session import SessionInfo
from nanobot.tasks import pace

ARCHIVE = "archive"
_VERSION = 2
_TABLES = """
CREATE TABLE file (
    place TEXT PRIMARY KEY, stem TEXT NOT NULL, states TEXT NOT NULL, updated REAL,
    is_sealed INTEGER NOT NULL, info TEXT, revision INTEGER NOT NULL
);
CREATE INDEX file_stem ON file (stem);
CREATE INDEX file_revision ON file (revision);
CREATE TABLE origin (id TEXT NOT NULL);
"""
"""A row for each live file, and one without `info` for each folder of archived segments.

`stem` joins the two: it is the name for their key. `states` are the states of the files, a line
each; `revision` is the number of the look that found them. `origin` names the sequence of
revisions: another one begins where a row goes, or goes by another key.
"""

_INFO = Decoder(SessionInfo)

T = TypeVar("T")
_Row = tuple[str, str, str, float | None, bool, str | None]


class ChangedSession(NamedTuple):
    """A conversation and its files: archived segments, oldest first, then the live one. Their
    names are relative to the folder."""

    key: str
    files: Sequence[tuple[str, FileState]]


class Changes(NamedTuple):
    """`sessions` are those that changed after a point in time, or all of them where `is_whole`;
    `mark` names the point that they lead to."""

    sessions: Sequence[ChangedSession]
    is_whole: bool
    mark: str


class SessionCatalogue:
    """The conversations in `folder`; what is known of them is kept at `path`, in memory where that
    is None or refused.

    Everything blocks and may be called from any thread. Raises `StorageError` where the folder
    cannot be listed; a file that cannot be read is left out, with one warning as long as that
    lasts.
    """

    def __init__(self, folder: Path, clock: Clock, path: Path | None = None) -> None:
        self.folder = folder
        self._clock, self._path = clock, path
        self._lock = threading.Lock()
        self._memory: sqlite3.Connection | None = None
        self._looked, self._seen, self._now = float("-inf"), object(), object()
        self._refused: set[str] = set()

    def names(self) -> list[str]:
        """The names of the live files, which cost less than a look."""
        return [name for name in _listed(self.folder) if _is_session(name)]

    def sessions(self, *, sealed: bool = False, within: float = 0.0) -> Iterator[SessionInfo]:
        """All of them, the one used last first; with `sealed` only those of which something before
        the newest epoch is not consolidated. `within` is as for `changes`."""
        chosen = "is_sealed" if sealed else "info IS NOT NULL"
        query = f"SELECT place, info FROM file WHERE {chosen} ORDER BY updated DESC"  # noqa: S608
        rows: list[tuple[str, str]] = self._run(lambda db: db.execute(query).fetchall(), within)
        return (
            replace(_decoded(info), place=f"{self.folder}/{_name_of(place)}")
            for place, info in pace(rows)
        )

    def changes(self, mark: str, within: float = 0.0) -> Changes:
        """What changed since an earlier answer gave `mark`. A look not longer ago than `within`
        seconds will do, unless something has `expire`d it."""
        return self._run(lambda db: self._changes(db, mark), within)

    def expire(self) -> None:
        """Let whoever asks next look: this process changed a file. Quick."""
        self._now = object()

    def forget(self, path: Path) -> None:
        """Keep nothing of what was read from a file; the next look reads it again."""
        blank = "UPDATE file SET states = '', is_sealed = 0, info = NULL WHERE place = ?"

        self._run(lambda db: db.execute(blank, (_place_of(path.name),)), None)
        self.expire()

    def _run(self, work: Callable[[sqlite3.Connection], T], within: float | None = 0.0) -> T:
        """What `work` gives after a look, without one where `within` is None. A database that
        cannot be used is made anew; where that is refused, or it is busy, it is done without."""
        with self._lock:
            for attempt in range(3):
                try:
                    with self._opened() as db:
                        if within is not None:
                            self._look(db, within)
                        return work(db)
                except (sqlite3.Error, OSError) as error:
                    if attempt == 2:
                        raise storage_error(self.folder, error) from error
                    self._set_aside(error, is_first=attempt == 0)
        raise AssertionError("unreachable")

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        """The database, opened for this once: at rest it is one file, and what was deleted does not
        stand beside it."""
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
            with suppress(OSError):  # nothing stays that has to be forgotten
                remove_cache(self._path)
            return
        logger.warning("{}: {}. The index of sessions is kept in memory", self._path, error)
        self._path = None

    def _look(self, db: sqlite3.Connection, within: float) -> None:
        began, now = self._clock.monotonic(), self._now
        is_new = db.execute("SELECT id FROM origin").fetchone() is None
        if not is_new and within and now is self._seen and began - self._looked <= within:
            return
        known = dict(db.execute("SELECT place, states FROM file"))
        states, refused = self._states()
        rows = list[_Row]()
        for place in pace([one for one in states if known.get(one) != states[one]]):
            try:
                rows.append(self._row(place, states[place]))
            except StorageError as error:
                refused.add(str(error))
                del states[place]
        for why in sorted(refused - self._refused):
            logger.warning("{}", why)
        gone = known.keys() - states.keys()
        if is_new or rows or gone:
            with transaction(db):
                _store(db, rows, gone, self._clock.now())
        self._refused, self._looked, self._seen = refused, began, now

    def _states(self) -> tuple[dict[str, str], set[str]]:
        """The states of the files that there are, by the places of their rows, and what kept from
        looking into a folder of the archive."""
        # The live files first: what is moved to the archive meanwhile is then in both or in one.
        found, refused = _states_in(self.folder), set[str]()
        for stem in _listed(self.folder / ARCHIVE):
            try:
                inside = _states_in(self.folder / ARCHIVE / stem)
            except StorageError as error:
                refused.add(str(error))
                continue
            segments = [
                (int(number), f"{name} {state}")
                for name, state in inside.items()
                if (number := name.removesuffix(SUFFIX)).isdecimal()
            ]
            if segments:
                place = _place_of(f"{ARCHIVE}/{stem}")
                found[place] = "\n".join(line for _, line in sorted(segments))
        return found, refused

    def _row(self, place: str, states: str) -> _Row:
        name = _name_of(place)
        if "/" in name:
            return place, place.rpartition("/")[2], states, None, False, None
        path = self.folder / name
        try:
            info = glance(path)
            info = replace(info, key=self._key_of(name, info.key))
            encoded = json.dumps(to_builtins(info))  # in ASCII, which holds half an emoji too
        except RecursionError as error:
            raise StorageError(path, "its metadata is nested too deep") from error
        is_sealed = info.last_consolidated < info.epoch_seq
        stem = stem_of(info.key)
        return place, stem, states, info.updated_at.timestamp(), is_sealed, encoded

    def _key_of(self, name: str, said: str) -> str:
        """The key of the file of this name, which says that it belongs to a key."""
        own, foreign = (f"{stem}{SUFFIX}" for stem in (stem_of(said), foreign_stem_of(said)))
        if name == own or (name == foreign and not (self.folder / own).exists()):
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
        sessions = [self._changed(stem, [row[1:] for row in group]) for stem, group in by_stem]
        return Changes(sessions, origin != id, f"{id}:{revision or 0}")

    def _changed(self, stem: str, rows: Sequence[tuple[str, str, str | None]]) -> ChangedSession:
        key, files = "", list[tuple[str, FileState]]()
        for place, states, info in rows:
            if info is not None:
                key = _decoded(info).key
                files.append((_name_of(place), _state(states)))
                continue
            for name, _, state in (line.partition(" ") for line in states.split("\n")):
                files.append((f"{_name_of(place)}/{name}", _state(state)))
        if not key:
            with suppress(StorageError):
                key = key_in(self.folder / files[0][0])
        return ChangedSession(key or key_of(_name_of(stem)), files)


def _store(
    db: sqlite3.Connection,
    rows: Sequence[_Row],
    gone: Collection[str],
    when: datetime,
) -> None:
    """Take in what a look found."""
    (revision,) = db.execute("SELECT coalesce(max(revision), 0) + 1 FROM file").fetchone()
    # By the time: a power cut may take the last ones, and theirs must not be given again.
    revision = max(revision, int(when.timestamp() * 1000))
    stems = dict(db.execute("SELECT place, stem FROM file"))
    new = "INSERT OR REPLACE INTO file VALUES (?, ?, ?, ?, ?, ?, ?)"
    db.executemany(new, [(*row, revision) for row in rows])
    db.executemany("DELETE FROM file WHERE place = ?", [(place,) for place in gone])
    has_moved = any(stems.get(place, stem) != stem for place, stem, *_ in rows)
    if gone or has_moved or not db.execute("SELECT 1 FROM origin").fetchone():
        db.execute("DELETE FROM origin")
        db.execute("INSERT INTO origin VALUES (?)", (token_hex(8),))


def _listed(folder: Path) -> list[str]:
    with storage_errors(folder):
        try:
            return os.listdir(folder)  # noqa: PTH208 - there may be ten thousands
        except (FileNotFoundError, NotADirectoryError):
            return []


def _states_in(folder: Path) -> dict[str, str]:
    """The session files or segments in a folder, by the places of their names, and their states."""
    found, prefix = dict[str, str](), f"{folder}/"
    for name in pace(filter(_is_session, _listed(folder))):
        try:
            seen = os.stat(prefix + name)  # noqa: PTH116 - likewise
        except OSError:  # gone, or a link to nowhere
            continue
        found[_place_of(name)] = f"{seen.st_ino} {seen.st_size} {seen.st_mtime_ns}"
    return found


def _state(text: str) -> FileState:
    return FileState(*map(int, text.split(" ")))


def _is_session(name: str) -> bool:
    return name.endswith(SUFFIX) and not name.startswith(".")


def _place_of(name: str) -> str:
    """The name of a file as the database holds it, of whatever bytes it is made."""
    return name if name.isascii() else os.fsencode(name).decode("latin-1")


def _name_of(place: str) -> str:
    return place if place.isascii() else os.fsdecode(place.encode("latin-1"))


def _decoded(text: str) -> SessionInfo:
    try:
        return _INFO.decode(text)
    except DecodeError:  # half an emoji
        return convert(json.loads(text), SessionInfo)
