"""The `message` tool, which sends messages and files during a turn, and `/send` and `/resend`.

The tool may send anything to its conversation's chat. It sends to another chat only from the
owner's conversation, and only if that chat has an allowed sender. That is a risk, which may need
the owner's approval (see `OwnersPolicy`).

When the call returns, the message is in the outbox and its files are copied, so that it arrives in
any case. For another chat the files are copied before the approval: the owner approves exactly the
files that are sent. The other conversation's record of the message carries the taint of all content
read before."""

from __future__ import annotations

import asyncio
import hashlib
import re
import secrets
from collections.abc import Callable, Sequence
from typing import Annotated

from loguru import logger
from msgspec import Meta, Struct, field

from nanobot.agent.media import MediaStore
from nanobot.agent.notifier import KnownChats, MessageSplitter, conversation_note
from nanobot.bus.events import NANOBOT, Address, InboundMessage, Media, OutboundMessage
from nanobot.bus.journal import Committed, Outgoing
from nanobot.bus.queue import MessageBus
from nanobot.bus.sql_journal import Journal
from nanobot.clock import Clock
from nanobot.commands import Answer, Command, CommandCall
from nanobot.errors import NanobotError, ToolError
from nanobot.memory.scopes import OWNER
from nanobot.memory.taint import origin_of_relay
from nanobot.messages import Message
from nanobot.security.paths import Place
from nanobot.text import join_some, one_line, pluralize, printable
from nanobot.tooling import Arguments, Risk, RootsOf, Tool, ToolResult, TurnContext
from nanobot.tooling.registry import parse_arguments
from nanobot.tools.read_tools import FindReceived, build_missing_error

_MOST_REMEMBERED = 64

MESSAGE = "message"
MOST_FILES = 10
MOST_BYTES = 64 * 1024 * 1024
"""Largest file that is sent, unless the channel accepts less."""

_SENT_HERE = "Sent to this chat"
_LISTED = 20


class MessageArguments(Arguments, frozen=True):
    text: str = ""
    media: Annotated[list[str], Meta(max_length=MOST_FILES, description="Paths of files.")] = field(
        default_factory=list
    )
    chat: Annotated[str, Meta(description="Another chat, such as telegram:123.")] = ""


