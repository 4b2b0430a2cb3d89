"""Scheduled jobs, and the chats that they and the heartbeat speak in."""

from __future__ import annotations

from dataclasses import dataclass

from nanobot.app.base import Base
from nanobot.app.channels import KnownChats
from nanobot.cron.service import CronService
from nanobot.cron.store import JobStore
from nanobot.memory.scopes import OWNER, Scopes


@dataclass(frozen=True, slots=True)
class JobChats:
    """The chats that a job can speak in, and whose they are."""

    known: KnownChats
    scopes: Scopes

    def addresses(self) -> list[str]:
        """Those that something can be sent to at any time, the one used last first. Blocks."""
        return [address for address, _ in self.known.chats()]

    def scope_of(self, address: str) -> str:
        """Whose chat it is. Blocks."""
        return self.scopes.of_session(address, self.known.metadata_of(address))

    def owners_latest(self) -> str:
        """The chat that the owner used last and may still be reached in; empty where there is none.
        Blocks."""
        owners = (one for one in self.addresses() if self.scope_of(one) == OWNER)
        return next((one for one in owners if self.known.may_reach(one)), "")


def build_cron(base: Base) -> CronService:
    """The scheduled jobs; their runs are messages on the bus."""
    return CronService(
        JobStore(base.stores.state / "jobs.json"),
        base.bus.note,
        base.clock,
        busy=base.stores.journal.is_busy,
        may_reach=base.known.may_reach,
    )
