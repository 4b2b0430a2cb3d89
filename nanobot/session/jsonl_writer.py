"""Appending to session files so that neither a crash nor a full disk can mix lines or halve them.

`Writer` is the one thread that changes session files while the gateway runs. Lines of a session are
written in the order they came and are kept until they are durable. The thread takes what has queued
up for all sessions at once: one write per file, then one sync per file. A session whose file the
disk refuses keeps its backlog and waits for `retry`, while the others go on. Jobs (archiving) run
between the writes of their session.

An append has two halves: `write_lines` puts the bytes into the file, `sync_lines` makes them
durable. What an attempt may leave behind is noted first (`Debris`). The next attempt removes it,
looks which lines are there, and writes the rest again: a descriptor whose sync failed is never
synced again, because the kernel may have dropped the bytes.
"""

from __future__ import annotations

import contextlib
import os
import stat
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from errno import EDQUOT, EIO, ENOSPC, EROFS
from pathlib import Path

from loguru import logger

from nanobot.errors import StorageError
from nanobot.io import (
    FileOps,
    FileState,
    lines_backwards,
    make_folder,
    sync_folder,
    tail_without_newline,
    write_all,
)
from nanobot.messages import Message
from nanobot.session.loading import cut_off, is_session
from nanobot.session.records import (
    Epoch,
    Metadata,
    Record,
    Retraction,
    decode,
    decode_fields,
    encode,
)


@dataclass(frozen=True, slots=True)
class Debris:
    """What an append under way may leave: `payload` or its beginning, from byte `base` on."""

    inode: int
    base: int
    payload: bytes


@dataclass(slots=True, eq=False)
class SessionFile:
    """A session's file as we know it: `known` is the state in which we last saw it.

    `stale` says that somebody else changed it since, so that it must be read again.
    """

    path: Path
    key: str
    created_at: datetime
    known: FileState | None = None
    stale: bool = False
    debris: Debris | None = None


@dataclass(frozen=True, slots=True)
class Written:
    """Lines that are in a file and not yet durable. `fresh`: the file is new."""

    file: SessionFile
    descriptor: int
    before: FileState | None
    fresh: bool


def write_lines(
    files: FileOps,
    file: SessionFile,
    data: bytes,
    now: datetime,
    *,
    verify: bool = False,
    archived: int = 0,
) -> Written:
    """Append `data`, whole lines, to `file`; a new one begins with a metadata line.

    With `verify`, or after an attempt that failed, only lines that are not there yet are written.
    Raises OSError or StorageError; the file then holds what it held before, as far as the disk let
    us.
    """
    descriptor, before = _open(files, file.path)
    try:
        size = _without_debris(files, file, descriptor)
        if verify or file.debris is not None:
            data = _missing(descriptor, size, data, archived)
        prefix, size = _join(files, file, descriptor, size, data, now)
        _write(files, file, descriptor, size, prefix + data if data or size else b"")
    except BaseException:
        os.close(descriptor)
        raise
    return Written(file, descriptor, before, fresh=size == 0)


def sync_lines(files: FileOps, written: Written) -> None:
    """Make appended lines durable, and the name of a `fresh` file; the descriptor is closed."""
    file = written.file
    try:
        files.sync(written.descriptor)
        if written.fresh:
            sync_folder(file.path.parent, files)
        after = FileState.of(os.fstat(written.descriptor))
    finally:
        os.close(written.descriptor)
    file.stale = file.stale or written.before != file.known
    file.known = after
    file.debris = None


def _open(files: FileOps, path: Path) -> tuple[int, FileState | None]:
    flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        descriptor = os.open(path, flags)
    except FileNotFoundError:
        make_folder(path.parent, files)
        return os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o600), None
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise StorageError(path, "it is no regular file", hint="Move it out of the way.")
    return descriptor, FileState.of(status)


def _without_debris(files: FileOps, file: SessionFile, descriptor: int) -> int:
    """Cut off what a failed attempt left; returns the size of the file then."""
    status = os.fstat(descriptor)
    debris = file.debris
    if debris is None or status.st_ino != debris.inode or status.st_size <= debris.base:
        return status.st_size
    left = os.pread(descriptor, len(debris.payload) + 1, debris.base)
    if not debris.payload.startswith(left):
        return status.st_size
    files.truncate(descriptor, debris.base)
    return debris.base


