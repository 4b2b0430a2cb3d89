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
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from pathlib import Path

from nanobot.clock import Clock
from nanobot.errors import StorageError
from nanobot.security.access.book import Asked, Book, Key, Kind, Known, Moment, tidy_name, usable_id
from nanobot.security.access.rules import as_code
from nanobot.security.documents import StateDocument, UnfitDocument, versioned_object

VERSION = 1

_ADVICE = (
    "Until it is fixed, only the people in config.yaml may talk. Let the others in again with "
    "`nanobot pair approve`, or stop nanobot, put a file that is right in its place, and start."
)


def _encoded(book: Book, now: Moment) -> bytes:
    content = {
        "version": VERSION,
        "approved": [
            {
                "channel": one.channel,
                "kind": one.kind,
                "id": one.id,
                "name": one.name,
                "owner": one.owner,
                "since": one.since.isoformat(timespec="seconds"),
            }
            for one in book.known.values()
        ],
        "requests": [
            {
                "channel": one.channel,
                "kind": one.kind,
                "id": one.id,
                "name": one.name,
                "chat_id": one.chat_id,
                "thread_id": one.thread_id,
                "code": one.code,
                "used": one.used,
                "at": one.at.civil.isoformat(),
            }
            for one in book.asked.values()
        ],
        "wrong_codes": [moment.civil.isoformat() for moment in book.wrong],
    }
    return json.dumps(content, indent=1).encode("ascii") + b"\n"


def _decoded(content: bytes, now: Moment) -> Book:
    """Raises `UnfitDocument`."""
    top = versioned_object(content, VERSION)
    known = [_known(_Fields(item)) for item in _items(top, "approved")]
    asked = [_asked(_Fields(item), now) for item in _items(top, "requests")]
    wrong = [_moment(item, now) for item in _items(top, "wrong_codes")]
    return Book({one.key: one for one in known}, {one.key: one for one in asked}, tuple(wrong))


def _items(top: Mapping[str, object], key: str) -> list[object]:
    items = top.get(key)
    if not isinstance(items, list):
        raise UnfitDocument(f"it has no list {key!r}")
    return items


class _Fields:
    """The fields of one entry, each with its type."""

    def __init__(self, item: object) -> None:
        if not isinstance(item, dict):
            raise UnfitDocument("an entry is not an object")
        self._item = item

    def text(self, key: str) -> str:
        value = self._item.get(key)
        if not isinstance(value, str):
            raise UnfitDocument(f"an entry has no text {key!r}")
        return value

    def text_if_there(self, key: str) -> str:
        """Empty where it is not there: files of earlier versions do not have it."""
        return self.text(key) if key in self._item else ""

    def flag(self, key: str) -> bool:
        value = self._item.get(key)
        if not isinstance(value, bool):
            raise UnfitDocument(f"an entry does not say whether {key!r}")
        return value

    def id(self) -> str:
        value = self.text("id")
        if not usable_id(value):
            raise UnfitDocument("an entry has an id that nobody can have")
        return value

    def kind(self) -> Kind:
        match self.text("kind"):
            case "person":
                return "person"
            case "group":
                return "group"
        raise UnfitDocument("an entry is neither a person nor a group")


def _known(fields: _Fields) -> Known:
    kind, owner = fields.kind(), fields.flag("owner")
    if owner and kind == "group":
        raise UnfitDocument("it makes a group the owner")
    name, since = tidy_name(fields.text("name")), _civil(fields.text("since"))
    return Known(fields.text("channel"), kind, fields.id(), name, since, owner)


def _asked(fields: _Fields, now: Moment) -> Asked:
    at = _moment(fields.text("at"), now)
    set_back = at.civil > now.civil  # nobody can tell how old it is
    return Asked(
        fields.text("channel"),
        fields.kind(),
        fields.id(),
        tidy_name(fields.text("name")),
        fields.text("chat_id"),
        "" if set_back else as_code(fields.text("code")),
        at,
        fields.text_if_there("thread_id"),
        fields.flag("used"),
    )


def _moment(value: object, now: Moment) -> Moment:
    return Moment(_civil(value), now.seconds)


def _civil(value: object) -> datetime:
    with suppress(ValueError):
        if isinstance(value, str) and (moment := datetime.fromisoformat(value)).tzinfo is not None:
            return moment
    raise UnfitDocument(f"{value!r:.40} is not a time")


Change = Callable[[Book], Book]


class Keeper:
    """Keeps the book in the file at `path`, which is read when it is first needed."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._file = StateDocument(
            path,
            lambda content: _decoded(content, self.now()),
            lambda book: _encoded(book, self.now()),
            Book(),
            _ADVICE,
        )
        self._clock = clock
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
            await asyncio.to_thread(self._file.save, book)
            self._filed = book
        except BaseException:
            self._unsaved = True
            raise
