"""The one thread that changes session files while the gateway runs.

Lines of a session are written in the order they came and are kept until they are durable; whoever
is waiting hears of it only then. The thread takes what has gathered for all sessions at once: one
write per file, then one sync per file. A session whose file the disk refuses keeps its backlog and
waits for `retry`, while the others go on. Jobs (archiving) run between the writes of their session.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from errno import EDQUOT, EIO, ENOSPC, EROFS
from pathlib import Path

from loguru import logger

from nanobot.errors import StorageError
from nanobot.session.append import SessionFile, Written, sync_lines, write_lines
from nanobot.session.files import FileOps

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
