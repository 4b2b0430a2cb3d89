"""The file of a database: how it is opened, brought forward, and spoken of when it refuses."""

from __future__ import annotations

import os
import shlex
import sqlite3
from collections.abc import Sequence
from pathlib import Path

from nanobot.bus.copying import keep_before
from nanobot.errors import StorageError


def open_file(path: Path, migrations: Sequence[str]) -> sqlite3.Connection:
    """Open or create the file. `migrations[n]` brings version n to n + 1; they only ever go
    forward. The file as it was before is kept beside it as `<name>.before-<version>`.

    Raises `StorageError` when the file cannot be used or comes from a newer nanobot.
    """
    connection = _connected(path)
    try:
        _migrate(connection, path, migrations)
    except sqlite3.Error as error:
        connection.close()
        raise storage_error(path, error) from error
    except StorageError:
        connection.close()
        raise
    return connection


def storable(text: str) -> str:
    """`text` as SQLite takes it: UTF-8, which has no lone surrogates."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")


def storage_error(path: Path, error: sqlite3.Error) -> StorageError:
    """What SQLite said about the file at `path`."""
    if getattr(error, "sqlite_errorname", "") in {"SQLITE_NOTADB", "SQLITE_CORRUPT"}:
        return StorageError(
            path,
            "it is damaged",
            hint=f"Move it aside (mv {shlex.quote(str(path))} {shlex.quote(f'{path}.broken')}) and"
            " start again: conversations and memory are in other files; only messages that were "
            "waiting in it need to be resent.",
        )
    return StorageError(path, str(error))


def _connected(path: Path) -> sqlite3.Connection:
    """A connection with the settings that the promises rest on."""
    try:
        # Made here, for its owner only: SQLite lets others read, and its side files follow it.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    except OSError as error:
        raise StorageError.of(path, error) from error
    except sqlite3.Error as error:
        raise storage_error(path, error) from error
    # A flipped bit in a text costs that text, not the whole query.
    connection.text_factory = lambda data: data.decode("utf-8", "replace")
    try:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("PRAGMA cache_size=-2000")
    except sqlite3.Error as error:
        connection.close()
        raise storage_error(path, error) from error
    return connection


def _migrate(connection: sqlite3.Connection, path: Path, migrations: Sequence[str]) -> None:
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    if version > len(migrations):
        raise StorageError(
            path,
            f"it was written by a newer nanobot (format {version})",
            hint="Install that version again, or start with another NANOBOT_HOME.",
        )
    if 0 < version < len(migrations):
        try:
            keep_before(connection, path, version)
        except OSError as error:  # what could not be taken back is not begun
            raise StorageError.of(path, error) from error
    if version < len(migrations):
        # All or none: what is kept beside it is the file that the older nanobot can open.
        steps = ";\n".join(migrations[version:])
        target = len(migrations)
        connection.executescript(f"BEGIN;{steps};PRAGMA user_version={target};COMMIT")
