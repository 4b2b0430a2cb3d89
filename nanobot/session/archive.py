"""Where consolidated messages go, so that a live file stays short: `archive/<name>/NNNN.jsonl`.

A segment is a session file of its own: a metadata line, whose `last_consolidated` is the last seq
in it, then the lines as they stood. It is complete and synced before the live file is replaced, and
lines that a crash in between leaves in both places are known by their seq. So raw conversation is
never lost, and moving twice does nothing twice. Moving reads the live file several times and holds
no more of it than a line.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import chain
from pathlib import Path

from nanobot.errors import StorageError
from nanobot.messages import Message
from nanobot.session.files import (
    FileOps,
    FileState,
    make_folder,
    opened,
    replace_file,
)
from nanobot.session.loading import Line, numbered
from nanobot.session.names import SUFFIX
from nanobot.session.records import (
    Epoch,
    Metadata,
    Retraction,
    decode_fields,
    encode,
    encode_fields,
)

_NO_MESSAGE = 0


@dataclass(frozen=True, slots=True)
class Segment:
    """A file of archived lines; it holds no message beyond the seq `last`."""

    path: Path
    number: int
    last: int


def segments(folder: Path) -> list[Segment]:
    """The segments in an archive folder, oldest first; none where there is no folder."""
    try:
        paths = [path for path in folder.glob(f"*{SUFFIX}") if path.stem.isdecimal()]
        return [_segment(path) for path in sorted(paths, key=lambda path: int(path.stem))]
    except OSError as error:
        raise StorageError.of(folder, error) from error


def archived_up_to(folder: Path) -> int:
    """The last archived seq, 0 where nothing is."""
    return max((segment.last for segment in segments(folder)), default=0)


def lines_of(path: Path, first: int = 1, last: int | None = None) -> Iterator[Line]:
    """The lines of a session file or segment, as `numbered` gives them."""
    try:
        yield from _lines(path, first, last)
    except OSError as error:
        raise StorageError.of(path, error) from error


def messages_of(
    path: Path, folder: Path, first: int = 1, last: int | None = None
) -> Iterator[Message]:
    """All messages of a session from seq `first` to `last`, archived, sealed and retracted ones
    too.
    """
    with contextlib.ExitStack() as stack:
        try:
            # Opened first: what another process archives from now on is in it or in a segment.
            live = stack.enter_context(opened(path))
        except FileNotFoundError:
            live = None
        except OSError as error:
            raise StorageError.of(path, error) from error
        archived = 0
        for segment in segments(folder):
            if segment.last >= first and (last is None or last > archived):
                start = max(first, archived + 1)
                yield from _between(lines_of(segment.path, start, last), start, last)
            archived = max(archived, segment.last)
        if live is not None and (last is None or last > archived):
            start = max(first, archived + 1)
            yield from _between(numbered(live, start, last), start, last)


def retractions_of(path: Path, folder: Path, first: int) -> Iterator[Retraction]:
    """The retractions among the lines that follow the message of seq `first`."""
    paths = [segment.path for segment in segments(folder) if segment.last >= first]
    for source in (*paths, path):
        with contextlib.suppress(FileNotFoundError):
            for line in _lines(source, 1, _NO_MESSAGE):
                if isinstance(line.record, Retraction):
                    yield line.record


def move(files: FileOps, path: Path, folder: Path, header: Metadata) -> FileState | None:
    """Move the messages that `header` calls consolidated from the live file at `path` to `folder`.

    Returns the state of the new live file. Raises OSError at any step; the live file is then whole.
    """
    cut = header.last_consolidated
    present = segments(folder)
    newest = lines_of(present[-1].path) if present else ()
    already = {_digest(line.raw) for line in newest}
    # Opened once: what a person puts in its place meanwhile is not half of what is moved.
    with opened(path) as live:
        border = _border(live, cut)
        going = (
            raw for raw in _parted(live, cut, border, stay=False) if _digest(raw) not in already
        )
        first = next(going, None)
        if first is not None:
            make_folder(files, folder)
            number = present[-1].number + 1 if present else 1
            target = folder / f"{number:04}{SUFFIX}"
            replace_file(files, target, _file(header, chain([first], going)))
        staying = _parted(live, cut, border, stay=True)
        replace_file(files, path, _file(replace(header, first_seq=cut + 1), staying))
    return FileState.of(path.stat())


def _lines(path: Path, first: int, last: int | None) -> Iterator[Line]:
    with opened(path) as descriptor:
        yield from numbered(descriptor, first, last)


def _segment(path: Path) -> Segment:
    head = next(lines_of(path), None)
    header = head.record if head and isinstance(head.record, Metadata) else None
    last = header.last_consolidated if header else 0
    if not last:  # damaged: the messages say it, too
        last = max((message.seq for message in _between(lines_of(path), 1, None)), default=0)
    return Segment(path, int(path.stem), last)


def _between(lines: Iterable[Line], first: int, last: int | None) -> Iterator[Message]:
    for line in lines:
        if not isinstance(line.record, Message):
            continue
        if line.record.seq >= first and (last is None or line.record.seq <= last):
            yield line.record


def _border(live: int, cut: int) -> int:
    """The place of the last line with a message up to seq `cut`; -1 without one."""
    border = -1
    for at, line in enumerate(numbered(live)):
        if isinstance(line.record, Message) and line.record.seq <= cut:
            border = at
    return border


def _parted(live: int, cut: int, border: int, *, stay: bool) -> Iterator[bytes]:
    """The lines of a file that stay in it, or those that do not.

    What is no message goes with the messages around it, unless it still says something about those
    that stay. Metadata lines do neither: the new header replaces them.
    """
    for at, line in enumerate(numbered(live)):
        match line.record:
            case Metadata():
                continue
            case Message(seq=seq):
                stays = seq > cut
            case Epoch(seq=seq):
                stays = seq > cut or at > border
            case Retraction(last=last):
                stays = last > cut or at > border
            case _:
                stays = at > border
        if stays == stay:
            yield _raw(line)


def _raw(line: Line) -> bytes:
    """The line as it stood; a message that had no number gets its own, lest it count anew."""
    fields = decode_fields(line.raw) if line.counted else None
    if fields is None or not isinstance(line.record, Message):
        return line.raw
    return encode_fields(fields | {"seq": line.record.seq}).rstrip("\n").encode()


def _digest(raw: bytes) -> bytes:
    return blake2b(raw, digest_size=16).digest()


def _file(header: Metadata, lines: Iterable[bytes]) -> Iterator[bytes]:
    yield encode(header).encode()
    for line in lines:
        yield line + b"\n"
