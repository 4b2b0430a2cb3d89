"""Reading session files: one reader of lines, and functions that build conversations and summaries.

`read_lines` yields the lines of a file with their numbers, and finds the start by bisection.
Records that concern messages elsewhere (`amendments`) are cached by the file's state. To load a
conversation, the newest metadata line is found first (a byte search from the end), so that
`last_consolidated` is known before any message is parsed. It may be older than an earlier one: a
turn's lines are encoded before they are written, and memory may consolidate in between. So the
highest number counts. Messages of other programs are numbered in order.

Reading never changes a file. A last line that a crash cut short is skipped like any broken line
(the next append sets it aside)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, TypeVar

from loguru import logger
from msgspec.structs import replace

from nanobot.errors import SessionDamaged
from nanobot.io import (
    MOST_LINE,
    FileState,
    blocks_backwards,
    line_blocks,
    open_regular,
    state_of,
    storage_errors,
    tail_without_newline,
    whole_lines,
)
from nanobot.messages import Message
from nanobot.session.records import (
    IS_METADATA,
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
from nanobot.session.session import Contents, SessionInfo
from nanobot.session.titles import first_words, read_title, strip_markdown
from nanobot.tasks import pace
from nanobot.text import shorten

T = TypeVar("T")

_NO_METADATA = Metadata(key="", created_at=None, updated_at=None)
_MARK = b'"_type"'  # in every line that is not a message, and in no message

_EDGE = 64 * 1024
_BLOCK = 32 * 1024
_PREVIEW = 80


class NumberedLine(NamedTuple):
    """A line of a file and its record. `counted`: its number by position, if it stores none. For an
    overlong line, `start` and `size` give its place in the file, and `raw` only its beginning."""

    raw: bytes
    record: Record | None
    counted: int = 0
    start: int = 0
    size: int = 0


def read_lines(descriptor: int, first: int = 1, last: int | None = None) -> Iterator[NumberedLine]:
    """Yield the nonblank lines of a file. Messages without a number get one in order.

    With `first` and `last`, messages outside this range are skipped unread if nanobot wrote them,
    with all lines far before and after them."""
    at, number = find_place_before(descriptor, first)
    behind = 0
    with os.fdopen(os.dup(descriptor), "rb") as lines:
        lines.seek(at)
        for raw, size in pace(whole_lines(lines)):
            at += size
            line = raw.rstrip(b"\r\n")
            seq = seq_of(line) if first > 1 or last is not None else 0
            if 0 < seq < first:
                number = seq
            elif last is not None and seq > last:
                behind += 1
                if behind > 1:  # one may be damaged
                    return
            elif line and not line.isspace():
                placed, number = place(line, number)
                yield placed if size <= MOST_LINE else placed._replace(start=at - size, size=size)


def find_place_before(descriptor: int, seq: int) -> tuple[int, int]:
    """Find by bisection a line before which no message has the number `seq` or a higher one. Return
    its offset and the number before it. If messages have no numbers, it is the first line."""
    low, high, before = 0, os.fstat(descriptor).st_size, 0
    while seq > 1 and high - low > 2 * _BLOCK:
        middle = (low + high) // 2
        block = os.pread(descriptor, _BLOCK, middle)
        begin = block.find(b"\n") + 1
        found = next(filter(None, map(seq_of, block[begin:].split(b"\n"))), 0)
        if not (begin and found):
            break
        if found < seq:
            low, before = middle + begin, found - 1
        else:
            high = middle
    return low, before


def amendments(path: Path) -> Sequence[Epoch | Retraction | Mark]:
    """Return the epochs, retractions and marks of a file. They concern messages in any file."""
    state = state_of(path)
    return read_amendments(path, state) if state is not None else ()


@lru_cache(256)
def read_amendments(path: Path, state: FileState) -> Sequence[Epoch | Retraction | Mark]:
    """Return the same for a file in this state, cached."""
    with storage_errors(path), open_regular(path) as descriptor:
        records = list(scan_marked(descriptor, state.size))
    return [one for one in reversed(records) if isinstance(one, Epoch | Retraction | Mark)]


def amendments_in(lines: Iterable[bytes]) -> list[Epoch | Retraction | Mark]:
    """Return the epochs, retractions and marks in these lines."""
    records = (decode(one) for one in lines if _MARK in one and not one.startswith(IS_METADATA))
    return [one for one in records if isinstance(one, Epoch | Retraction | Mark)]


def scan_marked(descriptor: int, size: int) -> Iterator[Record | None]:
    """Yield the lines that are not messages, the last one first."""
    for _, block in pace(blocks_backwards(descriptor, size)):
        if _MARK in block:
            yield from (decode(line) for line in reversed(block.split(b"\n")) if _MARK in line)


def newest_metadata(descriptor: int, size: int) -> Metadata | None:
    """Return the last metadata line, found without parsing messages."""
    return next((one for one in scan_marked(descriptor, size) if isinstance(one, Metadata)), None)


def place(line: bytes, number: int) -> tuple[NumberedLine, int]:
    """Decode a line whose predecessor has this number. Return it with the last assigned number.

    A broken line that was a message takes a number too, so that the counts of other programs stay
    right."""
    record = decode(line)
    match record:
        case Message(seq=0):
            number += 1
            return NumberedLine(line, replace(record, seq=number), number), number
        case Message():
            number = record.seq
        case Metadata():
            number = max(number, record.first_seq - 1)
        case Foreign(numbered=True):
            number += 1
        case None if b'"role"' in line:
            number += 1
    return NumberedLine(line, record), number


def load(path: Path, archived: int, now: datetime) -> tuple[Contents, FileState]:
    """Return the content of the file at `path`, and its state.

    Messages up to the seq `archived` are dropped: a crash during archiving leaves them in both
    places. Raises StorageError if the file cannot be read or holds no line of a session."""
    with storage_errors(path), open_regular(path) as descriptor:
        state = FileState.of(os.fstat(descriptor))
        newest = newest_metadata(descriptor, state.size) or _NO_METADATA
        bound = max(archived, newest.last_consolidated if newest.first_seq else 0)
        records, counted, broken = read_records(descriptor, bound + 1)
        torn = tail_without_newline(descriptor, state.size) != b""
        torn = torn and os.pread(descriptor, 1, 0) == b"{"  # else it is not a session
    if broken > torn and not records:
        raise SessionDamaged(path)
    if broken:
        logger.warning("{}: skipped {} broken lines, which are still in the file", path, broken)
    contents = build_contents(newest, records, counted, archived, now)
    return replace(contents, broken=max(0, broken - torn)), state


def read_records(descriptor: int, first: int) -> tuple[list[Record], int, int]:
    """Return the records that `read_lines` yields, but faster, the last number by position, and the
    number of broken lines."""
    records, counted, broken = list[Record](), 0, 0
    at, number = find_place_before(descriptor, first)
    with os.fdopen(os.dup(descriptor), "rb") as lines:
        lines.seek(at)
        for line in chain.from_iterable(pace(line_blocks(lines))):
            if first > 1 and 0 < (seq := seq_of(line)) < first:
                number = seq
                continue
            record = decode(line)
            if isinstance(record, Message) and record.seq:  # mostly
                number = record.seq
                records.append(record)
            elif not line.isspace():
                placed, number = place(line.rstrip(b"\r\n"), number)
                counted, broken = max(counted, placed.counted), broken + (placed.record is None)
                records += () if placed.record is None else (placed.record,)
    return records, counted, broken


def build_contents(
    newest: Metadata, records: list[Record], counted: int, archived: int, now: datetime
) -> Contents:
    """Build the contents from records. `counted` is the last number by position."""
    messages = collect_messages(records)
    records = [record for record in records if not isinstance(record, Message)]
    highest = max((message.seq for message in messages), default=0)
    consolidated = max(find_last_consolidated(newest, records, counted or highest), archived)
    epochs = pick(Epoch, records)
    epoch = epochs[-1].id if epochs else newest.epoch
    bound = max(consolidated, seq_of_epoch(epoch))
    gone = pick(Retraction, records)
    left = without_retracted((message for message in messages if message.seq > bound), gone)
    times = [message.timestamp for message in messages if message.timestamp]
    return Contents(
        created_at=newest.created_at or next(iter(times), now),
        updated_at=max(filter(None, (newest.updated_at, *times[-1:])), default=now),
        messages=tuple(left),
        metadata=MappingProxyType(dict(newest.metadata or {})),
        last_consolidated=consolidated,
        epoch=epoch,
        # Lower than `archived` if a crash left archived lines in the file: they are moved again.
        first_seq=newest.first_seq or archived + 1,
        next_seq=max(newest.first_seq, highest + 1, bound + 1),
        is_half_archived=0 < newest.first_seq <= archived,
    )


def without_retracted(messages: Iterable[Message], gone: Sequence[Retraction]) -> Iterable[Message]:
    if not gone:
        return messages
    return (one for one in messages if not any(mark.covers(one) for mark in gone))


def pick(kind: type[T], records: Iterable[object]) -> list[T]:
    return [record for record in records if isinstance(record, kind)]


def collect_messages(records: list[Record]) -> list[Message]:
    """Return the messages with their marks, each once."""
    messages = pick(Message, records)
    numbers = [message.seq for message in messages]
    if sorted(set(numbers)) != numbers:  # a crash during archiving may have left some twice
        messages = list(dict.fromkeys(messages))
    marks = pick(Mark, records)
    return with_marks(messages, marks) if marks else messages


def find_last_consolidated(newest: Metadata, records: list[Record], highest: int) -> int:
    """Return the last number in memory. For a file of another program it is at most `highest`,
    because such programs count messages and may count too many."""
    if not newest.first_seq:
        return min(newest.last_consolidated, highest)
    headers = (one for one in (newest, *records) if isinstance(one, Metadata) and one.first_seq)
    return max(one.last_consolidated for one in headers)


def key_in(path: Path) -> str:
    """Return the key in the first line of a session file, or empty."""
    with storage_errors(path), open_regular(path) as descriptor:
        head = read_head(descriptor)
    return head.key if isinstance(head, Metadata) else ""


def read_head(descriptor: int) -> Record | None:
    return decode(os.pread(descriptor, _EDGE, 0).partition(b"\n")[0])


def glance(path: Path) -> SessionInfo:
    """Summarize a session by the first line and the last 64 KiB of its file. Parses only the
    messages that are needed for the newest time and a preview. Raises `StorageError`."""
    with storage_errors(path), open_regular(path) as descriptor:
        status = os.fstat(descriptor)
        lines = os.pread(descriptor, _EDGE, max(0, status.st_size - _EDGE)).split(b"\n")
        marks = [decode(line) for line in lines if _MARK in line]
        if status.st_size > _EDGE:
            head = read_head(descriptor)
        else:
            head = marks[0] if _MARK in lines[0] else decode(lines[0])
        headers = pick(Metadata, marks)
        if not headers:
            headers = [newest_metadata(descriptor, status.st_size) or _NO_METADATA]
        newest, epochs = headers[-1], [mark.seq for mark in pick(Epoch, marks)]
        epoch = max(seq_of_epoch(newest.epoch), *epochs, 0)
        begun = find_beginning(descriptor, lines, newest, epoch)
    beginning = find_first_words(begun, epoch, pick(Retraction, marks))
    said, preview, last = find_last_words(lines, pick(Retraction, marks))
    key, created = read_key_and_start(head)
    updated = max(filter(None, (said, *(one.updated_at for one in headers))), default=None)
    if updated is None:
        updated = datetime.fromtimestamp(status.st_mtime, UTC).astimezone()
    return SessionInfo(
        key=key or key_of(path.stem),
        created_at=created or updated,
        updated_at=updated,
        size=status.st_size,
        preview=preview,
        place=str(path),
        epoch_seq=epoch,
        last_consolidated=max(one.last_consolidated for one in headers),
        last_seq=last,
        metadata=newest.metadata or {},
        beginning=beginning,
    )


def read_key_and_start(head: Record | None) -> tuple[str, datetime | None]:
    """Return the key and the session's start time in the first line."""
    if isinstance(head, Metadata):
        return head.key, head.created_at
    return "", head.timestamp if isinstance(head, Message) else None


