"""From the files to the index: what there is, what changed since the last time, and taking it in.

Every file that is indexed is found, with its state, by one stat. A `Stream` is what has one order
of its own: a session with its archive, the history of a scope, a note, a document. Keys and paths
are text that the index can hold, whatever bytes a name on disk is made of.

All that is found goes in within one transaction, so that a search sees all of a conversation's move
to the archive or nothing of it. A file that cannot be read is reported once and does not hide the
others. Lines of sessions and histories are read on from where reading ended (see `records`); notes
and documents are read anew, and from the first passage that differs on they are indexed anew.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import takewhile
from pathlib import Path
from stat import S_ISREG

from loguru import logger

from nanobot.clock import Clock
from nanobot.errors import NanobotError
from nanobot.io import FileState, opened
from nanobot.memory.documents import FACTS
from nanobot.memory.search.library import documents, passages
from nanobot.memory.search.passages import (
    Entry,
    HistoryLines,
    SessionLines,
    fact_passages,
    line_hash,
    note_passages,
    well_formed,
)
from nanobot.memory.search.records import FileMoved, Known, LineReader, LineStreams
from nanobot.memory.search.tables import owe_purge, purge
from nanobot.memory.search.values import SourceFile, Sources, Stream
from nanobot.memory.search.writing import Writer
from nanobot.memory.store.guard import text_of
from nanobot.memory.store.notes import day_of
from nanobot.security.paths import Place, Root
from nanobot.session.catalogue import key_in
from nanobot.session.records import SUFFIX, key_of, stem_of


class Catalogue:
    """Lists the streams; remembers which file of a session says which key."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._keys: dict[tuple[str, int], str] = {}

    def streams(self) -> Iterator[Stream]:
        """All streams there are now. Raises StorageError where a folder cannot be read."""
        yield from self._sessions(self._sources.sessions)
        for scope, folder in self._sources.memories():
            yield from _memory(scope, folder)
        yield from self._library()

    def glance(self) -> list[object]:
        """Equal to an earlier one where no file changed since; cheaper than `streams`."""
        sessions, library = self._sources.sessions, self._sources.library
        seen: list[object] = [_glance(sessions)]
        seen += [_glance(sessions / "archive" / name) for name in _folders(sessions / "archive")]
        for scope, folder in self._sources.memories():
            seen += [scope, _glance(folder), _glance(folder / "history"), *_long_term(folder)]
        if library is not None:
            seen += documents(library)
        return seen

    def _sessions(self, folder: Path) -> Iterator[Stream]:
        # The live files first: what is moved to the archive meanwhile is then in both or in one.
        live = {name: state for name, state in _listed(folder) if name.endswith(SUFFIX)}
        archives = {name: folder / "archive" / name for name in _folders(folder / "archive")}
        for name, state in live.items():
            path = folder / name
            key = self._key(path, state, live)
            files = _segments(archives.pop(stem_of(key), None))
            files.append(_source_file(path, state))
            yield Stream("message", well_formed(key), "", tuple(files))
        for name, path in archives.items():
            if files := _segments(path):
                oldest = path / Path(files[0].path).name
                key = self._key(oldest, files[0].state, {}, name)
                yield Stream("message", well_formed(key), "", tuple(files))

    def _key(self, path: Path, state: FileState, live: dict[str, FileState], stem: str = "") -> str:
        """The key that a file says, unless the session of that key has a file of its own."""
        stem = stem or path.name.removesuffix(SUFFIX)
        known = self._keys.get((str(path), state.inode))
        if known is None:
            try:
                known = key_in(path)
            except (NanobotError, FileNotFoundError):
                known = ""
            self._keys[str(path), state.inode] = known
        if not known or (stem_of(known) != stem and f"{stem_of(known)}{SUFFIX}" in live):
            return key_of(stem)
        return known

    def _library(self) -> Iterator[Stream]:
        folder = self._sources.library
        if folder is None:
            return
        for document in documents(folder):
            state = FileState(0, document.size, document.mtime_ns)
            name = document.path.relative_to(folder).as_posix()
            files = (_source_file(document.path, state),)
            scope = self._sources.library_scope
            yield Stream("library", well_formed(name), scope, files, document.path)

    def template(self, stream: Stream) -> str:
        """What a long-term file says before anything was learned."""
        return self._sources.template.get(stream.key, "")

    def passages(self, stream: Stream) -> list[tuple[str, str]]:
        """The passages of a document, each with its place."""
        folder = self._sources.library
        if folder is None or stream.document is None:
            return []
        return passages(stream.document, folder)


