"""Bringing the index up to date with the files.

What changed goes in within one transaction (a document of the library in one of its own), so that a
search sees all of a conversation's move to the archive or nothing of it. A file that cannot be read
is reported once and does not hide the others.

A session whose live file only grew is read on from where reading ended; that it only grew is known
by its inode and by what stands before that place. In any other case (moved to the archive, saved by
an editor, erased, cut, retracted) all of a stream is compared with the index by a hash of each
line: what is equal from the start on stays, wherever it now stands, and the rest is indexed again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import chain
from typing import NamedTuple
from zlib import crc32

from loguru import logger

from nanobot.clock import Clock
from nanobot.errors import NanobotError
from nanobot.io import FileState
from nanobot.memory.search import Sources
from nanobot.memory.search.database import Position, Standing, Tables
from nanobot.memory.search.reading import (
    Entry,
    Listing,
    Name,
    SessionReader,
    SourceFile,
    entries_of,
    line_hash,
    retractions_in,
    well_formed,
)
from nanobot.session.loading import whole_size
from nanobot.session.records import Retraction

_MARK, _NO_MARK = 4_096, -1
Streams = Mapping[Name, Sequence[SourceFile]]


class _FileMoved(Exception):
    """A file is no longer the one that was listed; the next refresh sees the new one."""


class Ingest:
    """Brings `tables` up to date with the files. Raises what `tables` raise."""

    def __init__(self, tables: Tables, sources: Sources, clock: Clock) -> None:
        self._tables = tables
        self._listing, self._sources, self._clock = Listing(sources), sources, clock
        self._reported: set[Name] = set()
        self._taken: Streams | None = None

    def refresh(self) -> None:
        """Take in what changed. Raises `sqlite3.Error`, StorageError."""
        streams = self._listing.streams()
        if streams == self._taken:
            return
        self._taken = None
        known = self._tables.known()
        changed = [name for name in streams if known.get(name) != _states(streams[name])]
        gone, failed = known.keys() - streams.keys(), set[Name]()
        if not changed and not gone:
            self._taken = streams
            return
        with self._tables.transaction():
            for name in changed:
                if name[0] != "library" and not self._take(name, streams[name]):
                    failed.add(name)
            for name in gone:
                self._tables.drop(name)
        for name in changed:
            if name[0] == "library":  # reading takes its time; the file is not locked meanwhile
                entries = list(self._entries(name, streams[name]))
                with self._tables.transaction():
                    self._take(name, streams[name], entries)
        self._taken = {name: files for name, files in streams.items() if name not in failed}

    def _take(
        self, name: Name, files: Sequence[SourceFile], entries: Iterable[Entry] | None = None
    ) -> bool:
        """Take in a stream; whether that worked. One that holds what the database does not take (a
        value that no one thought of) is passed over as well."""
        try:
            with self._tables.apart():
                id = self._tables.id_of(name)
                if name[0] == "message":
                    self._take_session(id, files)
                    return True
                standing = self._tables.standing(id)
                entries = self._entries(name, files) if entries is None else entries
                unknown = (entry for entry in entries if not standing.passes(entry.hash))
                new = standing.replaced_by(unknown)
                self._tables.append(id, new, apart=name[0] == "history")
                self._tables.remember(id, Position(_states(files)))
        except (NanobotError, OSError, ValueError, OverflowError, _FileMoved) as error:
            if not isinstance(error, _FileMoved) and name not in self._reported:
                self._reported.add(name)
                logger.warning("{} {} is not searched: {}", name[0], name[2], error)
            return False
        return True

    def _entries(self, name: Name, files: Sequence[SourceFile]) -> Iterator[Entry]:
        return entries_of(name, files, self._sources.template, self._clock.now().tzinfo)

    def _take_session(self, id: int, files: Sequence[SourceFile]) -> None:
        with ExitStack() as stack:
            opened = [_Opened.of(file, stack.enter_context(file.opened())) for file in files]
            before, live = self._tables.position(id), opened[-1]
            if _only_grew(before, opened):
                lines, gone = live.lines(before.read), list[Retraction]()
                reader, standing = SessionReader(before.number), self._tables.passed(id)
            else:
                lines = chain.from_iterable(file.lines() for file in opened)
                gone = [gone for file in opened for gone in retractions_in(file.lines())]
                for one in gone:
                    self._tables.retract(id, one)
                reader, standing = SessionReader(retractions=gone), self._tables.standing(id)
            self._tables.append(id, standing.replaced_by(_unknown(lines, reader, standing)))
            # A retraction speaks of numbers, so it holds for messages that are written after it
            # too: where there are any, no mark fits, and all is compared the next time.
            mark = _NO_MARK if gone else live.mark(live.end)
            states = _states([file.source for file in opened])
            position = Position(states, reader.number, live.end, mark)
            metadata = None if reader.metadata is None else json.dumps(reader.metadata)
            self._tables.remember(id, position, metadata)


def _unknown(lines: Iterable[bytes], reader: SessionReader, standing: Standing) -> Iterator[Entry]:
    """The passages that are not passed; lines that the index knows are not parsed."""
    for raw in lines:
        if standing.is_more and (seq := standing.passes(line_hash(raw))):
            reader.number = seq
        elif entry := reader.entry(raw):
            yield entry


def _only_grew(before: Position, opened: Sequence[_Opened]) -> bool:
    """Whether lines were added to the last file, none of them a retraction, and nothing else has
    changed since."""
    then, now = json.loads(before.files), [_state(file.source) for file in opened]
    live = opened[-1]
    return (
        bool(then)
        and then[:-1] == now[:-1]
        and then[-1][:2] == now[-1][:2]
        and then[-1][2] < live.source.state.size
        and live.mark(before.read) == before.mark
        and not any(b'"retract"' in raw for raw in live.lines(before.read))
    )


class _Opened(NamedTuple):
    """A file of a session; what ends at `end` are whole lines."""

    source: SourceFile
    descriptor: int
    end: int

    @classmethod
    def of(cls, file: SourceFile, descriptor: int) -> _Opened:
        """Raises `_FileMoved` where another file has the name by now."""
        state = FileState.of(os.fstat(descriptor))
        if state.inode != file.state.inode:
            raise _FileMoved
        source = SourceFile(file.folder, file.name, state)
        return cls(source, descriptor, whole_size(descriptor, state.size))

    def lines(self, start: int = 0) -> Iterator[bytes]:
        """The lines from `start` on."""
        with os.fdopen(os.dup(self.descriptor), "rb") as file:
            file.seek(start)
            left = self.end - start
            for raw in file:
                left -= len(raw)
                if left < 0:
                    return
                yield raw

    def mark(self, end: int) -> int:
        """Stands for what is before `end`."""
        start = max(0, end - _MARK)
        return crc32(os.pread(self.descriptor, end - start, start))


def _states(files: Sequence[SourceFile]) -> str:
    """The files of a stream and their states, as the index keeps them."""
    return json.dumps([_state(file) for file in files])


def _state(file: SourceFile) -> list[str | int]:
    path, state = well_formed(f"{file.folder}/{file.name}"), file.state
    return [path, state.inode, state.size, state.modified]
