"""Messages outside of any turn of the chat they appear in: notices, and the output of background
turns.

`Courier` sends what memory or the gateway has to tell. A passing remark is only shown, where
somebody looks; what is worth keeping is sent like a reply. Turns of jobs and of the heartbeat have
a conversation of their own. What they say is the newest thing in the chat, so the conversation
there has it as well, marked with where it came from, and a person can answer it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from loguru import logger

from nanobot.agent.hooks import Screen
from nanobot.agent.intake import one_line
from nanobot.agent.media import MediaStore
from nanobot.bus.events import NANOBOT, Address, Button, InboundMessage, Notice, OutboundMessage
from nanobot.bus.journal import Outgoing
from nanobot.bus.queue import MessageBus
from nanobot.bus.split import split_message, split_text, utf16_length
from nanobot.channel import Channel, Limits
from nanobot.errors import StorageError
from nanobot.memory.scopes import OWNER
from nanobot.memory.taint import passed_on
from nanobot.messages import SILENT
from nanobot.session.catalogue import SessionInfo

_AS_FILE = "\n\n[This is the beginning. The whole text, {:,} characters, is in the file below.]"


class MessageSplitter:
    """Cuts messages into parts that their channel can send; a text of too many parts goes out as a
    file. `channels` are those of this process by name."""

    def __init__(self, channels: Mapping[str, Channel], media: MediaStore) -> None:
        self._channels, self._media = channels, media

    def limits_of(self, channel: str) -> Limits:
        """What a channel can send."""
        found = self._channels.get(channel)
        return found.limits if found else Limits()

    def __call__(self, message: OutboundMessage) -> tuple[OutboundMessage, ...]:
        """The parts of a message; none where there is nothing to say."""
        limits = self.limits_of(message.channel)
        if not message.content and not message.media and not limits.closing:
            return ()
        try:
            return self._split(message, limits)
        except Exception as error:  # noqa: BLE001 - the boundary: an adapter that cannot judge a text
            logger.opt(exception=error).error("{} could not judge a text", message.channel)
            return self._split(message, replace(limits, fits=None))

    def _split(self, message: OutboundMessage, limits: Limits) -> tuple[OutboundMessage, ...]:
        most = limits.parts * limits.text
        if not most:
            return split_message(message, limits)
        if utf16_length(message.content) <= most:  # else cutting it would be long work for nothing
            parts = split_message(message, limits)
            if len(parts) <= limits.parts + len(message.media):
                return parts
        try:
            content = message.content.encode("utf-8", "replace")
            file = self._media.put_outgoing(content, "answer.md")
        except StorageError as error:
            logger.warning("a long answer goes out in many parts: {}", error)
            return split_message(message, limits)
        told = _AS_FILE.format(len(message.content))
        room = limits.text - utf16_length(told)
        beginning = split_text(message.content[:room], room, limits.fits)[0]
        short = replace(message, content=beginning + told, media=(file, *message.media))
        return split_message(short, replace(limits, caption=0))


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


_KEPT_CHARACTERS = 4_000


def is_silent(text: str) -> bool:
    """Whether an answer says that there is nothing to say."""
    bare = text.strip().strip("`*.").strip()
    return not bare or bare.casefold() == SILENT


def failed_text(inbound: InboundMessage, text: str) -> str:
    """What the chat hears of a run that failed; nothing of a heartbeat's."""
    if inbound.begun_by == "heartbeat":
        return ""
    return f"The scheduled job “{_name(inbound)}” could not run. {text}"


def job_waiting_text(inbound: InboundMessage) -> str:
    """What it hears of a run that has to wait for the model; of a job's only."""
    if inbound.begun_by != "job":
        return ""
    return (
        f"It is time for the scheduled job “{_name(inbound)}”, but the model cannot be reached "
        "right now. It runs as soon as it can be."
    )


def note_for_chat(
    inbound: InboundMessage, text: str, origins: Iterable[str], now: datetime
) -> InboundMessage:
    """What the chat's conversation gets to know of `text`, which was said there; `origins` are
    those of what the turn has read."""
    who = "heartbeat" if inbound.begun_by == "heartbeat" else f"job “{_name(inbound)}”"
    said = one_line(text)[:_KEPT_CHARACTERS]
    foreign = set(origins)
    return InboundMessage(
        inbound.channel,
        inbound.chat_id,
        sender_id=NANOBOT,
        content=f"[{NANOBOT}: said here by the {who}: {said}]",
        event_id=f"{inbound.event_id}:said",
        timestamp=now,
        thread_id=inbound.thread_id,
        session_override=inbound.chat_key,
        origin=passed_on(f"job:{inbound.job or 'heartbeat'}", foreign) if foreign else NANOBOT,
        unanswered=True,
    )


def _name(inbound: InboundMessage) -> str:
    return one_line(inbound.sender_name) or inbound.job
