"""What nanobot itself says: notices, the output of background turns in the chat they belong to, and
the texts that end a turn without an answer.

`Notifier` sends what memory or the gateway has to tell. A passing remark is only shown, where
somebody looks; what is worth keeping is sent like a reply. Turns of jobs and of the heartbeat have
a conversation of their own. What they say is the newest thing in the chat, so the conversation
there has it as well, marked with where it came from, and a person can answer it.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime

from loguru import logger
from msgspec.structs import replace

from nanobot.agent.media import MediaStore
from nanobot.bus.events import (
    NANOBOT,
    Address,
    Button,
    Delivery,
    InboundMessage,
    Origin,
    OutboundMessage,
)
from nanobot.bus.journal import QUESTION, Outgoing
from nanobot.bus.queue import MessageBus
from nanobot.bus.split import split_message, split_text, utf16_length
from nanobot.channel import Channel, Chat, Limits, Sender
from nanobot.clock import Clock
from nanobot.errors import (
    BudgetSpent,
    ContextTooLong,
    NanobotError,
    ProviderError,
    StorageError,
    ToolError,
)
from nanobot.memory.dream import DreamReport
from nanobot.memory.losses import Loss
from nanobot.memory.pending import PendingFact
from nanobot.memory.scopes import OWNER, Scopes, chat_of, is_group
from nanobot.memory.service.views import loss_notice, pending_notice, select_for_notice
from nanobot.memory.taint import origin_of_relay
from nanobot.messages import SILENT
from nanobot.parsing import off_loop
from nanobot.security.access import Access
from nanobot.session.manager import SessionManager
from nanobot.session.session import SessionInfo
from nanobot.tasks import Background
from nanobot.text import escape_invisible, one_line, shorten
from nanobot.tooling import TurnContext

_AS_FILE = "\n\n[The full text, {:,} characters, is in the file below.]"


_RENDERING = 10
"""Measuring a character takes as long as parsing so many bytes: 80,000 of them up to a second."""


class MessageSplitter:
    """Cuts messages into parts that their channel can send. A text of too many parts, by its length
    or its markup, goes out as a file. `channels` are those of this process by name."""

    def __init__(self, channels: Mapping[str, Channel], media: MediaStore) -> None:
        self._channels, self._media = channels, media

    def limits_of(self, channel: str) -> Limits:
        found = self._channels.get(channel)
        return found.limits if found else Limits()

    async def __call__(self, message: OutboundMessage) -> tuple[OutboundMessage, ...]:
        """The parts of a message; none where there is nothing to say. Raises `StorageError` where a
        file cannot be kept."""
        limits = self.limits_of(message.channel)
        text, fits = message.content, limits.fits
        if not text and not message.media and not limits.closing:
            return ()
        try:
            is_short = 2 * len(text) <= limits.text and not message.media
            if is_short and (not fits or fits(text, limits.text)):
                return (message,)
            return await self._split(message, limits)
        except StorageError:
            raise
        except Exception as error:  # noqa: BLE001 - the boundary: an adapter that cannot judge a text
            logger.opt(exception=error).error("{}: could not measure a text", message.channel)
            return await self._split(message, replace(limits, fits=None))

    async def _split(self, message: OutboundMessage, limits: Limits) -> tuple[OutboundMessage, ...]:
        most, length = limits.parts * limits.text, utf16_length(message.content)
        if not most or length <= most:
            parts = await off_loop(_RENDERING * length, split_message, message, limits)
            if not most or len(parts) <= 2 * limits.parts + len(message.media):
                return parts
        content = message.content.encode("utf-8", "replace")
        file = await asyncio.to_thread(self._media.put_outgoing, content, "answer.md")
        rest = _AS_FILE.format(len(message.content))
        room = limits.text - utf16_length(rest)
        beginning = split_text(message.content[:room], room, limits.fits)[0]
        short = replace(message, content=beginning + rest, media=(file, *message.media))
        return split_message(short, replace(limits, caption=0))


_AGE_SECONDS = 5.0
"""How long it need not be known what another process, or a person, did to the conversations."""


class KnownChats:
    """The chats that the agent has talked in, on the channels where it can speak up at any time
    (`reachable`); at a terminal (`terminals`) a person has to look. Its methods block."""

    def __init__(
        self,
        sessions: SessionManager,
        scopes: Scopes,
        access: Access,
        reachable: Sequence[str],
        terminals: Sequence[str] = (),
    ) -> None:
        self._sessions, self._scopes, self._access = sessions, scopes, access
        self.reachable, self.anywhere = reachable, (*reachable, *terminals)

    def chats(self) -> Sequence[tuple[str, str]]:
        """Their addresses and titles, the one used last first: what a person calls themselves, or
        the name of who was let in; topics have their group's."""
        names = {f"{known.channel}:{known.id}": known.name for known in self._access.grants()}
        found = []
        for info in self._used_last(self.reachable):
            name, channel = info.metadata.get("name"), info.key.partition(":")[0]
            chat = f"{channel}:{chat_of(info.key, info.metadata)}"
            found.append((info.key, name if isinstance(name, str) else names.get(chat, "")))
        return found

    def addresses(self) -> Iterator[str]:
        """The same without titles, read as they are asked for."""
        return (info.key for info in self._used_last(self.reachable))

    def scope_of(self, address: str) -> str:
        """Whose chat it is."""
        return self._scopes.of_session(address, self._sessions.metadata_of(address))

    def is_owner(self, channel: str, sender_id: str) -> bool:
        return self._scopes.is_owner(channel, sender_id)

    def may_reach(self, address: str) -> bool:
        """Whether the people in this chat may talk to the agent now."""
        channel, metadata = address.partition(":")[0], self._sessions.metadata_of(address)
        chat_id = chat_of(address, metadata)
        if metadata.get("group") is True:
            return self._access.knows_group(channel, chat_id)
        person = metadata.get("sender")
        sender = Sender(person if isinstance(person, str) else chat_id)
        return self._access.permits(channel, sender, Chat(chat_id))

    def is_wanted_in(self, address: str, scope: str) -> bool:
        """Whether a job of a scope may speak in a chat: it is no other scope's by now, and its
        people may talk to the agent."""
        owner = self._scopes.owner_of(address, self._sessions.metadata_of(address))
        return owner in ("", scope) and (scope == OWNER or self.may_reach(address))

    def owners_latest(self) -> str:
        """The chat that the owner used last and may still be reached in; empty where there is
        none."""
        owners = self._of_scope(OWNER, self.reachable)
        return next((one for one in owners if self.may_reach(one)), "")

    def latest(self, scope: str, channels: Sequence[str]) -> Address | None:
        """The chat that a scope used last on these channels."""
        key = next(self._of_scope(scope, channels), None)
        return Address.of(key) if key else None

    def _of_scope(self, scope: str, channels: Sequence[str]) -> Iterator[str]:
        infos = self._used_last(channels)
        of_session = self._scopes.of_session
        return (one.key for one in infos if of_session(one.key, one.metadata) == scope)

    def _used_last(self, channels: Sequence[str]) -> Iterator[SessionInfo]:
        infos = self._sessions.list_sessions(within=_AGE_SECONDS)
        return (info for info in infos if info.key.partition(":")[0] in channels)


