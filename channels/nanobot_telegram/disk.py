"""Replacing the adapter's own small files: a reader sees the old content or the new."""

from __future__ import annotations

import os
from pathlib import Path


def replace(path: Path, content: bytes, *, durable: bool) -> None:
    """Put `content` in place of the file, for its owner's eyes (0600).

    `durable`: it is whole after a loss of power as well. Raises `OSError` when the disk refuses.
    """
    temporary = path.with_suffix(".new")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(temporary, flags, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(descriptor, 0o600)  # one that a crash left behind may have other rights
        file.write(content)
        file.flush()
        if durable:
            os.fsync(descriptor)
    temporary.replace(path)
    if durable:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
