"""Appending to session files so that neither a crash nor a full disk can mix or truncate lines.

`Writer` owns the only thread that changes session files while the gateway runs. A session's lines
are written in order and kept until they are durable. The thread gets the queued lines of all
sessions at once: one write per file, then one sync per file. If the disk refuses a file, the others
continue. Its backlog is retried after 1, 2, 4 … 60 seconds, or when another session writes. Other
changes of a file (archiving) run in the same thread when it has no backlog.

The output of a failed append is truncated, because the kernel may have dropped bytes that it could
not sync. The next append checks which lines exist and writes the others."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from datetime import datetime
from pathlib import Path
from queue import SimpleQueue
from typing import TypeVar

from loguru import logger
from msgspec import Struct, field

from nanobot.clock import Backoff, Clock
from nanobot.errors import StorageError
from nanobot.io import (
    FENCE,
    FileOps,
    FileState,
    make_folder,
    open_regular,
    own_inode,
    state_of,
    sync_folder,
    tail_without_newline,
    write_all,
    write_new,
)
from nanobot.messages import Message
from nanobot.session.jsonl_reader import read_lines
from nanobot.session.records import (
    Epoch,
    Foreign,
    Metadata,
    Record,
    Retraction,
    decode,
    decode_fields,
    encode,
)
from nanobot.tasks import Background


class SessionFile(Struct, eq=False):
    """A session's file. `known` is its state at the last read or write.

    `stale`: another process or a person changed it since, so it must be read again. `in_doubt`: the
    last append failed."""

    path: Path
    key: str
    created_at: datetime
    known: FileState | None = None
    stale: bool = False
    in_doubt: bool = False


def append_lines(
    files: FileOps,
    file: SessionFile,
    data: bytes,
    now: datetime,
    *,
    verify: bool = False,
    archived: int = 0,
) -> None:
    """Append `data`, whole lines, to `file` and make them durable. A new file begins with a
    metadata line.

    With `verify`, or after a failed attempt, only missing lines are written. Raises OSError or
    StorageError. The file then has its earlier content, as far as the disk allows."""
    is_new = not file.path.exists() and create_file(file.path, files)
    own_file(file)
    with open_regular(file.path, os.O_RDWR | os.O_APPEND) as descriptor:
        status = os.fstat(descriptor)
        before, size = None if is_new else FileState.of(status), status.st_size
        if verify or file.in_doubt:
            data = find_missing(descriptor, data, archived)
        prefix, base = prepare_end(files, file, descriptor, size, data, now)
        payload = prefix + data if data or base else b""
        file.in_doubt = True
        try:
            write_all(descriptor, payload, files)
            files.sync(descriptor)
            if base == 0:
                sync_folder(file.path.parent, files)
        except OSError:
            with contextlib.suppress(OSError):  # the next attempt checks the lines
                files.truncate(descriptor, base)
            raise
        after = FileState.of(os.fstat(descriptor))
    file.stale = file.stale or before != file.known
    file.known, file.in_doubt = after, False


def create_file(path: Path, files: FileOps) -> bool:
    """Create an empty file. Return False if another process has just created it."""
    make_folder(path.parent, files)
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        return False
    return True


def own_file(file: SessionFile) -> None:
    """Make this process the creator of the file's inode, in a team. The known state stays valid."""
    if not FENCE.epoch:
        return
    before = state_of(file.path)
    own_inode(file.path)
    if before == file.known and file.known is not None:
        file.known = state_of(file.path)


def prepare_end(
    files: FileOps, file: SessionFile, descriptor: int, size: int, data: bytes, now: datetime
) -> tuple[bytes, int]:
    """Return the bytes to write before `data`, and the file size at which they start. A truncated
    last line is set aside, unless it is the beginning of `data`."""
    tail = tail_without_newline(descriptor, size)
    if tail is None:  # longer than nanobot's lines: it stays, as a broken line
        return b"\n", size
    if tail:
        if decode_fields(tail) is not None:
            return b"\n", size
        if not data:  # the lines restored next may begin with it
            return b"", size
        size -= len(tail)
        if not data.startswith(tail):
            name = f"{file.path.name}.corrupt-{now:%Y%m%dT%H%M%S}"
            copies = len(list(file.path.parent.glob(f"{name}*")))
            aside = file.path.with_name(f"{name}-{copies}" if copies else name)
            write_new(aside, [tail], files)
            logger.warning(
                "{}: the last line was incomplete and has been moved to {}", file.path, aside.name
            )
        files.truncate(descriptor, size)
    if size:
        return b"", size
    first = decode(data.partition(b"\n")[0])
    first_seq = first.seq if isinstance(first, Message) else 1
    return encode(Metadata(file.key, file.created_at, now, first_seq=first_seq)).encode(), 0


