"""The only access to workspace files, for tools and for the daemon.

A path may be untrusted, so it is never passed to the system as a whole. It is split into names, and
each name is opened relative to its folder's descriptor, without following links. Invariants:

- Nothing outside a `Root` is opened, with any path and any links inside.
- Only regular files with a single hard link are read or replaced. A pipe or a device never blocks.
- A folder `.git` does not exist here, because a repository's configuration can run programs.
- A write is complete or did not happen: temporary file, fsync, rename, fsync of the folder.

Everything here blocks. Use `asyncio.to_thread` on the event loop, except for small reads."""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import EllipsisType
from typing import Literal

from msgspec import Struct, field

from nanobot.errors import PathRefused, StorageError, ToolError, WriteConflict
from nanobot.io import FENCE, make_folder, own_inode_in, read_up_to, replace_in, storage_errors
from nanobot.text import printable

_MAX_PATH, _MAX_NAME = 4096, 255

_ODD = frozenset(":~")
"""Characters in alternative spellings of a name on some file systems."""

Kind = Literal["file", "folder", "link", "other"]

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


_KINDS: dict[int, Kind] = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link"}


class FolderEntry(Struct, frozen=True):
    """An entry of a folder. `size` is in bytes. Links are never followed."""

    name: str
    kind: Kind
    size: int
    mtime_ns: int

    @classmethod
    def of(cls, name: str, status: os.stat_result) -> FolderEntry:
        """Return the entry for a name and its status."""
        kind = _KINDS.get(stat.S_IFMT(status.st_mode), "other")
        return cls(name, kind, status.st_size, status.st_mtime_ns)


class Root(Struct, frozen=True, eq=False):
    """A named folder that may be used. Its own path is trusted and may contain links."""

    path: Path
    writable: bool = True
    name: str = "workspace"
    writing: threading.Lock = field(default_factory=threading.Lock)

    def place(self, path: str) -> Place:
        """Return the place at a relative path. Raise `PathRefused` if it leaves the root. `..` is
        resolved as text, which is exact because links are never followed."""
        names = resolve_names(path)
        if names is None or path == "~" or path.startswith(("~/", "/")):
            raise PathRefused(
                f"{printable(path)} is outside the {self.name}",
                hint=f"Use a path relative to the {self.name}.",
            )
        if any(map(is_masked, names)):
            raise PathRefused(f"{printable(path)}: files inside .git are not accessible")
        return Place(self, names)

    def create(self) -> None:
        """Create the folder itself (0700), durably, if it is missing. Raise `StorageError`."""
        with storage_errors(self.path):
            make_folder(self.path)


class Roots(Struct, frozen=True):
    """The roots of a caller, the workspace first."""

    roots: tuple[Root, ...]

    def place(self, path: str) -> Place:
        """Return the place at a path that is relative to the workspace or absolute inside any
        root."""
        if not path.startswith("/"):
            return self.roots[0].place(path)
        names = resolve_names(path) or ()
        for root in self.roots:
            for base in {str(root.path), os.path.realpath(root.path)}:
                start = resolve_names(base) or ()
                if names[: len(start)] == start:
                    return root.place("/".join(names[len(start) :]) or ".")
        raise PathRefused(
            f"{printable(path)} is outside the workspace", hint="Use paths relative to it."
        )


