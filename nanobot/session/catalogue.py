"""What sessions there are, read from the first line and the last 64 KiB of each file.

A file is read only where it changed since it was read last. Of the lines at its end, most are not
parsed: the newest message gives the time, the newest one of a person or the model the preview.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from loguru import logger
from msgspec import Struct
from msgspec.structs import replace

from nanobot.errors import StorageError
from nanobot.io import FileState, opened, state_of, storage_errors
from nanobot.messages import Message
from nanobot.session.loading import newest_metadata
from nanobot.session.records import (
    SUFFIX,
    Epoch,
    Metadata,
    Record,
    Retraction,
    decode,
    key_of,
    seq_of_epoch,
    stem_of,
)
from nanobot.session.store import SessionInfo
from nanobot.text import shortened

_EDGE = 64 * 1024
_PREVIEW = 80
_MARK = b'"_type"'
_NONE = Metadata("", None, None)


class Listing:
    """The sessions in `folder`. Thread-safe; everything here blocks.

    What cannot be read is left out, with one warning as long as that lasts.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._known: dict[Path, tuple[FileState, SessionInfo]] = {}
        self._refused: set[str] = set()

    def sessions(self) -> list[SessionInfo]:
        """All of them, the one used last first."""
        with self._lock:
            infos = self._readable()
            self._known = {path: self._known[path] for path in infos}
        owners = _owners(infos)
        named = [replace(infos[path], key=key) for key, path in owners.items()]
        return sorted(named, key=lambda info: info.updated_at, reverse=True)

    def _readable(self) -> dict[Path, SessionInfo]:
        infos, refused = {}, set()
        for path in self._paths():
            try:
                infos[path] = self._info(path)
            except StorageError as error:
                refused.add(why := str(error))
                if why not in self._refused:
                    logger.warning("{}", why)
        self._refused = refused
        return infos

    def _info(self, path: Path) -> SessionInfo:
        known = self._known.get(path)
        if known is None or known[0] != state_of(path):
            known = self._known[path] = _read(path)
        return known[1]

    def _paths(self) -> list[Path]:
        with storage_errors(self._folder):
            return sorted(self._folder.glob(f"*{SUFFIX}")) if self._folder.is_dir() else []


def key_in(path: Path) -> str:
    """The key in the first line of a session file, empty where there is none."""
    with storage_errors(path), opened(path) as descriptor:
        head = decode(os.pread(descriptor, _EDGE, 0).partition(b"\n")[0])
    return head.key if isinstance(head, Metadata) else ""


def _owners(infos: Mapping[Path, SessionInfo]) -> dict[str, Path]:
    """The file of each key. Of several that say the same one, the one with our own name for it has
    it; the others are copies, and go by their names."""
    found: dict[str, Path] = {}
    for path, info in infos.items():
        key = info.key
        if key in found and stem_of(key) != path.stem:
            key = key_of(path.stem)
        elif key in found:
            copy = found.pop(key)
            found[key_of(copy.stem)] = copy
        found[key] = path
    return found


def _read(path: Path) -> tuple[FileState, SessionInfo]:
    with storage_errors(path), opened(path) as descriptor:
        status = os.fstat(descriptor)
        head = decode(os.pread(descriptor, _EDGE, 0).partition(b"\n")[0])
        edge = os.pread(descriptor, _EDGE, max(0, status.st_size - _EDGE))
        if _MARK not in edge:
            newest = newest_metadata(descriptor, status.st_size) or _NONE
        else:
            newest = _NONE
    end = _End.of(edge, newest)
    begun = head.created_at if isinstance(head, Metadata) else None
    begun = begun or (head.timestamp if isinstance(head, Message) else None)
    touched = datetime.fromtimestamp(status.st_mtime, UTC).astimezone()
    return FileState.of(status), SessionInfo(
        key=(head.key if isinstance(head, Metadata) else "") or key_of(path.stem),
        created_at=begun or end.time or touched,
        updated_at=end.time or (head.updated_at if isinstance(head, Metadata) else None) or touched,
        size=status.st_size,
        preview=end.preview,
        place=str(path),
        epoch_seq=end.epoch_seq,
        last_consolidated=end.last_consolidated,
    )


class _End(Struct):
    """What the last lines of a file say."""

    time: datetime | None = None
    preview: str = ""
    epoch_seq: int = 0
    last_consolidated: int = 0
    said: bool = False
    """Whether the newest message's time is known."""

    @classmethod
    def of(cls, edge: bytes, newest: Metadata) -> _End:
        """Of the lines of `edge`; `newest` is the metadata where no line of it has any."""
        end, undone = cls(), list[Retraction]()
        end._note(newest)
        for line in reversed(edge.split(b"\n")):
            if _MARK not in line and end.said and end.preview:
                continue
            match decode(line):
                case Message() as message:
                    end._hear(message, undone)
                case Retraction() as record:
                    undone.append(record)
                case other:
                    end._note(other)
        return end

    def _hear(self, message: Message, undone: list[Retraction]) -> None:
        if message.timestamp is not None and not self.said:
            self._at(message.timestamp)
            self.said = True
        spoken = message.from_person or message.role == "assistant"
        if spoken and not self.preview and not any(one.covers(message) for one in undone):
            self.preview = shortened(message.content, _PREVIEW)

    def _note(self, record: Record | None) -> None:
        match record:
            case Metadata():
                self._at(record.updated_at)
                self.epoch_seq = max(self.epoch_seq, seq_of_epoch(record.epoch))
                self.last_consolidated = max(self.last_consolidated, record.last_consolidated)
            case Epoch():
                self.epoch_seq = max(self.epoch_seq, record.seq)

    def _at(self, time: datetime | None) -> None:
        if time is not None and (self.time is None or time > self.time):
            self.time = time