def _join(
    files: FileOps, file: SessionFile, descriptor: int, size: int, data: bytes, now: datetime
) -> tuple[bytes, int]:
    """What has to stand before `data`, and the size of the file from which it does."""
    if tail := tail_without_newline(descriptor, size):
        if decode_fields(tail) is not None:
            return b"\n", size
        if not data:  # it may be the beginning of lines that are restored after these
            return b"", size
        size -= len(tail)
        if data.startswith(tail):
            files.truncate(descriptor, size)
        elif is_session(descriptor, size, size + len(tail)):
            cut_off(file.path, descriptor, size, files, now)
        else:
            raise StorageError(file.path, "it is no session file", hint="Move it out of the way.")
    return (_header(file, data, now), 0) if size == 0 else (b"", size)


def _write(files: FileOps, file: SessionFile, descriptor: int, base: int, payload: bytes) -> None:
    file.debris = Debris(os.fstat(descriptor).st_ino, base, payload)
    try:
        write_all(descriptor, payload, files)
    except OSError:
        with contextlib.suppress(OSError):  # the next attempt looks again
            files.truncate(descriptor, base)
        raise


def _header(file: SessionFile, data: bytes, now: datetime) -> bytes:
    first = decode(data.partition(b"\n")[0])
    number = first.seq if isinstance(first, Message) else _next_after(first)
    header = Metadata(file.key, file.created_at, now, first_seq=max(number, 1))
    return encode(header).encode()


def _missing(descriptor: int, size: int, data: bytes, archived: int) -> bytes:
    """Those lines of `data` that are neither in the file nor archived.

    A batch whose last line is there is there as a whole. Lines are known by what they are, not by
    their bytes: a person may have edited one since.
    """
    lines = data.splitlines(keepends=True)
    records = [decode(line) for line in lines]
    identities = [_identity(record) for record in records]
    there = {
        identity
        for identity, record in zip(identities, records, strict=True)
        if _is_archived(record, archived)
    }
    lowest, below = min(map(_next_after, records), default=0), 0
    for line in lines_backwards(descriptor, size):
        record = decode(line)
        there.add(_identity(record))
        if isinstance(record, Message):
            below = below + 1 if record.seq < lowest else 0
        if below == 2:
            break
    if not identities or identities[-1] in there:
        return b""
    return b"".join(
        line for line, known in zip(lines, identities, strict=True) if known not in there
    )


def _identity(record: Record | None) -> tuple[str | int, ...]:
    match record:
        case Message():
            return "message", record.seq, record.turn_id, record.role
        case Metadata():
            return "metadata", encode(record)
        case Epoch():
            return "epoch", record.id
        case Retraction():
            return "retract", record.turn_id, record.first, record.last
    return ("broken",)


def _is_archived(record: Record | None, archived: int) -> bool:
    match record:
        case Message() | Epoch():
            return record.seq <= archived
        case Retraction():
            return record.last <= archived
    return False


def _next_after(record: Record | None) -> int:
    """The lowest seq that can stand after this line, or on it; all lower ones stand before it."""
    match record:
        case Message():
            return record.seq
        case Epoch():
            return record.seq + 1
        case Metadata():
            return record.last_consolidated + 1
        case Retraction():
            return record.last + 1
    return 0


_MOST_FILES = 64
_WHOLE_DISK = (ENOSPC, EDQUOT, EIO, EROFS)

Callback = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Trouble:
    """The disk refuses something. `is_new`: it was not so after the last attempt."""

    error: StorageError
    is_new: bool


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """Work on a session's file that must not meet a write; `done` gets its error, if any."""

    file: SessionFile
    run: Callback
    done: Callable[[StorageError | None], None]


@dataclass(slots=True)
class _Backlog:
    """What waits for one file. `cause` tells one trouble from another, 0 where there is none."""

    lines: list[bytes] = field(default_factory=list)
    done: list[Callback] = field(default_factory=list)
    cause: int | Path = 0
    blocked: bool = False