class Place(Struct, frozen=True):
    """A path inside a root. Its file is checked on use."""

    root: Root
    names: tuple[str, ...]

    @property
    def relative(self) -> str:
        return "/".join(self.names) or "."

    @property
    def label(self) -> str:
        """The path for a model: relative in a writable root, otherwise absolute."""
        return printable(
            self.relative if self.root.writable else str(self.root.path / self.relative)
        )

    def child(self, name: str) -> Place:
        return Place(self.root, (*self.names, name))

    def stat(self) -> FolderEntry | None:
        """Return the file's entry, or None if it doesn't exist."""
        with self._translate_errors():
            if not self.names:
                return FolderEntry.of(".", self.root.path.stat())
            with suppress(FileNotFoundError), self._open_folder(self.names[:-1]) as folder:
                return FolderEntry.of(self.names[-1], self._stat(folder))
        return None

    def read_bytes(self, limit: int) -> bytes | None:
        """Return the content, or None if there is no file. Raise `ToolError` beyond `limit`
        bytes."""
        if not self.names:
            raise PathRefused(f"{self.label} is a folder")
        with self._translate_errors(), suppress(FileNotFoundError):
            with self._open_folder(self.names[:-1]) as folder:
                descriptor = os.open(self.names[-1], _READ, dir_fd=folder)
            try:
                status = os.fstat(descriptor)
                self._refuse_unless_plain(status)
                content = read_up_to(descriptor, limit + 1) if status.st_size <= limit else b""
            finally:
                os.close(descriptor)
            if max(status.st_size, len(content)) > limit:
                raise ToolError(f"{self.label} is too large ({status.st_size:,} bytes)")
            return content
        return None

    def write_bytes(self, content: bytes, *, expected: bytes | EllipsisType | None = ...) -> None:
        """Replace the file, or create it and its folders.

        `expected` is the current content (None: no file; `...`: any). If it differs, raise
        `WriteConflict` and change nothing. Raise `StorageError` if the disk fails; the old file is
        then intact."""
        self.refuse_unless_writable()
        with (
            self._translate_errors(),
            self.root.writing,
            self._open_folder(self.names[:-1], create=True) as folder,
        ):
            name, mode = self.names[-1], 0o600
            with suppress(FileNotFoundError):
                status = self._stat(folder)
                self._refuse_unless_plain(status)
                mode = stat.S_IMODE(status.st_mode) & 0o777
            replace_in(folder, name, content, mode, lambda: self._check(expected))

    @contextmanager
    def open(self, flags: int, *, create: bool = False) -> Iterator[int]:
        """Open a descriptor of the plain file, for appending only.

        `flags` are open flags. With `create`, create the missing file (0600) and folders. System
        errors become `StorageError`."""
        self.refuse_unless_writable()
        made = os.O_CREAT if create else 0
        with self._translate_errors(), self._open_folder(self.names[:-1], create=create) as folder:
            if flags & os.O_APPEND:
                own_inode_in(folder, self.names[-1])
            safe = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
            descriptor = os.open(self.names[-1], flags | made | safe, 0o600, dir_fd=folder)
            try:
                status = os.fstat(descriptor)
                self._refuse_unless_plain(status)
                if create and not status.st_size:
                    os.fsync(folder)
                yield descriptor
            finally:
                os.close(descriptor)

    def remove(self, *, expected: bytes | EllipsisType = ...) -> None:
        """Remove the file if it exists and has the content `expected`."""
        self.refuse_unless_writable()
        with self._translate_errors(), self.root.writing, suppress(FileNotFoundError):
            self._check(expected)
            with self._open_folder(self.names[:-1]) as folder:
                self._refuse_unless_plain(self._stat(folder))
                FENCE.wait()
                os.unlink(self.names[-1], dir_fd=folder)
                os.fsync(folder)

    def entries(self) -> list[FolderEntry]:
        """Return the entries of this folder without masked ones, folders first, then by name."""
        with (
            self._translate_errors(),
            self._open_folder(self.names) as folder,
            os.scandir(folder) as names,
        ):
            found = []
            for entry in names:
                with suppress(FileNotFoundError):  # gone since the folder was read
                    if not is_masked(entry.name):
                        found.append(FolderEntry.of(entry.name, entry.stat(follow_symlinks=False)))
        return sorted(found, key=lambda entry: (entry.kind != "folder", entry.name))

    def walk_tree(self, limit: int) -> Iterator[tuple[Place, FolderEntry]]:
        """Yield the entries below this folder, nearest first, at most `limit`.

        Links are not followed, and unreadable folders are skipped."""
        waiting = deque([self])
        while waiting and limit:
            folder = waiting.popleft()
            try:
                entries = folder.entries()
            except (StorageError, PathRefused):
                continue
            for entry in entries[:limit]:
                place = folder.child(entry.name)
                if entry.kind == "folder":
                    waiting.append(place)
                yield place, entry
            limit -= min(limit, len(entries))

    def refuse_unless_writable(self) -> None:
        """Raise `PathRefused` for a root itself, and in a read-only root."""
        if not self.root.writable:
            raise PathRefused(f"{self.label} is read-only")
        if not self.names:
            raise PathRefused(f"{self.label} is a folder")

    def _check(self, expected: bytes | EllipsisType | None) -> None:
        if expected is ...:
            return
        limit = len(expected) if isinstance(expected, bytes) else 0
        try:
            current = self.read_bytes(limit)
        except PathRefused:
            raise
        except ToolError as error:  # longer than expected
            raise WriteConflict(self.label) from error
        if current != expected:
            raise WriteConflict(self.label)

    def _stat(self, folder: int) -> os.stat_result:
        return os.stat(self.names[-1], dir_fd=folder, follow_symlinks=False)

    def _refuse_unless_plain(self, status: os.stat_result) -> None:
        if stat.S_ISDIR(status.st_mode):
            raise PathRefused(f"{self.label} is a folder")
        if not stat.S_ISREG(status.st_mode):
            raise PathRefused(f"{self.label} is not a plain file, and links are not followed")
        if status.st_nlink > 1:  # 0: replaced since it was opened
            raise PathRefused(f"{self.label} has hard links and is not used")

    @contextmanager
    def _open_folder(self, names: Sequence[str], *, create: bool = False) -> Iterator[int]:
        descriptor = os.open(self.root.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for name in names:
                if create:
                    with suppress(FileExistsError):
                        os.mkdir(name, 0o700, dir_fd=descriptor)
                        os.fsync(descriptor)
                try:
                    inner = os.open(name, _FOLDER, dir_fd=descriptor)
                except NotADirectoryError as error:
                    raise PathRefused(
                        f"{self.label}: {printable(name)} is not a folder, and links are not "
                        "followed"
                    ) from error
                os.close(descriptor)
                descriptor = inner
            yield descriptor
        finally:
            os.close(descriptor)

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENXIO):
                raise PathRefused(
                    f"{self.label} is not a plain file, and links are not followed"
                ) from error
            raise StorageError.of(self.label, error) from error