def _memory(scope: str, folder: Path) -> Iterator[Stream]:
    # The folder's parent is the root, so that a memory folder which is a link is not followed.
    memory = Root(folder.parent).place(folder.name)
    history = [
        *_plain(memory.child("history"), folder / "history", lambda name: name.endswith(SUFFIX)),
        *_plain(memory, folder, lambda name: name == "history.jsonl"),
    ]
    if history:
        yield Stream("history", scope, scope, tuple(history))
    for file in _plain(memory, folder, lambda name: day_of(name) is not None):
        yield Stream("note", Path(file.path).name, scope, (file,))
    for path, state in _long_term(folder):
        place = Root(folder.parent).place(path)
        name = well_formed(str(folder.parent / path))
        file = SourceFile(name, state, partial(place.opened, os.O_RDONLY))
        yield Stream("memory", path, scope, (file,))


def _long_term(folder: Path) -> Iterator[tuple[str, FileState]]:
    """The long-term files of the scope whose memory folder this is; no links."""
    for path in FACTS:
        with suppress(OSError):
            status = (folder.parent / path).stat(follow_symlinks=False)
            if S_ISREG(status.st_mode):
                yield path, FileState.of(status)


def _plain(place: Place, folder: Path, wanted: Callable[[str], bool]) -> list[SourceFile]:
    return [
        SourceFile(
            well_formed(str(folder / name)), state, partial(place.child(name).opened, os.O_RDONLY)
        )
        for name, state in _listed(folder)
        if wanted(name)
    ]


def _segments(folder: Path | None) -> list[SourceFile]:
    if folder is None:
        return []
    names = [(name, state) for name, state in _listed(folder) if name.endswith(SUFFIX)]
    numbered = [(int(name[: -len(SUFFIX)]), name, state) for name, state in names
                if name[: -len(SUFFIX)].isdecimal()]  # fmt: skip
    return [
        _source_file(folder / name, state)
        for _, name, state in sorted(numbered, key=lambda found: found[0])
    ]


def _source_file(path: Path, state: FileState) -> SourceFile:
    return SourceFile(well_formed(str(path)), state, partial(opened, path))


def _listed(folder: Path) -> list[tuple[str, FileState]]:
    """The plain files in `folder` by name, hidden ones left out; none where there is no folder."""
    found = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):
                    status = entry.stat(follow_symlinks=False)
                    if S_ISREG(status.st_mode) and not entry.name.startswith("."):
                        found.append((entry.name, FileState.of(status)))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        logger.warning("{} is not searched: {}", folder, error.strerror)
    return sorted(found)


def _glance(folder: Path) -> list[tuple[str, int, int, int]]:
    try:
        with os.scandir(folder) as entries:
            stats = ((entry.name, entry.stat(follow_symlinks=False)) for entry in entries)
            return [(name, s.st_ino, s.st_size, s.st_mtime_ns) for name, s in stats]
    except OSError:
        return []


def _folders(folder: Path) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    except OSError:
        return []


_LARGEST_NOTE = 4 * 1024 * 1024

_Name = tuple[str, str, str]
"""Source, scope and key: what a stream is called."""


