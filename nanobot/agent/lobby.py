"""Where messages wait: for their session's lane, for a model that is out, for a disk that refuses.

A message that cannot be handled now goes back to the head of its session, so that nothing overtakes
it but commands; it is taken up again when its time has come.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol

from loguru import logger

from nanobot.agent.mailbox import Mailbox
from nanobot.agent.outcomes import storage_text
from nanobot.agent.running import answered_event
from nanobot.bus.events import Notice, TurnEnded
from nanobot.bus.journal import InboxEntry
from nanobot.bus.lanes import Lanes
from nanobot.clock import Clock
from nanobot.errors import StorageError
from nanobot.tasks import Background

Handler = Callable[[InboxEntry], Awaitable[None]]

DISK_PAUSE = 10.0
"""Seconds until a message is tried again that the disk refused."""


class Notifier(Protocol):
    """Shows a person something that need not be kept."""

    def show(self, event: Notice | TurnEnded) -> None:
        """Best effort."""
        ...


class Lobby:
    """Hands each message to its handler, in its session's lane."""

    def __init__(
        self,
        mailbox: Mailbox,
        lanes: Lanes,
        notifier: Notifier,
        background: Background,
        clock: Clock,
    ) -> None:
        self._mailbox, self._lanes = mailbox, lanes
        self._notifier, self._background, self._clock = notifier, background, clock
        self._handle: Handler = _nobody

    def connect(self, handler: Handler) -> None:
        """Say who handles messages."""
        self._handle = handler

    def enter(self, entry: InboxEntry) -> None:
        """A new message, behind the others of its session."""
        self._mailbox.put(entry)
        self._call(entry.message.session_key, 1)

    def held(self, key: str) -> InboxEntry | None:
        """The message of a session that waits for the model or the disk, if any."""
        entry = self._mailbox.first(key) if self._mailbox.is_paused(key) else None
        return entry if entry is not None and entry.reason else None

    def keep(self, entry: InboxEntry) -> None:
        """The same, but nothing of its session is handled until `let_in`."""
        self._mailbox.put(entry)
        self._mailbox.pause(entry.message.session_key)

    def let_in(self, key: str) -> None:
        """Handle what waits in a session."""
        self._call(key, self._mailbox.resume(key))

    def let_in_later(self, key: str, seconds: float) -> None:
        """The same after a while."""
        self._background.start(self._go_on(key, seconds), name=f"wait {key}")

    def hold(self, entry: InboxEntry, seconds: float) -> None:
        """Keep a message at the head of its session until then."""
        self._mailbox.put_back(entry)
        self.let_in_later(entry.message.session_key, seconds)

    def hold_for_disk(self, entry: InboxEntry, error: StorageError) -> None:
        """The same for one that the disk refused; its person is told once."""
        self.hold(self.told_of_disk(entry, error), DISK_PAUSE)

    def told_of_disk(self, entry: InboxEntry, error: StorageError) -> InboxEntry:
        """Tell a message's person, if it has one, what the disk refused; the message with a note
        that they know."""
        inbound = entry.message
        logger.error("session {}: {}", inbound.session_key, error)
        if entry.reason != str(error):
            text = storage_text(error)
            place = (inbound.channel, inbound.chat_id)
            events = (answered_event(inbound),)
            if inbound.awaited:
                self._notifier.show(Notice(*place, text, inbound.thread_id))
            self._notifier.show(
                TurnEnded(*place, entry.turn_id, events, "held", thread_id=inbound.thread_id)
            )
        return replace(entry, reason=str(error))

    def take_all(self, key: str, before: int) -> list[InboxEntry]:
        """Everything that waits in a session and came before inbox entry `before`."""
        return self._mailbox.take_all(key, before)

    def take_those(self, key: str, wanted: Callable[[InboxEntry], bool]) -> list[InboxEntry]:
        """What waits in a session and is wanted; what waits behind it goes on at its time."""
        return self._mailbox.take_those(key, wanted)

    def give_back(self, key: str, entries: Sequence[InboxEntry]) -> None:
        """Let messages wait on that were taken."""
        self._mailbox.give_back(entries)
        self.let_in(key)

    async def in_lane(self, key: str, job: Callable[[], Awaitable[None]]) -> None:
        """Run a job in a session's lane, after all that is there; raises what it raises."""
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._lanes.submit(key, partial(_settle, ended, job))
        await ended

    def _call(self, key: str, times: int) -> None:
        for _ in range(times):
            self._lanes.submit(key, partial(self._next, key))

    async def _next(self, key: str) -> None:
        """One job of a lane: the next message, unless a turn took it or it may not be handled."""
        entry = self._mailbox.take(key)
        if entry is not None:
            await self._handle(entry)

    async def _go_on(self, key: str, seconds: float) -> None:
        await self._clock.sleep(seconds)
        self.let_in(key)


async def _settle(ended: asyncio.Future[None], job: Callable[[], Awaitable[None]]) -> None:
    try:
        await job()
    except Exception as error:  # noqa: BLE001 - handed to whoever waits for the job
        if not ended.done():
            ended.set_exception(error)
    else:
        if not ended.done():
            ended.set_result(None)


async def _nobody(_: InboxEntry) -> None:
    raise RuntimeError("nobody handles messages")
