"""What sessions there are, read from the first line and the last 64 KiB of each file."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from loguru import logger

from nanobot.errors import StorageError
from nanobot.messages import Message
from nanobot.session.files import opened
from nanobot.session.names import SUFFIX, key_of, stem_of
from nanobot.session.records import Metadata, Retraction, decode

_EDGE = 64 * 1024
_PREVIEW = 80


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """A session at a glance. `size` is of the live file in bytes, `preview` its last message."""

    key: str
    created_at: datetime
    updated_at: datetime
    size: int
    preview: str
    path: Path


def list_sessions(folder: Path) -> list[SessionInfo]:
    """All sessions in `folder`, the one used last first. What cannot be read is left out, with a
    warning.
    """
    found: dict[str, SessionInfo] = {}
    for path in sorted(folder.glob(f"*{SUFFIX}")) if folder.is_dir() else []:
        try:
            info = _info(path)
        except StorageError as error:
            logger.warning("{}", error)
            continue
        if info.key in found and stem_of(info.key) != path.stem:
            info = replace(info, key=key_of(path.stem))
        elif info.key in found:
            copy = found.pop(info.key)
            found[key_of(copy.path.stem)] = replace(copy, key=key_of(copy.path.stem))
        found[info.key] = info
    return sorted(found.values(), key=lambda info: info.updated_at, reverse=True)


def key_in(path: Path) -> str:
    """The key in the first line of a session file, empty where there is none."""
    try:
        with opened(path) as descriptor:
            head = decode(os.pread(descriptor, _EDGE, 0).partition(b"\n")[0])
    except OSError as error:
        raise StorageError.of(path, error) from error
    return head.key if isinstance(head, Metadata) else ""


def _info(path: Path) -> SessionInfo:
    try:
        with opened(path) as descriptor:
            status = os.fstat(descriptor)
            head = decode(os.pread(descriptor, _EDGE, 0).partition(b"\n")[0])
            edge = os.pread(descriptor, _EDGE, max(0, status.st_size - _EDGE))
    except OSError as error:
        raise StorageError.of(path, error) from error
    metadata = head if isinstance(head, Metadata) else Metadata("", None, None)
    tail = [record for line in edge.split(b"\n") if (record := decode(line)) is not None]
    messages = [record for record in tail if isinstance(record, Message)]
    undone = [record for record in tail if isinstance(record, Retraction)]
    standing = [m for m in messages if not any(record.covers(m) for record in undone)]
    times = [metadata.updated_at, *(message.timestamp for message in messages)]
    times += [record.updated_at for record in tail if isinstance(record, Metadata)]
    known = [time for time in times if time is not None]
    touched = datetime.fromtimestamp(status.st_mtime, UTC).astimezone()
    return SessionInfo(
        key=metadata.key or key_of(path.stem),
        created_at=metadata.created_at or min(known, default=touched),
        updated_at=max(known, default=touched),
        size=status.st_size,
        preview=_preview(standing),
        path=path,
    )


def _preview(messages: list[Message]) -> str:
    said = (m for m in reversed(messages) if m.from_person or m.role == "assistant")
    spoken = (message.content for message in said if message.content.strip())
    return _shortened(next(spoken, ""))


def _shortened(text: str) -> str:
    line = " ".join(text[: 4 * _PREVIEW].split())
    return line if len(line) <= _PREVIEW else f"{line[: _PREVIEW - 1]}…"
