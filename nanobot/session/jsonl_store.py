"""The folder of sessions on disk: the file of each key, and its content."""

from __future__ import annotations

import asyncio
import math
import os
from collections import Counter
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from heapq import merge
from itertools import islice
from pathlib import Path

from msgspec.structs import replace

from nanobot.clock import Clock
from nanobot.errors import UnknownSession
from nanobot.io import FileOps, FileState, open_regular, state_of, storage_errors
from nanobot.messages import Message
from nanobot.session.archive import find_last_archived, records_of
from nanobot.session.catalogue import ARCHIVE, SessionCatalogue
from nanobot.session.jsonl_reader import (
    key_in,
    load,
    newest_metadata,
    pick,
    without_retracted,
)
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

    def read_replaced(self, key: str, turn_id: str) -> list[Message]:
        """Return the messages of the retracted turns in whose place a turn ran, without messages
        that were also retracted one by one (`/forget`)."""
        records = list(self._records(key, 1, None))
        messages = pick(Message, records)
        own = (one.replaces for one in messages if one.turn_id == turn_id and one.replaces)
        wanted = {turn: at for at, turn in enumerate(next(own, ()))}
        forgotten = [one for one in pick(Retraction, records) if not one.turn_id]
        left = without_retracted((one for one in messages if one.turn_id in wanted), forgotten)
        return sorted(left, key=lambda one: (wanted[one.turn_id], one.seq))

    def is_stored(self, key: str) -> bool:
        """Return True if a session has a file, even one without messages."""
        return bool(self._waiting(key)) or state_of(self._file_of(key)) is not None

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
        self,
        *,
        sealed: bool = False,
        archived: bool | None = None,
        scope: str = "",
        within: float = 0.0,
        most: int | None = None,
    ) -> Iterator[SessionInfo]:
        """List sessions as `SessionCatalogue.sessions` does, also new ones that are not durable
        yet. Changes by another process or a person in the last `within` seconds may be missing.

        Blocks before it returns, for a time that depends on the number of changes since the last
        call."""
        waiting = {file.key: file for file in self._writer.waiting()}
        # Before the scan of the catalogue, or a new session may be in neither.
        new = [file for file in waiting.values() if state_of(file.path) is None]
        within = 0.0 if waiting else within
        needed = None if most is None else most + len(waiting)
        stored = self._catalogue.sessions(
            sealed=sealed, archived=archived, scope=scope, within=within, most=needed
        )
        if not waiting:
            return stored
        changed = self._changed_infos(waiting.values(), new, within)
        merged = merge_lists(changed, stored, waiting, sealed=sealed, archived=archived)
        return islice(merged, most)

    def _changed_infos(
        self, waiting: Collection[SessionFile], new: Sequence[SessionFile], within: float
    ) -> Iterator[SessionInfo]:
        """Yield the sessions with pending lines, with their newest metadata. The `new` ones have no
        file yet."""
        now, of = self._clock.now(), self.metadata_of
        for file in reversed(new):
            key, place = file.key, str(file.path)
            yield SessionInfo(key, file.created_at, now, 0, "", place, metadata=of(key))
        names = [file.path.name for file in waiting if file not in new]
        for one in self._catalogue.select(names, within):
            is_used = any(b'"_type"' not in line for line in self._waiting(one.key))
            updated = now if is_used else one.updated_at
            yield replace(one, metadata=of(one.key), updated_at=updated)

    def titles(self, keys: Collection[str], within: float = 0.0) -> dict[str, str]:
        """Return the titles of these sessions, by key. `within` is as for `list_sessions`.
        Blocks."""
        names = [self._file_of(key).name for key in keys]
        return {one.key: one.title for one in self._catalogue.select(names, within)}

    def count(self) -> int:
        """Return the number of sessions that `list_sessions` just listed. Blocks."""
        lists = (self.count_by_scope(archived=archived) for archived in (True, False))
        return sum(sum(counts.values()) for counts in lists)

    def count_by_scope(
        self, *, archived: bool = False, within: float = math.inf
    ) -> Mapping[str | None, int]:
        """Return the number of sessions in the list of archived ones, or of all others, by the
        scope in their metadata, if any. By default any scan since the last change is reused.
        Blocks."""
        new = [file for file in self._writer.waiting() if state_of(file.path) is None]
        counts = Counter(self._catalogue.count(archived=archived, within=within))
        if not archived:
            counts.update(str(self.metadata_of(one.key).get("scope") or "") or None for one in new)
        return counts

    def retry(self) -> None:
        """Retry pending writes at once."""
        self._writer.retry()

    async def settle(self) -> None:
        """Return once pending lines are in their files, or the disk has refused them."""
        await self._writer.settle()

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

    def places_of(self, key: str) -> tuple[Path, Path]:
        """Return the live file of a session and the folder of its archive, which may not exist."""
        return self._file_of(key), self._archive_of(key)

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


def merge_lists(
    changed: Iterable[SessionInfo],
    stored: Iterable[SessionInfo],
    waiting: Container[str],
    *,
    sealed: bool,
    archived: bool | None,
) -> Iterator[SessionInfo]:
    """Put the changed sessions, whose keys are `waiting`, in their place in the stored list. See
    `JsonlStore.list_sessions`."""

    def place(info: SessionInfo) -> tuple[bool, float]:
        return archived is False and not info.is_pinned, -info.updated_at.timestamp()

    others = (one for one in stored if one.key not in waiting)
    here = (one for one in changed if archived is None or one.is_archived == archived)
    chosen = (one for one in here if not sealed or one.last_consolidated < one.epoch_seq)
    return merge(sorted(chosen, key=place), others, key=place)


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
