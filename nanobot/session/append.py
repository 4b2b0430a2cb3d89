"""Adding lines to a session file so that neither a crash nor a full disk can mix or halve them.

An append has two halves: `write_lines` puts the bytes into the file, `sync_lines` makes them
durable, so that a writer can put many files between the two. What an attempt was about to leave
behind is noted first (`Debris`). The next attempt removes it, looks which lines are there, and
writes the rest anew: a descriptor whose sync failed is never synced again, because the kernel may
have dropped the bytes.
"""

from __future__ import annotations

import contextlib
import os
import stat
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from nanobot.errors import StorageError
from nanobot.messages import Message
from nanobot.session.files import (
    FileOps,
    FileState,
    lines_backwards,
    make_folder,
    sync_folder,
    tail_without_newline,
    write_all,
)
from nanobot.session.loading import cut_off, is_session
from nanobot.session.records import (
    Epoch,
    Metadata,
    Record,
    Retraction,
    decode,
    decode_fields,
    encode,
)


@dataclass(frozen=True, slots=True)
class Debris:
    """What an append under way may leave: `payload` or its beginning, from byte `base` on."""

    inode: int
    base: int
    payload: bytes


@dataclass(slots=True, eq=False)
class SessionFile:
    """A session's file as we know it: `known` is the state in which we last saw it.

    `stale` says that somebody else changed it since, so that it must be read again.
    """

    path: Path
    key: str
    created_at: datetime
    known: FileState | None = None
    stale: bool = False
    debris: Debris | None = None


@dataclass(frozen=True, slots=True)
class Written:
    """Lines that are in a file and not yet durable. `fresh`: the file is new."""

    file: SessionFile
    descriptor: int
    before: FileState | None
    fresh: bool


def write_lines(
    files: FileOps,
    file: SessionFile,
    data: bytes,
    now: datetime,
    *,
    verify: bool = False,
    archived: int = 0,
) -> Written:
    """Append `data`, whole lines, to `file`; a new one begins with a metadata line.

    With `verify`, or after an attempt that failed, only lines that are not there yet are written.
    Raises OSError or StorageError; the file then holds what it held before, as far as the disk let
    us.
    """
    descriptor, before = _open(files, file.path)
    try:
        size = _without_debris(files, file, descriptor)
        if verify or file.debris is not None:
            data = _missing(descriptor, size, data, archived)
        prefix, size = _join(files, file, descriptor, size, data, now)
        _write(files, file, descriptor, size, prefix + data if data or size else b"")
    except BaseException:
        os.close(descriptor)
        raise
    return Written(file, descriptor, before, fresh=size == 0)


def sync_lines(files: FileOps, written: Written) -> None:
    """Make appended lines durable, and the name of a `fresh` file; the descriptor is closed."""
    file = written.file
    try:
        files.sync(written.descriptor)
        if written.fresh:
            sync_folder(files, file.path.parent)
        after = FileState.of(os.fstat(written.descriptor))
    finally:
        os.close(written.descriptor)
    file.stale = file.stale or written.before != file.known
    file.known = after
    file.debris = None


def _open(files: FileOps, path: Path) -> tuple[int, FileState | None]:
    flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        descriptor = os.open(path, flags)
    except FileNotFoundError:
        make_folder(files, path.parent)
        return os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o600), None
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise StorageError(path, "it is no regular file", hint="Move it out of the way.")
    return descriptor, FileState.of(status)


def _without_debris(files: FileOps, file: SessionFile, descriptor: int) -> int:
    """Cut off what a failed attempt left; returns the size of the file then."""
    status = os.fstat(descriptor)
    debris = file.debris
    if debris is None or status.st_ino != debris.inode or status.st_size <= debris.base:
        return status.st_size
    left = os.pread(descriptor, len(debris.payload) + 1, debris.base)
    if not debris.payload.startswith(left):
        return status.st_size
    files.truncate(descriptor, debris.base)
    return debris.base


def _join(
    files: FileOps, file: SessionFile, descriptor: int, size: int, data: bytes, now: datetime
) -> tuple[bytes, int]:
    """What has to stand before `data`, and the size of the file from which it does."""
    if tail := tail_without_newline(descriptor, size):
        if decode_fields(tail) is not None:
            return b"\n", size
        if not data:  # it may be the beginning of lines that are restored after these
            return b"", size
        size -= len(tail)
        if data.startswith(tail):
            files.truncate(descriptor, size)
        elif is_session(descriptor, size, size + len(tail)):
            cut_off(file.path, descriptor, size, files, now)
        else:
            raise StorageError(file.path, "it is no session file", hint="Move it out of the way.")
    return (_header(file, data, now), 0) if size == 0 else (b"", size)


def _write(files: FileOps, file: SessionFile, descriptor: int, base: int, payload: bytes) -> None:
    file.debris = Debris(os.fstat(descriptor).st_ino, base, payload)
    try:
        write_all(files, descriptor, payload)
    except OSError:
        with contextlib.suppress(OSError):  # the next attempt looks again
            files.truncate(descriptor, base)
        raise


def _header(file: SessionFile, data: bytes, now: datetime) -> bytes:
    first = decode(data.partition(b"\n")[0])
    number = first.seq if isinstance(first, Message) else _next_after(first)
    header = Metadata(file.key, file.created_at, now, first_seq=max(number, 1))
    return encode(header).encode()


def _missing(descriptor: int, size: int, data: bytes, archived: int) -> bytes:
    """Those lines of `data` that are neither in the file nor archived.

    A batch whose last line is there is there as a whole. Lines are known by what they are, not by
    their bytes: a person may have edited one since.
    """
    lines = data.splitlines(keepends=True)
    records = [decode(line) for line in lines]
    identities = [_identity(record) for record in records]
    there = {
        identity
        for identity, record in zip(identities, records, strict=True)
        if _is_archived(record, archived)
    }
    lowest, below = min(map(_next_after, records), default=0), 0
    for line in lines_backwards(descriptor, size):
        record = decode(line)
        there.add(_identity(record))
        if isinstance(record, Message):
            below = below + 1 if record.seq < lowest else 0
        if below == 2:
            break
    if not identities or identities[-1] in there:
        return b""
    return b"".join(
        line for line, known in zip(lines, identities, strict=True) if known not in there
    )


def _identity(record: Record | None) -> tuple[str | int, ...]:
    match record:
        case Message():
            return "message", record.seq, record.turn_id, record.role
        case Metadata():
            return "metadata", encode(record)
        case Epoch():
            return "epoch", record.id
        case Retraction():
            return "retract", record.turn_id, record.first, record.last
    return ("broken",)


def _is_archived(record: Record | None, archived: int) -> bool:
    match record:
        case Message() | Epoch():
            return record.seq <= archived
        case Retraction():
            return record.last <= archived
    return False


def _next_after(record: Record | None) -> int:
    """The lowest seq that can stand after this line, or on it; all lower ones stand before it."""
    match record:
        case Message():
            return record.seq
        case Epoch():
            return record.seq + 1
        case Metadata():
            return record.last_consolidated + 1
        case Retraction():
            return record.last + 1
    return 0
