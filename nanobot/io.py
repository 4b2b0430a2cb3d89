"""Files and folders as durable state needs them: replacement that a crash cannot halve, names that
are on the disk for good, locks, and JSON on a line.

`FileOps` is the seam: what changes the disk of sessions goes through it, so that a test can let
each step fail.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct

from nanobot.errors import StorageError

_BLOCK = 256 * 1024
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def storage_errors(path: Path | str) -> Iterator[None]:
    """What the operating system refuses within is a `StorageError` about `path`."""
    try:
        yield
    except OSError as error:
        raise StorageError.of(path, error) from error


class Fence:
    """What each change of a file waits for. In a team several workers share a folder: one that lost
    touch with the others may change nothing there. `wait` returns when this process may; `epoch` is
    part of the names of its temporary files, which a successor clears away, so that a rename that
    comes too late fails. `made` are the files (device, inode) that it made: it appends to no
    others, so that what a predecessor appends too late goes to a file that has no name any more.
    Locks on files in the folder `shared` are taken in the folder `locks` instead: the lock of a
    worker that was stopped would outlive its time, and order between workers is not theirs to keep.

    `wait` blocks while the database is away, so large work on files is done in threads, and where
    the event loop changes a small one, `wait_aside` comes before."""

    def __init__(self) -> None:
        self.epoch = ""
        self.wait: Callable[[], None] = lambda: None  # no team: this process alone changes files
        self.is_open: Callable[[], bool] = lambda: True
        """Whether `wait` would return at once."""
        self.made: set[tuple[int, int]] = set()
        self.shared: Path | None = None
        self.locks: Path | None = None

    async def wait_aside(self) -> None:
        """`wait`, in a thread where it has to."""
        if not self.is_open():
            import asyncio  # which commands that read a file do not need

            await asyncio.to_thread(self.wait)

    def place_of_lock(self, path: Path) -> Path:
        """Where the lock in the file `path` is taken."""
        if self.shared is None or self.locks is None or not path.is_relative_to(self.shared):
            return path
        return self.locks / path.relative_to(self.shared)


FENCE = Fence()
"""That of this process."""


MOST_DESCRIPTORS = 16_384
"""Files and connections of this process. Programs that it starts inherit the limit, and some close
every descriptor that it allows: more would cost each of them seconds."""


def raise_descriptor_limit() -> None:
    """Let this process have as many files and connections open as the system allows it, up to
    `MOST_DESCRIPTORS`: the usual limit of 1,024 is from the time of `select`."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(MOST_DESCRIPTORS, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class FileOps:
    """What changes a disk. The real thing; tests subclass it to fail."""

    def write(self, descriptor: int, data: memoryview) -> int:
        """Write some of `data`; returns how many bytes."""
        FENCE.wait()
        return os.write(descriptor, data)

    def sync(self, descriptor: int) -> None:
        """Return when what was written to a file survives a power cut."""
        os.fdatasync(descriptor)

    def sync_folder(self, descriptor: int) -> None:
        """Return when the names in a folder survive a power cut."""
        os.fsync(descriptor)

    def truncate(self, descriptor: int, size: int) -> None:
        FENCE.wait()
        os.ftruncate(descriptor, size)

    def rename(self, folder: int, source: str, target: str) -> None:
        """Rename within the folder with this descriptor, over what `target` was."""
        FENCE.wait()
        os.rename(source, target, src_dir_fd=folder, dst_dir_fd=folder)


DISK = FileOps()


def replace_file(
    path: Path,
    content: bytes | Iterable[bytes],
    mode: int = 0o600,
    last_check: Callable[[], None] | None = None,
    *,
    durable: bool = True,
    files: FileOps = DISK,
) -> None:
    """Replace the file: a reader sees the old content or the new; with `durable`, also after a loss
    of power. One writer at a time.

    Pieces of content may be read from the old file. `last_check` runs when all is written, just
    before the rename, and raises to cancel it. Raises `OSError` where the disk refuses; the file
    is as it was then.
    """
    with _folder(path.parent) as folder:
        replace_in(folder, path.name, content, mode, last_check, durable=durable, files=files)


def replace_in(
    folder: int,
    name: str,
    content: bytes | Iterable[bytes],
    mode: int = 0o600,
    last_check: Callable[[], None] | None = None,
    *,
    durable: bool = True,
    files: FileOps = DISK,
) -> None:
    """`replace_file` for `name` in the folder with this descriptor."""
    temporary = temporary_name(name)
    with suppress(FileNotFoundError):
        os.unlink(temporary, dir_fd=folder)
    try:
        descriptor = os.open(temporary, _NEW, 0o600, dir_fd=folder)
        try:
            for block in (content,) if isinstance(content, bytes) else _blocks(content):
                write_all(descriptor, block, files)
            os.fchmod(descriptor, mode)
            if durable:
                files.sync(descriptor)
        finally:
            os.close(descriptor)
        if last_check:
            last_check()
        files.rename(folder, temporary, name)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        raise
    if durable:
        files.sync_folder(folder)


