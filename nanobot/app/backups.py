"""Backups of a running home: the snapshot that others ask for, and those made by themselves."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from loguru import logger

import nanobot
from nanobot.app.base import Base
from nanobot.config.settings import Settings
from nanobot.cron.schedule import parse
from nanobot.errors import StorageError
from nanobot.gateway.health import Concern
from nanobot.upkeep.selection import SNAPSHOT
from nanobot.upkeep.snapshot import BackupOperations

if TYPE_CHECKING:
    from nanobot.upkeep.backups import Order
    from nanobot.upkeep.schedule import BackupRoutine

_MEGABYTE = 1_000_000
Operation = Callable[[Mapping[str, object]], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Backups:
    """The operations, and the routine where a schedule is set."""

    home: Path
    operations: BackupOperations
    routine: BackupRoutine | None

    @property
    def routines(self) -> tuple[BackupRoutine, ...]:
        """What runs by itself."""
        return (self.routine,) if self.routine else ()

    def begin(self) -> None:
        """Clear what a process that was killed has left: second names of what may be erased."""
        if not (self.home / SNAPSHOT).exists():
            return
        from nanobot.upkeep.backups import UnderWay, alone

        try:
            with alone(self.home):
                logger.info("what a backup that was cut short left is cleared")
        except UnderWay:
            return
        except StorageError as error:
            logger.warning("what a backup left cannot be cleared: {}", error)

    def table(self) -> Mapping[str, Operation]:
        """The operations by name."""
        return self.operations.table()

    def concern(self) -> Concern | None:
        """That the backup which was due could not be made, or older ones not be removed."""
        trouble = self.routine.trouble if self.routine else ""
        if not trouble:
            return None
        return Concern(
            "degraded",
            trouble,
            "It is tried again by itself; `nanobot backup` makes one at once.",
        )


def build_backups(base: Base) -> Backups:
    """Put it together."""
    settings, clock, home = base.settings, base.clock, base.settings.home
    operations = BackupOperations(home, base.stores.journal.database, clock, live=True)
    if not settings.backup.schedule:
        return Backups(home, operations, None)
    from nanobot.upkeep.backups import folder_of
    from nanobot.upkeep.schedule import BackupRoutine

    routine = BackupRoutine(
        home,
        folder_of(home, settings.backup.folder),
        parse(settings.backup.schedule),
        settings.backup.keep,
        order_of(settings),
        operations,
        clock,
        base.courier.warn,
    )
    return Backups(home, operations, routine)


def order_of(settings: Settings) -> Order:
    """What the configuration wants of a backup."""
    from nanobot.upkeep.backups import Order

    return Order(
        media=settings.backup.media,
        recipient=settings.backup.recipient,
        version=nanobot.__version__,
        reserve=settings.retention.disk_reserve_megabytes * _MEGABYTE,
    )
