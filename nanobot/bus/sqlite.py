"""SQLite: files for data that must not be lost, and caches that can be rebuilt.

`Database` has one writer thread, which shares fsyncs between concurrent callers. Each job is a
function of the connection, and the event loop never waits for the disk. With WAL and
`synchronous=FULL` a commit is one fsync, and an outcome is reported only after it.

No code opens the file of an open database itself, because closing it would drop all locks of this
process on it (https://www.sqlite.org/howtocorrupt.html, 2.2). Another process could then delete the
log of a database in use. The tests guard this rule (tests/files.py).

If the disk rejects a transaction, all its jobs are undone together. Jobs queued with `retry` run
again, in their place before everything later, until the disk accepts them: together with the next
jobs, or after a few seconds."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TypeVar
from urllib.parse import quote

from loguru import logger
from msgspec import Struct

from nanobot.bus.sql import BATCH, Job, WriteQueue, resolve, take_outcomes
from nanobot.errors import DatabaseDamaged, HomeMoved, StorageError, storage_hint
from nanobot.io import make_folder

_BUSY_SECONDS = 10.0
"""Seconds that a reader waits for a writer."""


def copy_to(connection: sqlite3.Connection, path: Path) -> None:
    """Write the content of `connection` to a new file at `path`, readable only by its owner, and
    sync it. Call it outside transactions. On `sqlite3.Error` or `OSError`, nothing is left at
    `path`."""
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    try:
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as target:
            connection.backup(target)
        with path.open("rb") as file:
            os.fsync(file.fileno())
    except BaseException:
        path.unlink(missing_ok=True)
        raise


class Schema(Struct, frozen=True):
    """The `tables` to create in an empty database, and the `version` of that layout. `import_files`
    gets the connection, the folder, and whether the database is new. It imports files of the
    folder, in one transaction with new tables, and returns them, to be renamed once that is
    durable."""

    tables: str
    version: int = 1
    import_files: Callable[[sqlite3.Connection, Path, bool], list[Path]] | None = None

    def prepare(self, connection: sqlite3.Connection, path: Path) -> None:
        """Create the tables if the database at `path` is empty, and import files. Raise
        `StorageError` if it has other tables."""
        if problem := self.mismatch(connection):
            hint = "Use that version, or another NANOBOT_HOME (docs/upgrade.md)."
            raise StorageError(path, problem, hint=hint)
        is_new = not layout(connection)
        connection.executescript(f"BEGIN IMMEDIATE;{self.tables if is_new else ''}")
        if connection.execute("PRAGMA user_version").fetchone() != (self.version,):
            connection.execute(f"PRAGMA user_version={self.version}")  # writes the first page
        carried = []
        if self.import_files:
            carried = self.import_files(connection, path.parent, is_new)
        connection.execute("COMMIT")
        for file in carried:
            file.replace(file.with_name(f"{file.name}.imported"))

    def mismatch(self, connection: sqlite3.Connection) -> str:
        """Return how a database differs from this schema, or an empty text if it fits or is new.
        The version may differ if the tables are the same."""
        version: int = connection.execute("PRAGMA user_version").fetchone()[0]
        if version == self.version or layout(connection) in (set(), self.layout()):
            return ""
        return f"it was written by another version of nanobot (format {version})"

    def layout(self) -> set[str]:
        """Return the layout of a new database."""
        with contextlib.closing(sqlite3.connect(":memory:")) as new:
            new.executescript(self.tables)
            return layout(new)


def layout(connection: sqlite3.Connection) -> set[str]:
    """Return the statements that made the tables and indexes, without white space."""
    statements = connection.execute("SELECT sql FROM sqlite_master WHERE sql != ''")
    return {"".join(str(sql).split()) for (sql,) in statements}


def open_file(path: Path, schema: Schema) -> sqlite3.Connection:
    """Open or create the file at `path` with durable settings. Raise `StorageError` if it cannot be
    used or has another version than `schema`."""
    try:
        _create(path)
        try:
            return _connect(path, schema)
        except sqlite3.OperationalError as error:
            if not error.sqlite_errorname.startswith(("SQLITE_IOERR_SHM", "SQLITE_FULL")):
                raise
            logger.error("{} is open for this process only: {}", path, error)
            path.with_name(f"{path.name}-shm").unlink(missing_ok=True)  # it would become outdated
            return _connect(path, schema, "?vfs=unix-excl")
    except sqlite3.Error as error:
        raise storage_error(path, error) from error
    except OSError as error:
        raise StorageError.of(error.filename or path, error) from error


def _create(path: Path) -> None:
    """Create a missing file, only for its owner, because SQLite lets others read. Side files copy
    the mode. An existing file may be in use, so it is not opened. Raise `OSError` with the reason,
    because SQLite's error has none."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        if not os.access(path, os.R_OK | os.W_OK, effective_ids=True):
            is_read_only = os.statvfs(path).f_flag & os.ST_RDONLY
            number = errno.EROFS if is_read_only else errno.EACCES
            raise OSError(number, os.strerror(number), str(path)) from None


