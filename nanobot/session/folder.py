"""The folder of sessions as it lies on disk: which file belongs to a key, and what stands in it.

Everything here is synchronous and remembers nothing between calls, but for the listing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from datetime import datetime
from difflib import get_close_matches
from pathlib import Path

from nanobot.errors import StorageError, UnknownSession
from nanobot.messages import Message
from nanobot.session import archive, listing
from nanobot.session.append import SessionFile, sync_lines, write_lines
from nanobot.session.erase import Redact, rewrite
from nanobot.session.files import FileOps, FileState, opened, state_of
from nanobot.session.loading import load, newest_metadata, set_aside_torn_tail
from nanobot.session.names import SUFFIX, foreign_stem_of, key_of, stem_of
from nanobot.session.records import JsonValue, Metadata, Retraction, decode
from nanobot.session.session import Contents


class SessionFolder:
    """Finds, reads and mends the files of sessions under `path`."""

    def __init__(self, path: Path, files: FileOps) -> None:
        self._path, self._files = path, files
        self._listing = listing.Listing(path)

    def file_of(self, key: str) -> Path:
        """The live file of a key, whether or not it exists.

        That is our own name for it, unless there is only a file which another program named, and
        which says that it belongs to this key.
        """
        own = self._path / f"{stem_of(key)}{SUFFIX}"
        foreign = self._path / f"{foreign_stem_of(key)}{SUFFIX}"
        if foreign in (own, self._path / SUFFIX):
            return own
        if state_of(own) is not None or state_of(foreign) is None:
            return own
        return foreign if (listing.key_in(foreign) or key_of(foreign.stem)) == key else own

    def archive_of(self, key: str) -> Path:
        """The folder of a key's archived segments, whether or not it exists."""
        return self._path / "archive" / stem_of(key)

    def mend(self, path: Path, now: datetime) -> int:
        """Set a last line aside that was cut short; returns the size of the file, 0 without one."""
        set_aside_torn_tail(path, self._files, now)
        state = state_of(path)
        return state.size if state else 0

    def read(self, key: str, path: Path, now: datetime) -> tuple[Contents, FileState | None]:
        """What a session's file says and the state it was in; an empty session without a file."""
        archived = archive.archived_up_to(self.archive_of(key))
        try:
            return load(path, archived, now)
        except FileNotFoundError:
            start = archived + 1
            empty = Contents(now, now, last_consolidated=archived, first_seq=start, next_seq=start)
            return empty, None

    def restore(self, key: str, lines: str, now: datetime) -> None:
        """Append those of the journaled lines that are missing, and sync."""
        path = self.file_of(key)
        archived = archive.archived_up_to(self.archive_of(key))
        first = decode(lines.partition("\n")[0].encode())
        begun = first.timestamp if isinstance(first, Message) else None
        file = SessionFile(path, key, begun or now)
        try:
            data = lines.encode()
            sync_lines(
                self._files,
                write_lines(self._files, file, data, now, verify=True, archived=archived),
            )
        except OSError as error:
            raise StorageError.of(path, error) from error

    def metadata_of(self, key: str) -> Mapping[str, JsonValue]:
        """The newest metadata in a session's file; empty where it says none."""
        path = self.file_of(key)
        try:
            with opened(path) as descriptor:
                found = newest_metadata(descriptor, os.fstat(descriptor).st_size)
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise StorageError.of(path, error) from error
        return found.metadata or {} if found else {}

    def move_consolidated(self, file: SessionFile, header: Metadata) -> None:
        """Archive what `header` calls consolidated; `file` then knows its new live file."""
        changed = state_of(file.path) != file.known
        folder = self.archive_of(file.key)
        file.known = archive.move(self._files, file.path, folder, header)
        file.stale = file.stale or changed

    def drop_old_segments(self, key: str) -> None:
        """Remove the archived segments of a key, but for the newest, which says how far they went.
        Raises StorageError."""
        for segment in archive.segments(self.archive_of(key))[:-1]:
            try:
                segment.path.unlink(missing_ok=True)
            except OSError as error:
                raise StorageError.of(segment.path, error) from error

    def messages(self, key: str, waiting: bytes, first: int, last: int | None) -> Iterator[Message]:
        """All messages of a session from seq `first` to `last`; `waiting` lines follow its file.

        Raises UnknownSession, naming the nearest key, where there is no trace of the session.
        """
        path, folder = self.file_of(key), self.archive_of(key)
        if not waiting and state_of(path) is None and not folder.is_dir():
            keys = [key_of(other.stem) for other in self._path.glob(f"*{SUFFIX}")]
            raise UnknownSession(key, next(iter(get_close_matches(key, keys, 1)), ""))
        return self._messages(path, folder, waiting, first, last)

    def window(self, key: str, waiting: bytes, first: int, last: int | None) -> list[Message]:
        """Those of `messages` that were not retracted. Raises as it does."""
        gone = [*archive.retractions_of(self.file_of(key), self.archive_of(key), first)]
        gone += [r for r in map(decode, waiting.splitlines()) if isinstance(r, Retraction)]
        messages = self.messages(key, waiting, first, last)
        return [m for m in messages if not any(retraction.covers(m) for retraction in gone)]

    def rewrite(self, key: str, redact: Redact) -> int:
        """Pass every line of a session through `redact`, archived ones too; how many changed."""
        return rewrite(self._files, self.file_of(key), self.archive_of(key), redact)

    def sessions(self) -> list[listing.SessionInfo]:
        """All sessions on disk, the one used last first."""
        return self._listing.sessions()

    def keys(self) -> list[str]:
        """The keys of all sessions on disk."""
        return self._listing.keys()

    def _messages(
        self, path: Path, folder: Path, waiting: bytes, first: int, last: int | None
    ) -> Iterator[Message]:
        newest = first - 1
        for message in archive.messages_of(path, folder, first, last):
            newest = max(newest, message.seq)
            yield message
        for line in waiting.splitlines():
            record = decode(line)
            if isinstance(record, Message) and newest < record.seq <= (last or record.seq):
                yield record