class Notifier:
    """Sends what memory or the gateway has to tell, to the `chats` that are known. Everything but
    a notice raises `StorageError` where it cannot be kept."""

    def __init__(
        self,
        bus: MessageBus,
        split: MessageSplitter,
        chats: KnownChats,
        clock: Clock,
        background: Background,
    ) -> None:
        self._bus, self._split, self._chats = bus, split, chats
        self._clock, self._background = clock, background

    async def send(
        self, there: Address, text: str, buttons: Sequence[Button] = (), name: str = ""
    ) -> None:
        """Send a message to a chat, if it is one (a job's own conversation is in none). Where it
        has a `name`, it is sent once."""
        if there.channel in self._chats.anywhere:
            message = OutboundMessage(
                *(there.channel, there.chat_id, text),
                thread_id=there.thread_id,
                buttons=tuple(buttons),
            )
            name = name or f"tell-{secrets.token_hex(8)}"
            await self._bus.send_outgoing(name, Outgoing("reply", await self._split(message)))

    async def notify(
        self,
        scope: str,
        text: str,
        buttons: Sequence[Button] = (),
        channels: Sequence[str] | None = None,
        name: str = "",
    ) -> Address | None:
        """Send a message to the chat that a scope used last, on channels where one can speak up at
        any time unless others are given; None where there is none."""
        channels = self._chats.reachable if channels is None else channels
        there = await asyncio.to_thread(self._chats.latest, scope, channels)
        if there is not None:
            await self.send(there, text, buttons, name)
        return there

    async def ask(
        self, caller: TurnContext, code: str, text: str, buttons: Sequence[Button]
    ) -> Address | None:
        """Put a question about a call to the owner: where they are in the conversation and nobody
        else is, there; else in the chat that they used last (in a terminal where there is no
        other), and the caller is told so. Where it went to; None where there is none."""
        here = caller.address
        theirs = caller.scope == OWNER or self._chats.is_owner(caller.channel, caller.sender_id)
        name = f"{QUESTION}{code}"
        if theirs and not is_group(caller.scope) and here.channel in self._chats.anywhere:
            await self.send(here, text, buttons, name)
            return here
        text += f"\nRequested in {escape_invisible(caller.session_key)} (turn {caller.turn_id})."
        place = await self.notify(OWNER, text, buttons, name=name)
        place = place or await self.notify(OWNER, text, buttons, self._chats.anywhere, name)
        if place is not None and place != here:
            caller.show_output("Waiting for the owner's approval.\n")
        return place

    async def place_of(self, caller: TurnContext) -> Address:
        """Where a caller can be told something later: in their chat or, where a program asks, in
        the one that its person used last. Raises `ToolError` where there is none."""
        if caller.channel in self._chats.anywhere:
            return caller.address
        for channels in (self._chats.reachable, self._chats.anywhere):
            there = await asyncio.to_thread(self._chats.latest, caller.scope, channels)
            if there is not None:
                return there
        hint = "The person must write to nanobot in a chat first."
        raise ToolError("there is no chat yet for a later message", hint=hint)

    async def warn(self, text: str, name: str = "", closed: str = "") -> None:
        """Tell the owner, in the chat that they used last, on another channel than `closed`; in a
        terminal too: what concerns them now is better said where they may not look than not at
        all. The same `name` is told once."""
        channels = [channel for channel in self._chats.anywhere if channel != closed]
        await self.notify(OWNER, text, (), channels, name)

    def warn_of_failure(self, where: str, error: Exception) -> None:
        """Tell the owner why others in the conversation `where` get no answer; the same once a
        day."""
        text = failure_text(error, is_owner=True).removesuffix(_RETRY)
        text = f"A message in {where} was not answered. {text}"
        self._warn_daily("failed", f"{type(error).__name__} {error}", text)

    def warn_of_channel(self, channel: str, text: str) -> None:
        """Tell the owner what is wrong with a channel, on another one; the same once a day."""
        self._warn_daily(f"off-{channel}", text, text, closed=channel)

    def _warn_daily(self, topic: str, reason: str, text: str, closed: str = "") -> None:
        digest = hashlib.sha256(reason.encode()).hexdigest()[:8]
        name = f"{topic}-{self._clock.now():%y%m%d}-{digest}"
        self._background.start(self.warn(text, name, closed), name=f"warn: {topic}")

    async def notify_digest(self, report: DreamReport) -> None:
        """What Dream changed, with a button that takes it back."""
        await self.notify(report.scope, report.digest, _undo(report.undoable))

    async def notify_held(self, scope: str, facts: Sequence[PendingFact], session: str) -> None:
        """Facts that wait from now on, with buttons that decide: in the chat that they come from,
        those of Dream in the chat that the owner used last."""
        if not facts or not (session or scope == OWNER):
            return
        codes = " ".join(fact.code for fact in select_for_notice(facts))
        every = " all" if len(facts) > 1 else ""
        buttons = [
            Button(f"{verb}{every}", f"/memory {verb.lower()} {codes}")
            for verb in ("Accept", "Drop")
        ]
        await self._remark(scope, pending_notice(facts), buttons, session)

    async def notify_loss(self, scope: str, loss: Loss) -> None:
        """Facts that left memory, with a button that takes it back."""
        await self._remark(scope, loss_notice(loss), _undo(loss.number))

    async def _remark(
        self, scope: str, text: str, buttons: Sequence[Button], session: str = ""
    ) -> None:
        """Send what is said again elsewhere, so that it may be lost."""
        try:
            if session:
                await self.send(Address.of(session), text, buttons)
            else:
                await self.notify(scope, text, buttons)
        except StorageError as error:
            logger.warning("{}: could not send a notice about changes in memory: {}", scope, error)


