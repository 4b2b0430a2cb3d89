"""Reading session files: all lines, a few messages, what a conversation in memory needs, a glance.

`numbered` reads lines forward, from the start or from an offset that `start_of` found. To open a
conversation, the newest metadata line is looked up first (a byte search from the end), so that
`last_consolidated` is known before any message is parsed; then everything that may be above it is
read. The number may be older than one before it: a turn's lines are encoded before they are
written, and memory may take messages in between. So the highest one that was read counts. Files of
other programs (messages without `seq`, metadata without `first_seq`) are read from the start and
numbered in order.

Where in a large file which messages stand, an index of blocks says: where a block begins, which
number was the last before it, and which numbers are in it. It is made in one pass when messages of
the file are first asked for, kept in memory, and continued where lines were appended; whatever else
was done to the file, it is made again. It changes nothing about what is read: a block is passed
over where none of its numbers is wanted and it holds no retraction or mark, which count wherever
they stand.

Reading never changes a file. A last line that a crash cut short is skipped like any broken line
(the next append sets it aside).
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from loguru import logger
from msgspec import Struct
from msgspec.structs import replace

from nanobot.errors import SessionDamaged, StorageError
from nanobot.io import (
    MOST_LINE,
    FileState,
    blocks_backwards,
    opened,
    storage_errors,
    tail_without_newline,
    whole_lines,
)
from nanobot.messages import Message
from nanobot.session.records import (
    Epoch,
    Foreign,
    Mark,
    Metadata,
    Record,
    Retraction,
    decode,
    key_of,
    seq_of,
    seq_of_epoch,
    with_marks,
)
from nanobot.session.session import Contents
from nanobot.session.store import SessionInfo
from nanobot.tasks import paced
from nanobot.text import shortened

_NO_METADATA = Metadata(key="", created_at=None, updated_at=None)
_MARK = b'"_type"'
"""In every line that is no message, and in no message."""
_EDGE = 64 * 1024
_PREVIEW = 80


class NumberedLine(NamedTuple):
    """A line of a file and its record. `counted`: its number came from its place. An overlong line
    has its offset and size in `start` and `size`, and only its beginning in `raw`."""

    raw: bytes
    record: Record | None
    counted: bool
    start: int = 0
    size: int = 0


def numbered(
    descriptor: int,
    first: int = 1,
    last: int | None = None,
    start: int = 0,
    *,
    end: int | None = None,
    before: int = 0,
    holding: str = "",
) -> Iterator[NumberedLine]:
    """The lines from the offset `start` up to `end`; messages without a number get one in order,
    from the one after `before` on.

    Messages from seq `first` to `last` that hold the casefolded words `holding` are wanted: others
    are passed over unread where that can be told from how nanobot writes them.
    """
    holding = holding if holding.isprintable() and not {'"', "\\"} & {*holding} else ""
    number, bounded = before, first > 1 or last is not None or holding
    for line, end_of_line, size in lines_between(descriptor, start, end):
        if size > MOST_LINE:
            placed, number = place(line, number)
            yield placed._replace(start=end_of_line - size, size=size)
            continue
        seq = seq_of(line) if bounded else 0
        if seq and (
            seq < first or (last is not None and seq > last) or not _may_hold(line, holding)
        ):
            number = seq
            continue
        placed, number = place(line, number)
        yield placed


def _may_hold(line: bytes, words: str) -> bool:
    """Whether these casefolded words, which JSON writes as they are, may stand in a line."""
    return not words or b"\\u" in line or words in line.decode("utf-8", "replace").casefold()


def lines_between(descriptor: int, start: int, end: int | None) -> Iterator[tuple[bytes, int, int]]:
    """Yield the nonblank lines of a file, each with the offset after it and its size."""
    with os.fdopen(os.dup(descriptor), "rb") as lines:
        lines.seek(start)
        for raw, size in paced(whole_lines(lines)):
            start += size
            line = raw.rstrip(b"\r\n")
            if line and not line.isspace():
                yield line, start, size
            if end is not None and start >= end:
                return


def place(line: bytes, number: int) -> tuple[NumberedLine, int]:
    """What a line says whose predecessor had this number, and which number was given last then.

    A broken line that was a message takes a number too, so that the counts of other programs stay
    right.
    """
    record = decode(line)
    match record:
        case Message(seq=0):
            number += 1
            return NumberedLine(line, replace(record, seq=number), counted=True), number
        case Message():
            number = record.seq
        case Metadata():
            number = max(number, record.first_seq - 1)
        case Foreign(numbered=True):
            number += 1
        case None if b'"role"' in line:
            number += 1
    return NumberedLine(line, record, counted=False), number


def start_of(descriptor: int, size: int, bound: int) -> int:
    """Where a line begins before which there is no message above seq `bound`, as near to the end
    as whole blocks allow; 0 where messages have no numbers. Two messages in a row have to lie
    below, so that one damaged number does not hide others."""
    offset = size
    for at, block in blocks_backwards(descriptor, size):
        offset = at
        lines = block.split(b"\n", 2)[:2]
        if all(0 < seq_of(line) <= bound for line in lines):
            break
        if any(b'"role"' in line and not seq_of(line) for line in lines):
            return 0
    return offset


def newest_metadata(descriptor: int, size: int) -> Metadata | None:
    """The last metadata line, found without parsing messages."""
    for _, block in blocks_backwards(descriptor, size):
        if _MARK not in block:
            continue
        for line in reversed(block.split(b"\n")):
            if _MARK in line and isinstance(record := decode(line), Metadata):
                return record
    return None


_BLOCK = 32 * 1024
_SMALL = 8
"""Files of so many blocks or fewer are read whole."""
_TAIL = 256
"""Bytes before the end by which a file is known again after it grew."""
_MOST_BLOCKS = 16_384
"""Of so many the place is kept in memory: of half a gigabyte of text, in some 3 MB."""


class _Block(Struct, gc=False):
    """Bytes `start` to `end`. `before` and `after`: the number that was given last when it begins
    and ends; `low` and `high`: the lowest and highest in it (0: none); `amends`: whether a
    retraction or a mark is in it."""

    start: int
    end: int
    before: int
    after: int
    low: int = 0
    high: int = 0
    amends: bool = False

    def is_wanted(self, first: int, last: int | None) -> bool:
        """Whether something in it may be asked for with these bounds."""
        within = self.high >= first and (last is None or self.low <= last)
        return within or self.amends or not self.high


class _Index(NamedTuple):
    state: FileState
    edge: bytes
    blocks: list[_Block]


class SeqIndex:
    """The indexes of the files that were read last, in blocks of at least so many bytes, which end
    with a line. May be used from any thread."""

    def __init__(self, block: int = _BLOCK) -> None:
        self._block = block
        self._lock = threading.Lock()
        self._indexes: OrderedDict[Path, _Index] = OrderedDict()
        self._blocks = 0

    def lines(
        self, path: Path, descriptor: int, first: int, last: int | None, holding: str = ""
    ) -> Iterator[NumberedLine]:
        """The lines of the file at `path`, which is open as `descriptor`, with the messages from
        seq `first` to `last` that hold the casefolded words `holding`, and all retractions and
        marks; others may be among them."""
        state = FileState.of(os.fstat(descriptor))
        if state.size <= _SMALL * self._block:
            yield from numbered(descriptor, first, last, holding=holding)
            return
        with self._lock:
            index = self._index_of(path, descriptor, state)
        for block in index.blocks:
            if block.is_wanted(first, last):
                yield from numbered(
                    descriptor,
                    first,
                    last,
                    block.start,
                    end=block.end,
                    before=block.before,
                    holding=holding,
                )

    def _index_of(self, path: Path, descriptor: int, state: FileState) -> _Index:
        known = self._indexes.pop(path, None)
        self._blocks -= len(known.blocks) if known else 0
        if known is None or known.state != state:
            # The last block may have ended in half a line.
            blocks = known.blocks[:-1] if known and _grew(known, descriptor, state) else []
            blocks += list(_blocks(descriptor, state.size, blocks[-1:], self._block))
            known = _Index(state, _edge(descriptor, state.size), blocks)
        self._indexes[path] = known
        self._blocks += len(known.blocks)
        while self._blocks > _MOST_BLOCKS and len(self._indexes) > 1:
            self._blocks -= len(self._indexes.popitem(last=False)[1].blocks)
        return known


def _grew(known: _Index, descriptor: int, state: FileState) -> bool:
    """Whether lines were appended to the file, and nothing else happened as far as can be told."""
    same = known.state.inode == state.inode and known.state.size < state.size
    return same and _edge(descriptor, known.state.size) == known.edge


def _edge(descriptor: int, size: int) -> bytes:
    return os.pread(descriptor, _TAIL, max(0, size - _TAIL))


def _blocks(descriptor: int, size: int, previous: Sequence[_Block], least: int) -> Iterator[_Block]:
    """The blocks of a file up to its size, behind the `previous` one, of at least so many bytes."""
    start, number = (previous[-1].end, previous[-1].after) if previous else (0, 0)
    block = _Block(start, start, number, number)
    for line, end, _ in lines_between(descriptor, start, size):
        seq = seq_of(line)
        if not seq:
            placed, block.after = place(line, block.after)
            block.amends |= isinstance(placed.record, Retraction | Mark | Epoch)
            seq = placed.record.seq if isinstance(placed.record, Message) else 0
        if seq:
            block.low, block.high = min(block.low or seq, seq), max(block.high, seq)
            block.after = seq
        block.end = end
        if end - block.start >= least:
            yield block
            block = _Block(end, end, block.after, block.after)
    if block.end > block.start:
        yield block


def load(path: Path, archived: int, now: datetime, index: SeqIndex) -> tuple[Contents, FileState]:
    """What the file at `path` says, and the state it was in. Where numbers come from places, the
    `index` tells what need not be read.

    Messages up to the seq `archived` are dropped: a crash while archiving leaves them in both
    places. Raises StorageError where the file cannot be read or holds no line of a session, and
    FileNotFoundError where there is none.
    """
    try:
        with opened(path) as descriptor:
            state = FileState.of(os.fstat(descriptor))
            newest = newest_metadata(descriptor, state.size) or _NO_METADATA
            bound = max(archived, newest.last_consolidated if newest.first_seq else 0)
            start = start_of(descriptor, state.size, bound)
            records, counted, broken = list[Record](), 0, 0
            lines = (
                index.lines(path, descriptor, bound + 1, None)
                if bound and not start
                else numbered(descriptor, bound + 1, start=start)
            )
            for _, record, is_counted, *_ in lines:
                if record is None:
                    broken += 1
                    continue
                records.append(record)
                if is_counted and isinstance(record, Message):
                    counted = max(counted, record.seq)
            torn = tail_without_newline(descriptor, state.size) != b""
            torn = torn and os.pread(descriptor, 1, 0) == b"{"  # else it was never a session
    except FileNotFoundError:
        raise
    except OSError as error:
        raise StorageError.of(path, error) from error
    if broken > torn and not records:
        raise SessionDamaged(path)
    if broken:
        logger.warning("{}: {} broken lines skipped, left in the file", path, broken)
    contents = _contents(newest, records, counted, archived, now)
    return replace(contents, broken=max(0, broken - torn)), state


def _contents(
    newest: Metadata, records: list[Record], counted: int, archived: int, now: datetime
) -> Contents:
    """What these lines say; `counted` is the last number that came from a place."""
    messages = [record for record in records if isinstance(record, Message)]
    epochs = [record.id for record in records if isinstance(record, Epoch)]
    gone = [record for record in records if isinstance(record, Retraction)]
    headers = [one for one in (newest, *records) if isinstance(one, Metadata) and one.first_seq]
    highest = max((message.seq for message in messages), default=0)
    consolidated = max((one.last_consolidated for one in headers), default=0)
    if not newest.first_seq:  # others count messages, and may count too many
        consolidated = min(newest.last_consolidated, counted or highest)
    consolidated = max(consolidated, archived)
    epoch = epochs[-1] if epochs else newest.epoch
    bound = max(consolidated, seq_of_epoch(epoch))
    times = [message.timestamp for message in messages if message.timestamp]
    numbers = [message.seq for message in messages]
    if sorted(set(numbers)) != numbers:  # a crash while archiving may have left some twice
        messages = list(dict.fromkeys(messages))
    if marks := [record for record in records if isinstance(record, Mark)]:
        messages = with_marks(messages, marks)
    return Contents(
        created_at=newest.created_at or next(iter(times), now),
        updated_at=max(filter(None, (newest.updated_at, *times[-1:])), default=now),
        messages=tuple(
            message
            for message in messages
            if message.seq > bound and not any(one.covers(message) for one in gone)
        ),
        metadata=MappingProxyType(dict(newest.metadata or {})),
        last_consolidated=consolidated,
        epoch=epoch,
        # Lower than what is archived where a crash left that in the live file: it is moved again.
        first_seq=newest.first_seq or archived + 1,
        next_seq=max(newest.first_seq, highest + 1, bound + 1),
        is_half_archived=0 < newest.first_seq <= archived,
    )


def key_in(path: Path) -> str:
    """The key in the first line of a session file, empty where there is none."""
    with storage_errors(path), opened(path) as descriptor:
        head = _head(descriptor)
    return head.key if isinstance(head, Metadata) else ""


def _head(descriptor: int) -> Record | None:
    return decode(os.pread(descriptor, _EDGE, 0).partition(b"\n")[0])


def glance(path: Path) -> SessionInfo:
    """A session at a glance, by the first line and the last 64 KiB of its file: of the messages
    there, only as many are parsed as it takes to find the newest time and a preview. Raises
    `StorageError`."""
    with storage_errors(path), opened(path) as descriptor:
        status = os.fstat(descriptor)
        head = _head(descriptor)
        lines = os.pread(descriptor, _EDGE, max(0, status.st_size - _EDGE)).split(b"\n")
        newest = newest_metadata(descriptor, status.st_size) or _NO_METADATA
    marks = [decode(line) for line in lines if _MARK in line]
    gone = [mark for mark in marks if isinstance(mark, Retraction)]
    epochs = [mark.seq for mark in marks if isinstance(mark, Epoch)]
    headers = [mark for mark in (newest, *marks) if isinstance(mark, Metadata)]
    said, preview, last = None, "", -1
    for line in reversed(lines):
        message = None if _MARK in line or (said and preview) else decode(line)
        if isinstance(message, Message):
            said, last = said or message.timestamp, message.seq if last < 0 else last
            spoken = message.from_person or message.role == "assistant"
            if spoken and not preview and not any(one.covers(message) for one in gone):
                preview = shortened(message.content, _PREVIEW)
    touched = datetime.fromtimestamp(status.st_mtime, UTC).astimezone()
    key = head.key if isinstance(head, Metadata) else ""
    created = head.created_at if isinstance(head, Metadata) else None
    created = head.timestamp if isinstance(head, Message) else created
    updated = max(filter(None, (said, *(one.updated_at for one in headers))), default=None)
    return SessionInfo(
        key=key or key_of(path.stem),
        created_at=created or updated or touched,
        updated_at=updated or touched,
        size=status.st_size,
        preview=preview,
        place=str(path),
        epoch_seq=max(seq_of_epoch(newest.epoch), *epochs, 0),
        last_consolidated=max(one.last_consolidated for one in headers),
        last_seq=max(0, last),
        metadata=newest.metadata or {},
    )
