"""The operations `backup.list` and `backup.make`: backups that somebody asks a running nanobot for.

Making one takes as long as the home is large, so it goes on in the background, and `backup.list`
says how it stands.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from loguru import logger

from nanobot.channel import Operation
from nanobot.clock import Clock
from nanobot.errors import NanobotError
from nanobot.tasks import Background
from nanobot.upkeep.backups import BackupMaker, list_backups


class AskedBackups:
    """Those that `maker` makes."""

    def __init__(self, maker: BackupMaker, background: Background, clock: Clock) -> None:
        self._maker, self._background, self._clock = maker, background, clock
        self._making: asyncio.Task[None] | None = None
        self._problem = ""

    def table(self) -> Mapping[str, Operation]:
        """By name, as they are called over the socket."""
        return {"backup.list": self.listed, "backup.make": self.make}

    async def listed(self, _: Mapping[str, object]) -> dict[str, object]:
        """The backups in `folder`, the newest first; `making` while one that was asked for is being
        made, `problem` why the last one was not. Raises `NanobotError`."""
        folder, zone = self._maker.folder, self._clock.now().tzinfo
        stored = await asyncio.to_thread(list_backups, folder)
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
            await self._maker.make()
        except NanobotError as error:
            self._problem = f"{error} {error.hint}".strip()
            logger.error("the backup that was asked for could not be made: {}", self._problem)