def find_missing(descriptor: int, data: bytes, archived: int) -> bytes:
    """Return the lines of `data` that are neither in the file nor archived. If the last line of a
    batch is present, the whole batch is."""
    lines = [(line, decode(line)) for line in data.splitlines(keepends=True)]
    lowest = min((one.seq for _, one in lines if isinstance(one, Message)), default=1)
    there = {identify(line.record) for line in read_lines(descriptor, lowest)}
    missing, is_known = b"", False
    for line, one in lines:
        is_archived = isinstance(one, Message | Epoch | Retraction) and one.seq <= archived
        is_known = is_archived or identify(one) in there
        missing += b"" if is_known else line
    return b"" if is_known else missing


def identify(record: Record | None) -> tuple[int, str, str]:
    """Return a key that identifies a line. For a message it excludes the text, which a person may
    have edited."""
    match record:
        case Message():
            return record.seq, record.turn_id, record.role
        case None | Foreign():
            return 0, "", ""
    return 0, "", encode(record)


T = TypeVar("T")
_MOST_FILES = 64  # files that are written before their callers are notified
_LONGEST_PAUSE = 60.0


class _Backlog(Struct):
    """The pending lines of one file. `reason`: the last error of the disk. `gone` is set once
    nothing is pending, even if all callers were cancelled."""

    lines: list[bytes] = field(default_factory=list)
    written: list[asyncio.Future[None]] = field(default_factory=list)
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    reason: str = ""


