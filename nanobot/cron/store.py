"""`state/jobs.json`: the scheduled jobs, readable by the owner of the home only.

What always holds: nothing is overwritten that was not understood. A file that cannot be parsed is
kept under another name, as it is, and one error says so; an entry that cannot is kept in its place;
and what somebody else wrote into the file meanwhile is read before anything is written.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path

from loguru import logger

from nanobot.cron.codec import Unfit, decoded, encoded, problem_of
from nanobot.cron.job import Jobs
from nanobot.errors import StorageError, ToolError, WriteConflict
from nanobot.security.paths import Root

_LIMIT = 50_000_000
_TRIES = 3
_MEND = "Mend it and put it back in its place; its jobs do not run until then."


class JobStore:
    """The file at `path`, in an existing folder; it need not exist. Blocks. Any
    thread of the process that owns the home may use it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._root = Root(path.parent, name="home")
        self._place = self._root.place(path.name)
        self._content: bytes | None = None
        self._jobs = Jobs()
        self._seen: tuple[int, int, int] | None = None
        self._aside = ""
        self._using = threading.RLock()

    @property
    def trouble(self) -> str:
        """What was not understood when it was read, and what to do; empty where all was."""
        entries = [f"An entry is not used: {problem_of(one)}." for one in self._jobs.unread]
        if entries:
            entries.append(f"It stays in {self._path} as it is.")
        return " ".join([*([self._aside] if self._aside else []), *entries])

    def load(self) -> Jobs:
        """The jobs, as the file has them now. Raises `StorageError` where it cannot be read, and
        then nothing is written either."""
        with self._using:
            seen = self._root.fingerprint(self._path.name)
            if seen != self._seen:
                self._read()
                self._seen = seen if self._content is not None else None
            return self._jobs

    def change(self, change: Callable[[Jobs], Jobs]) -> Jobs:
        """Carry out a change durably; the jobs afterwards. `change` may be called again, on what
        somebody else wrote meanwhile. Raises `StorageError`, and what `change` raises: nothing has
        changed then."""
        for _ in range(_TRIES):
            with self._using, suppress(WriteConflict):
                return self._changed(change)
        raise StorageError(self._path, "somebody else keeps changing it", hint="Try again.")

    def _changed(self, change: Callable[[Jobs], Jobs]) -> Jobs:
        changed = change(self.load())
        if changed != self._jobs:
            self._write(changed)
        return changed

    def _write(self, jobs: Jobs) -> None:
        content = encoded(jobs)
        try:
            self._root.create()
            self._place.write_bytes(content, expected=self._content)
        except WriteConflict:
            self._seen = None
            raise
        except ToolError as error:  # somebody put something else there
            raise StorageError(self._path, str(error)) from error
        self._content, self._jobs = content, jobs
        self._seen = self._root.fingerprint(self._path.name)

    def _read(self) -> None:
        try:
            content = self._place.read_bytes(_LIMIT)
        except ToolError as error:
            raise StorageError(self._path, str(error), hint="Move it away.") from error
        try:
            jobs = Jobs() if content is None else decoded(content)
        except (Unfit, RecursionError) as error:
            deep = isinstance(error, RecursionError)
            self._set_aside("it is nested too deeply" if deep else str(error))
            content, jobs = None, Jobs()
        self._content, self._jobs = content, jobs
        if jobs.unread:
            logger.error("{}", self.trouble)

    def _set_aside(self, reason: str) -> None:
        names = (self._path.with_name(f"{self._path.name}.broken-{n}") for n in count(1))
        aside = next(name for name in names if not os.path.lexists(name))
        try:
            self._path.rename(aside)
        except OSError as error:
            raise StorageError.of(self._path, error) from error
        self._aside = f"{self._path} could not be used: {reason}. It is kept as {aside}. {_MEND}"
        logger.error("{}", self._aside)