def _undo(version: int) -> Sequence[Button]:
    return [Button("Undo", f"/dream-restore --version {version}")] if version else []


_KEPT_CHARACTERS = 4_000


def is_silent(text: str) -> bool:
    bare = text.strip().strip("`*.").strip()
    return not bare or bare.casefold() == SILENT


def failed_text(inbound: InboundMessage, text: str) -> str:
    """The text for a chat about a run that failed; empty for a heartbeat's."""
    if inbound.origin.initiator == "heartbeat":
        return ""
    return f"The scheduled job “{_name(inbound)}” could not run. {text}"


def job_waiting_text(inbound: InboundMessage) -> str:
    """The text about a run that has to wait for the model; for a job's only."""
    if inbound.origin.initiator != "job":
        return ""
    return (
        f"The scheduled job “{_name(inbound)}” is due, but the model cannot be reached right "
        "now. The job will run once the model is back."
    )


def program_answer_text(inbound: InboundMessage, text: str) -> str:
    program = inbound.chat_id.partition(":")[0]
    return f"You approved a call for the program {program}. Its answer:\n\n{text}"


def background_turn_note(
    inbound: InboundMessage, text: str, origins: Iterable[str], now: datetime
) -> InboundMessage:
    """What the chat's conversation gets to know of `text`, which was said there; `origins` are
    those of what the turn has read."""
    who = "heartbeat" if inbound.origin.initiator == "heartbeat" else f"job “{_name(inbound)}”"
    foreign = set(origins)
    origin = (
        origin_of_relay(f"job:{inbound.origin.job or 'heartbeat'}", foreign) if foreign else NANOBOT
    )
    event_id = f"{inbound.event_id}:said"
    return conversation_note(
        inbound.address, f"said here by the {who}", text, event_id, origin, now
    )