class Ingest:
    """Brings the index at `db` up to date with the files.

    Raises `Interrupted` soon after `closing` has become true.
    """

    def __init__(
        self,
        db: sqlite3.Connection,
        catalogue: Catalogue,
        clock: Clock,
        closing: Callable[[], bool],
    ) -> None:
        self._db, self._catalogue, self._clock = db, catalogue, clock
        self._writer = Writer(db, closing)
        self._lines = LineStreams(db, self._writer)
        self._reported: set[str] = set()
        self._glance: list[object] = []

    def refresh(self) -> bool:
        """Take in what changed; whether anything had. Raises `sqlite3.Error`, StorageError."""
        glance = self._catalogue.glance()
        if glance == self._glance:
            return False
        streams: dict[_Name, Stream] = {
            (s.source, s.scope, s.key): s for s in self._catalogue.streams()
        }
        self._glance = glance
        if not _differences(streams, self._known()):
            return False
        try:
            self._take_all(streams)
        except BaseException:
            self._glance = []
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise
        return True

    def purge(self) -> None:
        """Leave nothing of what was taken out in the file. Raises `sqlite3.Error`."""
        purge(self._db)

    def _take_all(self, streams: dict[_Name, Stream]) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        # Asked again: another process may have been at it until this transaction began.
        known = self._known()
        documents = []
        for name in _differences(streams, known):
            self._writer.check()
            stream = streams.get(name)
            if stream is None:
                self._drop(name)
            elif stream.source == "library":
                documents.append(stream)
            else:
                self._take(stream, known.get(name, {}))
        self._commit()
        for stream in documents:
            self._writer.check()
            # Reading a document takes its time; nobody waits for the file meanwhile.
            entries = list(self._document(stream))
            self._db.execute("BEGIN IMMEDIATE")
            with self._apart(stream):
                self._read_anew(stream, entries)
            self._commit()

    def _commit(self) -> None:
        if self._writer.deleted:
            owe_purge(self._db)
        self._db.execute("COMMIT")
        self._writer.deleted = False

    def _known(self) -> dict[_Name, dict[str, Known]]:
        # One statement: between two, another process may add a stream and its files.
        known: dict[_Name, dict[str, Known]] = {}
        for source, scope, key, path, inode, size, mtime, read, mark in self._db.execute(
            "SELECT source, scope, key, path, inode, size, mtime, read, mark FROM stream"
            " LEFT JOIN file ON file.stream = stream.id"
        ):
            files = known.setdefault((source, scope, key), {})
            if path is not None:
                files[path] = Known(FileState(inode, size, mtime), read, mark)
        return known

    def _take(self, stream: Stream, known: dict[str, Known]) -> None:
        with self._apart(stream):
            if stream.source in ("note", "memory"):
                self._read_anew(stream, self._text(stream))
            else:
                self._lines.take(self._id(stream), stream, known, self._reader_of(stream))

    @contextmanager
    def _apart(self, stream: Stream) -> Iterator[None]:
        """Take back what a stream brought that cannot be read, or holds what the database does not
        take (a value nobody thought of); the others go on."""
        self._db.execute("SAVEPOINT stream")
        try:
            yield
        except (NanobotError, OSError, FileMoved, ValueError, OverflowError) as error:
            self._db.execute("ROLLBACK TO stream")
            self._glance = []
            if not isinstance(error, FileMoved) and stream.key not in self._reported:
                self._reported.add(stream.key)
                logger.warning("{} {} is not searched: {}", stream.source, stream.key, error)
        self._db.execute("RELEASE stream")

    def _reader_of(self, stream: Stream) -> type[SessionLines] | _HistoryAt:
        if stream.source == "message":
            return SessionLines
        return _HistoryAt(self._clock)

    def _read_anew(self, stream: Stream, entries: Iterable[Entry]) -> None:
        id = self._id(stream)
        found = [entry._replace(hash=_hash(entry)) for entry in entries]
        standing = self._db.execute(
            "SELECT id, hash FROM passage WHERE stream = ? ORDER BY seq", (id,)
        ).fetchall()
        pairs = zip(standing, found, strict=False)
        same = sum(1 for _ in takewhile(lambda pair: pair[0][1] == pair[1].hash, pairs))
        self._writer.remove([row[0] for row in standing[same:]])
        self._writer.append(id, found[same:])
        for file in stream.files:
            state = file.state
            self._db.execute(
                "INSERT OR REPLACE INTO file (stream, path, inode, size, mtime, read, mark)"
                " VALUES (?, ?, ?, ?, ?, 0, 0)",
                (id, file.path, state.inode, state.size, state.modified),
            )

    def _text(self, stream: Stream) -> Iterator[Entry]:
        with stream.files[0].open() as descriptor:
            text = text_of(os.pread(descriptor, _LARGEST_NOTE, 0))
        if stream.source == "memory":
            return fact_passages(stream.key, text, self._catalogue.template(stream))
        return note_passages(stream.key, text, self._clock.now().tzinfo)

    def _document(self, stream: Stream) -> Iterator[Entry]:
        for number, (place, text) in enumerate(self._catalogue.passages(stream), 1):
            yield Entry(number, text, place=place)

    def _id(self, stream: Stream) -> int:
        name = (stream.source, stream.scope, stream.key)
        self._db.execute("INSERT OR IGNORE INTO stream (source, scope, key) VALUES (?, ?, ?)", name)
        return _id_of(self._db, name)

    def _drop(self, name: _Name) -> None:
        id = _id_of(self._db, name)
        self._writer.clear(id)
        self._db.execute("DELETE FROM file WHERE stream = ?", (id,))
        self._db.execute("DELETE FROM stream WHERE id = ?", (id,))


def _hash(entry: Entry) -> int:
    """Stands for a passage of a note or document, and for its place."""
    said = (entry.text, entry.moment, entry.origin, entry.place)
    return line_hash("\0".join(said).encode("utf-8", "replace"))


class _HistoryAt:
    """Makes readers of history lines; entries have numbers of their own."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def __call__(self, number: int) -> LineReader:
        return HistoryLines(self._clock.now().tzinfo)


def _id_of(db: sqlite3.Connection, name: _Name) -> int:
    row = db.execute("SELECT id FROM stream WHERE (source, scope, key) = (?, ?, ?)", name)
    return int(row.fetchone()[0])


def _differences(streams: dict[_Name, Stream], known: dict[_Name, dict[str, Known]]) -> list[_Name]:
    """The names of streams that are new, changed or gone."""
    changed = [name for name, s in streams.items() if not _unchanged(s, known.get(name))]
    return [*changed, *(known.keys() - streams.keys())]


def _unchanged(stream: Stream, known: dict[str, Known] | None) -> bool:
    if known is None or len(known) != len(stream.files):
        return False
    states = ((known.get(file.path), file.state) for file in stream.files)
    return all(before is not None and before.state == state for before, state in states)
