"""A consistent snapshot of a home while a gateway works in it.

Files that refer to each other are taken *together* (see `contents`), within one pause:

- The journal's writer thread takes them between two transactions. So nothing is received, completed
  or marked as filed in between: what the journal's copy says is done stands in its session's file
  or in the copy's `unfiled` lines, also if a session's writer still appends it. A start from the
  copy appends what is missing, and nothing twice, as after a power cut at that moment.
- Writers of memory versions wait: files and versions belong together.
- Conversations, versions and channel files are hard-linked instead of read; a file that is replaced
  later keeps its old content here, and of a file that grows the size is recorded. The few others
  are copied. So the pause takes milliseconds where reading took minutes.

What the pause does not stop (a history entry, a session's mark) is taken in the order of
`backup_items`, so that it looks like a crash between two steps, which a start repairs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Protocol

from loguru import logger
from msgspec import Struct, convert, to_builtins
from msgspec.structs import replace

from nanobot.channel import Operation
from nanobot.clock import Clock
from nanobot.errors import StorageError
from nanobot.io import locked
from nanobot.upkeep import SNAPSHOT
from nanobot.upkeep.contents import (
    JOURNAL,
    BackupItem,
    backup_items,
    may_be_linked,
    open_plain,
)

OPERATION = "backup.snapshot"
_MOST_COPIED = 8 << 20
"""Bytes of the largest file that is copied while the journal stands still."""
_LIST, _JOURNAL, _MEMORY_LOCK = "snapshot.json", "journal.db", "state/versions.lock"


class Snapshot(Struct, frozen=True):
    """A snapshot in `state/backup`, with what is in it. `live`: a gateway ran."""

    live: bool
    made_at: datetime
    items: tuple[BackupItem, ...]

    def save(self, home: Path) -> None:
        """Write it down for the process that packs it. Raises `OSError`."""
        (home / SNAPSHOT / _LIST).write_text(json.dumps(to_builtins(self)))

    @classmethod
    def load(cls, home: Path) -> Snapshot:
        """The one that stands in `home`. Raises `OSError` where there is none."""
        return convert(json.loads((home / SNAPSHOT / _LIST).read_text()), cls)


class Freezable(Protocol):
    """A journal that is kept in a file of the home, which is what is backed up here."""

    async def freeze(self, copy: Path, meanwhile: Callable[[], None]) -> None:
        """Write a copy to the file `copy` and call `meanwhile` while nothing is stored."""
        ...


class BackupOperations:
    """The operations `backup.…` of one home. The caller holds `backups.exclusive_backup`."""

    def __init__(self, home: Path, journal: Freezable, clock: Clock, *, live: bool) -> None:
        self._home, self._journal, self.clock, self._live = home, journal, clock, live
        # A second request may come before the first is done: its caller may have disconnected.
        self._taking = asyncio.Lock()

    def table(self) -> Mapping[str, Operation]:
        """By name, as they are called over the socket."""
        return {OPERATION: self._snapshot}

    async def _snapshot(self, _: Mapping[str, object]) -> dict[str, object]:
        await self.take()
        return {}

    async def take(self) -> Snapshot:
        """Take one into `state/backup`. Raises `StorageError`."""
        folder = self._home / SNAPSHOT
        # Memory may be being written: wait for the lock in a thread.
        lock = locked(self._home / _MEMORY_LOCK, wait=True)
        try:
            async with self._taking:
                await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
                folder.mkdir(mode=0o700)
                await asyncio.to_thread(lock.__enter__)
                items = list[BackupItem]()
                try:
                    await self._journal.freeze(
                        folder / _JOURNAL, lambda: items.extend(freeze_home(self._home))
                    )
                finally:
                    lock.__exit__(None, None, None)
                taken = Snapshot(self._live, self.clock.now(), tuple(items))
                await asyncio.to_thread(taken.save, self._home)
                return taken
        except OSError as error:
            raise StorageError.of(error.filename or folder, error) from error


def freeze_home(home: Path) -> list[BackupItem]:
    """Keep what is taken together in `state/backup`, next to the journal's copy. Raises
    `OSError`."""
    folder = home / SNAPSHOT
    status, source = (folder / _JOURNAL).stat(), f"{SNAPSHOT}/{_JOURNAL}"
    frozen = [BackupItem(JOURNAL, "file", 0o600, int(status.st_mtime), status.st_size, source)]
    for number, item in enumerate(backup_items(home, [], together=True)):
        linked = may_be_linked(item.path)
        if item.kind != "file" or (item.size > _MOST_COPIED and not linked):
            frozen.append(item)  # so large a one is none of ours: it is read when there is time
            continue
        place = folder / str(number)
        with contextlib.suppress(FileNotFoundError):
            if linked:
                _link(home / item.path, place)
            if not place.exists():
                with open_plain(home, item.path) as file, place.open("xb") as kept:
                    shutil.copyfileobj(file, kept)
            size, source = place.stat().st_size, f"{SNAPSHOT}/{number}"
            frozen.append(replace(item, size=size, source=source))
    return frozen


def _link(path: Path, place: Path) -> None:
    """Give the file a second name, if the file system has such names and it is the same one."""
    try:
        os.link(path, place)
    except FileNotFoundError:
        raise
    except OSError as error:
        logger.debug("{} is copied: {}", path, error)
