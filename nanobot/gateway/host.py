"""The core's side of the channel port: all that an adapter gets to know of nanobot.

`Screen` shows progress in channels, in order within a chat, without ever holding up the agent.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, Protocol

from loguru import logger

from nanobot.agent.outcomes import storage_text
from nanobot.agent.session_queue import Lanes
from nanobot.bus.events import InboundMessage, Media, Notice, OutboundMessage, Progress, TextDelta
from nanobot.bus.journal import Journal, Outgoing
from nanobot.bus.queue import MessageBus
from nanobot.channel import Admission, Channel, Chat, MenuEntry, Sender, WebhookHandler
from nanobot.clock import Clock
from nanobot.errors import SendRefused, StorageError
from nanobot.tasks import Background

_BACKLOG = 1_000
_MOST = 5


class Screen:
    """One lane per chat. Text of a chat that cannot keep up is left out: the final reply has it
    all; the ends of turns never are. A reply waits `patience` seconds for the progress before it; a
    single event may take `_MOST` times as long to show."""

    def __init__(self, channels: Mapping[str, Channel], *, patience: float = 2.0) -> None:
        self._channels, self._patience = channels, patience
        self._lanes = Lanes()

    def show(self, event: Progress) -> None:
        """Queue an event for its chat."""
        channel = self._channels.get(event.channel)
        if channel is None:
            return
        chat = f"{event.channel}:{event.chat_id}"
        if self._lanes.waiting(chat) < _BACKLOG or not isinstance(event, TextDelta):
            self._lanes.submit(chat, partial(self._show, channel, event))

    async def flush(self, channel: str, chat_id: str) -> None:
        """Return when what was queued for a chat has been shown, or after a moment."""
        chat = f"{channel}:{chat_id}"
        if not self._lanes.is_active(chat):
            return
        shown = asyncio.Event()
        self._lanes.submit(chat, partial(_mark, shown))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._patience):
                await shown.wait()

    async def close(self) -> None:
        """Stop showing."""
        await self._lanes.drain(0.0)

    async def _show(self, channel: Channel, event: Progress) -> None:
        try:
            async with asyncio.timeout(_MOST * self._patience):
                await channel.show(event)
        except Exception as error:  # noqa: BLE001 - the boundary: progress is best effort
            logger.opt(exception=error).warning("{} could not show progress", channel.name)


async def _mark(shown: asyncio.Event) -> None:
    shown.set()


_REMEMBERED = 10_000
"""Admissions kept in mind, so that what was asked for is not refused when it is published."""


class Access(Protocol):
    """Who may talk."""

    def permits(self, channel: str, sender: Sender, chat: Chat, *, addressed: bool = True) -> bool:
        """Whether this person may be answered in this chat."""
        ...

    def stranger(self, channel: str, sender: Sender, chat: Chat) -> str | None:
        """What to tell somebody who may not and means the agent; None where nothing is to be
        said. They have asked then, and are not told again for a while."""
        ...

    def withdraw(self, channel: str, sender: Sender, chat: Chat) -> None:
        """Forget that they have asked: they could not be told."""
        ...

    async def keep(self) -> None:
        """Make durable what `stranger` has promised. Raises `StorageError`."""
        ...

    def owners(self, channel: str) -> Sequence[str]:
        """The owner's ids on a channel, as far as there are any by name."""
        ...


class Web(Protocol):
    """The HTTP server."""

    def serve(self, path: str, handler: WebhookHandler) -> AbstractAsyncContextManager[str]:
        """Serve a path while inside; gives the local address."""
        ...


class Rate(Protocol):
    """How much each person may send."""

    def verdict(self, inbound: InboundMessage) -> Literal["take", "tell", "drop"]:
        """Whether a message is taken, or turned away, and its sender told so or not again."""
        ...

    @property
    def words(self) -> str:
        """What they are told."""
        ...


@dataclass(frozen=True, slots=True)
class HostParts:
    """What all channels' hosts share. `report` takes a channel's name and its trouble, `connected`
    its name and which account it is, `alive` its name and within how many seconds it is heard of
    again; `show` shows a person something at once; `warn`
    takes a channel's name and what its owner should know."""

    bus: MessageBus
    journal: Journal
    access: Access
    web: Web
    home: Path
    clock: Clock
    background: Background
    menu: Callable[[], Sequence[MenuEntry]]
    report: Callable[[str, str], None]
    connected: Callable[[str, str], None]
    alive: Callable[[str, float], None]
    rate: Rate
    show: Callable[[Notice], None]
    warn: Callable[[str, str], None]