def is_masked(name: str) -> bool:
    """Check whether a name is hidden, because a repository's files can run programs."""
    if name.isascii() and name[-1:] not in (".", " ") and _ODD.isdisjoint(name):
        return name.lower() == ".git"
    from nanobot.security.confine.autorun import is_git

    return is_git(name)


def resolve_names(path: str) -> tuple[str, ...] | None:
    """Return the names of a path, or None if a relative path leads above its start. Raise
    `PathRefused` for impossible names."""
    names: list[str] = []
    for name in path.split("/"):
        if name == ".." and not names and not path.startswith("/"):
            return None
        if name == "..":
            del names[-1:]
        elif name not in ("", "."):
            names.append(name)
    refuse_impossible(path, names)
    return tuple(names)


def refuse_impossible(path: str, names: Iterable[str]) -> None:
    try:
        encoded = path.encode("utf-8", "surrogateescape")
        longest = max((len(name.encode("utf-8", "surrogateescape")) for name in names), default=0)
    except UnicodeEncodeError as error:
        raise PathRefused(f"{printable(path)}: this is not a valid file name") from error
    if not path or b"\0" in encoded or len(encoded) > _MAX_PATH or longest > _MAX_NAME:
        raise PathRefused(
            f"{printable(path[:100])}: the path is empty, too long, or contains a NUL"
        )
