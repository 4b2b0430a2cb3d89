"""`state/access.json`: the book of who was let in, in memory and on disk.

Invariant: a file that cannot be read in every detail lets nobody in (see `StateDocument`), and what
is decided is durable before it holds.

One event loop changes the book, one change at a time; requests, which may be many, are noted in
memory at once and written together on demand. What somebody else changed in the file (`/forget
--erase` takes names out) is merged before anything is written.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path

from pydantic import AwareDatetime, BaseModel, ValidationError

from nanobot.errors import StorageError
from nanobot.security.access.book import Asked, Book, Key, Known, as_code, tidy_name, usable_id
from nanobot.security.documents import StateDocument, UnfitDocument, versioned_object

VERSION = 1

_ADVICE = (
    "Until it is fixed, only the people in config.yaml may talk. Let the others in again with "
    "`nanobot pair approve`, or stop nanobot, put a file that is right in its place, and start."
)


class _File(BaseModel):
    approved: list[Known]
    requests: list[Asked]
    wrong_codes: list[AwareDatetime]


def _encoded(book: Book) -> bytes:
    content = {
        "version": VERSION,
        "approved": [asdict(one) for one in book.known.values()],
        "requests": [asdict(one) for one in book.asked.values()],
        "wrong_codes": book.wrong,
    }
    return json.dumps(content, indent=1, default=datetime.isoformat).encode("ascii") + b"\n"


def _decoded(content: bytes) -> Book:
    """Raises `UnfitDocument`."""
    try:
        file = _File.model_validate(versioned_object(content, VERSION))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise UnfitDocument(f"{where}: {first['msg']}") from error
    ids = [one.id for one in file.approved] + [one.id for one in file.requests]
    if not all(map(usable_id, ids)):
        raise UnfitDocument("an entry has an id that nobody can have")
    if any(one.owner and one.kind == "group" for one in file.approved):
        raise UnfitDocument("it makes a group the owner")
    known = [replace(one, name=tidy_name(one.name)) for one in file.approved]
    asked = [
        replace(one, name=tidy_name(one.name), code=as_code(one.code)) for one in file.requests
    ]
    wrong = tuple(file.wrong_codes)
    return Book({one.key: one for one in known}, {one.key: one for one in asked}, wrong)


class Keeper:
    """Keeps the book in the file at `path`, which is read when it is first needed."""

    def __init__(self, path: Path) -> None:
        self._file = StateDocument(path, _decoded, _encoded, Book(), _ADVICE)
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
            self._current = self._filed = self._file.load()
        return self._current

    @asynccontextmanager
    async def changing(self) -> AsyncIterator[None]:
        """Held by whoever looks at the book, which is then as the file, and changes it."""
        async with self._changing:
            book, theirs = self.book, self._file.reload()
            if theirs is not None:
                self._current, self._filed = book.as_others_left(theirs, self._filed), theirs
            yield

    def note(self, asked: Asked) -> None:
        """Put a request down in memory."""
        self._current, self._unsaved = self.book.at(asked.at).with_request(asked), True

    def forget(self, key: Key) -> None:
        """Take a request back that was put down."""
        self._current, self._unsaved = self.book.without_request(key), True

    async def note_wrong_code(self, now: datetime) -> None:
        """Put down that a wrong code was tried; it counts even where the disk refuses."""
        book = self.book.at(now)
        self._current, self._unsaved = replace(book, wrong=(*book.wrong, now)), True
        with suppress(StorageError):
            await self._save(self._current)

    async def keep(self) -> None:
        """Write down what was noted since the last time, if anything. Raises `StorageError`."""
        async with self.changing():
            if self._unsaved:
                await self._save(self.book)

    async def change(self, change: Callable[[Book], Book]) -> None:
        """Carry out a change once it is durable; call it while `changing` is held.

        Raises `StorageError`, and nothing has changed then.
        """
        await self._save(change(self.book))
        self._current = change(self.book)  # with what was noted meanwhile

    async def _save(self, book: Book) -> None:
        self._unsaved = False  # what is noted while this is written sets it again
        try:
            await asyncio.to_thread(self._file.save, book)
            self._filed = book
        except BaseException:
            self._unsaved = True
            raise
