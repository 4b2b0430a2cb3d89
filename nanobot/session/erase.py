"""Rewriting what sessions keep, for a text that must be gone from them.

Nothing else ever changes a line once it is written. Segments are rewritten before the live file,
each by replacement, so that a crash leaves every file whole, and doing it again finishes what was
cut short. Lines that nothing is taken from stay byte for byte; numbers and order stay.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from nanobot.errors import StorageError
from nanobot.session.archive import segments
from nanobot.session.files import FileOps, opened, replace_file

Redact = Callable[[str], str]
"""Gives back a line, without its newline, as it may stay; the same line where all of it may."""


def rewrite(files: FileOps, path: Path, folder: Path, redact: Redact) -> int:
    """Pass each line of the live file at `path` and of the segments in `folder` through `redact`;
    returns how many changed.

    Nothing may append to the file meanwhile. Raises StorageError; every file is then whole.
    """
    try:
        changed = sum(rewrite_file(files, segment.path, redact) for segment in segments(folder))
        return changed + rewrite_file(files, path, redact)
    except OSError as error:
        raise StorageError.of(path, error) from error


def rewrite_file(files: FileOps, path: Path, redact: Redact) -> int:
    """The same for one file; 0 where there is none."""
    try:
        with opened(path) as descriptor, open(descriptor, "rb", closefd=False) as file:
            lines = file.read().split(b"\n")
    except FileNotFoundError:
        return 0
    redacted = [_redacted(line, redact) for line in lines]
    changed = sum(new != old for new, old in zip(redacted, lines, strict=True))
    if changed:
        replace_file(files, path, [b"\n".join(redacted)])
    return changed


def _redacted(line: bytes, redact: Redact) -> bytes:
    text = line.decode("utf-8", "surrogateescape")
    return redact(text).encode("utf-8", "surrogateescape")