def conversation_note(
    there: Address, what: str, text: str, event_id: str, origin: str, now: datetime
) -> InboundMessage:
    """What the conversation of a chat gets to know of a `text` that appeared there."""
    return InboundMessage(
        there.channel,
        there.chat_id,
        sender_id=NANOBOT,
        content=f"[{NANOBOT}: {what}: {one_line(text, _KEPT_CHARACTERS)}]",
        event_id=event_id,
        timestamp=now,
        thread_id=there.thread_id,
        session_override=there.key,
        delivery=Delivery(unanswered=True),
        origin=Origin(mark=origin),
    )


def _name(inbound: InboundMessage) -> str:
    return one_line(inbound.sender_name) or inbound.origin.job


async def remind(bus: MessageBus, split: MessageSplitter, message: InboundMessage) -> None:
    """Send a reminder to its chat, and let the conversation there know of it. Done again, it
    changes nothing: both go by the event's id. Raises `StorageError`."""
    text, there = message.content, message.address
    notice = OutboundMessage(there.channel, there.chat_id, text, thread_id=there.thread_id)
    await bus.send_outgoing(message.event_id, Outgoing("reply", await split(notice)))
    origins = () if message.origin.mark == NANOBOT else (message.origin.mark,)
    await bus.publish_internal(background_turn_note(message, text, origins, message.timestamp))


