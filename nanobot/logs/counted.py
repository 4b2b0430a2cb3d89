"""How often something went wrong since the start."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from loguru import logger

from nanobot.logs.outputs import unformatted

if TYPE_CHECKING:
    from loguru import Message


class Counted:
    """Counts the log's warnings and errors from `begin` to `close`, whatever level is written. The
    log must have been set up before: setting it up again ends the counting."""

    def __init__(self) -> None:
        self.warnings = 0
        self.errors = 0
        self._sink: int | None = None

    def begin(self) -> None:
        """Count from now on."""
        if self._sink is None:
            self._sink = logger.add(self._count, level="WARNING", format=unformatted)

    async def close(self) -> None:
        """Count no more."""
        if self._sink is not None:
            with suppress(ValueError):  # the log was set up anew meanwhile
                logger.remove(self._sink)
        self._sink = None

    def _count(self, message: Message) -> None:
        if message.record["level"].no >= logger.level("ERROR").no:
            self.errors += 1
        else:
            self.warnings += 1
