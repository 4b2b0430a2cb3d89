"""Files and folders for durable state: atomic replacement, synced names, locks, and JSON lines.

All writes to session files go through `FileOps`, so a test can make each step fail."""

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
    """Turn an `OSError` inside into a `StorageError` about `path`."""
    try:
        yield
    except OSError as error:
        raise StorageError.of(path, error) from error


class Fence:
    """A gate before each change of a file. In a team, workers share a folder, and a worker that
    lost contact with the others must not change files there.

    `wait` returns when this process may change files. It blocks while the database is unreachable,
    so large work on files runs in threads, and the event loop calls `wait_aside` before a small
    change."""

    def __init__(self) -> None:
        self.epoch = ""
        """Part of temporary file names. A successor removes those files, so late renames fail."""
        self.wait: Callable[[], None] = lambda: None  # no team: only this process changes files
        self.is_open: Callable[[], bool] = lambda: True
        """Return True if `wait` would return at once."""
        self.made: set[tuple[int, int]] = set()
        """Files (device, inode) that this process made. It appends to no others, so late appends
        of a predecessor go to a file that has no name any more."""
        self.shared: Path | None = None
        self.locks: Path | None = None
        """Folder for locks on files in `shared`: a stopped worker's lock would outlive its lease,
        and order between workers needs no such locks."""

    async def wait_aside(self) -> None:
        """Run `wait`, in a thread if it would block."""
        if not self.is_open():
            import asyncio  # not needed by commands that only read files

            await asyncio.to_thread(self.wait)

    def place_of_lock(self, path: Path) -> Path:
        """Return the path of the file to lock for `path`."""
        if self.shared is None or self.locks is None or not path.is_relative_to(self.shared):
            return path
        return self.locks / path.relative_to(self.shared)


FENCE = Fence()
"""The fence of this process."""


MOST_DESCRIPTORS = 16_384
"""Most files and connections of this process. Child processes inherit the limit, and some close
every descriptor below it: a higher limit would cost each of them seconds."""


def raise_descriptor_limit() -> None:
    """Raise this process's limit of open files and connections as far as allowed, up to
    `MOST_DESCRIPTORS`. The usual limit of 1,024 dates from `select`."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(MOST_DESCRIPTORS, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class FileOps:
    """The real operations that change a disk. Tests subclass it to fail."""

    def write(self, descriptor: int, data: memoryview) -> int:
        """Write some of `data` and return the number of bytes."""
        FENCE.wait()
        return os.write(descriptor, data)

    def sync(self, descriptor: int) -> None:
        """Make a file's content survive a power cut."""
        os.fdatasync(descriptor)

    def sync_folder(self, descriptor: int) -> None:
        """Make the names in a folder survive a power cut."""
        os.fsync(descriptor)

    def truncate(self, descriptor: int, size: int) -> None:
        FENCE.wait()
        os.ftruncate(descriptor, size)

    def rename(self, folder: int, source: str, target: str) -> None:
        """Rename within the folder with this descriptor, replacing `target`."""
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
    """Replace a file atomically, with `durable` also across a power cut. Only one writer at a time.

    `content` may be read from the old file. `last_check` runs after the writes, just before the
    rename, and raises to cancel it. Raises `OSError`. The file is then unchanged."""
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
    """Do `replace_file` for `name` in the folder with this descriptor."""
    temporary = temporary_name(name)
    with suppress(FileNotFoundError):
        os.unlink(temporary, dir_fd=folder)
    try:
        descriptor = os.open(temporary, _NEW, 0o600, dir_fd=folder)
        try:
            for block in (content,) if isinstance(content, bytes) else _blocks(content):
                write_all(descriptor, block, files)
            os.fchmod(descriptor, mode)
            if durable:  # before the rename, or a power cut could leave an empty file
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
    """Return the name of the temporary file for `name`. It is the same each time for a worker, so
    the next write clears the leftovers of a crash."""
    key = hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()
    return f".{key[:16]}{FENCE.epoch}.nanobot-tmp"


def own_inode(path: Path) -> None:
    """Do `own_inode_in` for the file at `path`."""
    if FENCE.epoch:
        with _folder(path.parent) as folder:
            own_inode_in(folder, path.name)