class Writer:
    """Writer of session files, in its own thread. Lines that arrive within `gather` seconds of the
    first share a sync. `changed` is called in the thread when a file may have changed. All methods
    except `backlog` and `waiting` belong to the event loop."""

    def __init__(
        self, files: FileOps, clock: Clock, changed: Callable[[], None], gather: float = 0.0
    ) -> None:
        self._files, self._clock, self._gather = files, clock, gather
        self._changed = changed
        self._thread = threading.Thread(target=self._serve, name="sessions", daemon=True)
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._backlogs: dict[SessionFile, _Backlog] = {}
        self._jobs: list[SessionFile] = []
        self._background = Background()
        self._pause: asyncio.Task[None] | None = None
        self._written = asyncio.Event()
        self._written.set()
        self._again = self._closing = False
        self._backoff = Backoff(clock, _LONGEST_PAUSE)

    def append(self, file: SessionFile, lines: bytes) -> asyncio.Future[None]:
        """Append `lines`. The future resolves once they are durable."""
        if self._closing:
            raise RuntimeError("the sessions are closed")
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        backlog = self._backlogs.setdefault(file, _Backlog())
        backlog.lines.append(lines)
        backlog.written.append(written)
        if not backlog.reason:
            self.retry()
        return written

    async def run(self, file: SessionFile, work: Callable[[], T]) -> T:
        """Run `work` in the thread as soon as `file` has no backlog, and return its result. Raises
        `StorageError`."""
        self._jobs.append(file)
        try:
            while backlog := self._backlogs.get(file):
                await backlog.gone.wait()
            if self._closing:
                raise StorageError(file.path, "nanobot is shutting down")
            done: Future[T] = Future()
            self._submit(lambda: self._run(work, done))
            return await asyncio.wrap_future(done)
        except OSError as error:
            raise StorageError.of(file.path, error) from error
        finally:
            self._jobs.remove(file)

    async def settle(self) -> None:
        """Return once the present attempt to write the pending lines is over."""
        await self._written.wait()

    def is_idle(self, file: SessionFile) -> bool:
        """Return True if nothing is pending for `file`."""
        return file not in self._backlogs and file not in self._jobs

    def backlog(self, file: SessionFile) -> bytes:
        """Return the lines for `file` that are not durable yet. May be called from any thread."""
        backlog = self._backlogs.get(file)
        return b"".join(backlog.lines.copy()) if backlog else b""

    def waiting(self) -> list[SessionFile]:
        """Return the files that have a backlog. May be called from any thread."""
        return list(self._backlogs)

    def retry(self) -> None:
        """Retry all backlogs, even if they fail in the current attempt."""
        self._again = True
        if self._backlogs and self._written.is_set():
            self._written.clear()
            self._write_soon()

    async def close(self) -> None:
        """Try everything once more and end the thread."""
        self._closing = True
        self.retry()
        await self._written.wait()
        for file, backlog in self._backlogs.items():
            error = StorageError(file.path, "it could not be written before the shutdown")
            for written in backlog.written:
                if not written.done():
                    written.set_exception(error)
                    written.exception()  # mark as retrieved: the caller may be gone
            backlog.gone.set()
        self._backlogs.clear()
        await self._background.drain(0)
        if self._thread.ident is not None:
            self._work.put(None)
            await asyncio.to_thread(self._thread.join)

    def _submit(self, work: Callable[[], None]) -> None:
        """Run `work` in the thread, which starts with the first. It must not raise."""
        if self._thread.ident is None:
            self._thread.start()
        self._work.put(work)  # half the cost of an executor

    def _serve(self) -> None:
        while (work := self._work.get()) is not None:
            work()

    def _write_soon(self) -> None:
        """Write all that is pending, after the time in which lines gather."""
        if self._gather and not self._closing:
            asyncio.get_running_loop().call_later(self._gather, self._write_all)
        else:
            self._write_all()

    def _write_all(self) -> None:
        """Write all that is pending, and again until nothing is. Failed files are retried when
        other lines arrive, on `retry`, and after a pause."""
        self._again = False
        ready = sorted(self._backlogs, key=lambda file: bool(self._backlogs[file].reason))
        self._write(ready, False)

    def _write(self, ready: Sequence[SessionFile], has_failed: bool) -> None:
        """Write the pending lines of these files, some at a time. `has_failed`: another file
        did."""
        batch = {file: self._backlogs[file].lines.copy() for file in ready[:_MOST_FILES]}
        loop = asyncio.get_running_loop()

        def finish(errors: Mapping[SessionFile, StorageError]) -> None:
            for file, lines in batch.items():
                self._settle(file, len(lines), errors.get(file))
            if left := ready[_MOST_FILES:]:
                self._write(left, has_failed or bool(errors))
            else:
                self._end_round(has_failed or bool(errors))

        def work() -> None:
            errors = self._append(batch)
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(finish, errors)

        self._submit(work)  # a task that waits for it would cost more than all of this

    def _end_round(self, has_failed: bool) -> None:
        if not has_failed:
            self._backoff.reset()
        elif not self._closing and (self._pause is None or self._pause.done()):
            self._pause = self._background.start(self._retry_later(), name="retry")
        if self._backlogs and (self._again or not has_failed):
            self._write_soon()
        else:
            self._written.set()

    def _settle(self, file: SessionFile, count: int, error: StorageError | None) -> None:
        """Record that the first `count` lines for `file` are durable or failed."""
        backlog = self._backlogs[file]
        if error is not None:
            # Log each reason once for all files and attempts.
            if error.reason not in {each.reason for each in self._backlogs.values()}:
                logger.error("{}. The data is kept, and nanobot will retry. {}", error, error.hint)
            backlog.reason = error.reason
            return
        written = backlog.written[:count]
        del backlog.lines[:count], backlog.written[:count]
        backlog.reason = ""
        if not backlog.lines:
            del self._backlogs[file]
            backlog.gone.set()
        for future in written:
            if not future.done():  # else the caller was cancelled
                future.set_result(None)

    async def _retry_later(self) -> None:
        await self._backoff.wait()
        self.retry()

    def _run(self, work: Callable[[], T], done: Future[T]) -> None:
        if done.set_running_or_notify_cancel():
            try:
                result = work()
            except BaseException as error:  # noqa: BLE001 - the caller gets it
                self._changed()
                done.set_exception(error)
            else:
                self._changed()
                done.set_result(result)

    def _append(self, batch: Mapping[SessionFile, list[bytes]]) -> dict[SessionFile, StorageError]:
        """Write and sync, in the thread. Return the errors by file."""
        errors: dict[SessionFile, StorageError] = {}
        for file, lines in batch.items():
            try:
                append_lines(self._files, file, b"".join(lines), self._clock.now())
            except StorageError as error:
                errors[file] = error
            except OSError as error:
                errors[file] = StorageError.of(file.path, error)
            except Exception as error:  # noqa: BLE001 - a failing file must not stop the others
                logger.opt(exception=error).error("could not write session file {}", file.path)
                errors[file] = StorageError(file.path, str(error) or type(error).__name__)
        self._changed()
        return errors
