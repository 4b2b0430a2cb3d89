"""Helpers at work, in the journal: one that a crash takes along is missed at the next start.

What is stored of a helper is the very message that says so if it is lost. Its report has the same
event id, so that of the two the conversation gets whichever comes first, and never both.
"""

from __future__ import annotations

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
        return [(helper_id, decode_inbound(text)) for helper_id, text in rows]
