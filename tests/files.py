"""Files of a home that may be in use, and a guard: no test and no part of nanobot opens a database
as a plain file while this process uses it.

A process that closes a file loses all its locks on the file, including the locks of SQLite
(fcntl(2), and https://www.sqlite.org/howtocorrupt.html, 2.2). Another process may then delete the
database's log, so later commits are lost, or empty its shared index, which kills readers with
SIGBUS. SQLite opens files without Python's audit events, so the guard ignores it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_DATABASE = re.compile(r".+\.db(-wal|-shm)?", re.DOTALL)


def guard_open_databases() -> None:
    """Let every `open` of a database in use fail. It can't be undone."""
    sys.addaudithook(_check)


def _check(event: str, arguments: tuple[object, ...]) -> None:
    if event != "open" or not isinstance(path := arguments[0], str | bytes | os.PathLike):
        return
    flags = arguments[2]
    creates = isinstance(flags, int) and flags & os.O_EXCL
    if not creates and _is_in_use(name := os.fsdecode(path)):
        raise AssertionError(f"{name} is in use by SQLite in this process")


def _is_in_use(name: str) -> bool:
    return bool(_DATABASE.fullmatch(name)) and os.path.realpath(name) in _open_files()


def _open_files() -> Iterator[str]:
    """Yield the paths of the open files, in Linux."""
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # closed in the meantime
            yield str(descriptor.readlink())


def read_file(path: Path) -> bytes:
    """Return the content of a file, also of a database in use. Raise `FileNotFoundError`."""
    if not _is_in_use(str(path)):
        return path.read_bytes()
    return subprocess.run(["cat", path], check=True, stdout=subprocess.PIPE).stdout


def copy_file(source: str | Path, target: str | Path) -> None:
    """Copy a file, also a database in use. Raise `FileNotFoundError`."""
    if _is_in_use(str(source)):
        subprocess.run(["cp", "-p", source, target], check=True)
    else:
        shutil.copy2(source, target)


def damage_file(path: Path, offset: int, size: int) -> None:
    """Overwrite a part of a file with zeros, also of a database in use, as a failing disk does."""
    if not _is_in_use(str(path)):
        with path.open("r+b") as file:
            file.seek(offset)
            file.write(bytes(size))
        return
    where = [f"of={path}", f"seek={offset}", f"count={size}"]
    subprocess.run(
        ["dd", "if=/dev/zero", "conv=notrunc", "iflag=count_bytes", "oflag=seek_bytes", *where],
        check=True,
        stderr=subprocess.DEVNULL,
    )


def files_with(folder: Path, *texts: str | bytes) -> list[Path]:
    """Return the files below `folder` that contain one of the texts, sorted."""
    sought = [text.encode() if isinstance(text, str) else text for text in texts]
    found = []
    for path in sorted(folder.rglob("*")):
        with suppress(FileNotFoundError):  # a temporary file that was renamed
            content = read_file(path) if path.is_file() else b""
            if any(text in content for text in sought):
                found.append(path)
    return found
