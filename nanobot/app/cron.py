"""Scheduled jobs and reminders, and the chats that they and the heartbeat speak in."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from nanobot.agent.notifier import note_for_chat
from nanobot.app.base import Base
from nanobot.app.channels import KnownChats
from nanobot.app.delivery import split_for
from nanobot.bus.events import NANOBOT, InboundMessage, OutboundMessage
from nanobot.bus.journal import Outgoing
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


async def remind(
    send: Callable[[str, Outgoing], Awaitable[object]],
    keep: Callable[[InboundMessage], Awaitable[object]],
    split: Callable[[OutboundMessage], tuple[OutboundMessage, ...]],
    message: InboundMessage,
) -> None:
    """Send a reminder to its chat, and let the conversation there know of it. Done again, it
    changes nothing: both go by the event's id. Raises `StorageError`."""
    text, there = message.content, message.address
    told = OutboundMessage(there.channel, there.chat_id, text, thread_id=there.thread_id)
    await send(message.event_id, Outgoing("reply", split(told)))
    origins = () if message.origin == NANOBOT else (message.origin,)
    await keep(note_for_chat(message, text, origins, message.timestamp))


def build_cron(base: Base) -> CronService:
    """The scheduled jobs; their runs are messages on the bus."""
    return CronService(
        JobStore(base.stores.state / "jobs.json"),
        base.bus.note,
        base.clock,
        remind=partial(
            remind,
            base.bus.send,
            base.bus.note,
            partial(split_for, base.outlets, base.stores.media),
        ),
        busy=base.stores.journal.is_busy,
        may_reach=base.known.may_reach,
    )
