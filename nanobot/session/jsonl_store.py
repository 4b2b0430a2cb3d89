"""The folder of sessions on disk: which file belongs to a key, what is in it, and its archive.

Consolidated messages move to `archive/<name>/NNNN.jsonl`, so that a live file stays short. A
segment is a session file of its own: a metadata line, whose `last_consolidated` is the last seq in
it, then the lines unchanged. It is complete and synced before the live file is replaced, and lines
that a crash in between leaves in both places are known by their seq and what they say, so nothing
is lost and moving twice does nothing twice. Moving holds no more of a file in memory than a line.

Only `rewrite` ever changes a line once it is written, to erase a text (`/forget`). Segments are
rewritten before the live file, each by replacement; doing it again finishes what a crash cut short.

The functions are synchronous and keep no state; `JsonlStore` is the port's embedded implementation.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Container, Iterable, Iterator, Mapping
from datetime import datetime
from functools import lru_cache
from hashlib import blake2b
from itertools import chain
from pathlib import Path

from loguru import logger
from msgspec import Struct
from msgspec.structs import replace

from nanobot.clock import Clock
from nanobot.errors import StorageError, UnknownSession
from nanobot.io import (
    FileOps,
    FileState,
    make_folder,
    opened,
    replace_file,
    state_of,
    storage_errors,
    sync_folder,
    tail_without_newline,
)
from nanobot.messages import Message
from nanobot.session.catalogue import ARCHIVE, SessionCatalogue
from nanobot.session.jsonl_reader import (
    NumberedLine,
    SeqIndex,
    key_in,
    load,
    newest_metadata,
    numbered,
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
    decode_fields,
    encode,
    encode_fields,
    foreign_stem_of,
    key_of,
    stem_of,
    with_marks,
)
from nanobot.session.session import Contents
from nanobot.session.store import Redact, SessionInfo
from nanobot.tasks import paced
from nanobot.text import close_matches

_INLINE = 64 * 1024
"""Files up to this many bytes are parsed on the event loop: a thread would cost more."""
_PIECE = 1 << 20
"""Bytes of a file or a very long line that are copied at a time."""
_MOST_FILES = 1024
"""Of so many the state is remembered in which they were read."""


class Segment(Struct, frozen=True):
    """A file of archived lines; it holds no message beyond the seq `last`."""

    path: Path
    number: int
    last: int


def segments(folder: Path) -> list[Segment]:
    """The segments in an archive folder, oldest first; none where there is no folder."""
    with storage_errors(folder):
        paths = [path for path in folder.glob(f"*{SUFFIX}") if path.stem.isdecimal()]
        ordered = sorted(paths, key=lambda path: int(path.stem))
        return [Segment(one, int(one.stem), _last_in(one, state_of(one))) for one in ordered]


def archived_up_to(folder: Path) -> int:
    """The last archived seq, 0 where nothing is."""
    return max((segment.last for segment in segments(folder)), default=0)


def lines_of(path: Path) -> Iterator[NumberedLine]:
    """The lines of a session file or segment, as `numbered` gives them."""
    with storage_errors(path), opened(path) as descriptor:
        yield from numbered(descriptor)


def records_of(
    path: Path, folder: Path, first: int, last: int | None, index: SeqIndex, holding: str = ""
) -> Iterator[Record]:
    """What the file at `path` and the archive in `folder` say: all messages from seq `first` to
    `last` that hold the casefolded words `holding`, and perhaps others of them; and all retractions
    and marks that may be of one of them."""
    with contextlib.ExitStack() as stack:
        live = None
        with storage_errors(path), contextlib.suppress(FileNotFoundError):
            # Opened first: what another process archives from now on is in it or in a segment.
            live = stack.enter_context(opened(path))
        archived = 0
        for segment in segments(folder):
            if segment.last >= first:
                start = max(first, archived + 1)
                with storage_errors(segment.path), opened(segment.path) as archive:
                    lines = index.lines(segment.path, archive, start, last, holding)
                    yield from _between(lines, start, last)
            archived = max(archived, segment.last)
        if live is not None:
            start = max(first, archived + 1)
            yield from _between(index.lines(path, live, start, last, holding), start, last)


def _between(lines: Iterable[NumberedLine], first: int, last: int | None) -> Iterator[Record]:
    for line in lines:
        match line.record:
            case None:
                continue
            case Message(seq=seq) if seq < first or (last is not None and seq > last):
                continue
        yield line.record


def archive_messages(
    files: FileOps, path: Path, folder: Path, header: Metadata
) -> FileState | None:
    """Move the messages that `header` calls consolidated from the live file at `path` to `folder`.

    Returns the state of the new live file. Raises OSError at any step; the live file is then whole.
    """
    cut, present = header.last_consolidated, segments(folder)
    archived = max((segment.last for segment in present), default=0)
    doubled = (one for one in present if one is present[-1] or one.last >= header.first_seq)
    known = {_digest(_raw(line)) for segment in doubled for line in lines_of(segment.path)}
    # Opened once: what a person puts in its place meanwhile is not half of what is moved.
    with opened(path) as live:
        going, staying = (_parted(live, cut, archived, known, stay=stay) for stay in (False, True))
        if cut > archived:  # else a crash came before the live file was replaced
            make_folder(folder, files)
            number = present[-1].number + 1 if present else 1
            replace_file(folder / f"{number:04}{SUFFIX}", _file(header, going), files=files)
        replace_file(path, _file(replace(header, first_seq=cut + 1), staying), files=files)
    return FileState.of(path.stat())


@lru_cache(_MOST_FILES)
def _last_in(path: Path, _: FileState | None) -> int:
    """The last seq in the segment at `path`, which has this state."""
    head = next(lines_of(path), None)
    header = head.record if head and isinstance(head.record, Metadata) else None
    last = header.last_consolidated if header else 0
    if not last:  # damaged: the messages say it, too
        records = (line.record for line in lines_of(path))
        last = max((one.seq for one in records if isinstance(one, Message)), default=0)
    return last


def _parted(
    live: int, cut: int, archived: int, known: Container[bytes], *, stay: bool
) -> Iterator[bytes]:
    """The lines of a file that stay in it, or those that do not and are not `archived` yet.

    A message with an archived number stays where it is not what was archived (`known` has the
    digests of that): somebody put it there, and nothing else holds it. What is no message goes with
    the messages around it, unless it still says something about those that stay. Metadata lines do
    neither: the new header replaces them.
    """
    goes = (
        at
        for at, line in enumerate(numbered(live))
        if isinstance(line.record, Message) and line.record.seq <= cut
    )
    border = max(goes, default=-1)
    for at, line in enumerate(numbered(live)):
        match line.record:
            case Metadata():
                continue
            case Message(seq=seq) if seq <= archived:
                if _digest(_raw(line)) in known:
                    continue
                stays = True
            case Message(seq=seq):
                stays = seq > cut
            case Epoch(seq=seq) | Mark(seq=seq):
                stays = seq > cut or at > border
            case Retraction(last=last):
                stays = last > cut or at > border
            case _:
                stays = at > border
        if stays == stay:
            yield from _content(live, line)


def _digest(raw: bytes) -> bytes:
    return blake2b(raw, digest_size=16).digest()


def _content(descriptor: int, line: NumberedLine) -> Iterator[bytes]:
    """All of a line, with its end."""
    if not line.size:
        yield _raw(line) + b"\n"
        return
    end, piece = line.start + line.size, b""
    for at in range(line.start, end, _PIECE):
        piece = os.pread(descriptor, min(_PIECE, end - at), at)
        yield piece
    if not piece.endswith(b"\n"):
        yield b"\n"


def _raw(line: NumberedLine) -> bytes:
    """The line as it stood; a message that had no number gets its own, so that it is not counted
    again."""
    fields = decode_fields(line.raw) if line.counted else None
    if fields is None or not isinstance(line.record, Message):
        return line.raw
    return encode_fields(fields | {"seq": line.record.seq}).rstrip("\n").encode()


def _file(header: Metadata, lines: Iterable[bytes]) -> Iterator[bytes]:
    yield encode(header).encode()
    yield from lines


def rewrite(files: FileOps, path: Path, folder: Path, redact: Redact) -> int:
    """Pass each line of the live file at `path` and of the segments in `folder` through `redact`;
    returns how many changed.

    Nothing may append to the file meanwhile. Raises StorageError; every file is then whole.
    """
    with storage_errors(path):
        changed = sum(rewrite_file(files, segment.path, redact) for segment in segments(folder))
        return changed + rewrite_file(files, path, redact)


def rewrite_file(files: FileOps, path: Path, redact: Redact) -> int:
    """The same for one file; 0 where there is none."""
    try:
        with opened(path) as descriptor, open(descriptor, "rb", closefd=False) as file:
            lines = file.read().split(b"\n")
    except FileNotFoundError:
        return 0
    redacted = [_redacted(line, redact) for line in paced(lines)]
    changed = sum(new != old for new, old in zip(redacted, lines, strict=True))
    if changed:
        replace_file(path, [b"\n".join(redacted)], files=files)
    return changed


def _redacted(line: bytes, redact: Redact) -> bytes:
    text = line.decode("utf-8", "surrogateescape")
    return redact(text).encode("utf-8", "surrogateescape")


class JsonlStore:
    """The session files of a `catalogue`; see `SessionStore` for what each method does. `gather` is
    as for `Writer`, for callers who keep a copy of what they append meanwhile; `files` is what
    changes the disk."""

    def __init__(
        self,
        catalogue: SessionCatalogue,
        clock: Clock,
        *,
        gather: float = 0.0,
        files: FileOps | None = None,
    ) -> None:
        self._catalogue, self._path = catalogue, catalogue.folder
        self._clock, self._disk, self._index = clock, files or FileOps(), SeqIndex()
        self._writer = Writer(self._disk, clock, catalogue.expire, gather)
        self._files: dict[str, SessionFile] = {}

    async def read(self, key: str) -> Contents | None:
        file, now = self._file(key), self._clock.now()
        file.path, before = self._file_of(key), file.known
        state = state_of(file.path)
        if state is None or state.size <= _INLINE:
            contents, state = self.contents(key, now)
        else:
            contents, state = await asyncio.to_thread(self.contents, key, now)
        if file.known is not before or not self._writer.is_idle(file):
            return None
        file.known, file.stale, file.created_at = state, False, contents.created_at
        return contents

    def contents(self, key: str, now: datetime) -> tuple[Contents, FileState | None]:
        """What a session's file says and the state it was in; an empty session without a file."""
        archived = archived_up_to(self._archive_of(key))
        try:
            return load(self._file_of(key), archived, now, self._index)
        except FileNotFoundError:
            start = archived + 1
            empty = Contents(now, now, last_consolidated=archived, first_seq=start, next_seq=start)
            return empty, None

    def is_current(self, key: str) -> bool:
        file = self._file(key)
        return not file.stale and state_of(file.path) == file.known

    def is_idle(self, key: str) -> bool:
        return self._writer.is_idle(self._file(key))

    def mark_stale(self, key: str) -> None:
        self._file(key).stale = True

    def expire(self) -> None:
        self._catalogue.expire()

    def append(self, key: str, lines: str) -> asyncio.Future[None]:
        return self._writer.append(self._file(key), lines.encode())

    async def restore(self, key: str, lines: str) -> None:
        first = decode(lines.partition("\n")[0].encode())
        begun = first.timestamp if isinstance(first, Message) else None
        now = self._clock.now()
        file = SessionFile(self._file_of(key), key, begun or now)

        def work() -> None:
            archived, data = archived_up_to(self._archive_of(key)), lines.encode()
            append_lines(self._disk, file, data, now, verify=True, archived=archived)

        await self._writer.run(file, work)

    async def archive(self, key: str, header: Metadata) -> None:
        file = self._file(key)

        def work() -> None:
            changed = state_of(file.path) != file.known
            file.known = archive_messages(self._disk, file.path, self._archive_of(key), header)
            file.stale = file.stale or changed

        await self._writer.run(file, work)

    async def set_aside(self, key: str, aside: Metadata, left: Metadata) -> None:
        file, now = self._file(key), self._file(aside.key)

        def work() -> None:
            header = encode(aside).encode()  # first for the key, last for what it says
            with opened(file.path) as descriptor, open(descriptor, "rb", closefd=False) as live:
                ends = tail_without_newline(descriptor, os.fstat(descriptor).st_size) == b""
                lines = iter(lambda: live.read(_PIECE), b"")
                end = b"" if ends else b"\n"
                replace_file(now.path, chain([header], lines, [end, header]), files=self._disk)
            archive = self._archive_of(key)
            if archive.is_dir():
                archive.rename(self._archive_of(aside.key))
            replace_file(file.path, [encode(left).encode()], files=self._disk)
            file.stale = now.stale = True

        await self._writer.run(file, work)

    async def set_damaged_aside(self, key: str) -> None:
        file, time = self._file(key), self._clock.now()

        def work() -> None:
            with contextlib.suppress(FileNotFoundError):
                aside = file.path.with_name(f"{file.path.name}.corrupt-{time:%Y%m%dT%H%M%S%f}")
                file.path.rename(aside)
                logger.warning("{} is damaged and kept as {}", file.path, aside.name)
            sync_folder(file.path.parent, self._disk)
            file.stale = True

        await self._writer.run(file, work)

    async def rewrite(self, key: str, redact: Redact) -> int:
        file, archive = self._file(key), self._archive_of(key)

        def work() -> int:
            if changed := rewrite(self._disk, file.path, archive, redact):
                self._catalogue.forget(file.path)
            return changed

        return await self._writer.run(file, work)

    def drop_archive(self, key: str) -> None:
        for segment in segments(self._archive_of(key))[:-1]:
            with storage_errors(segment.path):
                segment.path.unlink(missing_ok=True)
        self._catalogue.expire()

    def messages(self, key: str, first: int, last: int | None) -> Iterator[Message]:
        return (one for one in self._records(key, first, last) if isinstance(one, Message))

    def epochs(self, key: str, first: int, last: int) -> list[int]:
        records = self._records(key, first, last)
        ends = (record.seq for record in records if isinstance(record, Epoch))
        return sorted({seq for seq in ends if first <= seq <= last})

    def window(self, key: str, first: int, last: int | None, holding: str = "") -> list[Message]:
        records = list(self._records(key, first, last, holding))
        gone = [record for record in records if isinstance(record, Retraction)]
        messages = [record for record in records if isinstance(record, Message)]
        left = [one for one in messages if not any(retraction.covers(one) for retraction in gone)]
        return with_marks(left, (record for record in records if isinstance(record, Mark)))

    def metadata_of(self, key: str) -> Mapping[str, JsonValue]:
        for record in map(decode, reversed(self._waiting(key))):
            if isinstance(record, Metadata):
                return record.metadata or {}
        path = self._file_of(key)
        try:
            with opened(path) as descriptor:
                found = newest_metadata(descriptor, os.fstat(descriptor).st_size)
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise StorageError.of(path, error) from error
        return found.metadata or {} if found else {}

    def sessions(
        self, *, sealed: bool = False, holding: str = "", within: float = 0.0
    ) -> Iterator[SessionInfo]:
        waiting = {file.key: file for file in self._writer.waiting()}
        # Before the catalogue looks: else a new one may be in neither.
        new = [] if sealed else [f for f in waiting.values() if state_of(f.path) is None]
        stored = self._catalogue.sessions(
            sealed=sealed, holding=holding, within=0.0 if waiting else within
        )
        now = self._clock.now()
        keys = {file.key for file in new}
        return chain(
            (
                SessionInfo(
                    f.key, f.created_at, now, 0, "", str(f.path), metadata=self.metadata_of(f.key)
                )
                for f in new
            ),
            (
                replace(one, metadata=self.metadata_of(one.key)) if one.key in waiting else one
                for one in stored
                if one.key not in keys
            ),
        )

    def count(self) -> int:
        new = {file.path.name for file in self._writer.waiting()}
        return len(new.union(self._catalogue.names()))

    def retry(self) -> None:
        self._writer.retry()

    async def close(self) -> None:
        await self._writer.close()

    def _file(self, key: str) -> SessionFile:
        if key not in self._files:
            if len(self._files) >= _MOST_FILES:  # a session in use is read again then
                files = self._files.items()
                self._files = {key: one for key, one in files if not self._writer.is_idle(one)}
            self._files[key] = SessionFile(self._file_of(key), key, self._clock.now())
        return self._files[key]

    def _file_of(self, key: str) -> Path:
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
        return foreign if (key_in(foreign) or key_of(foreign.stem)) == key else own

    def _archive_of(self, key: str) -> Path:
        """The folder of a key's archived segments, whether or not it exists."""
        return self._path / ARCHIVE / stem_of(key)

    def _waiting(self, key: str) -> list[bytes]:
        """The lines that are not durable yet. To be asked for before the files are read: else what
        goes there meanwhile is in neither."""
        file = self._files.get(key)
        return self._writer.backlog(file).splitlines() if file else []

    def _records(
        self, key: str, first: int, last: int | None, holding: str = ""
    ) -> Iterator[Record]:
        """What is stored, as `records_of` gives it, and what is not durable yet."""
        waiting = self._waiting(key)
        path, folder = self._file_of(key), self._archive_of(key)
        if not waiting and state_of(path) is None and not folder.is_dir():
            keys = [key_of(name.removesuffix(SUFFIX)) for name in self._catalogue.names()]
            raise UnknownSession(key, next(iter(close_matches(key, keys, 1)), ""))
        stored = records_of(path, folder, first, last, self._index, holding)
        return _joined(stored, waiting, first, last)


def _joined(
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
