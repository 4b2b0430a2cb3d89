"""Where the text lies: every file that is indexed, with its state, found by one stat each.

A `Stream` is what has one order of its own: a session with its archive, the history of a scope, a
note, a document. Its files are in the order in which they are to be read. Keys and paths are text
that the index can hold, whatever bytes a name on disk is made of: they tell files apart, and `open`
opens one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from stat import S_ISREG

from loguru import logger

from nanobot.errors import NanobotError
from nanobot.io import FileState, opened
from nanobot.memory.documents import FACTS
from nanobot.memory.search.library import documents, passages
from nanobot.memory.search.passages import well_formed
from nanobot.memory.search.values import Source, Sources
from nanobot.memory.store.notes import day_of
from nanobot.security.paths import Place, Root
from nanobot.session.catalogue import key_in
from nanobot.session.records import SUFFIX, key_of, stem_of


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file as it was a moment ago. `open` gives a descriptor for reading."""

    path: str
    state: FileState
    open: Callable[[], AbstractContextManager[int]]


@dataclass(frozen=True, slots=True)
class Stream:
    """Files with one order. `scope` is empty for sessions, whose scope is asked for at a search;
    `document` is where a document of the library lies."""

    source: Source
    key: str
    scope: str
    files: tuple[SourceFile, ...]
    document: Path | None = None


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
