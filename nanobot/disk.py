"""Small files that are replaced as a whole, and names that are on the disk for good."""

from __future__ import annotations

import os
from pathlib import Path


def replace(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Put `content` in place of the file, for its owner's eyes (0600): whoever reads it sees what
    it was before or what it is now. One writer at a time.

    `durable`: also whoever reads it after a loss of power. Raises `OSError` where the disk refuses;
    the file is as it was then. For folders of ours: where others put names as well, use
    `security.paths`.
    """
    new = path.with_name(f"{path.name}.new")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(new, flags, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(descriptor, 0o600)  # one that a crash left behind may have other rights
        file.write(content)
        file.flush()
        if durable:
            os.fsync(descriptor)
    new.replace(path)
    if durable:
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """See to it that the names in a folder are on the disk. Raises `OSError`."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