class SendMessage(Tool, Struct, frozen=True):
    """Tool that sends through the outbox. `received` finds a file that came with a message, or
    returns None for other paths. `shown` holds the files of calls that were reviewed but have not
    run yet."""

    roots: RootsOf
    store: MediaStore
    split: MessageSplitter
    bus: MessageBus
    others: KnownChats
    clock: Clock
    received: FindReceived = lambda _, __: None
    shown: dict[tuple[str, str], list[Media]] = field(default_factory=dict)
    name = MESSAGE
    description = (
        "Send files, or say something before your answer is ready or in another chat. Not for "
        "ordinary answers: those you just write, without repeating what you sent here."
    )
    arguments = MessageArguments
    effects = True

    async def risk(self, arguments: MessageArguments, caller: TurnContext) -> Risk | None:
        """Return the risk of sending to a chat other than the caller's."""
        address = await asyncio.to_thread(self._address, arguments.chat.strip(), caller)
        if address == caller.address:
            return None
        files = await asyncio.to_thread(self._keep_all, arguments.media, caller, address.channel)
        self.shown[caller.turn_id, repr(arguments)] = [file for _, file in files]
        if len(self.shown) > _MOST_REMEMBERED:
            del self.shown[next(iter(self.shown))]
        titles = dict(await asyncio.to_thread(self.others.chats))
        to = f"to: {_format_chat(address.key, titles.get(address.key, ''))}, now"
        lines = [to, *(line for line, _ in files), arguments.text.strip()]
        return Risk("send", "send a message to another chat", "\n".join(lines).strip())

    async def __call__(self, arguments: MessageArguments, caller: TurnContext) -> ToolResult:
        text = arguments.text.strip()
        if not text and not arguments.media:
            raise ToolError("there is nothing to send", hint="Provide text, files, or both.")
        address = await asyncio.to_thread(self._address, arguments.chat.strip(), caller)
        if address == caller.address:
            kept = await asyncio.to_thread(self._keep_all, arguments.media, caller, address.channel)
            files = [file for _, file in kept]
        elif (key := (caller.turn_id, repr(arguments))) in self.shown:
            files = self.shown.pop(key)
        else:
            raise ToolError(
                "the reviewed content is no longer available", hint="Call again to send it."
            )
        place = (address.channel, address.chat_id)
        thread, aside = address.thread_id, not caller.is_stored_at(address)
        message = OutboundMessage(*place, text, tuple(files), thread_id=thread, is_temporary=aside)
        # A started call is never repeated, so each call is another message.
        name = secrets.token_hex(8)
        await self.bus.send_outgoing(
            caller.turn_id, Outgoing(f"{MESSAGE}-{name}", await self.split(message))
        )
        if address == caller.address:
            return ToolResult(f"{_SENT_HERE}: {_summary(message)}.", trusted=True)
        result = f"Sent to {address.key}: {_summary(message)}."
        if address.key != caller.session_key:
            read = caller.origins()  # it may repeat their words
            origin = origin_of_relay(MESSAGE, read) if read else NANOBOT
            try:
                await self.bus.publish_internal(_note(message, name, self.clock, origin))
            except NanobotError as error:  # it is in the outbox and must not be sent again
                logger.warning(
                    "{}: could not record the message that was sent there: {}",
                    address.key,
                    error,
                )
                result += " It could not be noted in the conversation there."
        return ToolResult(result, trusted=True)

    def _address(self, wanted: str, caller: TurnContext) -> Address:
        """Return the address to send to. Blocks. Raises `ToolError` for a chat that the caller may
        not use."""
        if wanted in ("", caller.address.key):
            return caller.address
        if caller.scope != OWNER:
            raise ToolError("only the owner, in a private chat, can send to other chats")
        chats = self.others.chats()
        if wanted not in {address for address, _ in chats}:
            raise ToolError(f"there is no chat {printable(wanted)}", hint=_format_chats(chats))
        _refuse_closed(self.others, wanted)
        return Address.of(wanted)

    def _keep_all(
        self, paths: Sequence[str], caller: TurnContext, channel: str
    ) -> list[tuple[str, Media]]:
        """Store the files as they are now, and return a line about each with it. Blocks. Raises
        `ToolError` and `StorageError`."""
        most = min(self.split.limits_of(channel).file_bytes or MOST_BYTES, MOST_BYTES)
        kept = []
        for path in paths:
            place = self.received(path, caller) or self.roots(caller).place(path)
            content = _read_file(place, most, channel)
            digest = hashlib.sha256(content).hexdigest()
            line = f"file: {place.label} ({len(content):,} bytes, sha256 {digest[:12]})"
            kept.append((line, self.store.put_outgoing(content, printable(place.names[-1]))))
        return kept


def send_command(
    split: MessageSplitter, bus: MessageBus, others: KnownChats, clock: Clock
) -> Command:
    """Build `/send CHAT TEXT`, with the parts of `SendMessage`."""

    async def run(call: CommandCall) -> Answer:
        chats = await asyncio.to_thread(others.chats)
        found, text = _parse_recipient(call.arguments, chats)
        if not text:
            return Answer(
                "Usage: /send CHAT TEXT\nExample: /send telegram:123 See you at eight\n"
                f"{_format_chats(chats)}"
            )
        if not found:
            return Answer(f"There is no such chat. {_format_chats(chats)}")
        if len(found) > 1:
            return Answer(f"Several chats have this name. Use one of these: {', '.join(found)}")
        await asyncio.to_thread(_refuse_closed, others, found[0])
        chat = Address.of(found[0])
        message = OutboundMessage(chat.channel, chat.chat_id, text, thread_id=chat.thread_id)
        # Named after the typed message, so that it is sent once if the command runs again.
        name = f"{call.session.key}:{call.message.event_id}"
        await bus.send_outgoing(f"send:{name}", Outgoing(MESSAGE, await split(message)))
        if chat.key != call.session.key:
            await bus.publish_internal(_note(message, name, clock, NANOBOT))
        return Answer(f"Sent to {_format_chat(found[0], dict(chats)[found[0]])}.")

    return Command("send", "Send a message to another chat", run, "CHAT TEXT", "owner")


