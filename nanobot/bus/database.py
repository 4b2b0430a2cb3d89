"""SQLite behind one writer thread.

Every piece of work is a function of the connection. `run` returns only when its result is durable,
and the event loop never waits on the disk; see `nanobot.bus.writer`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from nanobot.bus.connecting import open_file
from nanobot.bus.writer import Job, Work, Writer
from nanobot.errors import StorageError

T = TypeVar("T")


class Database:
    """A SQLite file. `migrations[n]` brings version n to n + 1; they only ever go forward. The file
    as it was before is kept beside it as `<name>.before-<version>`."""

    def __init__(self, path: Path, migrations: Sequence[str]) -> None:
        self._path = path
        self._migrations = migrations
        self._writer = Writer(path)

    def open(self) -> None:
        """Open or create the file and start the writer. Must be called on the event loop's thread.

        Raises `StorageError` when the file cannot be used or comes from a newer nanobot.
        """
        self._writer.start(open_file(self._path, self._migrations))

    @property
    def is_open(self) -> bool:
        """Whether work is taken."""
        return self._writer.is_running

    @property
    def has_died(self) -> bool:
        """Whether the thread that writes has ended, so that nothing is stored any more."""
        return self._writer.has_died

    @property
    def refusal(self) -> str:
        """Why the disk took nothing the last time that there was something to write, if so."""
        return self._writer.refusal

    async def close(self) -> None:
        """Finish what is queued, then close the file."""
        await self._writer.finish()

    async def run(
        self, work: Work[T], *, keep: bool = False, afterwards: Work[None] | None = None
    ) -> T:
        """Run `work` in a transaction; its result once that is on disk.

        Raises what `work` raised, or `StorageError` when the disk refused. With `keep` it is run
        again then, when the disk takes something again. `afterwards` runs once, between this
        transaction and the next, for what SQLite refuses inside of one.
        """
        return await self.submit(work, keep=keep, afterwards=afterwards)

    def submit(
        self,
        work: Work[T],
        *,
        keep: bool = False,
        insist: bool = False,
        afterwards: Work[None] | None = None,
    ) -> asyncio.Future[T]:
        """What `run` and `insist` wait for. Raises `StorageError` when the database is not open."""
        if not self._writer.is_running:
            raise StorageError(
                self._path, "it is not open", hint="nanobot is just starting or ending: try again."
            )
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._writer.put(Job(work, future, keep=keep, insist=insist, afterwards=afterwards))
        return future

    async def insist(self, work: Work[T]) -> T:
        """Run `work` again and again until the disk takes it; its result once that is on disk.

        Raises what `work` raised, or `StorageError` when the database is closed before.
        """
        return await self.submit(work, keep=True, insist=True)

    def post(self, work: Work[Any], *, patient: bool = False, keep: bool = True) -> None:
        """Run `work` after what was queued before and before what is queued later; do not wait.

        For marks whose loss in a crash costs nothing but a repetition. A failure is logged. What is
        `patient` waits a moment for other work to share a commit with; what the disk refuses is run
        again later, unless it need not be kept.
        """
        self._writer.put(Job(work, None, keep=keep, patient=patient))
