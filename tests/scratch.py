"""A folder for a test that is about files and not about a disk: in memory, where a sync takes no
time. Waiting for disks took a third of what tests of memory and of sessions took.

The sandboxes of commands hide `/dev`, so tests of them have their folders where pytest puts them.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_MEMORY = "/dev/shm"
_ENOUGH = 256 * 1024 * 1024
"""Bytes that are free, else the tests stay on the disk."""


@contextmanager
def scratch() -> Iterator[Path]:
    """A new folder, until the end. Instead of pytest's where a `conftest.py` says so."""
    with tempfile.TemporaryDirectory(dir=_place(), ignore_cleanup_errors=True) as name:
        yield Path(name)


def _place() -> str | None:
    with suppress(OSError):
        room = os.statvfs(_MEMORY)
        if room.f_bavail * room.f_frsize >= _ENOUGH and os.access(_MEMORY, os.W_OK):
            return _MEMORY
    return None