def temporary_name(name: str) -> str:
    """Where the new content of a file is written. The same for the same name, and the same worker:
    what a crash leaves behind is cleared by the next write."""
    key = hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()
    return f".{key[:16]}{FENCE.epoch}.nanobot-tmp"


def own_inode(path: Path) -> None:
    """`own_inode_in` for the file at `path`."""
    if FENCE.epoch:
        with _folder(path.parent) as folder:
            own_inode_in(folder, path.name)


def own_inode_in(folder: int, name: str) -> None:
    """Before something is added to the file: in a team, see to it that this process made its inode,
    by a copy where another one did. Nothing to do elsewhere, or where there is no plain file.
    Raises `OSError`."""
    if not FENCE.epoch:
        return
    with suppress(FileNotFoundError):
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if not stat.S_ISREG(status.st_mode):
            return
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        with os.fdopen(descriptor, "rb") as file:
            # On NFS, the status of a name may be cached, but not that of a file just opened.
            status = os.fstat(descriptor)
            if _identity(status) in FENCE.made:
                return
            replace_in(folder, name, iter(lambda: file.read(_BLOCK), b""), status.st_mode & 0o777)
        FENCE.made.add(_identity(os.stat(name, dir_fd=folder, follow_symlinks=False)))


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def write_new(path: Path, pieces: Iterable[bytes], files: FileOps = DISK) -> None:
    """Write a file (0600) that must not exist yet, and sync it; nothing is left of it on failure.
    Of the `pieces` of its content no more than a block is held at a time."""
    descriptor = os.open(path, _NEW, 0o600)
    try:
        for block in _blocks(pieces):
            write_all(descriptor, block, files)
        files.sync(descriptor)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)


def write_all(descriptor: int, data: bytes, files: FileOps = DISK) -> None:
    """Write every byte where the descriptor stands; the operating system may take them in several
    calls. Raises `OSError`; some of it may be written then."""
    rest = memoryview(data)
    while rest:
        rest = rest[files.write(descriptor, rest) :]


def append_line(path: Path, line: bytes) -> int:
    """Add a line, without its end, to a log that only this process writes, and make the file for
    its owner alone if there is none. Return the file's size then. A line that a full disk or a
    crash cut short does not run into it. Raises `OSError`."""
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(path, flags, 0o600), "ab") as file:
        size = os.fstat(file.fileno()).st_size
        is_torn = size and os.pread(file.fileno(), 1, size - 1) != b"\n"
        file.write((b"\n" if is_torn else b"") + line + b"\n")
        file.flush()
        return os.fstat(file.fileno()).st_size


def rotate_files(names: Sequence[Path]) -> None:
    """Give each of these files the name after its own; the last one goes. Raises `OSError`."""
    for newer, older in zip(names[-2::-1], names[:0:-1], strict=True):
        with suppress(FileNotFoundError):
            newer.replace(older)


def read_up_to(descriptor: int, limit: int) -> bytes:
    """At most `limit` bytes from where the descriptor stands."""
    pieces, left = [], limit
    while left and (piece := os.read(descriptor, min(left, 1 << 20))):
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)


def sync_folder(folder: Path, files: FileOps = DISK) -> None:
    """Make the names in `folder` survive a power cut. Raises `OSError`."""
    with _folder(folder) as descriptor:
        files.sync_folder(descriptor)


OWNED: set[Path] = set()
"""The homes that this process owns. A home that is gone was moved, and is not created again: work
in progress would go on in an empty one."""


def make_folder(folder: Path, files: FileOps = DISK) -> None:
    """Create `folder` and its parents, each name synced, if they do not exist. Raises
    `FileNotFoundError` if a home of `OWNED` would have to be created."""
    if folder.is_dir():
        return
    if folder in OWNED:
        raise FileNotFoundError(errno.ENOENT, "this home was moved or removed", str(folder))
    make_folder(folder.parent, files)
    folder.mkdir(mode=0o700, exist_ok=True)
    sync_folder(folder.parent, files)


