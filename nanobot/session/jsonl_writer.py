"""Appending to session files so that neither a crash nor a full disk can mix lines or halve them.

`Writer` has the one thread that changes session files while the gateway runs. Lines of a session
are written in the order they came and are kept until they are durable. The thread gets what has
queued up for all sessions at once: one write per file, then one sync per file. If the disk refuses
a file, the others go on. Its backlog is tried again after 1, 2, 4 … 60 seconds, or when another
session writes. Other changes of a file (archiving) run in the same thread when it has no backlog.

What an append that failed has written is cut off, because the kernel may have dropped bytes that it
could not sync. The next one looks which lines are there, and writes the others.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from loguru import logger
from msgspec import Struct, field

from nanobot.clock import Backoff, Clock
from nanobot.errors import StorageError
from nanobot.io import (
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
from nanobot.session.jsonl_reader import numbered
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
    """A session's file as we know it: `known` is the state in which we last saw it.

    `stale` says that somebody else changed it since, so that it must be read again; `in_doubt` that
    the last append failed.
    """

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
    """Append `data`, whole lines, to `file` and make them durable; a new one begins with a metadata
    line.

    With `verify`, or after an attempt that failed, only lines that are not there yet are written.
    Raises OSError or StorageError; the file then holds what it held before, as far as the disk let
    us.
    """
    is_new = not file.path.exists()
    if is_new:
        make_folder(file.path.parent, files)
        try:
            os.close(os.open(file.path, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        except FileExistsError:  # another process made it just now
            is_new = False
    _own(file)
    with open_regular(file.path, os.O_RDWR | os.O_APPEND) as descriptor:
        before = None if is_new else FileState.of(os.fstat(descriptor))
        size = os.fstat(descriptor).st_size
        if verify or file.in_doubt:
            data = _missing(descriptor, data, archived)
        prefix, base = _join(files, file, descriptor, size, data, now)
        payload = prefix + data if data or base else b""
        file.in_doubt = True
        try:
            write_all(descriptor, payload, files)
            files.sync(descriptor)
            if base == 0:
                sync_folder(file.path.parent, files)
        except OSError:
            with contextlib.suppress(OSError):  # the next attempt looks again
                files.truncate(descriptor, base)
            raise
        after = FileState.of(os.fstat(descriptor))
    file.stale = file.stale or before != file.known
    file.known, file.in_doubt = after, False


def _own(file: SessionFile) -> None:
    """Let this process be who made the file's inode, in a team; what is known of it stays known."""
    before = state_of(file.path)
    own_inode(file.path)
    if before == file.known and file.known is not None:
        file.known = state_of(file.path)


def _join(
    files: FileOps, file: SessionFile, descriptor: int, size: int, data: bytes, now: datetime
) -> tuple[bytes, int]:
    """What has to stand before `data`, and the size of the file from which it does. A last line
    that was cut short is set aside, unless it is the beginning of `data`."""
    tail = tail_without_newline(descriptor, size)
    if tail is None:  # longer than nanobot writes: it stays, as a broken line
        return b"\n", size
    if tail:
        if decode_fields(tail) is not None:
            return b"\n", size
        if not data:  # it may be the beginning of lines that are restored after these
            return b"", size
        size -= len(tail)
        if not data.startswith(tail):
            name = f"{file.path.name}.corrupt-{now:%Y%m%dT%H%M%S}"
            copies = len(list(file.path.parent.glob(f"{name}*")))
            aside = file.path.with_name(f"{name}-{copies}" if copies else name)
            write_new(aside, [tail], files)
            logger.warning(
                "{}: the last line was incomplete and is set aside as {}", file.path, aside.name
            )
        files.truncate(descriptor, size)
    if size:
        return b"", size
    first = decode(data.partition(b"\n")[0])
    first_seq = first.seq if isinstance(first, Message) else 1
    return encode(Metadata(file.key, file.created_at, now, first_seq=first_seq)).encode(), 0


def _missing(descriptor: int, data: bytes, archived: int) -> bytes:
    """Those lines of `data` that are neither in the file nor archived. A batch whose last line is
    there is there as a whole."""
    lines = [(line, decode(line)) for line in data.splitlines(keepends=True)]
    lowest = min((one.seq for _, one in lines if isinstance(one, Message)), default=1)
    there = {_identity(line.record) for line in numbered(descriptor, lowest)}
    missing, is_known = b"", False
    for line, one in lines:
        is_archived = isinstance(one, Message | Epoch | Retraction) and one.seq <= archived
        is_known = is_archived or _identity(one) in there
        missing += b"" if is_known else line
    return b"" if is_known else missing


def _identity(record: Record | None) -> tuple[int, str, str]:
    """What tells a line from others. That of a message is not its text: a person may have edited it
    since."""
    match record:
        case Message():
            return record.seq, record.turn_id, record.role
        case None | Foreign():
            return 0, "", ""
    return 0, "", encode(record)


T = TypeVar("T")

_MOST_FILES = 64
"""Files that are written before their callers hear of it."""
_LONGEST_PAUSE = 60.0


class _Backlog(Struct):
    """What waits for one file. `reason`: why the disk did not take it the last time. `gone` is set
    once nothing waits any more, even if all callers were cancelled."""

    lines: list[bytes] = field(default_factory=list)
    written: list[asyncio.Future[None]] = field(default_factory=list)
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    reason: str = ""


