"""Helpers at work, in the journal: one that a crash takes along is missed at the next start.

What is stored of a helper is the very message that says so if it is lost. Its report has the same
event id, so that of the two the conversation gets whichever comes first, and never both. One that
cannot be read keeps no other from being said.
"""

from __future__ import annotations

from loguru import logger

from nanobot.bus.codec import decode_inbound, encode_inbound
from nanobot.bus.database import Database
from nanobot.bus.events import InboundMessage
from nanobot.clock import Clock


class HelperBook:
    """The helpers at work, behind the journal's `database`."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database, self._clock = database, clock

    async def begun(self, helper_id: str, if_lost: InboundMessage) -> None:
        """A helper is about to begin. Raises `StorageError`."""
        row = (helper_id, self._clock.now().isoformat(), encode_inbound(if_lost))
        await self._database.run(
            lambda db: db.execute("INSERT OR REPLACE INTO helper VALUES (?, ?, ?)", row)
        )

    async def ended(self, helper_id: str) -> None:
        """Its report is stored, or nobody wants one. Raises `StorageError`."""
        await self._database.run(
            lambda db: db.execute("DELETE FROM helper WHERE id = ?", (helper_id,))
        )

    async def lost(self) -> list[tuple[str, InboundMessage]]:
        """The helpers of an earlier process and what to say of each, the oldest first."""
        rows = await self._database.run(
            lambda db: db.execute("SELECT id, if_lost FROM helper ORDER BY started_at").fetchall()
        )
        read = [(helper_id, decoded(helper_id, text)) for helper_id, text in rows]
        return [(helper_id, message) for helper_id, message in read if message is not None]


def decoded(helper_id: str, if_lost: str) -> InboundMessage | None:
    """What is to be said of a helper; None where it cannot be read."""
    try:
        return decode_inbound(if_lost)
    except ValueError as error:
        logger.warning("what is to be said of helper {} cannot be read: {}", helper_id, error)
        return None
