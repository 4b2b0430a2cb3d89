"""The `message` tool: says something in a chat while a turn goes on, with files where wanted.

To the chat of the conversation it may say anything. Another chat hears of it only where the owner
asks, where nothing foreign is in the prompt that could have asked instead, and where people are
who may talk to the agent now. What is sent is in the outbox when the call returns, and files are
kept as they were, so that it arrives whatever happens afterwards.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from loguru import logger
from pydantic import Field

from nanobot.agent.intake import one_line
from nanobot.agent.media import MediaStore
from nanobot.bus.events import InboundMessage, Media, OutboundMessage
from nanobot.bus.outbox import Outgoing
from nanobot.channel import Limits
from nanobot.clock import Clock
from nanobot.errors import NanobotError, ToolError
from nanobot.memory.grounds.grounds import origins_of
from nanobot.memory.scopes import OWNER
from nanobot.messages import Message
from nanobot.security.names import printable
from nanobot.security.paths import Place
from nanobot.tooling import Arguments, Caller, RootsOf, ToolResult
from nanobot.tools.reading import Received, missing, nothing_received

MESSAGE = "message"
MOST_FILES = 10
MOST_BYTES = 64 * 1024 * 1024
"""The largest file that is sent, where the channel does not take less."""

_SENT_HERE = "Sent to this chat"
_NANOBOT = "nanobot"
_KEPT_CHARACTERS = 4_000
_LISTED = 20
_SHOWN_ORIGINS = 5


class Reachable(Protocol):
    """The chats that something can be sent to at any time."""

    def chats(self) -> Sequence[tuple[str, str]]:
        """Their addresses (`telegram:123`, with `:<thread>` for a topic) and titles, the one used
        last first. May block."""
        ...

    def may_reach(self, address: str) -> bool:
        """Whether the people in this chat may talk to the agent now. May block."""
        ...


class MessageArguments(Arguments):
    text: str = Field(default="", description="What to say, in Markdown.")
    media: list[str] = Field(
        default_factory=list,
        max_length=MOST_FILES,
        description="Paths of files in the workspace to send along.",
    )
    chat: str = Field(
        default="",
        description="Leave empty for this chat. Another one as channel:id, such as telegram:123.",
    )


@dataclass(frozen=True, slots=True)
class _Address:
    """Where something goes; `key` is also that of the conversation there."""

    channel: str
    chat_id: str
    thread_id: str = ""

    @property
    def key(self) -> str:
        thread = f":{self.thread_id}" if self.thread_id else ""
        return f"{self.channel}:{self.chat_id}{thread}"

    @classmethod
    def of(cls, caller: Caller) -> _Address:
        """The chat of a call."""
        return cls(caller.channel, caller.chat_id, caller.thread_id)


@dataclass(frozen=True, slots=True)
class SendMessage:
    """Sends through the outbox.

    `received` finds a file that came with a message, None for any other path; `limits_of` gives the
    limits of a channel by its name; `split` cuts a message into parts that fit; `send` puts one
    into the outbox under a turn; `keep` takes what was said into the conversation of another chat,
    where it begins no turn. `new_name` tells the messages of a turn apart: a call that had started
    is never repeated, so no two calls mean the same message.
    """

    roots: RootsOf
    store: MediaStore
    limits_of: Callable[[str], Limits]
    split: Callable[[OutboundMessage], tuple[OutboundMessage, ...]]
    send: Callable[[str, Outgoing], Awaitable[object]]
    keep: Callable[[InboundMessage], Awaitable[object]]
    others: Reachable
    clock: Clock
    received: Received = nothing_received
    new_name: Callable[[], str] = lambda: secrets.token_hex(8)
    name: str = MESSAGE
    description: str = (
        "Send files, or say something before your answer is ready or in another chat. Not for "
        "ordinary answers: those you just write. Files are paths in the workspace; what you send "
        "here need not be repeated in your answer."
    )
    arguments: type[MessageArguments] = MessageArguments
    effects: bool = True
    parallel: bool = False

    async def __call__(self, arguments: MessageArguments, caller: Caller) -> ToolResult:
        if not arguments.text.strip() and not arguments.media:
            raise ToolError("there is nothing to send", hint="Give a text, files, or both.")
        here = _Address.of(caller)
        address = await self._address(arguments.chat.strip(), caller, here)
        files = await asyncio.to_thread(self._files, arguments.media, caller, address.channel)
        message = OutboundMessage(
            address.channel, address.chat_id, arguments.text.strip(), tuple(files),
            thread_id=address.thread_id,
        )  # fmt: skip
        outgoing = Outgoing(f"{MESSAGE}-{self.new_name()}", self.split(message))
        await self.send(caller.turn_id, outgoing)
        if address == here:
            return ToolResult(f"{_SENT_HERE}: {_summary(message)}.", trusted=True)
        note = "" if address.key == caller.session_key else await self._keep(message, caller)
        return ToolResult(f"Sent to {address.key}: {_summary(message)}.{note}", trusted=True)

    async def _address(self, wanted: str, caller: Caller, here: _Address) -> _Address:
        """Where to send. Raises `ToolError` for a chat that must not hear of this."""
        if wanted in ("", here.key):
            return here
        if caller.scope != OWNER:
            raise ToolError("only the owner, in a chat of their own, can have other chats written")
        if origins := origins_of(caller.heard()):
            raise ToolError(
                "nothing is sent to another chat while text from elsewhere is in the conversation"
                f" ({', '.join(map(printable, origins[:_SHOWN_ORIGINS]))})",
                hint="Tell the person; in a new conversation (/new) they can ask for it again.",
            )
        chats = await asyncio.to_thread(self.others.chats)
        if wanted not in {address for address, _ in chats}:
            raise ToolError(f"there is no chat {printable(wanted)}", hint=_listed(chats))
        if not await asyncio.to_thread(self.others.may_reach, wanted):
            raise ToolError(
                f"{wanted} may not talk to the agent any more, so nothing is sent there"
            )
        channel, _, rest = wanted.partition(":")
        chat_id, _, thread_id = rest.partition(":")
        return _Address(channel, chat_id, thread_id)

    def _files(self, paths: Sequence[str], caller: Caller, channel: str) -> list[Media]:
        """Keep the files as they are now. Blocks; raises `ToolError` and `StorageError`."""
        most = min(self.limits_of(channel).file_bytes or MOST_BYTES, MOST_BYTES)
        roots = self.roots(caller)
        return [
            self._file(self.received(path, caller) or roots.place(path), most, channel)
            for path in paths
        ]

    def _file(self, place: Place, most: int, channel: str) -> Media:
        found = place.stat()
        if found is None:
            raise missing(place)
        if found.kind == "folder":
            raise ToolError(f"{place.shown} is a folder; only files can be sent")
        if found.kind == "file" and found.size > most:
            raise ToolError(
                f"{place.shown} has {found.size:,} bytes; {channel} takes at most {most:,}"
            )
        content = place.read_bytes(most)
        if content is None:
            raise missing(place)
        if not content:
            raise ToolError(f"{place.shown} is empty; an empty file cannot be sent")
        return self.store.put_outgoing(content, printable(place.names[-1]))

    async def _keep(self, message: OutboundMessage, caller: Caller) -> str:
        """Let the other conversation know what was said there; what to add where it does not."""
        key = _Address(message.channel, message.chat_id, message.thread_id).key
        told = one_line(f"{message.content} {_named(message.media)}")[:_KEPT_CHARACTERS]
        note = InboundMessage(
            message.channel,
            message.chat_id,
            sender_id=_NANOBOT,
            content=f"[{_NANOBOT}: sent here at the owner's wish: {told}]",
            event_id=f"{_NANOBOT}:{self.new_name()}",
            timestamp=self.clock.now(),
            thread_id=message.thread_id,
            session_override=key,
            origin=_NANOBOT,
            unanswered=True,
        )
        try:
            await self.keep(note)
        except NanobotError as error:  # it is on its way, and must not be sent again
            logger.warning("{} does not know what was sent to it: {}", key, error)
            return " It could not be noted in the conversation there."
        return ""


def said_already(messages: Sequence[Message], text: str) -> bool:
    """Whether a message that a turn sent to its own chat is word for word its final `text`.

    `messages` are those of the turn. What was sent before the person spoke again is no answer to
    that. Pure.
    """
    spoken = [number for number, message in enumerate(messages) if message.from_person]
    messages = messages[spoken[-1] :] if spoken else messages
    here = {
        message.tool_call_id
        for message in messages
        if message.name == MESSAGE and message.content.startswith(_SENT_HERE)
    }
    calls = (call for message in messages for call in message.tool_calls)
    sent = (_text_of(call.arguments) for call in calls if call.id in here)
    return bool(text.strip()) and text.strip() in sent


def _text_of(arguments: str) -> str:
    try:
        return MessageArguments.model_validate_json(arguments).text.strip()
    except ValueError:
        return ""


def _summary(message: OutboundMessage) -> str:
    """What went out, for the model: "a text and 2 files (a.txt, b.png)"."""
    parts = ["a text"] if message.content else []
    if message.media:
        count = len(message.media)
        parts.append(f"{count} file{'s' if count > 1 else ''} {_named(message.media)}")
    return " and ".join(parts)


def _named(files: Sequence[Media]) -> str:
    return f"({', '.join(file.name for file in files)})" if files else ""


def _listed(chats: Sequence[tuple[str, str]]) -> str:
    shown = [f"{address} ({one_line(title)})" if title else address for address, title in chats]
    if not shown:
        return "There are no other chats."
    more = f" and {len(shown) - _LISTED} more" if len(shown) > _LISTED else ""
    return f"There are: {', '.join(shown[:_LISTED])}{more}."