class Writer:
    """Appends lines to session files in a thread of its own, which starts with the first of them.

    Every callback goes through `post`, which brings it to the thread where it belongs. For `gather`
    seconds after the first lines came, more may come to share a sync with them.
    """

    def __init__(
        self,
        files: FileOps,
        now: Callable[[], datetime],
        post: Callable[[Callback], None],
        on_trouble: Callable[[Trouble], None],
        gather: float = 0.0,
    ) -> None:
        self._files, self._now, self._post, self._on_trouble = files, now, post, on_trouble
        self._gather = gather
        self._changed = threading.Condition()
        self._backlogs: dict[SessionFile, _Backlog] = {}
        self._jobs: list[Job] = []
        self._closing = False
        self._retry_asked = False
        self._thread: threading.Thread | None = None

    def submit(self, file: SessionFile, lines: bytes, done: Callback) -> None:
        """Append `lines`; `done` is called once they are durable."""
        with self._changed:
            self._wake()
            backlog = self._backlogs.setdefault(file, _Backlog())
            backlog.lines.append(lines)
            backlog.done.append(done)

    def submit_job(self, job: Job) -> None:
        """Run a job as soon as its session has no backlog."""
        with self._changed:
            self._wake()
            self._jobs.append(job)

    def is_idle(self, file: SessionFile) -> bool:
        """Whether nothing is under way for `file`."""
        with self._changed:
            return file not in self._backlogs and all(job.file is not file for job in self._jobs)

    def backlog(self, path: Path) -> bytes:
        """The lines for the file at `path` that are not durable yet."""
        with self._changed:
            waiting = [item.lines for file, item in self._backlogs.items() if file.path == path]
        return b"".join(line for lines in waiting for line in lines)

    @property
    def has_died(self) -> bool:
        """Whether the thread has ended without being asked to."""
        thread = self._thread
        return thread is not None and not thread.is_alive() and not self._closing

    @property
    def has_trouble(self) -> bool:
        """Whether the disk refuses a file at present."""
        with self._changed:
            return any(backlog.cause for backlog in self._backlogs.values())

    def retry(self) -> None:
        """Try again what the disk refused."""
        with self._changed:
            self._retry_asked = True
            for backlog in self._backlogs.values():
                backlog.blocked = False
            self._changed.notify()

    def close(self) -> bool:
        """Try everything once more and end the thread; returns whether nothing is left over."""
        with self._changed:
            self._closing = True
        self.retry()
        if self._thread is not None:
            self._thread.join()
        return not self._backlogs and not self._jobs

    def _wake(self) -> None:
        if self._closing:
            raise RuntimeError("the sessions are closed")
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="sessions", daemon=True)
            self._thread.start()
        self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._ready() or self._ready_jobs() or self._closing)
            if self._gather and not self._closing:
                time.sleep(self._gather)
            with self._changed:
                self._retry_asked = False
                ready, jobs = self._ready(), self._ready_jobs()
                batch = {file: list(self._backlogs[file].lines) for file in ready}
            if not batch and not jobs:
                return
            self._append(batch)
            for job in jobs:
                self._do(job)

    def _ready(self) -> list[SessionFile]:
        waiting = [file for file, backlog in self._backlogs.items() if not backlog.blocked]
        return waiting[:_MOST_FILES]

    def _ready_jobs(self) -> list[Job]:
        return [job for job in self._jobs if job.file not in self._backlogs]

    def _append(self, batch: dict[SessionFile, list[bytes]]) -> None:
        written = [self._write(file, b"".join(lines)) for file, lines in batch.items()]
        durable = [item.file for item in written if item is not None and self._sync(item)]
        if not durable:
            return
        done: list[Callback] = []
        with self._changed:
            for file in durable:
                backlog, count = self._backlogs[file], len(batch[file])
                done += backlog.done[:count]
                del backlog.lines[:count], backlog.done[:count]
                backlog.cause = 0
                if not backlog.lines:
                    del self._backlogs[file]
        self._post(lambda: _call_all(done))

    def _write(self, file: SessionFile, data: bytes) -> Written | None:
        try:
            return write_lines(self._files, file, data, self._now())
        except Exception as error:  # noqa: BLE001 - one file's trouble must not end the thread
            self._refuse(file, error)
            return None

    def _sync(self, written: Written) -> bool:
        try:
            sync_lines(self._files, written)
        except Exception as error:  # noqa: BLE001 - as above
            self._refuse(written.file, error)
            return False
        return True

    def _refuse(self, file: SessionFile, error: Exception) -> None:
        whole_disk = isinstance(error, OSError) and error.errno in _WHOLE_DISK
        cause = error.errno if isinstance(error, OSError) and whole_disk else file.path
        with self._changed:
            is_new = all(backlog.cause != cause for backlog in self._backlogs.values())
            backlog = self._backlogs[file]
            backlog.cause = cause or file.path
            backlog.blocked = not self._retry_asked  # while this attempt ran: then try again
        trouble = Trouble(_as_storage_error(file.path, error), is_new)
        self._post(lambda: self._on_trouble(trouble))

    def _do(self, job: Job) -> None:
        try:
            job.run()
            error = None
        except Exception as failure:  # noqa: BLE001 - as above
            error = _as_storage_error(job.file.path, failure)
        with self._changed:
            self._jobs.remove(job)
        self._post(lambda: job.done(error))


def _call_all(callbacks: list[Callback]) -> None:
    for callback in callbacks:
        callback()


def _as_storage_error(path: Path, error: Exception) -> StorageError:
    if isinstance(error, StorageError):
        return error
    if isinstance(error, OSError):
        return StorageError.of(path, error)
    logger.opt(exception=error).error("session file {} could not be written", path)
    return StorageError(path, str(error) or type(error).__name__)
