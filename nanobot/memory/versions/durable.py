"""Files of a git repository as they come onto the disk: whole, or not at all.

A temporary file, fsync, rename, and for what others point to fsync of the folder.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nanobot.disk import sync_folder
from nanobot.errors import StorageError
from nanobot.security.paths import replace

_CONFIG = (
    b"[core]\n\trepositoryformatversion = 0\n\tbare = true\n\tfilemode = false\n"
    b"\tlogAllRefUpdates = false\n\tfsyncObjectFiles = true\n"
)


def build(path: Path, branch: str) -> None:
    """Make an empty repository in the folder `path`, which is empty or is made."""
    path.mkdir(mode=0o700, exist_ok=True)
    for folder in ("objects", "objects/pack", "objects/info", "refs", "refs/heads"):
        (path / folder).mkdir(mode=0o700)
    write_file(path / "config", _CONFIG)
    write_file(path / "HEAD", f"ref: refs/heads/{branch}\n".encode())
    for folder in ("objects", "refs", ""):
        sync_folder(path / folder)


def blob_id(content: bytes) -> str:
    """The id that git gives this content of a file."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def write_file(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Replace a file, durably."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        replace(folder, path.name, content, mode, lambda: None)
    finally:
        os.close(folder)


def write_object(path: Path, content: bytes) -> None:
    """Write a file that is never changed. Its name is durable once a later one in this file system
    is: names are journalled in order, and git itself relies on that."""
    temporary = path.with_name(f".{path.name}.nanobot-tmp")
    temporary.unlink(missing_ok=True)
    with temporary.open("xb") as file:
        temporary.chmod(0o400)
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(path)


@contextmanager
def process_lock(path: Path) -> Iterator[None]:
    """Hold the lock in the file `path`; the system lets go of it when the process ends."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(path, flags, 0o600)
    except OSError as error:
        raise StorageError.of(path, error) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
