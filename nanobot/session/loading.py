"""Reading a session file: from the end, and no further back than the window reaches.

The newest metadata line is looked up first (a byte search), so `last_consolidated` is known before
any message is parsed. It may be an older number than one before it: a turn's lines are encoded
before they are written, and memory may take messages in between. So the highest counts of all the
metadata lines that are read. Then lines are parsed backwards until two messages in a row lie below
it or below the newest epoch; two, so that one damaged number does not end the reading early. Files
of other programs (messages without `seq`, metadata without `first_seq`) are parsed whole and
numbered in order.

Reading never changes a file. `set_aside_torn_tail` does, and only a last line that a crash cut.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from loguru import logger
from msgspec import Struct, field
from msgspec.structs import replace

from nanobot.errors import StorageError
from nanobot.io import (
    FileOps,
    FileState,
    blocks_backwards,
    lines_backwards,
    opened,
    storage_errors,
    tail_without_newline,
    write_new,
)
from nanobot.messages import Message
from nanobot.session.records import (
    Epoch,
    Foreign,
    Metadata,
    Record,
    Retraction,
    decode,
    decode_fields,
    seq_of,
)
from nanobot.session.session import Contents

_NO_METADATA = Metadata(key="", created_at=None, updated_at=None)


class _Findings(Struct):
    """What a pass over the lines brought up; `messages` in the order of the pass."""

    messages: list[Message] = field(default_factory=list)
    retractions: list[Retraction] = field(default_factory=list)
    epoch: Epoch | None = None
    consolidated: int = 0
    highest: int = 0
    unnumbered: int = 0
    understood: int = 0
    broken: int = 0

    @property
    def sealed(self) -> int:
        return self.epoch.seq if self.epoch else 0


def load(path: Path, archived: int, now: datetime) -> tuple[Contents, FileState]:
    """What the file at `path` says, and the state it was in.

    Messages up to the seq `archived` are dropped: a crash while archiving leaves them in both
    places. Raises StorageError where the file cannot be read or holds no line of a session, and
    FileNotFoundError where there is none.
    """
    try:
        with opened(path) as descriptor:
            state = FileState.of(os.fstat(descriptor))
            size = whole_size(descriptor, state.size)
            metadata = newest_metadata(descriptor, size) or _NO_METADATA
            bound = max(metadata.last_consolidated, archived)
            ours = metadata is _NO_METADATA or metadata.first_seq > 0
            findings = _read_back(descriptor, size, bound) if ours else None
            if findings is None:
                findings = _read_all(descriptor, size, metadata, archived)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise StorageError.of(path, error) from error
    findings.broken += size < state.size
    _complain(path, findings)
    return _contents(metadata, findings, archived, now), state


def whole_size(descriptor: int, size: int) -> int:
    """`size` without a last line that was cut short."""
    tail = tail_without_newline(descriptor, size)
    return size - len(tail) if tail and decode_fields(tail) is None else size


def newest_metadata(descriptor: int, size: int) -> Metadata | None:
    """The last metadata line, found without parsing messages."""
    for block in blocks_backwards(descriptor, size):
        if b'"_type"' not in block:
            continue
        for line in reversed(block.split(b"\n")):
            if b'"_type"' in line and isinstance(record := decode(line), Metadata):
                return record
    return None


class Line(NamedTuple):
    """A line of a file and what it says; `counted`: its number came from its place."""

    raw: bytes
    record: Record | None
    counted: bool


def numbered(descriptor: int, first: int = 1, last: int | None = None) -> Iterator[Line]:
    """The lines from the start; messages without a number get one in order.

    A broken line that was a message takes a number too, so that the counts of other programs stay
    right. Messages from seq `first` to `last` are wanted: others are passed over unread where
    that can be told from how nanobot writes them.
    """
    number = 0
    with os.fdopen(os.dup(descriptor), "rb") as lines:
        left = whole_size(descriptor, os.fstat(descriptor).st_size)
        lines.seek(0)
        for raw in lines:
            left -= len(raw)
            if left < 0:
                return
            line = raw.rstrip(b"\r\n")
            if not line.strip():
                continue
            seq = seq_of(line)
            if seq and (seq < first or (last is not None and seq > last)):
                number = seq
                continue
            record = decode(line)
            counted = isinstance(record, Message) and not record.seq
            match record:
                case Metadata():
                    number = max(number, record.first_seq - 1)
                case Message():
                    number = record.seq or number + 1
                    record = replace(record, seq=number) if counted else record
                case Foreign(numbered=True):
                    number += 1
                case None if b'"role"' in line:
                    number += 1
            yield Line(line, record, counted)


def set_aside_torn_tail(path: Path, files: FileOps, now: datetime) -> None:
    """Move a last line that was cut short into `<file>.corrupt-<time>`; anything else stays.

    A file that holds no line of a session at all is left alone: loading it says so.
    """
    with storage_errors(path), suppress(FileNotFoundError):
        with opened(path) as descriptor:
            size = os.fstat(descriptor).st_size
            whole = whole_size(descriptor, size)
            if whole == size or not is_session(descriptor, whole, size):
                return
        with opened(path, os.O_RDWR) as descriptor:
            cut_off(path, descriptor, whole, files, now)


def cut_off(path: Path, descriptor: int, size: int, files: FileOps, now: datetime) -> None:
    """Cut the file to `size` after storing what follows in `<file>.corrupt-<time>`."""
    torn = os.pread(descriptor, os.fstat(descriptor).st_size - size, size)
    name = f"{path.name}.corrupt-{now:%Y%m%dT%H%M%S}"
    copies = len(list(path.parent.glob(f"{name}*")))
    aside = path.with_name(f"{name}-{copies}" if copies else name)
    write_new(aside, [torn], files)
    files.truncate(descriptor, size)
    files.sync(descriptor)
    logger.warning("{}: the last line was cut short; set aside as {}", path, aside.name)


def is_session(descriptor: int, whole: int, size: int) -> bool:
    if whole == 0:
        torn = os.pread(descriptor, size, 0)
        return torn.startswith(b"{") and all(32 <= byte < 127 for byte in torn)
    first = os.pread(descriptor, 65_536, 0).partition(b"\n")[0]
    lines = [first, *islice(lines_backwards(descriptor, whole), 3)]
    return any(decode_fields(line) is not None for line in lines)


def _read_back(descriptor: int, size: int, bound: int) -> _Findings | None:
    """The window's lines, newest first; None where a message has no number."""
    found = _Findings()
    below = 0
    for line in lines_backwards(descriptor, size):
        if not line.strip():
            continue
        record = decode(line)
        if isinstance(record, Message):
            if not record.seq:
                return None
            gone = max(bound, found.sealed, found.consolidated)
            below = below + 1 if record.seq <= gone else 0
            if below == 2:
                break
        _note(found, record, bound)
    found.messages.reverse()
    return found


