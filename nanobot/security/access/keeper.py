"""The book in memory and in its file: what is decided is durable before it holds.

One event loop changes the book, one change at a time; requests, which may be many, are put down in
memory at once and written together when somebody asks for it. What somebody else changed in the
file (`/forget --erase` takes names out) is taken over before anything is written.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from nanobot.clock import Clock
from nanobot.errors import StorageError
from nanobot.security.access.book import Asked, Book, Key, Moment
from nanobot.security.access.file import AccessFile

Change = Callable[[Book], Book]


class Keeper:
    """Keeps the book in the file at `path`, which is read when it is first needed."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._file, self._clock = AccessFile(path), clock
        self._current: Book | None = None
        self._filed = Book()
        self._unsaved = False
        self._changing = asyncio.Lock()

    @property
    def trouble(self) -> str:
        """What was wrong with the file, and what to do about it; empty where nothing was."""
        return self._file.trouble

    @property
    def book(self) -> Book:
        """As it is now; it may have requests and wrong codes that are too old."""
        if self._current is None:
            self._current = self._filed = self._file.load(self.now())
        return self._current

    @asynccontextmanager
    async def changing(self) -> AsyncIterator[None]:
        """Held by whoever looks at the book, which is then as the file, and changes it."""
        async with self._changing:
            book, theirs = self.book, self._file.changed(self.now())
            if theirs is not None:
                self._current, self._filed = book.as_others_left(theirs, self._filed), theirs
            yield

    def now(self) -> Moment:
        """This moment."""
        return Moment(self._clock.now(), self._clock.monotonic())

    def note(self, asked: Asked) -> None:
        """Put a request down in memory."""
        self._current, self._unsaved = self.book.at(asked.at).with_request(asked), True

    def forget(self, key: Key) -> None:
        """Take a request back that was put down."""
        self._current, self._unsaved = self.book.without_request(key), True

    async def note_wrong_code(self, now: Moment) -> None:
        """Put down that a wrong code was tried; it counts even where the disk refuses."""
        self._current, self._unsaved = self.book.at(now).with_wrong_code(now), True
        with suppress(StorageError):
            await self._save(self._current)

    async def keep(self) -> None:
        """Write down what was noted since the last time, if anything. Raises `StorageError`."""
        async with self.changing():
            if self._unsaved:
                await self._save(self.book)

    async def change(self, change: Change) -> None:
        """Carry out a change once it is durable; call it while `changing` is held.

        Raises `StorageError`, and nothing has changed then.
        """
        await self._save(change(self.book))
        self._current = change(self.book)  # with what was noted meanwhile

    async def _save(self, book: Book) -> None:
        self._unsaved = False  # what is noted while this is written sets it again
        try:
            await asyncio.to_thread(self._file.save, book, self.now())
            self._filed = book
        except BaseException:
            self._unsaved = True
            raise
