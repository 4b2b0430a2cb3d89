"""Says something in a chat outside of any turn: what memory put away, what Dream learned.

A passing remark is only shown, where somebody looks; what is worth keeping is sent like a reply.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence

from nanobot.agent.progress import Screen
from nanobot.bus.address import Address
from nanobot.bus.events import Button, Notice, OutboundMessage
from nanobot.bus.outbox import Outgoing
from nanobot.bus.queue import MessageBus
from nanobot.memory.scopes import OWNER
from nanobot.session.listing import SessionInfo


class Courier:
    """`sessions` lists conversations, the one used last first; `scope_of` says whose one is;
    `reachable` are the channels to which something can be sent at any time, `terminals` those
    where somebody has to look; `new_name` tells messages apart."""

    def __init__(
        self,
        bus: MessageBus,
        screen: Screen,
        split: Callable[[OutboundMessage], tuple[OutboundMessage, ...]],
        sessions: Callable[[], Iterable[SessionInfo]],
        scope_of: Callable[[str], str],
        reachable: Sequence[str],
        new_name: Callable[[], str],
        terminals: Sequence[str] = (),
    ) -> None:
        self._bus, self._screen, self._split = bus, screen, split
        self._sessions, self._scope_of = sessions, scope_of
        self._reachable, self._new_name = reachable, new_name
        self._anywhere = (*reachable, *terminals)

    async def remark(self, session_key: str, text: str) -> None:
        """Show a line in the chat of a conversation."""
        there = Address.of(session_key)
        self._screen.show(Notice(there.channel, there.chat_id, text, there.thread_id))

    async def tell(self, scope: str, text: str, buttons: Sequence[Button] = ()) -> bool:
        """Send a message to the chat that a scope used last; False where there is none."""
        key = await asyncio.to_thread(self._latest, scope, self._reachable)
        if key is None:
            return False
        await self._send(_message(Address.of(key), text, buttons))
        return True

    async def ask(
        self, here: Address | None, text: str, buttons: Sequence[Button]
    ) -> Address | None:
        """Put a question to the owner: `here`, or where that is not theirs in the chat that they
        used last. Where it went to; None where there is none. Raises `StorageError`."""
        if here is None:
            key = await asyncio.to_thread(self._latest, OWNER, self._reachable)
            here = Address.of(key) if key else None
        if here is None:
            return None
        await self._send(_message(here, text, buttons))
        return here

    async def warn(self, text: str) -> None:
        """Tell the owner, in the chat that they used last, a terminal's too: what concerns them now
        is better said where they may not look than not at all. Raises `StorageError`."""
        if key := await asyncio.to_thread(self._latest, OWNER, self._anywhere):
            await self._send(_message(Address.of(key), text))

    async def warn_elsewhere(self, channel: str, text: str, name: str) -> None:
        """Tell the owner that `channel` is closed to them, in the chat that they used last on
        another one. The same `name` is told once. Raises `StorageError`."""
        others = [name for name in self._anywhere if name != channel]
        if key := await asyncio.to_thread(self._latest, OWNER, others):
            message = _message(Address.of(key), text)
            await self._bus.send(name, Outgoing("reply", self._split(message)))

    async def say(self, channel: str, chat_id: str, text: str, thread_id: str = "") -> None:
        """Send a message to a chat. Raises `StorageError`."""
        await self._send(_message(Address(channel, chat_id, thread_id), text))

    async def say_at(self, there: Address, text: str, buttons: Sequence[Button]) -> None:
        """Send a message with buttons to a chat, if it is one (a job's own conversation is in
        none). Raises `StorageError`."""
        if there.channel in self._anywhere:
            await self._send(_message(there, text, buttons))

    async def _send(self, message: OutboundMessage) -> None:
        await self._bus.send(f"tell-{self._new_name()}", Outgoing("reply", self._split(message)))

    def _latest(self, scope: str, channels: Sequence[str]) -> str | None:
        keys = (info.key for info in self._sessions() if Address.of(info.key).channel in channels)
        return next((key for key in keys if self._scope_of(key) == scope), None)


def _message(there: Address, text: str, buttons: Sequence[Button] = ()) -> OutboundMessage:
    return OutboundMessage(
        there.channel, there.chat_id, text, thread_id=there.thread_id, buttons=tuple(buttons)
    )