GAVE_UP = (
    "nanobot stopped unexpectedly {} times while it worked on this message, so it will not try "
    "again by itself. To try once more, send /retry."
)


BEHIND_ANOTHER = (
    "An earlier message in this conversation is still pending. This one is stored and comes "
    "next. To drop the earlier one, send /stop."
)
ENDED_EARLY = "\n\n[The provider ended this answer early ({}).]"
ENDS = {
    **dict.fromkeys(("stop", "tool_calls", "function_call", "end_turn", "eos"), ""),
    "length": "\n\n[This answer was cut off at the model's limit. Say “go on” to read the rest.]",
    "content_filter": "\n\n[The provider's content filter ended this answer here.]",
}


WAIT_HOURS = 24
"""How long a message waits for a model that is out."""


def waiting_text(error: ProviderError, *, is_owner: bool) -> str:
    """The one notice while the model is out."""
    kept = f"Your message will be answered if the model is back within {WAIT_HOURS} hours"
    why = f"The model cannot be reached right now ({_said(error)})" if is_owner else _NOT_NOW
    return f"{why}. {kept}. To drop it, send /stop."


def late_head(inbound: InboundMessage, now: datetime) -> str:
    """Return the line above a late answer, with the words and the time of the message."""
    sent = inbound.timestamp.astimezone(now.tzinfo)
    when = f"{sent:%H:%M}" if sent.date() == now.date() else f"{sent:%Y-%m-%d %H:%M}"
    words = shorten(inbound.content, _QUOTED)
    return f"Answer to {f'“{words}”' if words else 'your message'} ({when}):\n\n"


_QUOTED = 60
"""Characters of a message that are enough to know it again."""

_NOT_NOW = "The model cannot be reached right now. The owner of this nanobot has been notified"

_NOT_ANSWERED = (
    "I could not answer. The owner of this nanobot has been notified. To try again, send /retry."
)
_FAILURES: Sequence[tuple[type[Exception], str, str]] = (
    (
        BudgetSpent,
        "I cannot answer: {reason}.{hint} Then send /retry to run this message again.",
        "The limit for today is reached. To run this message again tomorrow, send /retry.",
    ),
    (
        ContextTooLong,
        "This conversation does not fit the model's context window, even shortened. To start "
        "a new one, send /new. If the model's window is smaller than model.context_window, "
        "lower that setting. ({reason})",
        "This conversation is too long. To start a new one, send /new.",
    ),
    (
        ProviderError,
        "The model gave no answer: {reason}.{hint} To try again, send /retry.",
        _NOT_ANSWERED,
    ),
    (
        Exception,
        "nanobot had an internal error ({kind}). The details are in the log. To try again, "
        "send /retry.",
        _NOT_ANSWERED,
    ),
)
"""The text of an error for the owner, and the one for other people."""

_RETRY = " To try again, send /retry."


def failure_text(error: Exception, *, is_owner: bool) -> str:
    """The message that ends a turn which cannot succeed."""
    hint = f" {error.hint}" if isinstance(error, NanobotError) and error.hint else ""
    texts = next(texts for kind, *texts in _FAILURES if isinstance(error, kind))
    text = texts[0 if is_owner else 1]
    return text.format(reason=_said(error), hint=hint, kind=type(error).__name__)


def _said(error: Exception) -> str:
    return str(error).rstrip(". ")