@contextmanager
def _folder(path: Path) -> Iterator[int]:
    descriptor = os.open(path, _FOLDER)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _blocks(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Small pieces joined, so that there are few writes."""
    block = bytearray()
    for piece in pieces:
        block += piece
        if len(block) >= _BLOCK:
            yield bytes(block)
            block.clear()
    if block:
        yield bytes(block)


@contextmanager
def hold_lock(path: Path, *, wait: bool = False, shared: bool = False) -> Iterator[int]:
    """Hold the lock in the file `path`, which is made where there is none and never removed: a
    second process could otherwise lock a new file of the same name. Its descriptor; programs that
    are run do not inherit it, and the kernel drops the lock with the process. A `shared` lock
    excludes only those that are not.

    Raises `BlockingIOError` where somebody else has it, unless told to `wait`, and `StorageError`.
    """
    path = FENCE.place_of_lock(path)
    try:
        make_folder(path.parent)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            descriptor = os.open(path, flags, 0o600)
        except OSError as error:
            if error.errno != errno.EROFS or not path.exists():
                raise
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError as error:
        raise StorageError.of(path, error) from error
    try:
        try:
            kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
            fcntl.flock(descriptor, kind | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            raise
        except OSError as error:
            raise StorageError.of(path, error) from error
        yield descriptor
        # At once, though a child may be mid-exec. Not after a failure: a child that was handed the
        # descriptor may still be at work.
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)


class FileState(Struct, frozen=True):
    """Identifies a version of a file: equal while nobody has changed it."""

    inode: int
    size: int
    modified: int

    @classmethod
    def of(cls, status: os.stat_result) -> FileState:
        return cls(status.st_ino, status.st_size, status.st_mtime_ns)


def lstate_of(path: str) -> FileState | None:
    """The state of what is at `path`, of a link itself; None where nothing can be seen. Changes
    whenever the file does; one system call."""
    try:
        return FileState.of(os.lstat(path))
    except OSError:
        return None


def state_of(path: Path) -> FileState | None:
    """The state of the file at `path`, None where there is none."""
    try:
        return FileState.of(path.stat())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageError.of(path, error) from error


@contextmanager
def open_regular(path: Path, flags: int = os.O_RDONLY) -> Iterator[int]:
    """A descriptor of a regular file; anything else is a StorageError, and never waited for."""
    descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise StorageError(path, "it is not a regular file", hint="Move it out of the way.")
        yield descriptor
    finally:
        os.close(descriptor)


MOST_LINE = 64 << 20
"""Bytes of a line that is read: six times the longest message, which JSON can make six times as
long. No line of ours is longer. Of a longer one only the beginning is read, which is no JSON."""
_BEGINNING = 4096


def whole_lines(file: BinaryIO) -> Iterator[tuple[bytes, int]]:
    """The lines of a file from where it stands, each with its size. Of one that is longer than
    `MOST_LINE` only the beginning is held."""
    while line := file.readline(MOST_LINE + 1):
        size = len(line)
        if size > MOST_LINE and not line.endswith(b"\n"):
            line = line[:_BEGINNING]
            while rest := file.readline(_BLOCK):
                size += len(rest)
                if rest.endswith(b"\n"):
                    break
        yield line, size


def without_long_lines(descriptor: int) -> tuple[bytes, list[tuple[int, int]]]:
    """A file with only the beginning of lines that are longer than `MOST_LINE`, and where in it how
    many bytes are left out."""
    content, cuts = bytearray(), list[tuple[int, int]]()
    with open(descriptor, "rb", closefd=False) as file:
        for line, size in whole_lines(file):
            content += line
            if size > MOST_LINE:
                content += b"\n"
                cuts.append((len(content), size - len(line) - 1))
    return bytes(content), cuts


def blocks_backwards(descriptor: int, size: int) -> Iterator[tuple[int, bytes]]:
    """The first `size` bytes in blocks of whole lines, each with its offset, last block first, in
    linear time. Of a line that is longer than `MOST_LINE` only the beginning is held."""
    position, pieces = size, list[bytes]()
    while position > 0:
        step = min(_BLOCK, position)
        position -= step
        block = os.pread(descriptor, step, position)
        start = block.find(b"\n") + 1 if position else 0
        if position and not start:
            # Some more of a line whose end is dropped once it is too long.
            pieces = [block] if len(pieces) * _BLOCK > MOST_LINE else [*pieces, block]
            continue
        pieces.append(block[start:])
        yield position + start, b"".join(reversed(pieces))
        pieces = [block[:start]] if start else []


def tail_without_newline(descriptor: int, size: int) -> bytes | None:
    """What follows the last newline of the first `size` bytes, empty if all lines are whole; None
    if it is longer than `MOST_LINE`."""
    if size == 0 or os.pread(descriptor, 1, size - 1) == b"\n":
        return b""
    start, block = next(blocks_backwards(descriptor, size))
    start += block.rfind(b"\n") + 1
    return os.pread(descriptor, size - start, start) if size - start <= MOST_LINE else None


_ESCAPED = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_COMPACT = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_SPACED = json.JSONEncoder(ensure_ascii=False, allow_nan=False)


def json_line(value: object, *, compact: bool = True) -> str:
    """`value` as JSON on one line, without blanks where it is `compact`, with people's letters as
    they are, so that grep finds them. What would break a line, or hide in a terminal, stays
    escaped: control characters, the line ends of Unicode (U+0085, U+2028, U+2029), and lone
    surrogates, which UTF-8 cannot hold. Raises `ValueError` for a number that JSON does not have.
    """
    text = (_COMPACT if compact else _SPACED).encode(value)
    if text.isascii() and "\x7f" not in text:
        return text
    return _ESCAPED.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
