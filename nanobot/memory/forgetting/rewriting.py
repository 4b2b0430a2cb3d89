"""Taking a text out of single files, each in the way that its kind bears. Blocks.

A file is replaced as a whole or not at all, and left alone where somebody changes it meanwhile. One
that a process appends to all the time (a log) is changed in place, byte for byte: its length stays,
so nothing that is appended is lost.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from nanobot.disk import sync_folder
from nanobot.errors import StorageError, WriteConflict
from nanobot.memory.forgetting.needle import Needle, blot
from nanobot.memory.forgetting.scanning import matches
from nanobot.security.paths import replace

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
                replace(folder, path.name, redacted, before[-1], unchanged)
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
