"""The sessions of a home: opened when asked for, written behind the caller's back, never lost.

`save` makes a turn visible at once and returns a future that resolves when the disk has it. A
session with unwritten lines stays in memory whatever the capacity; one that somebody still holds is
never loaded a second time. A file that a person changed is read again the next time it is asked
for.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from weakref import WeakKeyDictionary, WeakValueDictionary

from loguru import logger

from nanobot.clock import Clock
from nanobot.errors import StorageError
from nanobot.io import FileOps, state_of
from nanobot.messages import Message
from nanobot.session.catalogue import SessionInfo
from nanobot.session.jsonl_store import Redact, SessionFolder
from nanobot.session.jsonl_writer import Callback, Job, SessionFile, Trouble, Writer
from nanobot.session.records import JsonValue
from nanobot.session.session import Session
from nanobot.tasks import Background

_INLINE = 64 * 1024
"""Files up to this many bytes are parsed on the event loop: a thread would cost more."""

_FIRST_DELAY, _LONGEST_DELAY = 1.0, 60.0


class SessionManager:
    """Opens, saves, lists and archives the sessions in `folder`.

    `capacity` is how many sessions stay open without anyone holding them, `live_limit` how many
    consolidated messages a file may keep. `on_trouble` hears once of each trouble with the disk;
    what it could not take is tried again after 1, 2, 4 … 60 seconds and on `retry`. Lines wait
    `gather_seconds` for others to share a sync with, for callers who keep a copy meanwhile. `files`
    is what changes the disk.
    """

    def __init__(
        self,
        folder: Path,
        clock: Clock,
        *,
        capacity: int = 128,
        live_limit: int = 2000,
        on_trouble: Callable[[StorageError], None] | None = None,
        gather_seconds: float = 0.0,
        files: FileOps | None = None,
    ) -> None:
        disk = files or FileOps()
        self._folder = SessionFolder(folder, disk)
        self._clock, self._capacity, self._live_limit = clock, capacity, live_limit
        self._tell = on_trouble
        self._writer = Writer(disk, clock.now, self._post, self._on_trouble, gather_seconds)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._recent: OrderedDict[str, Session] = OrderedDict()
        self._alive: WeakValueDictionary[str, Session] = WeakValueDictionary()
        self._files: WeakKeyDictionary[Session, SessionFile] = WeakKeyDictionary()
        self._loading: dict[str, asyncio.Event] = {}
        self._unreadable: dict[str, StorageError] = {}
        self._pending: dict[asyncio.Future[None], Session] = {}
        self._background = Background()
        self._delay, self._retry_planned = _FIRST_DELAY, False

    async def get_or_create(self, key: str) -> Session:
        """The session of `key`, read from its file, or a new one where there is none.

        Raises StorageError where the file cannot be read; it is left as it is.
        """
        while True:
            while (others := self._loading.get(key)) is not None:
                await others.wait()
            session = self._alive.get(key)
            if session is None or not self._is_current(session):
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
        """Make what is staged visible and queue its lines; the future resolves once they are
        durable.

        While the disk refuses them the future is pending. Only `close` gives up: it then holds a
        StorageError.
        """
        written = self._promise(session)
        return self._submit(session, session.apply_staged(), written)

    async def restore(self, key: str, lines: str) -> None:
        """Make sure that journaled lines are in the session's file, and durable.

        For the start, before sessions are opened: does nothing where the last of the lines is
        there, otherwise appends exactly those that are missing. Raises StorageError.
        """
        if lines:
            await asyncio.to_thread(self._folder.restore, key, lines, self._clock.now())

    @property
    def has_died(self) -> bool:
        """Whether the thread that writes has ended, so that no file is written any more."""
        return self._writer.has_died

    @property
    def unreadable(self) -> Mapping[str, StorageError]:
        """The sessions whose files could not be read when they were needed last, and why."""
        return self._unreadable

    def list_sessions(self) -> list[SessionInfo]:
        """All sessions on disk, the one used last first. Blocks, the longer the more of them
        changed since the last time; may be called from any thread."""
        return self._folder.sessions()

    def keys(self) -> list[str]:
        """The keys of all sessions on disk. Blocks; may be called from any thread."""
        return self._folder.keys()

    def read_messages(self, key: str, first: int = 1, last: int | None = None) -> Iterator[Message]:
        """All messages from seq `first` to `last`: archived, sealed and retracted ones as well.

        Raises UnknownSession, naming the nearest key, where there is no such session.
        """
        waiting = self._writer.backlog(self._folder.file_of(key))
        return self._folder.messages(key, waiting, first, last)

    def read_window(self, key: str, first: int = 1, last: int | None = None) -> list[Message]:
        """Like `read_messages`, without what was retracted (`/undo`, `/discard`, `/forget`)."""
        waiting = self._writer.backlog(self._folder.file_of(key))
        return self._folder.window(key, waiting, first, last)

    def metadata_of(self, key: str) -> Mapping[str, JsonValue]:
        """The small facts about a session as its file says them; none where there is no file.

        May be called from any thread. Raises StorageError.
        """
        return self._folder.metadata_of(key)

    def mark_consolidated(self, session: Session, seq: int) -> asyncio.Future[None]:
        """Memory holds the conversation up to `seq`: what is before leaves the window at once.

        May be called at any time, also while a turn runs. The future is as for `save`; nobody has
        to wait for it, since history says the same and is what counts after a crash.
        """
        line = session.consolidated_up_to(seq)
        return self._submit(session, line, self._promise(session))

    async def retract(self, session: Session, numbers: Iterable[int]) -> None:
        """The messages with these seqs leave the window and memory (`/forget`); returns once that
        is durable. May be called at any time, also while a turn runs."""
        async with session.parting:
            written = self._submit(session, session.retracted(numbers), self._promise(session))
        await written

    async def rewrite(self, key: str, redact: Redact) -> int:
        """Pass every line of a session through `redact`, archived ones too; how many changed.

        Waits for what is queued for the session, which then reads its file again. Raises
        StorageError; doing it again finishes what was left.
        """
        session, changed = await self.get_or_create(key), list[int]()
        async with session.parting:
            future = self._promise(session)
            self._writer.submit_job(
                Job(
                    self._file(session),
                    run=lambda: changed.append(self._folder.rewrite(key, redact)),
                    done=lambda error: self._settle(future, error),
                )
            )
            await future
            await self.get_or_create(key)
        return sum(changed)

    async def archive(self, session: Session) -> None:
        """Move consolidated messages out of the live file where it holds more than `live_limit`.

        Waits for what is queued for the session. Raises StorageError; nothing is lost then.
        """
        cut = session.last_consolidated
        if cut - session.first_seq + 1 <= self._live_limit:
            return
        file, header = self._file(session), session.as_metadata()
        future = self._promise(session)
        self._writer.submit_job(
            Job(
                file,
                run=lambda: self._folder.move_consolidated(file, header),
                done=lambda error: self._settle(future, error),
            )
        )
        await future
        session.archived_up_to(cut)

    async def bound(self, session: Session) -> None:
        """Keep the files of a conversation that no memory takes (`names.is_own`) from growing for
        ever: what is past goes to the archive, of which the newest segment stays. Raises
        StorageError."""
        if session.next_seq - session.first_seq <= self._live_limit:
            return
        await self.mark_consolidated(session, session.next_seq - 1)
        await self.archive(session)
        await asyncio.to_thread(self._folder.drop_old_segments, session.key)

    def retry(self) -> None:
        """Try at once to write what the disk refused."""
        self._writer.retry()

    async def close(self) -> None:
        """Write everything that is queued and end the writer.

        What the disk still refuses is given up: the journal has it, and the next start restores it.
        """
        await asyncio.to_thread(self._writer.close)
        for future, session in list(self._pending.items()):
            path = self._file(session).path
            self._settle(future, StorageError(path, "it could not be written before the end"))
        await self._background.drain(0)

    def _is_current(self, session: Session) -> bool:
        """Whether memory is at least as new as the disk; one `stat` at most."""
        file = self._file(session)
        if not self._is_settled(session):
            return True
        return not file.stale and state_of(file.path) == file.known

    async def _read(self, key: str, session: Session | None) -> Session | None:
        """Read the file into `session` or a new one; None where it is saved to meanwhile."""
        now = self._clock.now()
        path = self._folder.file_of(key)
        before = self._file(session).known if session else None
        if self._folder.mend(path, now) <= _INLINE:
            contents, state = self._folder.read(key, path, now)
        else:
            contents, state = await asyncio.to_thread(self._folder.read, key, path, now)
        if session is None:
            session = Session(key, self._clock, contents)
        elif self._file(session).known is not before or not self._is_settled(session):
            return None
        else:
            session.adopt(contents)
        self._files[session] = SessionFile(path, key, session.created_at, known=state)
        return session

    def _is_settled(self, session: Session) -> bool:
        """Whether nothing of it exists in memory only."""
        return not session.has_staged and self._writer.is_idle(self._file(session))

    def _submit(
        self, session: Session, lines: str, written: asyncio.Future[None]
    ) -> asyncio.Future[None]:
        if lines:
            file = self._file(session)
            self._writer.submit(file, lines.encode(), lambda: self._settle(written, None))
            self._touch(session)
        else:
            self._settle(written, None)
        return written

    def _file(self, session: Session) -> SessionFile:
        if session not in self._files:
            path = self._folder.file_of(session.key)
            self._files[session] = SessionFile(path, session.key, session.created_at)
        return self._files[session]

    def _touch(self, session: Session) -> None:
        """Note that a session was used; the ones unused longest are let go."""
        self._alive[session.key] = self._recent[session.key] = session
        self._recent.move_to_end(session.key)
        surplus = len(self._recent) - self._capacity
        if surplus <= 0:
            return
        for key, other in list(self._recent.items())[:-1]:
            if surplus > 0 and self._is_settled(other):
                del self._recent[key]
                surplus -= 1

    def _promise(self, session: Session) -> asyncio.Future[None]:
        self._loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = self._loop.create_future()
        self._pending[future] = session
        return future

    def _settle(self, future: asyncio.Future[None], error: StorageError | None) -> None:
        self._pending.pop(future, None)
        if not self._writer.has_trouble:
            self._delay = _FIRST_DELAY
        if future.done():  # whoever waited was cancelled
            return
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)
            future.exception()  # nobody has to ask: the caller may be gone at the end

    def _post(self, callback: Callback) -> None:
        """Call back on the event loop; from the writer's thread."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is waiting
                self._loop.call_soon_threadsafe(callback)

    def _on_trouble(self, trouble: Trouble) -> None:
        if trouble.is_new:
            logger.error("{}; it is kept and tried again", trouble.error)
            if self._tell is not None:
                self._tell(trouble.error)
        if not self._retry_planned:
            self._retry_planned = True
            self._background.start(self._retry_later(), name="retry session writes")

    async def _retry_later(self) -> None:
        await self._clock.sleep(self._delay)
        self._delay = min(self._delay * 2, _LONGEST_DELAY)
        self._retry_planned = False
        self._writer.retry()