class Writer:
    """Appends lines to session files in a thread of its own. For `gather` seconds after the first
    lines came, more may come to share a sync with them. `changed` is called in the thread when a
    file may have changed. All methods but `backlog` and `waiting` belong to the event loop."""

    def __init__(
        self, files: FileOps, clock: Clock, changed: Callable[[], None], gather: float = 0.0
    ) -> None:
        self._files, self._clock, self._gather = files, clock, gather
        self._changed = changed
        self._thread = ThreadPoolExecutor(1, "sessions")
        self._backlogs: dict[SessionFile, _Backlog] = {}
        self._jobs: list[SessionFile] = []
        self._background = Background()
        self._writing: asyncio.Task[None] | None = None
        self._pause: asyncio.Task[None] | None = None
        self._again, self._closing = asyncio.Event(), False
        self._backoff = Backoff(clock, _LONGEST_PAUSE)

    def append(self, file: SessionFile, lines: bytes) -> asyncio.Future[None]:
        """Append `lines`; the future is done once they are durable."""
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
        """What `work` gives, which is run as soon as `file` has no backlog. Raises
        `StorageError`."""
        self._jobs.append(file)
        try:
            while backlog := self._backlogs.get(file):
                await backlog.gone.wait()
            if self._closing:
                raise StorageError(file.path, "nanobot is shutting down")
            return await asyncio.get_running_loop().run_in_executor(self._thread, self._run, work)
        except OSError as error:
            raise StorageError.of(file.path, error) from error
        finally:
            self._jobs.remove(file)

    def is_idle(self, file: SessionFile) -> bool:
        """Whether nothing is under way for `file`."""
        return file not in self._backlogs and file not in self._jobs

    def backlog(self, file: SessionFile) -> bytes:
        """The lines for `file` that are not durable yet. May be called from any thread."""
        backlog = self._backlogs.get(file)
        return b"".join(backlog.lines.copy()) if backlog else b""

    def waiting(self) -> list[SessionFile]:
        """The files that have a backlog. May be called from any thread."""
        return list(self._backlogs)

    def retry(self) -> None:
        """Try again what the disk refused, and what it refuses in the attempt under way."""
        self._again.set()
        if self._backlogs and (self._writing is None or self._writing.done()):
            self._writing = self._background.start(self._write_all(), name="session writes")

    async def close(self) -> None:
        """Try everything once more and end the thread."""
        self._closing = True
        self.retry()
        if self._writing is not None:
            await asyncio.wait((self._writing,))
        for file, backlog in self._backlogs.items():
            error = StorageError(file.path, "it could not be written before the shutdown")
            for written in backlog.written:
                if not written.done():
                    written.set_exception(error)
                    written.exception()  # nobody has to ask: the caller may be gone
            backlog.gone.set()
        self._backlogs.clear()
        await self._background.drain(0)
        await asyncio.to_thread(self._thread.shutdown)

    async def _write_all(self) -> None:
        """Write until nothing is left. Try again what the disk refused when other lines come, on
        `retry`, and after a pause."""
        while self._backlogs:
            self._again.clear()
            if self._gather and not self._closing:
                await asyncio.sleep(self._gather)
            ready = sorted(self._backlogs, key=lambda file: bool(self._backlogs[file].reason))
            errors: dict[SessionFile, StorageError] = {}
            for at in range(0, len(ready), _MOST_FILES):
                errors |= await self._write_batch(ready[at : at + _MOST_FILES])
            if not errors:
                self._backoff.reset()
            elif not self._closing:
                if self._pause is None or self._pause.done():
                    self._pause = self._background.start(self._retry_later(), name="retry")
                await self._again.wait()
            elif not self._again.is_set():
                return

    async def _write_batch(self, files: Sequence[SessionFile]) -> dict[SessionFile, StorageError]:
        """Write what waits for these files; those that the disk refused, and why."""
        batch = {file: self._backlogs[file].lines.copy() for file in files}
        loop = asyncio.get_running_loop()
        errors = await loop.run_in_executor(self._thread, self._append, batch)
        for file, lines in batch.items():
            self._settle(file, len(lines), errors.get(file))
        return errors

    def _settle(self, file: SessionFile, count: int, error: StorageError | None) -> None:
        """The first `count` lines for `file` are durable, or were refused."""
        backlog = self._backlogs[file]
        if error is not None:
            # One notice for each reason, however many files and attempts.
            if error.reason not in {each.reason for each in self._backlogs.values()}:
                logger.error("{}. It is kept, and nanobot will retry. {}", error, error.hint)
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
        self._again.set()

    def _run(self, work: Callable[[], T]) -> T:
        try:
            return work()
        finally:
            self._changed()

    def _append(self, batch: Mapping[SessionFile, list[bytes]]) -> dict[SessionFile, StorageError]:
        """Write and sync, in the thread; the files that the disk refused, and why."""
        errors: dict[SessionFile, StorageError] = {}
        for file, lines in batch.items():
            try:
                append_lines(self._files, file, b"".join(lines), self._clock.now())
            except StorageError as error:
                errors[file] = error
            except OSError as error:
                errors[file] = StorageError.of(file.path, error)
            except Exception as error:  # noqa: BLE001 - one file's trouble must not stop the others
                logger.opt(exception=error).error("session file {} is not written", file.path)
                errors[file] = StorageError(file.path, str(error) or type(error).__name__)
        self._changed()
        return errors