def own_inode_in(folder: int, name: str) -> None:
    """Prepare an append: in a team, copy the file if another process made its inode. Do nothing
    outside a team, or if there is no plain file. Raises `OSError`."""
    if not FENCE.epoch:
        return
    with suppress(FileNotFoundError):
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if not stat.S_ISREG(status.st_mode):
            return
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        with os.fdopen(descriptor, "rb") as file:
            # NFS may cache the status of a name, but not of a newly opened file.
            status = os.fstat(descriptor)
            if _identity(status) in FENCE.made:
                return
            replace_in(folder, name, iter(lambda: file.read(_BLOCK), b""), status.st_mode & 0o777)
        FENCE.made.add(_identity(os.stat(name, dir_fd=folder, follow_symlinks=False)))


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def write_new(path: Path, pieces: Iterable[bytes], files: FileOps = DISK) -> None:
    """Write and sync a new file (0600) that must not exist. On failure, remove it. At most a block
    of the `pieces` is held at a time."""
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
    """Write all bytes at the descriptor's position, in several calls if needed. Raises `OSError`,
    after which some may be written."""
    rest = memoryview(data)
    while rest:
        rest = rest[files.write(descriptor, rest) :]


def append_line(path: Path, line: bytes) -> int:
    """Append a line, given without its end, to a log that only this process writes. Create the file
    (0600) if needed. Return its new size. A line that a full disk or a crash cut short gets its end
    first. Raises `OSError`."""
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(path, flags, 0o600), "ab") as file:
        size = os.fstat(file.fileno()).st_size
        # A crash or a full disk may have torn the last line.
        is_torn = size and os.pread(file.fileno(), 1, size - 1) != b"\n"
        file.write((b"\n" if is_torn else b"") + line + b"\n")
        file.flush()
        return os.fstat(file.fileno()).st_size


def rotate_files(names: Sequence[Path]) -> None:
    """Rename each file to the next name in the list, dropping the last one. Raises `OSError`."""
    for newer, older in zip(names[-2::-1], names[:0:-1], strict=True):
        with suppress(FileNotFoundError):
            newer.replace(older)


def read_up_to(descriptor: int, limit: int) -> bytes:
    """Read at most `limit` bytes from the descriptor's position."""
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
"""Homes that this process owns. A missing one was moved and is not created again: running work
would continue in an empty home."""


def make_folder(folder: Path, files: FileOps = DISK) -> None:
    """Create `folder` and its parents as needed, and sync each name. Raises `FileNotFoundError`
    instead of creating a home of `OWNED`."""
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
    """Join small pieces, so that there are few writes."""
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
    """Hold a lock on the file `path` and yield its descriptor. Create the file if needed and never
    remove it: a second process could otherwise lock a new file of the same name.

    Child processes don't inherit the lock, and the kernel drops it with the process. A `shared`
    lock excludes only exclusive ones. Raises `StorageError`, and `BlockingIOError` if another
    process has the lock, unless `wait` is set."""
    path = FENCE.place_of_lock(path)
    try:
        make_folder(path.parent)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            descriptor = os.open(path, flags, 0o600)
        except OSError as error:
            if error.errno != errno.EROFS or not path.exists():  # a lock needs no write access
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
        # Unlock at once, although a child may be in `exec`. Not after a failure: a child that got
        # the descriptor may still work.
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)


class FileState(Struct, frozen=True):
    """Version of a file: equal as long as the file is unchanged."""

    inode: int
    size: int
    modified: int

    @classmethod
    def of(cls, status: os.stat_result) -> FileState:
        return cls(status.st_ino, status.st_size, status.st_mtime_ns)


def lstate_of(path: str) -> FileState | None:
    """Return the state of the file or link at `path`, or None if it can't be read. It changes
    whenever the file does. One system call."""
    try:
        return FileState.of(os.lstat(path))
    except OSError:
        return None


def state_of(path: Path) -> FileState | None:
    """Return the state of the file at `path`, or None if it doesn't exist."""
    try:
        return FileState.of(path.stat())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageError.of(path, error) from error