def _read_all(descriptor: int, size: int, metadata: Metadata, archived: int) -> _Findings:
    """Every line from the start, as files of other programs need it."""
    found = _Findings()
    for line in numbered(descriptor):
        if isinstance(line.record, Epoch):
            found.epoch = None
        if line.counted and isinstance(line.record, Message):
            found.unnumbered = line.record.seq
        _note(found, line.record, archived)
    bound = _consolidated(metadata, found)
    found.messages = [message for message in found.messages if message.seq > bound]
    return found


def _note(found: _Findings, record: Record | None, bound: int) -> None:
    match record:
        case None:
            found.broken += 1
            return
        case Message():
            found.highest = max(found.highest, record.seq)
            if record.seq > bound:
                found.messages.append(record)
        case Metadata(first_seq=first) if first:  # others count messages
            found.consolidated = max(found.consolidated, record.last_consolidated)
        case Epoch():
            found.epoch = found.epoch or record
        case Retraction():
            found.retractions.append(record)
    found.understood += 1


def _consolidated(metadata: Metadata, found: _Findings) -> int:
    """`last_consolidated` as a seq. Other programs count messages, and may count too many."""
    if metadata.first_seq:
        return max(metadata.last_consolidated, found.consolidated)
    return min(metadata.last_consolidated, found.unnumbered or found.highest)


def _complain(path: Path, found: _Findings) -> None:
    if found.broken and not found.understood:
        raise StorageError(
            path,
            "no line of it belongs to a session",
            hint="It was left as it is. Mend it, or move it away to start a new conversation.",
        )
    if found.broken:
        logger.warning("{}: {} broken lines skipped, left in the file", path, found.broken)


def _contents(metadata: Metadata, found: _Findings, archived: int, now: datetime) -> Contents:
    consolidated = max(_consolidated(metadata, found), archived)
    bound = max(consolidated, found.sealed)
    messages = tuple(
        message
        for message in dict.fromkeys(found.messages)
        if message.seq > bound and not any(gone.covers(message) for gone in found.retractions)
    )
    times = [time for time in (metadata.updated_at, _last_time(found.messages)) if time]
    first = next((message.timestamp for message in found.messages if message.timestamp), now)
    return Contents(
        created_at=metadata.created_at or first,
        updated_at=max(times, default=now),
        messages=messages,
        metadata=MappingProxyType(dict(metadata.metadata or {})),
        last_consolidated=consolidated,
        epoch=found.epoch.id if found.epoch else metadata.epoch,
        # Lower than what is archived where a crash left that in the live file: it is moved again.
        first_seq=metadata.first_seq or archived + 1,
        next_seq=max(metadata.first_seq, found.highest + 1, bound + 1),
        is_half_archived=0 < metadata.first_seq <= archived,
    )


def _last_time(messages: list[Message]) -> datetime | None:
    return messages[-1].timestamp if messages else None
