"""The archive of a conversation: consolidated messages move to `archive/<name>/NNNN.jsonl`, so that
a live file stays short.

A segment is a session file: a metadata line, whose `last_consolidated` is the last seq in it, then
unchanged lines. It is complete and synced before the live file is replaced. If a crash leaves lines
in both places, they are recognized by seq and content, so nothing is lost and a repeated move is
harmless. Moving holds one line in memory at a time.

Only `rewrite` changes written lines, to erase a text (`/forget`). Segments are rewritten before the
live file, each by replacement. A repeated call finishes an interrupted one."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Container, Iterator
from functools import lru_cache
from hashlib import blake2b
from itertools import chain
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from nanobot.io import (
    FileOps,
    FileState,
    make_folder,
    open_regular,
    replace_file,
    state_of,
    storage_errors,
)
from nanobot.messages import Message
from nanobot.session.jsonl_reader import NumberedLine, amendments, read_lines
from nanobot.session.records import (
    SUFFIX,
    Epoch,
    Mark,
    Metadata,
    Record,
    Retraction,
    decode_fields,
    encode,
    encode_fields,
)
from nanobot.session.session import Redact
from nanobot.tasks import pace

PIECE = 1 << 20
"""Bytes of a file or a very long line that are copied at a time."""
_MOST_SEGMENTS = 1024  # the number of segments whose last seq is cached


class Segment(Struct, frozen=True):
    """A file of archived lines, without messages beyond the seq `last`."""

    path: Path
    number: int
    last: int


def segments(folder: Path) -> list[Segment]:
    """Return the segments in an archive folder, oldest first."""
    with storage_errors(folder):
        found = folder.glob(f"*{SUFFIX}") if folder.exists() else ()  # mostly there is none
        paths = [path for path in found if path.stem.isdecimal()]
        ordered = sorted(paths, key=lambda path: int(path.stem))
        return [Segment(one, int(one.stem), find_last_seq(one, state_of(one))) for one in ordered]


def find_last_archived(folder: Path) -> int:
    """Return the last archived seq, or 0."""
    return max((segment.last for segment in segments(folder)), default=0)


def lines_of(path: Path) -> Iterator[NumberedLine]:
    """Yield the lines of a session file or segment, as `read_lines` does."""
    with storage_errors(path), open_regular(path) as descriptor:
        yield from read_lines(descriptor)


def records_of(path: Path, folder: Path, first: int, last: int | None) -> Iterator[Record]:
    """Yield all messages from seq `first` to `last` in the file at `path` and the archive in
    `folder`, and all retractions and marks that may affect them."""
    with contextlib.ExitStack() as stack:
        live = None
        with storage_errors(path), contextlib.suppress(FileNotFoundError):
            # Opened first: a line that another process archives now is here or in a segment.
            live = stack.enter_context(open_regular(path))
        said = amendments(path)
        archived = 0
        for segment in segments(folder):
            if segment.last >= first:
                start = max(first, archived + 1)
                with storage_errors(segment.path), open_regular(segment.path) as archive:
                    yield from amendments(segment.path)
                    if last is None or start <= last:
                        yield from read_messages(archive, start, last)
            archived = max(archived, segment.last)
        if live is not None:
            start = max(first, archived + 1)
            yield from read_messages(live, start, last)
        yield from said


def read_messages(descriptor: int, first: int, last: int | None) -> Iterator[Message]:
    for line in read_lines(descriptor, first, last):
        match line.record:
            case Message(seq=seq) if first <= seq and (last is None or seq <= last):
                yield line.record


def archive_messages(
    files: FileOps, path: Path, folder: Path, header: Metadata
) -> FileState | None:
    """Move the messages that are consolidated according to `header` from the live file at `path` to
    `folder`.

    Return the state of the new live file. May raise OSError at any step, but the live file stays
    whole."""
    cut, present = header.last_consolidated, segments(folder)
    archived = max((segment.last for segment in present), default=0)
    doubled = (one for one in present if one is present[-1] or one.last >= header.first_seq)
    known = {hash_line(number_raw(line)) for segment in doubled for line in lines_of(segment.path)}
    # Opened only once: a file that replaces it during the move must not be moved in part.
    with open_regular(path) as live:
        going, staying = (
            select_lines(live, cut, archived, known, stay=stay) for stay in (False, True)
        )
        if cut > archived:  # else a crash prevented the replacement of the live file
            make_folder(folder, files)
            number = present[-1].number + 1 if present else 1
            lines = chain([encode(header).encode()], going)
            replace_file(folder / f"{number:04}{SUFFIX}", lines, files=files)
        left = encode(replace(header, first_seq=cut + 1)).encode()
        replace_file(path, chain([left], staying), files=files)
    return FileState.of(path.stat())


@lru_cache(_MOST_SEGMENTS)
def find_last_seq(path: Path, _: FileState | None) -> int:
    """Return the last seq in the segment at `path`, cached by its state."""
    head = next(lines_of(path), None)
    header = head.record if head and isinstance(head.record, Metadata) else None
    last = header.last_consolidated if header else 0
    if not last:  # damaged: look at the messages
        records = (line.record for line in lines_of(path))
        last = max((one.seq for one in records if isinstance(one, Message)), default=0)
    return last


def select_lines(
    live: int, cut: int, archived: int, known: Container[bytes], *, stay: bool
) -> Iterator[bytes]:
    """Yield the lines of a file that stay in it, or the leaving lines that are not `archived` yet.

    A message with an archived number stays if its content differs from the archived one (`known`
    has the digests): a person put it there, and it exists only here. Other records move with the
    messages around them, unless they still concern messages that stay. Metadata lines are dropped,
    because the new header replaces them."""
    goes = (
        at
        for at, line in enumerate(read_lines(live))
        if isinstance(line.record, Message) and line.record.seq <= cut
    )
    border = max(goes, default=-1)
    for at, line in enumerate(read_lines(live)):
        record = line.record
        seq = record.seq if isinstance(record, Message | Epoch | Mark | Retraction) else 0
        stays = seq > cut or at > border
        if isinstance(record, Message) and seq <= archived:
            if hash_line(number_raw(line)) in known:
                continue
            stays = True
        if stays == stay and not isinstance(record, Metadata):
            yield from read_content(live, line)


def hash_line(raw: bytes) -> bytes:
    return blake2b(raw, digest_size=16).digest()


def read_content(descriptor: int, line: NumberedLine) -> Iterator[bytes]:
    """Yield all of a line, with its newline."""
    if not line.size:
        yield number_raw(line) + b"\n"
        return
    end, piece = line.start + line.size, b""
    for at in range(line.start, end, PIECE):
        piece = os.pread(descriptor, min(PIECE, end - at), at)
        yield piece
    if not piece.endswith(b"\n"):
        yield b"\n"


def number_raw(line: NumberedLine) -> bytes:
    """Return the raw line. A message without a stored number gets its counted one, so that it is
    not counted again."""
    fields = decode_fields(line.raw) if line.counted else None
    if fields is None:
        return line.raw
    return encode_fields(fields | {"seq": line.counted}).rstrip("\n").encode()


def rewrite(files: FileOps, path: Path, folder: Path, redact: Redact) -> int:
    """Pass each line of the live file at `path` and of the segments in `folder` through `redact`.
    Return the number of changed lines.

    No process may append to the file during this. After a StorageError every file is whole."""
    with storage_errors(path):
        changed = sum(rewrite_file(files, segment.path, redact) for segment in segments(folder))
        return changed + rewrite_file(files, path, redact)


def rewrite_file(files: FileOps, path: Path, redact: Redact) -> int:
    """Rewrite one file like `rewrite`. Return 0 if it doesn't exist."""
    if state_of(path) is None:
        return 0
    with open_regular(path) as descriptor, open(descriptor, "rb", closefd=False) as file:
        lines = file.read().split(b"\n")
    texts = (line.decode("utf-8", "surrogateescape") for line in pace(lines))
    redacted = [redact(text).encode("utf-8", "surrogateescape") for text in texts]
    changed = sum(new != old for new, old in zip(redacted, lines, strict=True))
    if changed:
        replace_file(path, [b"\n".join(redacted)], files=files)
    return changed