def _connect(path: Path, schema: Schema, how: str = "") -> sqlite3.Connection:
    """Open the file. With `unix-excl`, SQLite keeps its shared index in memory, because a full disk
    has no room for the file. Then no other process can read the database
    (https://www.sqlite.org/vfs.html)."""
    name = f"file:{quote(os.fsencode(path))}{how}"
    connection = sqlite3.connect(name, uri=True, isolation_level=None, check_same_thread=False)
    with contextlib.ExitStack() as undo:
        undo.callback(connection.close)
        connection.text_factory = lenient_text
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("PRAGMA cache_size=-2000")
        schema.prepare(connection, path)
        undo.pop_all()
    return connection


def lenient_text(data: bytes) -> str:
    """Decode a text so that a flipped bit damages only this text, not the whole query."""
    return data.decode("utf-8", "replace")


@contextlib.contextmanager
def open_read_only(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a database for reading. A database that is not in use is opened as immutable, so that
    SQLite leaves no other files. Raise `sqlite3.Error`."""
    in_use = path.with_name(f"{path.name}-wal").exists()
    how = "mode=ro" if in_use else "immutable=1"
    db = sqlite3.connect(f"file:{quote(os.fsencode(path))}?{how}", uri=True, timeout=_BUSY_SECONDS)
    db.text_factory = lenient_text
    try:
        yield db
    finally:
        db.close()


class Unusable(sqlite3.DatabaseError):
    """A cache is of another version and must be rebuilt."""

    sqlite_errorcode = sqlite3.SQLITE_NOTADB


def open_cache(path: Path, tables: str, version: int, patience: float = 10.0) -> sqlite3.Connection:
    """Open a database that can be rebuilt: fast, without syncs, and with deleted data overwritten.
    `tables` are created in an empty file.

    `patience` is how many seconds a write waits for another process. Raise `Unusable`,
    `sqlite3.Error`, or `OSError` if the place is not writable."""
    make_folder(path.parent)
    _create(path)
    path.chmod(0o600)
    db = sqlite3.connect(path, timeout=patience, isolation_level=None, check_same_thread=False)
    with contextlib.ExitStack() as undo:
        undo.callback(db.close)
        _use_log(db, patience)
        db.executescript(
            "PRAGMA secure_delete = ON; PRAGMA synchronous = OFF; PRAGMA cache_size = -4000;"
            "PRAGMA temp_store = MEMORY;"
        )
        (found,) = db.execute("PRAGMA user_version").fetchone()
        if found not in (0, version):
            raise Unusable(f"schema version {found}")
        if found == 0:
            db.executescript(f"BEGIN IMMEDIATE;{tables}PRAGMA user_version = {version};COMMIT;")
        undo.pop_all()
    return db


def _use_log(db: sqlite3.Connection, patience: float) -> None:
    """Use a write-ahead log. SQLite does not wait if another connection does so at the same time,
    for a new file (https://www.sqlite.org/c3ref/busy_handler.html)."""
    until = time.monotonic() + patience
    while True:
        try:
            db.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                raise
            time.sleep(0.01)
        else:
            return


@contextlib.contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[None]:
    """Run the block as one transaction, and block writes of other processes."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def remove_cache(path: Path) -> None:
    """Delete the file and its SQLite companions."""
    for suffix in ("", "-wal", "-shm", "-journal"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def storable(text: str) -> str:
    """Escape lone surrogates, because SQLite stores UTF-8."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")


def execute(db: sqlite3.Connection, statement: str, *values: object) -> sqlite3.Cursor:
    """Run a statement with these values. Make texts `storable` and lists JSON."""
    plain = [json.dumps(value) if isinstance(value, list) else value for value in values]
    return db.execute(statement, [storable(one) if isinstance(one, str) else one for one in plain])


_REASONS = (
    ("SQLITE_FULL", errno.ENOSPC),
    ("SQLITE_READONLY", errno.EACCES),
    ("SQLITE_PERM", errno.EACCES),
    ("SQLITE_CANTOPEN", errno.EACCES),
    ("SQLITE_IOERR_LOCK", errno.ENOLCK),
    ("SQLITE_IOERR", errno.EIO),
    ("SQLITE_BUSY", errno.EBUSY),
    ("SQLITE_LOCKED", errno.EBUSY),
    ("SQLITE_NOMEM", errno.ENOMEM),
)
"""SQLite's names for the operating system's errors, which it does not pass on."""


def is_damaged(error: Exception) -> bool:
    """Return True if a cache file must be rebuilt: an intact cache violates no constraint, and its
    errors name no damaged words."""
    if isinstance(error, UnicodeDecodeError):
        return True
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in {
        sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_CONSTRAINT,
    }  # fmt: skip


def storage_error(path: Path, error: sqlite3.Error | OSError) -> StorageError:
    """Return the `StorageError` for an error of SQLite or the operating system at `path`."""
    if isinstance(error, OSError):
        return StorageError.of(path, error)
    name = getattr(error, "sqlite_errorname", "")
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}:
        return DatabaseDamaged(path, str(error))
    number = next((number for begins, number in _REASONS if name.startswith(begins)), 0)
    return StorageError(path, str(error), hint=storage_hint(number, path))


