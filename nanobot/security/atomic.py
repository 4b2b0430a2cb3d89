"""Replacing a file in an open folder so that a reader sees the old content or the new, never less.

Temporary file, fsync, rename, fsync of the folder. What stands there when the disk refuses or the
process dies is whole.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from contextlib import suppress

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def replace(
    folder: int, name: str, content: bytes, mode: int, last_check: Callable[[], None]
) -> None:
    """Put `content` in place as `name` in the folder with this descriptor.

    `last_check` runs when all is written, just before the rename, and raises to call it off. Raises
    `OSError` when the disk refuses. Callers see to it that there is one writer per folder.
    """
    temporary = _temporary_name(name)
    with suppress(FileNotFoundError):
        os.unlink(temporary, dir_fd=folder)
    try:
        descriptor = os.open(temporary, _CREATE, 0o600, dir_fd=folder)
        try:
            write_all(descriptor, content)
            os.fchmod(descriptor, mode)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        last_check()
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        raise
    os.fsync(folder)


def write_all(descriptor: int, content: bytes) -> None:
    """Write all of it where the descriptor stands. Raises `OSError`; some of it may be written
    then."""
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def read_up_to(descriptor: int, limit: int) -> bytes:
    """At most `limit` bytes from where the descriptor stands."""
    pieces, left = [], limit
    while left and (piece := os.read(descriptor, min(left, 1 << 20))):
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)


def _temporary_name(name: str) -> str:
    # The same for the same name: what a crash leaves behind is cleared by the next write.
    key = hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()
    return f".{key[:16]}.nanobot-tmp"
