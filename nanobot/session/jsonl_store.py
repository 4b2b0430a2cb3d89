"""The folder of sessions on disk: the file of each key, and its content."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from itertools import islice
from pathlib import Path

from msgspec.structs import replace

from nanobot.clock import Clock
from nanobot.errors import UnknownSession
from nanobot.io import FileOps, FileState, open_regular, state_of, storage_errors
from nanobot.messages import Message
from nanobot.session.archive import find_last_archived, records_of
from nanobot.session.catalogue import ARCHIVE, SessionCatalogue
from nanobot.session.jsonl_reader import key_in, load, newest_metadata, without_retracted
from nanobot.session.jsonl_writer import SessionFile, Writer, append_lines
from nanobot.session.records import (
    SUFFIX,
    Epoch,
    JsonValue,
    Mark,
    Metadata,
    Record,
    Retraction,
    decode,
    foreign_stem_of,
    key_of,
    stem_of,
    with_marks,
)
from nanobot.session.session import Contents, SessionInfo
from nanobot.text import close_matches

_INLINE = 64 * 1024
"""Files up to this many bytes are parsed on the event loop: a thread would cost more."""
_MOST_FILES = 1024  # the number of files whose last read state is cached


class JsonlStore:
    """The session files of a catalogue or a folder. `gather` is as for `Writer`, for callers that
    keep a copy of the lines until they are durable. `files` performs changes on the disk.

    Lines of a conversation are stored in the order of their appends, each whole or not at all, and
    never twice. Methods that are not coroutines block and may be called from any thread, except
    `retry`, which belongs to the event loop. `StorageError` means that nothing was changed."""

    def __init__(
        self,
        place: SessionCatalogue | Path,
        clock: Clock,
        *,
        gather: float = 0.0,
        files: FileOps | None = None,
    ) -> None:
        catalogue = SessionCatalogue(place, clock) if isinstance(place, Path) else place
        self._catalogue, self._path = catalogue, catalogue.folder
        self._clock, self._disk = clock, files or FileOps()
        self._writer = Writer(self._disk, clock, catalogue.expire, gather)
        self._files: dict[str, SessionFile] = {}

    async def read_contents(self, key: str) -> Contents | None:
        """Read a stored conversation, or an empty one. Return None if lines were appended during
        that. Raises `StorageError` if it cannot be read. The file stays as it is."""
        file, now, path = self._file(key), self._clock.now(), self._file_of(key)
        file.path, before = path, file.known
        state = state_of(path)
        if state is None:
            contents = self._empty(key, now)
        elif state.size <= _INLINE:
            contents, state = self.contents(key, now, path)
        else:
            contents, state = await asyncio.to_thread(self.contents, key, now, path)
        if file.known is not before or not self._writer.is_idle(file):
            return None
        file.known, file.stale, file.created_at = state, False, contents.created_at
        return contents

    def contents(
        self, key: str, now: datetime, path: Path | None = None
    ) -> tuple[Contents, FileState | None]:
        """Return the content of a session's file and its state. An empty session if there is no
        file."""
        archived, path = find_last_archived(self._archive_of(key)), path or self._file_of(key)
        if state_of(path) is not None:
            return load(path, archived, now)
        return self._empty(key, now), None

    def _empty(self, key: str, now: datetime) -> Contents:
        archived = find_last_archived(self._archive_of(key))
        start = archived + 1
        return Contents(now, now, last_consolidated=archived, first_seq=start, next_seq=start)

    async def restore(self, key: str, lines: str) -> None:
        """Append the journaled lines that are missing, durably.

        Call this at startup, before sessions are loaded. If the last line is present, all of them
        are. Raises StorageError."""
        if not lines:
            return
        first = decode(lines.partition("\n")[0].encode())
        begun = first.timestamp if isinstance(first, Message) else None
        now = self._clock.now()
        file = SessionFile(self._file_of(key), key, begun or now)

        def work() -> None:
            archived, data = find_last_archived(self._archive_of(key)), lines.encode()
            append_lines(self._disk, file, data, now, verify=True, archived=archived)

        await self._writer.run(file, work)

    def read_messages(self, key: str, first: int = 1, last: int | None = None) -> Iterator[Message]:
        """Yield all messages from seq `first` to `last`, also archived, sealed and retracted ones.
        Raises UnknownSession with the nearest key if there is no such session."""
        return (one for one in self._records(key, first, last) if isinstance(one, Message))

    def epochs(self, key: str, first: int, last: int) -> list[int]:
        """Return the seqs from `first` to `last` after which `/new` began another conversation.
        Raises like `read_messages`."""
        records = self._records(key, first, last)
        ends = (record.seq for record in records if isinstance(record, Epoch))
        return sorted({seq for seq in ends if first <= seq <= last})

    def read_window(self, key: str, first: int = 1, last: int | None = None) -> list[Message]:
        """Return the messages like `read_messages`, without retracted ones (`/undo`, `/discard`,
        `/forget`), and with the marks to keep."""
        records = list(self._records(key, first, last))
        gone = [record for record in records if isinstance(record, Retraction)]
        messages = [record for record in records if isinstance(record, Message)]
        left = without_retracted(messages, gone)
        return with_marks(left, (record for record in records if isinstance(record, Mark)))

    def metadata_of(self, key: str) -> Mapping[str, JsonValue]:
        """Return the stored metadata of a session, if any. Raises `StorageError`."""
        for record in map(decode, reversed(self._waiting(key))):
            if isinstance(record, Metadata):
                return record.metadata or {}
        path = self._file_of(key)
        if state_of(path) is None:
            return {}
        with storage_errors(path), open_regular(path) as descriptor:
            found = newest_metadata(descriptor, os.fstat(descriptor).st_size)
        return found.metadata or {} if found else {}

    def list_sessions(
        self, *, sealed: bool = False, within: float = 0.0, most: int | None = None
    ) -> Iterator[SessionInfo]:
        """List all sessions, or the first `most`, the last used first, also new ones that are not
        durable yet. With `sealed`, only those with unconsolidated messages before the newest epoch.
        Changes by another process or a person in the last `within` seconds may be missing.

        Blocks before it returns, for a time that depends on the number of changes since the last
        call."""
        waiting = {file.key: file for file in self._writer.waiting()}
        # Before the scan of the catalogue, or a new session may be in neither.
        new = {} if sealed else {k: f for k, f in waiting.items() if state_of(f.path) is None}
        within = 0.0 if waiting else within
        stored = self._catalogue.sessions(sealed=sealed, within=within, most=most)
        return islice(self._infos(waiting, new, stored), most)

    def _infos(
        self,
        waiting: Mapping[str, SessionFile],
        new: Mapping[str, SessionFile],
        stored: Iterable[SessionInfo],
    ) -> Iterator[SessionInfo]:
        now, of = self._clock.now(), self.metadata_of
        for key, file in new.items():
            yield SessionInfo(key, file.created_at, now, 0, "", str(file.path), metadata=of(key))
        for one in stored:
            if one.key not in new:
                yield replace(one, metadata=of(one.key)) if one.key in waiting else one

    def count(self) -> int:
        """Return the number of sessions that `list_sessions` just listed. Blocks."""
        new = sum(state_of(file.path) is None for file in self._writer.waiting())
        return new + self._catalogue.count()

    def retry(self) -> None:
        """Retry pending writes at once."""
        self._writer.retry()

    async def close(self) -> None:
        """Write everything that is queued.

        Lines that the disk still refuses are given up: the journal has them, and the next start
        restores them."""
        await self._writer.close()

    def _file(self, key: str) -> SessionFile:
        if key not in self._files:
            if len(self._files) >= _MOST_FILES:  # a dropped session in use is read again
                files = self._files.items()
                self._files = {key: one for key, one in files if not self._writer.is_idle(one)}
            self._files[key] = SessionFile(self._file_of(key), key, self._clock.now())
        return self._files[key]

    def _file_of(self, key: str) -> Path:
        """Return the path of a key's live file, which may not exist.

        It is nanobot's name for it, unless the only file with this key was named by another
        program."""
        stem, foreign_stem = stem_of(key), foreign_stem_of(key)
        own = self._path / f"{stem}{SUFFIX}"
        if foreign_stem in (stem, ""):
            return own
        foreign = self._path / f"{foreign_stem}{SUFFIX}"
        if state_of(own) is not None or state_of(foreign) is None:
            return own
        return foreign if (key_in(foreign) or key_of(foreign.stem)) == key else own

    def _archive_of(self, key: str) -> Path:
        """Return the folder of a key's archived segments, which may not exist."""
        return self._path / ARCHIVE / stem_of(key)

    def _waiting(self, key: str) -> list[bytes]:
        """Return the lines that are not durable yet. Call this before you read the files, or lines
        that are written in between are missed."""
        file = self._files.get(key)
        return self._writer.backlog(file).splitlines() if file else []

    def _records(self, key: str, first: int, last: int | None) -> Iterator[Record]:
        """Return the stored records, as `records_of` does, and then the pending ones."""
        waiting = self._waiting(key)
        path, folder = self._file_of(key), self._archive_of(key)
        if not waiting and state_of(path) is None and not folder.is_dir():
            keys = [key_of(name.removesuffix(SUFFIX)) for name in self._catalogue.names()]
            raise UnknownSession(key, next(iter(close_matches(key, keys, 1)), ""))
        stored = records_of(path, folder, first, last)
        return add_pending(stored, waiting, first, last)


def add_pending(
    stored: Iterable[Record], waiting: Iterable[bytes], first: int, last: int | None
) -> Iterator[Record]:
    newest = first - 1
    for record in stored:
        if isinstance(record, Message):
            newest = max(newest, record.seq)
        yield record
    for line in waiting:
        match decode(line):
            case None:
                continue
            case Message(seq=seq) if seq <= newest or (last is not None and seq > last):
                continue
            case record:
                yield record
