"""A copy of a database that is in use, as it stands at one moment, in a file of its own."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from pathlib import Path

from nanobot.disk import sync_folder


def copy_to(connection: sqlite3.Connection, path: Path) -> None:
    """Write what `connection` sees to a new file at `path`, readable by its owner only, and sync
    it. Not within a transaction. Raises `sqlite3.Error` or `OSError`; nothing is left at `path`
    then."""
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    try:
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as target:
            connection.backup(target)
        with path.open("rb") as file:
            os.fsync(file.fileno())
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def keep_before(connection: sqlite3.Connection, path: Path, version: int) -> None:
    """Before the database at `path` is brought forward from `version`: keep it as
    `<name>.before-<version>`, and none of those from earlier times. Raises as `copy_to` does."""
    aside = path.with_name(f"{path.name}.before-{version}")
    building = path.with_name(f"{path.name}.before-new")
    building.unlink(missing_ok=True)
    copy_to(connection, building)
    building.replace(aside)
    sync_folder(path.parent)
    for older in path.parent.glob(f"{path.name}.before-*"):
        if older != aside:
            older.unlink(missing_ok=True)