def find_beginning(
    descriptor: int, tail: list[bytes], newest: Metadata, epoch: int
) -> Sequence[bytes]:
    """Return the first lines of a conversation since the seq `epoch`, as far as that is quick:
    from the `tail` of its file, or the beginning of the file."""
    if read_title(newest.metadata or {}, epoch):
        return ()
    if os.fstat(descriptor).st_size <= _EDGE or any(b'"epoch","seq":' in line for line in tail):
        return tail
    is_archived = epoch or newest.first_seq > 1
    return () if is_archived else os.pread(descriptor, _EDGE, 0).split(b"\n")


def find_first_words(lines: Iterable[bytes], epoch: int, gone: Sequence[Retraction]) -> str:
    """Return the first words of a person after the seq `epoch`."""
    records = (decode(line) for line in lines if _MARK not in line)
    first = epoch + 1 if epoch else 0  # other programs don't number messages
    said = (one for one in records if isinstance(one, Message) and one.seq >= first)
    left = without_retracted(said, gone)
    return next(filter(None, map(first_words, left)), "")


def find_last_words(lines: list[bytes], gone: list[Retraction]) -> tuple[datetime | None, str, int]:
    """Return the newest time, the start of the last message, and the highest number in these lines.
    Parses no more of them than necessary."""
    said, preview, last = None, "", -1
    for line in reversed(lines):
        message = None if _MARK in line else decode(line)
        if not isinstance(message, Message):
            continue
        said, last = said or message.timestamp, message.seq if last < 0 else last
        spoken = message.from_person or message.role == "assistant"
        if spoken and not preview and not any(one.covers(message) for one in gone):
            preview = shorten(strip_markdown(message.content[: 4 * _PREVIEW]), _PREVIEW)
        if said and preview:
            break
    return said, preview, max(0, last)
