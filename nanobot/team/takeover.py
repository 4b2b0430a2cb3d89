"""What is cleared in the shared folder when a worker died: its temporary files.

A worker that was only stopped, and goes on after others took over, may have been about to rename a
temporary file over one that is theirs now. Its temporaries carry its number (`nanobot.io.Fence`);
without them, such a rename fails.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from pathlib import Path

from loguru import logger

_TEMPORARY = re.compile(r"\.[0-9a-f]{16}\.(\d+)\.nanobot-tmp")
_FOLDERS = ("sessions", "state", "workspace", "media")


def clear_temporaries(shared: Path, alive: Collection[int]) -> int:
    """Remove the temporary files of workers that are not `alive`; how many. One with a number above
    all of these began since, and lives. Blocks."""
    cleared, newest = 0, max(alive, default=0)
    for top in _FOLDERS:
        for folder, inner, names in os.walk(shared / top):
            inner[:] = [name for name in inner if name not in (".git", "node_modules", ".venv")]
            for name in names:
                found = _TEMPORARY.fullmatch(name)
                if found is None or int(found[1]) in alive or int(found[1]) > newest:
                    continue
                try:
                    Path(folder, name).unlink(missing_ok=True)
                    cleared += 1
                except OSError as error:
                    logger.warning("{}/{} of a dead worker stays: {}", folder, name, error)
    return cleared