def resend_command(
    journal: Journal, bus: MessageBus, is_owner: Callable[[InboundMessage], bool]
) -> Command:
    """Build `/resend out-7`, which sends a message again after its delivery was given up, as the
    notice offers. The owner may use it in any chat, others in the chat of the message or of its
    request."""

    async def run(call: CommandCall) -> Answer:
        message = call.message
        if not call.arguments:
            return Answer("Usage: /resend ID (the notice shows the ID, such as out-7)")
        chat = None if is_owner(message) else (message.channel, message.chat_id)
        parts = await journal.resend(call.arguments, chat)
        bus.forward(Committed(0, parts, ()))
        return Answer("I'm sending it again." if parts else "It was already resent or dropped.")

    summary = "Resend a message that may not have arrived"
    return Command("resend", summary, run, "ID", immediate=True)


def _read_file(place: Place, most: int, channel: str) -> bytes:
    """Return a file of at most `most` bytes, the limit of `channel`. Blocks. Raises `ToolError`."""
    found = place.stat()
    if found is None:
        raise build_missing_error(place)
    if found.kind == "folder":
        raise ToolError(f"{place.label} is a folder, and only files can be sent")
    if found.kind == "file" and found.size > most:
        raise ToolError(
            f"{place.label} is {found.size:,} bytes, but {channel} accepts at most {most:,}"
        )
    content = place.read_bytes(most)
    if content is None:
        raise build_missing_error(place)
    if not content:
        raise ToolError(f"{place.label} is empty, and empty files cannot be sent")
    return content


def _parse_recipient(text: str, chats: Sequence[tuple[str, str]]) -> tuple[list[str], str]:
    """Return the chats that the start of `text` names, by address or title, and the text after it.
    The longest matching name counts."""
    named = dict[str, list[str]]()
    for address, title in chats:
        for name in filter(None, (address, title)):
            pattern = rf'"{re.escape(name)}"|{re.escape(name)}(?!\S)'
            if found := re.match(pattern, text, re.IGNORECASE):
                named.setdefault(found[0], []).append(address)
    longest = max(named, key=len, default="")
    return named.get(longest, []), text[len(longest) :].strip()


def _refuse_closed(others: KnownChats, address: str) -> None:
    """Raise `ToolError` if a chat no longer has access. Blocks."""
    if not others.may_reach(address):
        raise ToolError(f"{address} no longer has access, so nothing can be sent there")


def _note(message: OutboundMessage, name: str, clock: Clock, origin: str) -> InboundMessage:
    """Return the note for a chat's conversation about a message sent to the chat."""
    address = Address(message.channel, message.chat_id, message.thread_id)
    text = f"{message.content} {_format_names(message.media)}".strip()
    event_id = f"{NANOBOT}:{name}"
    return conversation_note(
        address, "sent here at the owner's request", text, event_id, origin, clock.now()
    )


def is_repetition(messages: Sequence[Message], text: str) -> bool:
    """Return True if a turn has already sent its final `text` word for word to its own chat.

    `messages` are the turn's. A message sent before the person wrote again does not count. Pure."""
    calls, sent = dict[str, str](), set[str]()
    for message in messages:
        if message.from_person:
            calls, sent = {}, set()
        calls |= {call.id: call.arguments for call in message.tool_calls}
        if message.name == MESSAGE and message.content.startswith(_SENT_HERE):
            sent.add(_text_of(calls.get(message.tool_call_id, "")))
    return text.strip() in sent - {""}


def _text_of(arguments: str) -> str:
    try:
        return parse_arguments(MessageArguments, arguments).text.strip()
    except ToolError:
        return ""


def _summary(message: OutboundMessage) -> str:
    """Return a summary for the model: "a text and 2 files (a.txt, b.png)"."""
    parts = ["a text"] if message.content else []
    if message.media:
        parts.append(f"{pluralize(len(message.media), 'file')} {_format_names(message.media)}")
    return " and ".join(parts)


def _format_names(files: Sequence[Media]) -> str:
    return f"({', '.join(file.name for file in files)})" if files else ""


def _format_chat(address: str, title: str) -> str:
    return f"{address} ({one_line(title)})" if title else address


def _format_chats(chats: Sequence[tuple[str, str]]) -> str:
    names = [_format_chat(address, title) for address, title in chats]
    if not names:
        return "There are no other chats."
    return f"Available chats: {join_some(names, _LISTED)}."
