"""The sessions of a home: loaded on demand, stored in the background, never lost.

`save` makes a turn visible at once and returns a future that resolves when it is stored. A session
with unwritten lines stays in memory regardless of the capacity, and a session in use is never
loaded twice. A session file that a person edited is read again at the next use."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from itertools import chain, islice
from pathlib import Path
from weakref import WeakValueDictionary

from loguru import logger
from msgspec import Struct
from msgspec.structs import replace

from nanobot.clock import Clock, SystemClock
from nanobot.errors import SessionDamaged, StorageError
from nanobot.io import (
    FileOps,
    open_regular,
    replace_file,
    state_of,
    storage_errors,
    sync_folder,
    tail_without_newline,
)
from nanobot.messages import Message
from nanobot.session.archive import PIECE, archive_messages, rewrite, segments
from nanobot.session.catalogue import SessionCatalogue
from nanobot.session.jsonl_store import JsonlStore
from nanobot.session.records import JsonValue, Metadata, encode
from nanobot.session.session import DELETED, Contents, Redact, Session


class SessionManager(JsonlStore):
    """The sessions of a catalogue or a folder: loading, saving, listing and archiving.

    `capacity` is the number of unused sessions that stay in memory, `live_limit` the number of
    consolidated messages that may stay out of the archive."""

    def __init__(
        self,
        place: SessionCatalogue | Path,
        clock: Clock,
        *,
        capacity: int = 128,
        live_limit: int = 2000,
        gather: float = 0.0,
        files: FileOps | None = None,
    ) -> None:
        super().__init__(place, clock, gather=gather, files=files)
        self._capacity, self._live_limit = capacity, live_limit
        self._recent: OrderedDict[str, Session] = OrderedDict()
        self._alive: WeakValueDictionary[str, Session] = WeakValueDictionary()
        self._loading: dict[str, asyncio.Event] = {}
        self._unreadable: dict[str, StorageError] = {}
        self.broken: dict[str, int] = {}
        """The number of unreadable lines at the last read, by session."""
        self.is_held: Callable[[str, Mapping[str, JsonValue]], bool] = lambda _, __: True
        """Returns True if this process may change the files of a conversation."""

    async def get_or_create(self, key: str) -> Session:
        """Return the stored session of `key`, or a new one. Raises StorageError if it cannot be
        read. The file stays as it is."""
        while True:
            while (others := self._loading.get(key)) is not None:
                await others.wait()
            session, file = self._alive.get(key), self._file(key)
            if session is None or (
                self._is_settled(session)
                and (file.stale or state_of(file.path) != file.known)  # quick
            ):
                self._loading[key] = asyncio.Event()
                try:
                    session = await self._read(key, session)
                    self._unreadable.pop(key, None)
                except StorageError as error:
                    self._unreadable[key] = error
                    raise
                finally:
                    self._loading.pop(key).set()
            if session is not None:
                self._touch(session)
                return session

    def save(self, session: Session) -> asyncio.Future[None]:
        """Make staged records visible and queue their lines. The future resolves once they are
        durable.

        While the disk refuses them, the future is pending. Only `close` gives up, with a
        StorageError."""
        return self._append(session, session.apply_staged())

    def save_early(self, session: Session) -> None:
        """Make staged metadata visible before its turn is committed. A commit has the same lines
        until they are durable: a restored conversation is never without its scope."""
        opening = session.opening = session.encode_staged()

        def forget(saved: asyncio.Future[None]) -> None:
            if session.opening == opening and not saved.cancelled() and saved.exception() is None:
                session.opening = ""

        self.save(session).add_done_callback(forget)

    def doubt(self) -> None:
        """Reload each conversation that this process does not hold (`is_held`) at its next use.
        Another worker may have changed it, and an NFS client may not show that yet."""
        for key, session in list(self._alive.items()):
            if not self.is_held(key, session.metadata):
                self._file(key).stale = True
        self._catalogue.expire()

    @property
    def unreadable(self) -> Mapping[str, StorageError]:
        """The sessions that could not be read at their last use, with the errors."""
        return self._unreadable

    def read_conversation(self, key: str, first: int, last: int, before: int) -> list[Message]:
        """Return a window like `read_window`, and up to `before` earlier messages that no `/new`
        separates from it."""
        start = max(1, first - before)
        sealed = self.epochs(key, start, first - 1)
        return self.read_window(key, sealed[-1] + 1 if sealed else start, last)

    def mark_consolidated(self, session: Session, seq: int) -> asyncio.Future[None]:
        """Record that memory holds the conversation up to `seq`. These messages leave the window at
        once.

        May be called at any time, also during a turn. The future is as for `save`. You don't have
        to wait for it: after a crash, history is authoritative and has the same number."""
        return self._append(session, session.mark_consolidated(seq))

    async def retract(self, session: Session, numbers: Iterable[int]) -> None:
        """Remove the messages with these seqs from the window and memory (`/forget`). Returns once
        that is durable. May be called at any time, also during a turn."""
        async with session.removal_lock:
            written = self._append(session, session.retract_messages(numbers))
        await written

    async def mark(self, session: Session, seq: int, *, kept: bool, by: str, via: str) -> None:
        """Set or clear the wish to keep the message `seq`, requested by the sender `by`. Returns
        once that is durable. May be called at any time, also during a turn."""
        await self._append(session, session.mark_message(seq, kept=kept, by=by, via=via))

    async def change_metadata(self, session: Session, **changes: JsonValue) -> None:
        """Change metadata, such as the title. None removes an entry. Returns once that is durable.
        May be called at any time, also during a turn."""
        await self._append(session, session.change_metadata(**changes))

    async def delete(self, session: Session) -> None:
        """Delete all messages and the metadata of a conversation for good. Only its numbers stay,
        so that references stay unambiguous. Holders of `session` see an empty conversation.

        Waits for its queued lines. After a `StorageError`, call it again to finish. Raises
        RuntimeError during a turn."""
        key, first, now = session.key, session.next_seq, self._clock.now()
        facts: dict[str, JsonValue] = {DELETED: True}
        empty = Contents(
            now, now, (), facts, last_consolidated=first - 1, first_seq=first, next_seq=first
        )

        def remove() -> None:
            file.stale = True  # if this fails, the messages are read again
            with contextlib.suppress(FileNotFoundError):  # first, so that a crash hides nothing
                shutil.rmtree(self._archive_of(key))
            line = encode(session.as_metadata()).encode()
            replace_file(file.path, [line], files=self._disk)
            self._catalogue.forget(file.path)

        async with session.removal_lock:
            file = self._file(key)
            session.load_edited(empty)
            await self._writer.run(file, remove)

    async def set_aside(self, session: Session, **facts: JsonValue) -> None:
        """Move a conversation to a separate key, with `facts`, so that a new one begins in its
        chat. The new one continues the numbers, so that references stay unambiguous.

        Holders of `session` keep the old conversation. Waits for its queued lines. Raises
        StorageError."""
        key, header, now = session.key, session.as_metadata(), self._clock.now()
        first = session.next_seq
        left = Metadata(key, now, now, last_consolidated=first - 1, first_seq=first)
        facts = {**(header.metadata or {}), **facts}
        aside = replace(header, key=f"past:{key}@{first}", metadata=facts)

        def move() -> None:  # idempotent
            line = encode(aside).encode()  # first line for the key, last line for the content
            with (
                open_regular(file.path) as descriptor,
                open(descriptor, "rb", closefd=False) as live,
            ):
                ends = tail_without_newline(descriptor, os.fstat(descriptor).st_size) == b""
                lines = iter(lambda: live.read(PIECE), b"")
                end = b"" if ends else b"\n"
                replace_file(past.path, chain([line], lines, [end, line]), files=self._disk)
            archive = self._archive_of(key)
            if archive.is_dir():
                archive.rename(self._archive_of(aside.key))
            replace_file(file.path, [encode(left).encode()], files=self._disk)
            file.stale = past.stale = True

        async with session.removal_lock:
            file, past = self._file(key), self._file(aside.key)
            await self._writer.run(file, move)
            self._alive.pop(key, None)
            self._recent.pop(key, None)
            session.set_aside(aside)
            self._touch(session)

    async def renew_damaged(self, key: str) -> bool:
        """Set a session file aside if no line is readable. Return True if it was. Raises
        `StorageError`."""
        with contextlib.suppress(SessionDamaged):
            await self.get_or_create(key)
            return False
        file, time = self._file(key), self._clock.now()

        def set_aside() -> None:
            with contextlib.suppress(FileNotFoundError):
                aside = file.path.with_name(f"{file.path.name}.corrupt-{time:%Y%m%dT%H%M%S%f}")
                file.path.rename(aside)
                logger.warning("{} is damaged and was moved to {}", file.path, aside.name)
            sync_folder(file.path.parent, self._disk)
            file.stale = True

        await self._writer.run(file, set_aside)
        self._unreadable.pop(key, None)
        return True

    async def rewrite(self, key: str, redact: Redact) -> int:
        """Pass every line of a session, archived ones too, through `redact`. Return the number of
        changed lines.

        Waits for the session's queued lines and reads it again afterwards. After a StorageError,
        call it again to finish."""
        session = await self.get_or_create(key)

        def change() -> int:
            if changed := rewrite(self._disk, file.path, self._archive_of(key), redact):
                self._catalogue.forget(file.path)
            return changed

        async with session.removal_lock:
            file = self._file(key)
            changed = await self._writer.run(file, change)
            await self.get_or_create(key)
        return changed

    async def archive(self, session: Session) -> None:
        """Archive consolidated messages if there are more than `live_limit`.

        Waits for the session's queued lines. Raises StorageError without losing anything."""
        if session.last_consolidated - session.first_seq + 1 > self._live_limit:
            await self._archive(session)

    async def trim(self, session: Session) -> None:
        """Keep an internal conversation (`records.is_internal`) from growing without bound. Past
        messages move to the archive, and only its newest segment is kept. Raises StorageError."""
        if session.next_seq - session.first_seq <= self._live_limit:
            return
        await self.mark_consolidated(session, session.next_seq - 1)
        await self.archive(session)

        def drop() -> None:  # keep the newest: it has the last archived number
            for segment in segments(self._archive_of(session.key))[:-1]:
                with storage_errors(segment.path):
                    segment.path.unlink(missing_ok=True)
            self._catalogue.expire()

        await asyncio.to_thread(drop)

    async def _read(self, key: str, session: Session | None) -> Session | None:
        """Read the stored content into `session` or a new one. Return None if it changed while
        reading."""
        contents = await self.read_contents(key)
        if contents is None:
            return None
        self.broken.pop(key, None)
        if contents.broken:
            self.broken[key] = contents.broken
        if session is None:
            session = Session(key, self._clock, contents)
            if contents.is_half_archived and self.is_held(key, session.metadata):
                try:
                    await self._archive(session)
                except StorageError as error:
                    logger.warning("{} has not been archived yet: {}", key, error)
            return session
        if session.has_staged:
            self._file(key).stale = True
            return None
        session.load_edited(contents)
        return session

    async def _archive(self, session: Session) -> None:
        file, header = self._file(session.key), session.as_metadata()
        folder = self._archive_of(session.key)

        def move() -> None:
            changed = state_of(file.path) != file.known
            file.known = archive_messages(self._disk, file.path, folder, header)
            file.stale = file.stale or changed

        await self._writer.run(file, move)
        session.mark_archived(header.last_consolidated)

    def _is_settled(self, session: Session) -> bool:
        """Return True if nothing of the session is in memory only."""
        return not session.has_staged and self._writer.is_idle(self._file(session.key))

    def _append(self, session: Session, lines: str) -> asyncio.Future[None]:
        if lines:
            self._touch(session)
            return self._writer.append(self._file(session.key), lines.encode())
        nothing: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        nothing.set_result(None)
        return nothing

    def _touch(self, session: Session) -> None:
        """Mark a session as used, and release the least recently used ones."""
        self._alive[session.key] = self._recent[session.key] = session
        self._recent.move_to_end(session.key)
        if (surplus := len(self._recent) - self._capacity) > 0:
            others = (key for key, one in self._recent.items() if one is not session)
            settled = (key for key in others if self._is_settled(self._recent[key]))
            for key in tuple(islice(settled, surplus)):
                del self._recent[key]


class ConversationCheck(Struct, frozen=True):
    """A conversation that was read: its number of `messages`, or the error."""

    key: str
    messages: int = 0
    error: StorageError | None = None


def read_conversations(
    folder: Path, now: datetime, *, archive: bool
) -> Iterator[ConversationCheck]:
    """Read each conversation in `folder` like the next message in it would. With `archive`, count
    all messages, otherwise only its file's."""
    store = JsonlStore(folder, SystemClock())
    for key in sorted(info.key for info in store.list_sessions()):
        try:
            contents, _ = store.contents(key, now)
            messages = store.read_messages(key) if archive else contents.messages
            yield ConversationCheck(key, sum(1 for _ in messages))
        except StorageError as error:
            yield ConversationCheck(key, error=error)