class Host:
    """One channel's view of the core. `waits`: what it publishes waits for room on the disk, as a
    platform does; otherwise whoever is there is told that there is none."""

    def __init__(self, channel: str, parts: HostParts, *, waits: bool = True) -> None:
        self._channel, self._parts, self._waits = channel, parts, waits
        self._state_folder = parts.home / "state" / "channels" / channel
        self._admitted: OrderedDict[tuple[str, str], None] = OrderedDict()
        self._within = math.inf
        self._publishing = 0
        self._told_of_disk: set[str] = set()

    def admit(self, sender: Sender, chat: Chat, *, addressed: bool = True) -> Admission:
        """See `ChannelHost`."""
        access, pair = self._parts.access, (sender.id, chat.id)
        if access.permits(self._channel, sender, chat, addressed=addressed):
            self._admitted.pop(pair, None)
            self._admitted[pair] = None
            if len(self._admitted) > _REMEMBERED:
                self._admitted.popitem(last=False)
            return "allowed"
        if not access.permits(self._channel, sender, chat):
            # Who is only not spoken to here keeps what of the same batch was for the agent.
            self._admitted.pop(pair, None)
        if addressed and (text := access.stranger(self._channel, sender, chat)):
            telling = self._tell(sender, chat, text)
            self._parts.background.start(telling, name="a stranger's answer")
        return "refused"

    async def publish(
        self, messages: Sequence[InboundMessage], cursor: str | None = None
    ) -> Sequence[str]:
        """See `ChannelHost`. What a refused sender wrote is not stored, only the cursor moves."""
        held = self._parts.bus.held
        if held is not None and not self._waits:
            raise held.with_traceback(None)
        admitted = [m for m in messages if self._is_admitted(m) and self._is_taken(m)]
        if held is not None:
            self._tell_of_disk(admitted, held)
        # While it waits for room it is silent with good reason, and no longer than that: what it
        # publishes beside its poll is no sign that the poll does not hang.
        self._parts.alive(self._channel, math.inf)
        self._publishing += 1
        try:
            stored = await self._parts.bus.publish(self._channel, admitted, cursor)
        except StorageError as error:
            self._tell_of_disk(admitted, error)
            raise
        finally:
            self._publishing -= 1
            if not self._publishing:
                self._parts.alive(self._channel, self._within)
        self._told_of_disk.difference_update(message.chat_key for message in admitted)
        return stored

    async def cursor(self) -> str | None:
        """See `ChannelHost`."""
        return await self._parts.journal.cursor(self._channel)

    async def pressed(self, button_id: str, sender: Sender, chat: Chat) -> str | None:
        """See `ChannelHost`."""
        people = (sender.id, *sender.also)
        return await self._parts.journal.pressed(button_id, self._channel, chat.id, people)

    def webhook(self, path: str, handler: WebhookHandler) -> AbstractAsyncContextManager[str]:
        """See `ChannelHost`."""
        return self._parts.web.serve(path, handler)

    def path_of(self, media: Media) -> Path:
        """See `ChannelHost`."""
        path = self._parts.home / media.ref
        inside = path.parent == self._parts.home / "media" and path.is_file()
        if not inside or path.is_symlink():
            raise SendRefused(f"the file {media.name or media.ref} is no longer there")
        return path

    def menu(self) -> Sequence[MenuEntry]:
        """See `ChannelHost`."""
        return self._parts.menu()

    def report(self, trouble: str) -> None:
        """See `ChannelHost`."""
        self._parts.report(self._channel, trouble)

    def warn(self, text: str) -> None:
        """See `ChannelHost`."""
        self._parts.warn(self._channel, text)

    def connected(self, who: str) -> None:
        """See `ChannelHost`."""
        self._parts.connected(self._channel, who)

    def alive(self, within: float) -> None:
        """See `ChannelHost`."""
        self._within = within
        self._parts.alive(self._channel, within)

    @property
    def owners(self) -> Sequence[str]:
        """See `ChannelHost`."""
        return self._parts.access.owners(self._channel)

    @property
    def clock(self) -> Clock:
        """See `ChannelHost`."""
        return self._parts.clock

    @property
    def state_folder(self) -> Path:
        """See `ChannelHost`. Made when it is first asked for; raises `StorageError`."""
        try:
            self._state_folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError.of(self._state_folder, error) from error
        return self._state_folder

    def _is_admitted(self, message: InboundMessage) -> bool:
        if (message.sender_id, message.chat_id) in self._admitted:
            return True
        chat = Chat(message.chat_id, message.is_group, thread_id=message.thread_id)
        return self._parts.access.permits(self._channel, Sender(message.sender_id), chat)

    def _tell_of_disk(self, messages: Sequence[InboundMessage], error: StorageError) -> None:
        """Say in each chat, once until something of it is stored, that its messages have to wait.
        That is only shown: there is no room to keep it."""
        for message in messages:
            if message.awaited and message.chat_key not in self._told_of_disk:
                self._told_of_disk.add(message.chat_key)
                place = (message.channel, message.chat_id)
                self._parts.show(Notice(*place, storage_text(error), message.thread_id))

    def _is_taken(self, message: InboundMessage) -> bool:
        """Whether its sender may send so much."""
        verdict = self._parts.rate.verdict(message)
        if verdict == "tell":
            logger.warning("{}: {} sends too much", self._channel, message.chat_key)
            telling = self._turn_away(message)
            self._parts.background.start(telling, name="too many messages")
        return verdict == "take"

    async def _turn_away(self, message: InboundMessage) -> None:
        words = OutboundMessage(
            message.channel, message.chat_id, self._parts.rate.words, thread_id=message.thread_id
        )
        try:
            name = f"rate-{message.channel}-{message.chat_id}-{message.event_id}"
            await self._parts.bus.send(name, Outgoing("reply", (words,), (message.event_id,)))
        except StorageError as error:
            logger.warning("a sender was not told: {}", error)

    async def _tell(self, sender: Sender, chat: Chat, text: str) -> None:
        """Answer a stranger like anybody else: durably, in order, with retries.

        The code comes first, so that no answer ever holds one that nobody knows. Who loses their
        answer to a crash in between is on the owner's list, and is told when they write an hour
        later; who loses it to the disk has not asked.
        """
        logger.info("{}: somebody asks to be let in; see `nanobot pair list`", self._channel)
        message = OutboundMessage(self._channel, chat.id, text, thread_id=chat.thread_id)
        name = f"stranger-{self._channel}-{chat.id}-{self._parts.clock.now():%y%m%d-%H%M%S}"
        try:
            await self._parts.access.keep()
            await self._parts.bus.send(name, Outgoing("reply", (message,)))
        except StorageError as error:
            self._parts.access.withdraw(self._channel, sender, chat)
            logger.warning("a stranger was not answered: {}", error)
