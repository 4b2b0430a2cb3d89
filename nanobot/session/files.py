"""The few things that sessions do with files, so that a test can let each of them fail.

`FileOps` is the seam: whatever changes a disk goes through it. The functions below add what every
caller needs: all of the bytes or an error, whole lines from the end, replacement that a crash
cannot halve.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from nanobot.errors import StorageError

_BLOCK = 256 * 1024


class FileOps:
    """What changes a disk. The real thing; tests subclass it to fail."""

    def write(self, descriptor: int, data: memoryview) -> int:
        """Write some of `data`; returns how many bytes."""
        return os.write(descriptor, data)

    def sync(self, descriptor: int) -> None:
        """Return when what was written to a file survives a power cut."""
        os.fdatasync(descriptor)

    def sync_folder(self, descriptor: int) -> None:
        """Return when the names in a folder survive a power cut."""
        os.fsync(descriptor)

    def truncate(self, descriptor: int, size: int) -> None:
        """Cut a file to `size` bytes."""
        os.ftruncate(descriptor, size)

    def replace(self, source: Path, target: Path) -> None:
        """Rename within a file system, over what `target` was."""
        source.replace(target)


@dataclass(frozen=True, slots=True)
class FileState:
    """By this a file is known to be as we left it."""

    inode: int
    size: int
    modified: int

    @classmethod
    def of(cls, status: os.stat_result) -> FileState:
        """The state in a stat result."""
        return cls(status.st_ino, status.st_size, status.st_mtime_ns)


def state_of(path: Path) -> FileState | None:
    """The state of the file at `path`, None where there is none."""
    try:
        return FileState.of(path.stat())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageError.of(path, error) from error


@contextmanager
def opened(path: Path, flags: int = os.O_RDONLY) -> Iterator[int]:
    """A descriptor of a regular file; anything else is a StorageError, and never waited for."""
    descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise StorageError(path, "it is no regular file", hint="Move it out of the way.")
        yield descriptor
    finally:
        os.close(descriptor)


def write_all(files: FileOps, descriptor: int, data: bytes) -> None:
    """Write every byte; the operating system may take them in several helpings."""
    rest = memoryview(data)
    while rest:
        rest = rest[files.write(descriptor, rest) :]


def sync_folder(files: FileOps, folder: Path) -> None:
    """Make the names in `folder` survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        files.sync_folder(descriptor)
    finally:
        os.close(descriptor)


def write_new(files: FileOps, path: Path, pieces: Iterable[bytes]) -> None:
    """Write a file that must not exist yet, and sync it; nothing is left of it on failure. Of the
    `pieces` of its content no more than a block is held at a time."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        for block in _blocks(pieces):
            write_all(files, descriptor, block)
        files.sync(descriptor)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)


def replace_file(files: FileOps, path: Path, pieces: Iterable[bytes]) -> None:
    """Give `path` new contents: at any moment, crash or not, it holds the old ones or the new. The
    `pieces` may be read from the old ones."""
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.unlink(missing_ok=True)
    write_new(files, temporary, pieces)
    try:
        files.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(files, path.parent)


def make_folder(files: FileOps, folder: Path) -> None:
    """Create `folder` and what leads to it, each name synced; nothing to do where it exists."""
    if folder.is_dir():
        return
    make_folder(files, folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)
    sync_folder(files, folder.parent)


def blocks_backwards(descriptor: int, size: int) -> Iterator[bytes]:
    """The first `size` bytes in blocks of whole lines, last block first, in linear time."""
    position, pieces = size, list[bytes]()
    while position > 0:
        step = min(_BLOCK, position)
        position -= step
        block = os.pread(descriptor, step, position)
        start = block.find(b"\n") + 1 if position else 0
        if position and not start:
            pieces.append(block)
            continue
        pieces.append(block[start:])
        yield b"".join(reversed(pieces))
        pieces = [block[:start]] if start else []


def lines_backwards(descriptor: int, size: int) -> Iterator[bytes]:
    """The lines of the first `size` bytes without their newlines, last line first."""
    for block in blocks_backwards(descriptor, size):
        yield from reversed(block.removesuffix(b"\n").split(b"\n"))


def tail_without_newline(descriptor: int, size: int) -> bytes:
    """What follows the last newline of the first `size` bytes; empty where all lines are whole."""
    if size == 0 or os.pread(descriptor, 1, size - 1) == b"\n":
        return b""
    return next(blocks_backwards(descriptor, size)).rpartition(b"\n")[2]


def _blocks(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """What is small put together, so that it is few writes."""
    block = bytearray()
    for piece in pieces:
        block += piece
        if len(block) >= _BLOCK:
            yield bytes(block)
            block.clear()
    if block:
        yield bytes(block)
