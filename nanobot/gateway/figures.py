"""How large things are: this process, and what lies in a home."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

SHARES = {
    "memory": ("workspace/memory", "workspace/people", "workspace/groups"),
    "sessions": ("sessions",),
    "media": ("media",),
    "versions": ("state/memory.git",),
    "index": ("state/index.db", "state/index.db-wal"),
    "journal": ("state/journal.db", "state/journal.db-wal"),
    "logs": ("logs",),
    "spill": ("spill",),
}
"""What a home holds, and where."""


@dataclass(frozen=True, slots=True)
class ProcessFigures:
    """This process. `resident` is in bytes."""

    resident: int
    descriptors: int
    threads: int
    tasks: int


def process_figures() -> ProcessFigures:
    """As Linux tells them. To be called on the event loop."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return ProcessFigures(
        pages * os.sysconf("SC_PAGE_SIZE"),
        len(os.listdir("/proc/self/fd")) - 1,  # noqa: PTH208 - less the one that this opens
        threading.active_count(),
        len(asyncio.all_tasks()),
    )


def sizes(home: Path) -> Mapping[str, int]:
    """Bytes in each of `SHARES`, counted by the files' lengths. Blocks."""
    return {name: sum(_size(home / path) for path in paths) for name, paths in SHARES.items()}


def _size(path: Path) -> int:
    """What a file or a folder holds; what goes while it is looked at counts as nothing."""
    try:
        if not path.is_dir() or path.is_symlink():
            return path.lstat().st_size
        entries = list(path.iterdir())
    except OSError:
        return 0
    return sum(map(_size, entries))
