"""The operations `backup.list` and `backup.make`: backups that somebody asks a running nanobot for.

Making one takes as long as the home is large, so it goes on in the background, and `backup.list`
says how it stands. What packs a home is loaded when it is first needed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from loguru import logger

from nanobot.channel import Operation
from nanobot.clock import Clock
from nanobot.errors import NanobotError
from nanobot.tasks import Background
from nanobot.upkeep.snapshot import BackupOperations

if TYPE_CHECKING:
    from nanobot.upkeep.backups import BackupOrder, MadeBackup


class AskedBackups:
    """Those of `home` in the `configured` folder; `order` says what to make."""

    def __init__(
        self,
        home: Path,
        configured: str,
        order: Callable[[], BackupOrder],
        operations: BackupOperations,
        background: Background,
        clock: Clock,
    ) -> None:
        self._home, self._configured, self._order = home, configured, order
        self._operations, self._background, self._clock = operations, background, clock
        self._making: asyncio.Task[None] | None = None
        self._problem = ""

    def table(self) -> Mapping[str, Operation]:
        """By name, as they are called over the socket."""
        return {"backup.list": self.listed, "backup.make": self.make}

    async def listed(self, _: Mapping[str, object]) -> dict[str, object]:
        """The backups in `folder`, the newest first; `making` while one that was asked for is being
        made, `problem` why the last one was not. Raises `NanobotError`."""
        from nanobot.upkeep.backups import backup_folder, list_backups

        folder = backup_folder(self._home, self._configured)
        stored, zone = await asyncio.to_thread(list_backups, folder), self._clock.now().tzinfo
        return {
            "folder": str(folder),
            "backups": [
                {
                    "name": one.path.name,
                    "made_at": one.made_at.astimezone(zone).isoformat(),
                    "bytes": one.size,
                    "encrypted": one.encrypted,
                }
                for one in stored
            ],
            "making": self._is_making,
            "problem": self._problem,
        }

    async def make(self, _: Mapping[str, object]) -> dict[str, object]:
        """Begin to make one, unless one is being made."""
        begun = not self._is_making
        if begun:
            self._problem = ""
            self._making = self._background.start(self._attempt(), name="backup")
        return {"begun": begun}

    @property
    def _is_making(self) -> bool:
        return self._making is not None and not self._making.done()

    async def _attempt(self) -> None:
        try:
            made = await self._make()
            logger.info("backup made: {} ({:,} bytes)", made.path, made.size)
        except NanobotError as error:
            self._problem = f"{error} {error.hint}".strip()
            logger.error("the backup that was asked for could not be made: {}", self._problem)

    async def _make(self) -> MadeBackup:
        from nanobot.upkeep.backups import (
            backup_folder,
            backup_name,
            exclusive_backup,
            make_backup,
        )

        order = self._order()
        with exclusive_backup(self._home):
            taken = await self._operations.take()
            folder = backup_folder(self._home, self._configured)
            target = folder / backup_name(taken.made_at, order.recipient)
            return await asyncio.to_thread(
                make_backup, self._home, taken, target, order, lambda _more, _total: None
            )