@contextmanager
def open_regular(path: Path, flags: int = os.O_RDONLY) -> Iterator[int]:
    """Yield a descriptor of a regular file. Raises `StorageError` for anything else, without
    blocking."""
    descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK)  # opening a FIFO would block
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise StorageError(path, "it is not a regular file", hint="Move it away.")
        yield descriptor
    finally:
        os.close(descriptor)


MOST_LINE = 64 << 20
"""Bytes of the longest line to read: six times the longest message, which JSON can make six times
as long. nanobot writes no longer line. Of a longer one only the beginning is read, which is not
valid JSON."""
_BEGINNING = 4096


def whole_lines(file: BinaryIO) -> Iterator[tuple[bytes, int]]:
    """Yield the lines of a file from its position, each with its size. Only the beginning of a line
    longer than `MOST_LINE` is held."""
    while line := file.readline(MOST_LINE + 1):
        size = len(line)
        if size > MOST_LINE and not line.endswith(b"\n"):
            line = line[:_BEGINNING]
            while rest := file.readline(_BLOCK):
                size += len(rest)
                if rest.endswith(b"\n"):
                    break
        yield line, size


def line_blocks(file: BinaryIO) -> Iterator[list[bytes]]:
    """Yield the same lines, many at a time."""
    if os.fstat(file.fileno()).st_size > MOST_LINE:
        yield from ([line] for line, _ in whole_lines(file))
    else:
        yield from iter(lambda: file.readlines(_BLOCK), [])


def without_long_lines(descriptor: int) -> tuple[bytes, list[tuple[int, int]]]:
    """Read a file, with only the beginning of lines longer than `MOST_LINE`. Return it and the
    cuts: their offsets in it and the bytes left out."""
    content, cuts = bytearray(), list[tuple[int, int]]()
    with open(descriptor, "rb", closefd=False) as file:
        for line, size in whole_lines(file):
            content += line
            if size > MOST_LINE:
                content += b"\n"
                cuts.append((len(content), size - len(line) - 1))
    return bytes(content), cuts


def blocks_backwards(descriptor: int, size: int) -> Iterator[tuple[int, bytes]]:
    """Yield the first `size` bytes in blocks of whole lines with their offsets, last block first,
    in linear time. Only the beginning of a line longer than `MOST_LINE` is held."""
    position, pieces = size, list[bytes]()
    while position > 0:
        step = min(_BLOCK, position)
        position -= step
        block = os.pread(descriptor, step, position)
        start = block.find(b"\n") + 1 if position else 0
        if position and not start:
            # More of the same line. Its end is dropped once it is too long.
            pieces = [block] if len(pieces) * _BLOCK > MOST_LINE else [*pieces, block]
            continue
        pieces.append(block[start:])
        yield position + start, b"".join(reversed(pieces))
        pieces = [block[:start]] if start else []


def tail_without_newline(descriptor: int, size: int) -> bytes | None:
    """Return the bytes after the last newline of the first `size` bytes, empty if all lines are
    whole, or None if longer than `MOST_LINE`."""
    if size == 0 or os.pread(descriptor, 1, size - 1) == b"\n":
        return b""
    start, block = next(blocks_backwards(descriptor, size))
    start += block.rfind(b"\n") + 1
    return os.pread(descriptor, size - start, start) if size - start <= MOST_LINE else None


_ESCAPED = "[\x7f-\x9f\u2028\u2029\ud800-\udfff]"
_COMPACT = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_SPACED = json.JSONEncoder(ensure_ascii=False, allow_nan=False)


def json_line(value: object, *, compact: bool = True) -> str:
    """Return `value` as one line of JSON, without blanks if `compact`. Letters are not escaped, so
    grep finds them. Control characters, Unicode line ends (U+0085, U+2028, U+2029) and lone
    surrogates stay escaped. Raises `ValueError` for a number that JSON doesn't have."""
    text = (_COMPACT if compact else _SPACED).encode(value)
    if text.isascii() and "\x7f" not in text:
        return text
    return re.sub(_ESCAPED, lambda match: f"\\u{ord(match[0]):04x}", text)
