"""The home that an import makes: nobody sees it before it is complete.

It is written in a folder of its own beside the target, on the same file system, readable by its
owner only, and then renamed. What a killed import left behind is cleared by the next one.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

from nanobot.agent.media import FOLDER, MediaStore, kept_name
from nanobot.disk import sync_folder
from nanobot.errors import NanobotError, StorageError
from nanobot.importing.source import blocks
from nanobot.security.paths import write_all
from nanobot.upkeep.room import has_room
from nanobot.upkeep.swapping import swap

RESERVE = 64 << 20
"""Bytes that are to stay free on the disk."""

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class NewHome:
    """A home at `folder`. With none everything is read and nothing is written."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._store = MediaStore(folder / "media") if folder else None

    def write(self, path: str, pieces: Iterable[bytes]) -> None:
        """Write a new file. Raises `StorageError`, and `OSError` where reading `pieces` does."""
        if self._folder is None:
            for _ in pieces:
                pass
            return
        target = self._folder / path
        try:
            _make(target.parent, self._folder)
            descriptor = os.open(target, _CREATE, 0o600)
        except OSError as error:
            raise StorageError.of(target, error) from error
        try:
            for piece in pieces:
                _fill(descriptor, piece, target)
            _fill(descriptor, b"", target)
        finally:
            os.close(descriptor)

    def copy(self, path: str, file: BinaryIO) -> None:
        """Write a new file that holds what `file` does. Raises as `write` does."""
        if self._folder is None:
            return
        self.write(path, blocks(file))
        if os.fstat(file.fileno()).st_mode & stat.S_IXUSR:
            (self._folder / path).chmod(0o700)

    def remove(self, path: str) -> None:
        """Take back a file that was written, or begun."""
        if self._folder is not None:
            (self._folder / path).unlink(missing_ok=True)

    def media(self, file: BinaryIO, name: str) -> str:
        """Keep a file that came with a message; its path in the new home. Raises as `write`."""
        data = file.read()
        kept = self._store.put(data, "", name) if self._store else kept_name(data, "", name)
        return f"{FOLDER}/{kept}"


class Staging:
    """The folder in which a home for `target` is made; one import at a time."""

    def __init__(self, target: Path) -> None:
        self._target = target
        self.folder = target.with_name(f".{target.name}.importing")
        self._lock = -1

    def __enter__(self) -> Staging:
        """Make it, empty. Raises `NanobotError`."""
        try:
            self.folder.parent.mkdir(parents=True, exist_ok=True)
            self.folder.mkdir(mode=0o700, exist_ok=True)
            self._lock = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.fchmod(self._lock, 0o700)  # which only its owner may
            for left in self.folder.iterdir():
                shutil.rmtree(left) if left.is_dir() else left.unlink()
        except BlockingIOError:
            os.close(self._lock)
            raise NanobotError(
                f"another import into {self._target} is at work", hint="Wait until it is done."
            ) from None
        except OSError as error:
            raise StorageError.of(self.folder, error) from error
        return self

    def __exit__(self, failed: type[BaseException] | None, *_: object) -> None:
        if failed is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
        os.close(self._lock)

    def expect_room(self, needed: int) -> None:
        """Raise `NanobotError` where the disk has no room for `needed` bytes."""
        if not has_room(self.folder, needed + RESERVE):
            raise NanobotError(
                f"{self.folder.parent} has no room for {needed + RESERVE >> 20:,} MiB",
                hint="Free some space, or import into another disk with --to.",
            )

    def put_in_place(self, aside: Path | None) -> None:
        """Let what was made be the home, durably. What stands there goes to `aside`; without one it
        is nothing, or an empty folder. Raises `StorageError`: all is as before then."""
        os.sync()  # thousands of files, which must be there when their folder gets its name
        try:
            if aside is None:
                self.folder.rename(self._target)
            else:
                swap(self.folder, self._target, aside)
            sync_folder(self._target.parent)
        except OSError as error:
            raise StorageError.of(self._target, error) from error


def _make(folder: Path, top: Path) -> None:
    """`mkdir -p` below `top`, for nobody else's eyes."""
    if folder != top and not folder.is_dir():
        _make(folder.parent, top)
        folder.mkdir(mode=0o700)


def _fill(descriptor: int, piece: bytes, target: Path) -> None:
    """Add to a file; make what was added durable where that is nothing more."""
    try:
        write_all(descriptor, piece)
        if not piece:
            os.fsync(descriptor)
    except OSError as error:
        raise StorageError.of(target, error) from error
