"""From the helper's spool to the core's inbox, with what hangs on it: read receipts and quotes.

Whoever takes an event from here may confirm it to the helper: it is in the inbox, or it was nothing
for us, or it is put aside. While the disk refuses, nothing is confirmed and the spool keeps it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

from loguru import logger

from nanobot.channel import ChannelHost
from nanobot.channel.health import RateLimitedLog
from nanobot.channel.quarantine import Quarantine
from nanobot.channel.waiting import Backoff
from nanobot.errors import SendError, StorageError
from nanobot_whatsapp.linked.events import Spoken, Unreadable, read, unreadable
from nanobot_whatsapp.linked.outbound import Link
from nanobot_whatsapp.linked.protocol import Event, Me
from nanobot_whatsapp.linked.quoting import Quotables
from nanobot_whatsapp.linked.standing import Standing
from nanobot_whatsapp.taking import Taking

_LONGEST_PAUSE = 30.0
"""Seconds between attempts to store something."""
_MOST_UNREAD = 256


class Inbox:
    """Takes events. `receipts`: those who wrote are shown that it was read."""

    def __init__(
        self,
        host: ChannelHost,
        taking: Taking,
        standing: Standing,
        quotables: Quotables,
        *,
        receipts: bool,
    ) -> None:
        self._clock, self._taking = host.clock, taking
        self._standing, self._quotables = standing, quotables
        self._quarantine = Quarantine(
            host.state_folder, host.clock, RateLimitedLog("whatsapp", host.clock).warn
        )
        self._receipts = receipts
        self._unread: deque[Spoken] = deque(maxlen=_MOST_UNREAD)
        self._arrived = asyncio.Event()

    async def take(self, events: Sequence[Event], me: Me | None) -> None:
        """Returns when they may be confirmed."""
        spoken = [one for event in events if (one := self._read(event, me)) is not None]
        admitted = await self._store(spoken)
        for one in admitted:
            self._quotables.heard(one)
            if self._receipts and not one.heard.own and not one.heard.edits:
                self._unread.append(one)
                self._arrived.set()

    async def tell_read(self, link: Link) -> None:
        """Show senders that what was admitted is read; best effort, one after the other."""
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            while self._unread:
                one = self._unread.popleft()
                params = {"chat": one.chat, "id": one.heard.id, "sender": one.sender}
                try:
                    await link.request("read", params)
                except SendError as error:
                    logger.debug("whatsapp: a message was not marked as read: {}", error)

    def _read(self, event: Event, me: Me | None) -> Spoken | None:
        now = self._clock.now()
        try:
            return read(event.body, me, now)
        except Exception as error:  # noqa: BLE001 - the boundary: one event, whatever is in it
            reason = str(error) if isinstance(error, Unreadable) else type(error).__name__
            self._quarantine.keep(event.body, reason)
            return unreadable(event.body, me, now)

    async def _store(self, spoken: Sequence[Spoken]) -> Sequence[Spoken]:
        """Keep trying until the disk takes them; those that were admitted."""
        backoff = Backoff(self._clock, _LONGEST_PAUSE)
        while True:
            try:
                admitted = set(await self._taking.take([one.heard for one in spoken]))
            except StorageError as error:
                self._standing.disk(str(error))
                await backoff.wait()
            else:
                self._standing.disk("")
                return [one for one in spoken if one.heard in admitted]
