"""What looks after the home: room on its disk, and what is not kept for ever."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from nanobot.app.base import Base
from nanobot.bus.sqlite_reports import mentioned
from nanobot.gateway.health import Concern
from nanobot.upkeep.retention import MEDIA_NAME, Limits, Retention
from nanobot.upkeep.room import Room


@dataclass(frozen=True, slots=True)
class Upkeep:
    """The routines, and what they have to say about the health."""

    room: Room
    retention: Retention

    @property
    def routines(self) -> tuple[Room, Retention]:
        """What runs by itself."""
        return self.room, self.retention

    def concern(self) -> Concern | None:
        """That messages wait because the disk is nearly full."""
        return Concern("failing", self.room.text, self.room.hint) if self.room.low else None


def build_upkeep(base: Base) -> Upkeep:
    """Put it together."""
    settings, clock = base.settings, base.clock
    kept = settings.retention
    limits = Limits(kept.media_days, kept.media_megabytes, kept.spill_days, kept.audit_days)
    database = base.stores.journal.database

    async def awaited() -> frozenset[str]:
        return await database.run(lambda db: mentioned(db, MEDIA_NAME))

    return Upkeep(
        Room(
            settings.home,
            kept.disk_reserve_megabytes,
            base.bus,
            clock,
            partial(base.courier.warn_elsewhere, ""),
        ),
        Retention(settings.home, limits, clock, awaited),
    )
