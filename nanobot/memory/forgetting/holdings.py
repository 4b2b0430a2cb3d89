"""Where a text stands among all the files of a home: every byte is looked at.

Git's compressed objects are opened. Of links only those are followed that stand for a folder of
nanobot's own (its media on another disk), and what is compressed or encoded otherwise (PDF,
pictures, office files) holds its text in a form that is not recognised. Reads only; blocks.

Taking a text out of single files, each in the way that its kind bears. Blocks.

A file is replaced as a whole or not at all, and left alone where somebody changes it meanwhile. One
that a process appends to all the time (a log) is changed in place, byte for byte: its length stays,
so nothing that is appended is lost.
"""

from __future__ import annotations

import os
import re
import stat
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from nanobot.errors import StorageError, WriteConflict
from nanobot.io import read_up_to, replace_in, sync_folder
from nanobot.memory.documents import RULES
from nanobot.memory.forgetting.needle import Needle, blot, count_in, matches


class Kind(StrEnum):
    """What a file is for; the value is what people read."""

    CONVERSATION = "conversations"
    ARCHIVE = "archived conversations"
    MEMORY = "long-term memory"
    HISTORY = "history"
    NOTE = "daily notes"
    WORKSPACE = "other files in the workspace"
    MEDIA = "media"
    JOURNAL = "journal"
    BEFORE = "the journal as it was before an upgrade"
    INDEX = "search index"
    VERSIONS = "versions"
    UNDO = "undo copies"
    TYPED = "what was typed in the terminal"
    SPILL = "long tool results"
    LOG = "logs"
    CONFIGURATION = "configuration"
    REPOSITORY = "your own git repository"
    TEMPORARY = "temporary files"
    OTHER = "other files"


_NOTE_NAME = re.compile(r"\d{4}-\d{2}-\d{2}\.md")
_TEMPORARY = re.compile(r"\..+\.(nanobot-)?tmp")
_IN_STATE = {
    "journal.db": Kind.JOURNAL,
    "index.db": Kind.INDEX,
    "memory.git": Kind.VERSIONS,
    "undo": Kind.UNDO,
    "cli_history": Kind.TYPED,
    "backup": Kind.TEMPORARY,
}
_BEFORE = "journal.db.before-"
_AT_HOME = {
    "media": Kind.MEDIA,
    "spill": Kind.SPILL,
    "logs": Kind.LOG,
    "config.yaml": Kind.CONFIGURATION,
    "secrets.env": Kind.CONFIGURATION,
}
_OWN = ("logs", "media", "sessions", "spill", "state", "workspace")
"""Folders of nanobot's own; any of them may be a link to another disk."""

_ANYTHING = {Kind.MEDIA, Kind.WORKSPACE, Kind.OTHER}
_LARGEST_OBJECT = 64_000_000


@dataclass(frozen=True, slots=True)
class Holding:
    """A file that holds the text `count` times, or a file or folder that could not be read (-1).

    `shown` is its path for people; `in_name` says that its name holds it, too; `is_text` that it is
    no binary file.
    """

    path: Path
    shown: str
    kind: Kind
    count: int
    in_name: bool = False
    is_text: bool = True


@dataclass(frozen=True, slots=True)
class Home:
    """The folder of a nanobot, and its workspace, which may lie elsewhere."""

    folder: Path
    workspace: Path

    def holdings(self, needle: Needle) -> list[Holding]:
        """All files that hold the text, or have it in their name, and what could not be read."""
        found, unread = list[Holding](), list[Path]()
        for path, kind in self.files(unread.append):
            count, is_text = _count(path, needle)
            if count > 0 and not is_text and needle.is_short and kind in _ANYTHING:
                count = 0  # any three letters stand somewhere in a photo
            shown = self._shown(path)
            in_name = needle.is_in(shown)
            if count or in_name:
                shown = needle.redact_plain(shown)
                found.append(Holding(path, shown, kind, count, in_name, is_text))
        for path in unread:
            shown = needle.redact_plain(self._shown(path))
            found.append(Holding(path, shown, self.kind_of(path), -1, is_text=False))
        return found

    def files(self, on_unread: Callable[[Path], None]) -> Iterator[tuple[Path, Kind]]:
        """Every regular file; each once. `on_unread` is told of what cannot be looked into."""
        for folder in self._folders():
            for path in _regular(folder, on_unread):
                yield path, self.kind_of(path)

    def _folders(self) -> Iterator[Path]:
        """The home, the workspace, and the folders of its own that lie elsewhere."""
        known = list[Path]()
        for folder in (self.folder, self.workspace, *(self.folder / name for name in _OWN)):
            real = folder.resolve()
            if not any(real.is_relative_to(other) for other in known):
                known.append(real)
                yield folder

    def kind_of(self, path: Path) -> Kind:
        """What the file at `path` is for."""
        if path.is_relative_to(self.workspace):
            return _in_workspace(path.relative_to(self.workspace).parts)
        parts = path.relative_to(self.folder).parts or ("",)
        if _TEMPORARY.fullmatch(path.name):
            return Kind.TEMPORARY
        if parts[0] == "sessions":
            return Kind.ARCHIVE if parts[1:2] == ("archive",) else Kind.CONVERSATION
        if parts[0] == "state" and len(parts) > 1:
            name = parts[1].removesuffix("-wal").removesuffix("-shm")
            if name.startswith(_BEFORE):
                return Kind.BEFORE
            return _IN_STATE.get(name, Kind.OTHER)
        return _AT_HOME.get(parts[0], Kind.OTHER)

    def _shown(self, path: Path) -> str:
        if path.is_relative_to(self.folder):
            return str(path.relative_to(self.folder))
        return str(path)