T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]

_RETRY = 5.0

_OWN_FAULTS = {
    sqlite3.SQLITE_ERROR,
    sqlite3.SQLITE_CONSTRAINT,
    sqlite3.SQLITE_MISMATCH,
    sqlite3.SQLITE_TOOBIG,
    sqlite3.SQLITE_RANGE,
    sqlite3.SQLITE_MISUSE,
}
"""Error codes caused by a statement. All others are caused by the disk or the file."""


class Database(WriteQueue):
    """A SQLite file, and the thread that writes to it while it is open.

    Waking a thread costs more than most statements. Therefore the jobs of one iteration of the
    event loop are handed over together, with the jobs that could wait, and all outcomes of a commit
    return together."""

    def __init__(self, path: Path, schema: Schema) -> None:
        super().__init__(path)
        self._path, self._schema = path, schema
        self._jobs: SimpleQueue[Sequence[Job] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._identity = (0, 0)
        self.on_failure: Callable[[StorageError], None] = lambda _: None
        """Called by the thread if nothing more can be stored (`DatabaseDamaged`, `HomeMoved`)."""

    def open(self) -> None:
        """Open or create the file and start the thread. Raise like `open_file`."""
        connection = open_file(self._path, self._schema)
        status = self._path.stat()
        self._identity = status.st_dev, status.st_ino
        self._thread = threading.Thread(
            target=self._write, args=(connection,), name="journal", daemon=True
        )
        self._thread.start()

    @property
    def is_open(self) -> bool:
        return self._thread is not None

    @property
    def has_died(self) -> bool:
        return self._thread is not None and not self._thread.is_alive()

    async def close(self) -> None:
        if self._thread is None:
            return
        thread, self._thread = self._thread, None
        self._hand_over()
        self._jobs.put(None)
        await asyncio.to_thread(thread.join)

    def _wake_writer(self) -> None:
        if self._gathered:
            self._jobs.put(self._gathered)
            self._gathered = []

    def _write(self, connection: sqlite3.Connection) -> None:
        running = True
        kept: list[Job] = []
        while running:
            new, running = self._collect(_RETRY if kept else None)
            kept = self._store(connection, kept + new) if kept or new else []
        error = StorageError(self._path, "it was closed before everything was stored")
        _report(kept, error)
        connection.close()

    def _collect(self, timeout: float | None) -> tuple[list[Job], bool]:
        """Return the queued jobs, none after `timeout` seconds, and whether more will follow."""
        jobs: list[Job] = []
        with contextlib.suppress(Empty):
            queued = self._jobs.get(timeout=timeout)
            while queued is not None:
                jobs += queued
                if len(jobs) >= BATCH:
                    return jobs, True
                queued = self._jobs.get_nowait()
            return jobs, False
        return jobs, True

    def _store(self, connection: sqlite3.Connection, jobs: Sequence[Job]) -> list[Job]:
        """Run jobs in one transaction and report. Return the rejected jobs to run again."""
        written = connection.total_changes
        # A moved file still accepts everything, but the next start would not find it.
        has_moved = not _is_at(self._path, self._identity)
        refusal = HomeMoved(self._path) if has_moved else _transact(connection, jobs)
        if refusal is not None:
            return self._refuse(jobs, refusal)
        if connection.total_changes > written:
            self.refusal = None
        for job in jobs:
            if job.after_commit is None or job.error is not None:
                continue
            try:
                job.after_commit(connection)
            except sqlite3.Error as error:
                job.error = storage_error(self._path, error)
            except Exception as error:  # noqa: BLE001 - the boundary: the writer goes on for others
                job.error = error
        _report(jobs)
        return []

    def _refuse(self, jobs: Sequence[Job], refusal: HomeMoved | sqlite3.Error) -> list[Job]:
        """Report that these jobs were not stored. Return the jobs to run again."""
        error = refusal if isinstance(refusal, HomeMoved) else storage_error(self._path, refusal)
        self.refusal = error
        logger.error("journal: {}", error)
        if isinstance(error, HomeMoved | DatabaseDamaged):
            self.on_failure(error)
        _report([job for job in jobs if not job.until_stored], error)
        return [job for job in jobs if job.retry]


def _is_at(path: Path, identity: tuple[int, int]) -> bool:
    """Return True if the file with this device and inode is there, or the disk cannot tell."""
    try:
        status = path.stat()
    except OSError as error:
        return error.errno not in (errno.ENOENT, errno.ENOTDIR)
    return (status.st_dev, status.st_ino) == identity


def _transact(connection: sqlite3.Connection, jobs: Sequence[Job]) -> sqlite3.Error | None:
    """Run jobs in one transaction. Return the disk's error, if any. Undo only failed jobs."""
    try:
        if not _run_all(connection, jobs, apart=False):
            connection.rollback()
            _run_all(connection, jobs, apart=True)
        connection.commit()
    except sqlite3.Error as error:
        with contextlib.suppress(sqlite3.Error):
            connection.rollback()
        return error
    return None


def _run_all(connection: sqlite3.Connection, jobs: Sequence[Job], *, apart: bool) -> bool:
    """Run jobs in a new transaction. Return False at the first failed job. With `apart`, undo only
    failed jobs, which costs two more statements for each job. Raise `sqlite3.Error` if the disk
    rejects them."""
    connection.execute("BEGIN IMMEDIATE")
    for job in jobs:
        if apart:
            connection.execute("SAVEPOINT job")
        try:
            job.result, job.error = job.work(connection) if job.work else None, None
        except Exception as error:
            # The low byte is the primary code. Errors of the sqlite3 module itself have none.
            code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
            if isinstance(error, sqlite3.Error) and code not in _OWN_FAULTS:
                raise  # nothing in this transaction can be trusted
            if not apart:
                return False
            job.error = error
            connection.execute("ROLLBACK TO job")
        if apart:
            connection.execute("RELEASE job")
    return True


def _report(jobs: Sequence[Job], refusal: StorageError | None = None) -> None:
    """Pass all outcomes at once to the waiting event loop."""
    if outcomes := take_outcomes(jobs, refusal):
        with contextlib.suppress(RuntimeError):  # the loop is closed, so no caller waits
            outcomes[0][0].get_loop().call_soon_threadsafe(resolve, outcomes)