def _in_workspace(parts: tuple[str, ...]) -> Kind:
    if ".git" in parts:
        return Kind.REPOSITORY
    if parts and parts[-1].endswith(".nanobot-tmp"):
        return Kind.TEMPORARY
    if parts[:1] in {("people",), ("groups",)} and len(parts) > 2:
        parts = parts[2:]
    if len(parts) == 1 and parts[0] in RULES:
        return Kind.MEMORY
    if parts[:1] != ("memory",) or len(parts) == 1:
        return Kind.WORKSPACE
    name = parts[-1]
    if parts[1] == "history" or name.startswith(("history.jsonl", "HISTORY.md")):
        return Kind.HISTORY
    return Kind.NOTE if _NOTE_NAME.fullmatch(name) else Kind.MEMORY


def _regular(folder: Path, on_unread: Callable[[Path], None]) -> Iterator[Path]:
    def refused(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            on_unread(Path(str(error.filename)))

    for root, folders, names in os.walk(folder, onerror=refused):
        folders.sort()
        for name in sorted(names):
            path = Path(root, name)
            try:
                if stat.S_ISREG(path.lstat().st_mode):
                    yield path
            except FileNotFoundError:
                continue  # gone since the folder was read
            except OSError as error:
                refused(error)


def _count(path: Path, needle: Needle) -> tuple[int, bool]:
    """How often a file holds the text, and whether it is a text that can be changed."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return 0, True
    except OSError:
        return -1, False
    try:
        unpacked = _unpacked(path, descriptor)
        if unpacked is not None:
            return sum(count_in(data, needle) for data in unpacked), False
        is_text = True

        def read(position: int, size: int) -> bytes:
            nonlocal is_text
            block = os.pread(descriptor, size, position)
            is_text = is_text and b"\0" not in block
            return block

        return sum(1 for _ in matches(read, needle)), is_text
    except OSError:
        return -1, False
    finally:
        os.close(descriptor)


def _unpacked(path: Path, descriptor: int) -> Iterable[bytes] | None:
    """What git keeps compressed in this file; None where it is no such file."""
    if path.suffix == ".pack" and os.pread(descriptor, 4, 0) == b"PACK":
        return _objects_in(path)
    if path.parent.parent.name == "objects" and os.pread(descriptor, 1, 0) == b"\x78":
        try:
            packed = read_up_to(descriptor, _LARGEST_OBJECT)
            return [zlib.decompressobj().decompress(packed, _LARGEST_OBJECT)]
        except zlib.error:
            return None
    return None


def _objects_in(path: Path) -> Iterator[bytes]:
    from dulwich.object_format import SHA1
    from dulwich.pack import Pack

    try:
        with Pack(str(path.with_suffix("")), object_format=SHA1) as pack:
            for item in pack.iterobjects():
                yield item.as_raw_string()
    except Exception as error:  # a library says anything of what was left half written
        raise OSError(f"{path.name} is damaged") from error


_STRUCTURED = {".json", ".jsonl"}


def rewrite_text(path: Path, needle: Needle) -> None:
    """For a text file: JSON stays JSON. Raises `StorageError` or `WriteConflict`; it is whole."""
    if path.suffix in _STRUCTURED:
        _replace(
            path, lambda data: needle.redact(_decoded(data)).encode("utf-8", "surrogateescape")
        )
    else:
        _replace(path, needle.redact_bytes)


def rewrite_lines(path: Path, needle: Needle) -> None:
    """The same for a file of facts or notes, which loses whole lines."""
    _replace(
        path,
        lambda data: needle.without_lines(_decoded(data)).encode("utf-8", "surrogateescape"),
    )


def rewrite_after_header(path: Path, needle: Needle) -> None:
    """The same for a file whose first line says what it is (an undo copy)."""

    def redact(data: bytes) -> bytes:
        header, newline, content = data.partition(b"\n")
        return header + newline + needle.redact_bytes(content)

    _replace(path, redact)


def cover(path: Path, needle: Needle) -> None:
    """Overwrite the text where it stands. A crash in between leaves the rest for the next time."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:

            def read(position: int, size: int) -> bytes:
                return os.pread(descriptor, size, position)

            for position, found in list(matches(read, needle)):
                if read(position, len(found)) == found:  # nobody has cut the file short meanwhile
                    os.pwrite(descriptor, blot(len(found)), position)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        return
    except OSError as error:
        raise StorageError.of(path, error) from error


def remove(path: Path) -> None:
    """Delete a file, durably."""
    try:
        with suppress(FileNotFoundError):
            path.unlink()
            sync_folder(path.parent)
    except OSError as error:
        raise StorageError.of(path, error) from error


def _replace(path: Path, redact: Callable[[bytes], bytes]) -> None:
    try:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            before = _fingerprint(folder, path.name)
            with open(path, "rb", opener=_without_links) as file:
                data = file.read()

            def unchanged() -> None:
                if _fingerprint(folder, path.name) != before:
                    raise WriteConflict(path.name)

            redacted = redact(data)
            if redacted != data:
                replace_in(folder, path.name, redacted, before[-1], unchanged)
        finally:
            os.close(folder)
    except FileNotFoundError:
        return
    except OSError as error:
        raise StorageError.of(path, error) from error


def _fingerprint(folder: int, name: str) -> tuple[int, int, int, int]:
    status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    mode = stat.S_IMODE(status.st_mode) & 0o777
    return status.st_ino, status.st_size, status.st_mtime_ns, mode


def _without_links(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC)


def _decoded(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")
