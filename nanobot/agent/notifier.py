"""nanobot's own messages: notices, the output of background turns in their chat, and the texts that
end a turn without an answer.

`Notifier` sends the notices of memory and the gateway to the chat that their scope used last. Turns
of jobs and of the heartbeat have their own conversation. Their output is also noted in the
conversation of the chat, marked with its origin, so that a person can answer it."""

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
from nanobot.bus.split import close_fence, split_message, split_text, utf16_length
from nanobot.channel import Channel, Chat, Limits, Sender, find_home_chat
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

_AS_FILE = "\n\n[The full text ({:,} characters) is in the file below.]"

_RENDERING = 10
"""Measuring a character takes as long as parsing this many bytes. 80,000 characters take up to a
second."""


class MessageSplitter:
    """Splitter of messages into parts that their channel can send. A text with too many parts, by
    length or by markup, is sent as a file. `channels` are the channels of this process by name."""

    def __init__(self, channels: Mapping[str, Channel], media: MediaStore) -> None:
        self._channels, self._media = channels, media

    def limits_of(self, channel: str) -> Limits:
        found = self._channels.get(channel)
        return found.limits if found else Limits()

    def keep_draft(self, inbound: InboundMessage, text: str) -> str:
        """Return the message with a stopped answer's `text` if the chat showed it as a draft, or an
        empty string."""
        if not (text and self.limits_of(inbound.channel).drafts):
            return ""
        shown = not (inbound.is_group or inbound.is_background)
        return f"{close_fence(text)[0]}\n\n[stopped]" if shown else ""

    async def __call__(self, message: OutboundMessage) -> tuple[OutboundMessage, ...]:
        """Return the parts of a message, or none if it is empty. Raise `StorageError` if a file
        can't be stored."""
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
            logger.opt(exception=error).error("{}: could not measure a message", message.channel)
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
"""Longest time until changes by other processes or by hand are seen."""


class KnownChats:
    """The chats that the agent has talked in. `reachable` are the channels on which it can send at
    any time. In `terminals` a person has to look. Its methods block."""

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
        """Return the addresses and titles of the chats, the last used first. A title is the
        person's name for themselves, or the name in the access list. Topics have their group's
        title."""
        names = {f"{known.channel}:{known.id}": known.name for known in self._access.grants()}
        found = []
        for info in self._list_recent(self.reachable):
            name, channel = info.metadata.get("name"), info.key.partition(":")[0]
            chat = f"{channel}:{chat_of(info.key, info.metadata)}"
            found.append((info.key, name if isinstance(name, str) else names.get(chat, "")))
        return found

    def addresses(self) -> Iterator[str]:
        """Return the addresses of the chats, read lazily."""
        return (info.key for info in self._list_recent(self.reachable))

    def scope_of(self, address: str) -> str:
        """Return the scope that owns a chat."""
        return self._scopes.of_session(address, self._sessions.metadata_of(address))

    def is_owner(self, channel: str, sender_id: str) -> bool:
        return self._scopes.is_owner(channel, sender_id)

    def may_reach(self, address: str) -> bool:
        """Return True if the people in a chat may talk to the agent now."""
        channel, metadata = address.partition(":")[0], self._sessions.metadata_of(address)
        chat_id = chat_of(address, metadata)
        if metadata.get("group") is True:
            return self._access.knows_group(channel, chat_id)
        person = metadata.get("sender")
        sender = Sender(person if isinstance(person, str) else chat_id)
        return self._access.permits(channel, sender, Chat(chat_id))

    def is_wanted_in(self, address: str, scope: str) -> bool:
        """Return True if a job of a scope may send to a chat: no other scope owns it by now, and
        its people may talk to the agent."""
        owner = self._scopes.owner_of(address, self._sessions.metadata_of(address))
        return owner in ("", scope) and (scope == OWNER or self.may_reach(address))

    def owners_latest(self) -> str:
        """Return the chat that the owner used last and can still be reached in, or ""."""
        owners = self._of_scope(OWNER, self.reachable)
        return next((one for one in owners if self.may_reach(one)), "")

    def latest(self, scope: str, channels: Sequence[str]) -> Address | None:
        """Return the chat that a scope used last on these channels, or None."""
        key = next(self._of_scope(scope, channels), None)
        return Address.of(key) if key else None

    def _of_scope(self, scope: str, channels: Sequence[str]) -> Iterator[str]:
        infos = self._list_recent(channels)
        of_session = self._scopes.of_session
        return (one.key for one in infos if of_session(one.key, one.metadata) == scope)

    def _list_recent(self, channels: Sequence[str]) -> Iterator[SessionInfo]:
        infos = self._sessions.list_sessions(within=_AGE_SECONDS)
        return (info for info in infos if info.key.partition(":")[0] in channels)


class Notifier:
    """Sender of the notices of memory and the gateway to known `chats`. Everything but a notice
    about memory raises `StorageError` if it can't be stored."""

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
        self,
        there: Address,
        text: str,
        buttons: Sequence[Button] = (),
        name: str = "",
        *,
        is_temporary: bool = False,
    ) -> None:
        """Send a message to a chat. Skip an address that is none, such as a job's own conversation.
        A message with a `name` is sent once. `is_temporary` is as in `OutboundMessage`."""
        if there.channel in self._chats.anywhere:
            message = OutboundMessage(
                *(there.channel, there.chat_id, text),
                thread_id=there.thread_id,
                buttons=tuple(buttons),
                is_temporary=is_temporary,
            )
            name = name or f"tell-{secrets.token_hex(8)}"
            await self._bus.send_outgoing(name, Outgoing("reply", await self._split(message)))

    async def notify(self, scope: str, text: str, buttons: Sequence[Button] = ()) -> Address | None:
        """Send a message to the chat that a scope used last on reachable channels. Return the chat,
        or None if there is none."""
        place = await asyncio.to_thread(self._chats.latest, scope, self._chats.reachable)
        if place is not None:
            await self.send(place, text, buttons)
        return place

    async def ask(
        self, caller: TurnContext, code: str, text: str, buttons: Sequence[Button]
    ) -> Address | None:
        """Ask the owner about a call. Ask in the conversation itself if only the owner is in it,
        else in the chat that they used last (in a terminal if there is no other), and show that to
        the caller. Return the place of the question, or None if there is none."""
        here = caller.address
        is_owner = caller.scope == OWNER or self._chats.is_owner(caller.channel, caller.sender_id)
        name = f"{QUESTION}{code}"
        if is_owner and not is_group(caller.scope) and here.channel in self._chats.anywhere:
            await self.send(here, text, buttons, name, is_temporary=caller.is_temporary)
            return here
        text += f"\nRequested in {escape_invisible(caller.session_key)} (turn {caller.turn_id})."
        if (place := await self._find_place(OWNER)) is not None:
            await self.send(place, text, buttons, name)
            if place != here:
                caller.show_output("Waiting for the owner's approval.\n")
        return place

    async def place_of(self, caller: TurnContext) -> Address:
        """Return the place for a later message to a caller: their chat or, if a program asks, the
        chat that its person used last. Raise `ToolError` if there is none."""
        if caller.channel in self._chats.anywhere:
            return find_home_chat(caller.address, caller.session_key)
        if (place := await self._find_place(caller.scope)) is not None:
            return place
        hint = "The person must write to nanobot in a chat first."
        raise ToolError("there is no chat yet to send messages to", hint=hint)

    async def _find_place(self, scope: str) -> Address | None:
        """Return the chat that a scope used last, in a terminal only if there is no other."""
        reachable, anywhere = self._chats.reachable, self._chats.anywhere
        place = await asyncio.to_thread(self._chats.latest, scope, reachable)
        return place or await asyncio.to_thread(self._chats.latest, scope, anywhere)

    async def warn(self, text: str, name: str = "", closed: str = "") -> None:
        """Warn the owner once per `name`, in the chat that they used last on another channel than
        `closed`. A terminal counts too, as an unseen warning is better than none."""
        channels = [channel for channel in self._chats.anywhere if channel != closed]
        place = await asyncio.to_thread(self._chats.latest, OWNER, channels)
        if place is not None:
            await self.send(place, text, name=name)

    def warn_of_failure(self, where: str, error: Exception) -> None:
        """Warn the owner why others in the conversation `where` get no answer, once a day per
        error."""
        text = failure_text(error, is_owner=True).removesuffix(_RETRY)
        text = f"A message in {where} was not answered. {text}"
        self._warn_daily("failed", f"{type(error).__name__} {error}", text)

    def warn_of_channel(self, channel: str, text: str) -> None:
        """Warn the owner about a channel, on another one, once a day per problem."""
        self._warn_daily(f"off-{channel}", text, text, closed=channel)

    def _warn_daily(self, topic: str, reason: str, text: str, closed: str = "") -> None:
        digest = hashlib.sha256(reason.encode()).hexdigest()[:8]
        name = f"{topic}-{self._clock.now():%y%m%d}-{digest}"
        self._background.start(self.warn(text, name, closed), name=f"warn: {topic}")

    async def notify_digest(self, report: DreamReport) -> None:
        """Report the changes of a Dream run, with an undo button."""
        await self.notify(report.scope, report.digest, _undo(report.undoable))

    async def notify_held(self, scope: str, facts: Sequence[PendingFact], session: str) -> None:
        """Report new pending facts, with buttons to decide, in the chat they come from. Facts of
        Dream are reported in the chat that the owner used last."""
        if not facts or not (session or scope == OWNER):
            return
        codes = " ".join(fact.code for fact in select_for_notice(facts))
        every = " all" if len(facts) > 1 else ""
        buttons = (
            Button(f"Accept{every}", f"/memory accept {codes}"),
            Button(f"Drop{every}", f"/memory drop {codes}"),
        )
        await self._remark(scope, pending_notice(facts), buttons, session)

    async def notify_loss(self, scope: str, loss: Loss) -> None:
        """Report facts that left memory, with an undo button."""
        await self._remark(scope, loss_notice(loss), _undo(loss.number))

    async def _remark(
        self, scope: str, text: str, buttons: Sequence[Button], session: str = ""
    ) -> None:
        """Send a message that may be lost, because it is shown elsewhere as well."""
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


def job_failure_text(inbound: InboundMessage, text: str) -> str:
    """Return the message to a chat about a failed run, or "" for a heartbeat."""
    if inbound.origin.initiator == "heartbeat":
        return ""
    return f"The scheduled job “{_name(inbound)}” could not run. {text}"


def job_waiting_text(inbound: InboundMessage) -> str:
    """Return the message about a job that has to wait for the model, or "" for other turns."""
    if inbound.origin.initiator != "job":
        return ""
    return (
        f"The scheduled job “{_name(inbound)}” is due, but the model cannot be reached right "
        "now. The job will run once the model is back."
    )


def program_answer_text(inbound: InboundMessage, text: str) -> str:
    program = inbound.chat_id.partition(":")[0]
    return f"You approved a tool call for the program {program}. nanobot's answer to it:\n\n{text}"


def background_turn_note(
    inbound: InboundMessage, text: str, origins: Iterable[str], now: datetime
) -> InboundMessage:
    """Return the note for a chat's conversation about the output `text` of a background turn.
    `origins` are the marks of the messages that the turn has read."""
    who = "heartbeat" if inbound.origin.initiator == "heartbeat" else f"job “{_name(inbound)}”"
    foreign, job = set(origins), f"job:{inbound.origin.job or 'heartbeat'}"
    origin = origin_of_relay(job, foreign) if foreign else NANOBOT
    event_id = f"{inbound.event_id}:said"
    said = f"said here by the {who}"
    return conversation_note(inbound.address, said, text, event_id, origin, now)


def conversation_note(
    there: Address, what: str, text: str, event_id: str, origin: str, now: datetime
) -> InboundMessage:
    """Return the note for a chat's conversation about a `text` that appeared in the chat."""
    return InboundMessage(
        there.channel,
        there.chat_id,
        sender_id=NANOBOT,
        content=text[:_KEPT_CHARACTERS],
        event_id=event_id,
        timestamp=now,
        thread_id=there.thread_id,
        session_override=there.key,
        delivery=Delivery(unanswered=True),
        origin=Origin(mark=origin, about=what),
    )


def _name(inbound: InboundMessage) -> str:
    return one_line(inbound.sender_name) or inbound.origin.job


async def remind(bus: MessageBus, split: MessageSplitter, message: InboundMessage) -> None:
    """Send a reminder to its chat, and note it in the conversation. Idempotent, as both are keyed
    by the event's ID. Raises `StorageError`."""
    text, address = message.content, message.address
    notice = OutboundMessage(address.channel, address.chat_id, text, thread_id=address.thread_id)
    await bus.send_outgoing(message.event_id, Outgoing("reply", await split(notice)))
    origins = () if message.origin.mark == NANOBOT else (message.origin.mark,)
    await bus.publish_internal(background_turn_note(message, text, origins, message.timestamp))


GAVE_UP = (
    "nanobot stopped unexpectedly {} times while working on this message, so it won't try again "
    "automatically. To try once more, send /retry."
)
BEHIND_ANOTHER = (
    "An earlier message in this conversation is still pending. This one is saved and will be "
    "answered next. To drop the earlier one, send /stop."
)
ENDED_EARLY = "\n\n[The provider ended this answer early ({}).]"
ENDS = {
    **dict.fromkeys(("stop", "tool_calls", "function_call", "end_turn", "eos"), ""),
    "length": "\n\n[This answer was cut off at the model's limit. Say “go on” to read the rest.]",
    "content_filter": "\n\n[The provider's content filter ended this answer here.]",
}


WAIT_HOURS = 24
"""Longest time that a message waits for an unavailable model."""


def waiting_text(error: ProviderError, *, is_owner: bool) -> str:
    """Return the notice while the model is unavailable."""
    kept = f"Your message will be answered if the model is back within {WAIT_HOURS} hours"
    why = f"The model cannot be reached right now ({_reason_of(error)})" if is_owner else _NOT_NOW
    return f"{why}. {kept}. To drop it, send /stop."


def late_head(inbound: InboundMessage, now: datetime) -> str:
    """Return the line above a late answer, with the words and the time of the message."""
    sent = inbound.timestamp.astimezone(now.tzinfo)
    when = f"{sent:%H:%M}" if sent.date() == now.date() else f"{sent:%Y-%m-%d %H:%M}"
    words = shorten(inbound.content, _QUOTED)
    return f"Answer to {f'“{words}”' if words else 'your message'} ({when}):\n\n"


_QUOTED = 60
"""Enough characters of a message to recognise it."""

_NOT_NOW = "The model cannot be reached right now. The owner of this nanobot has been notified"

_NOT_ANSWERED = (
    "I could not answer. The owner of this nanobot has been notified. To try again, send /retry."
)
_FAILURES: Sequence[tuple[type[Exception], str, str]] = (
    (
        BudgetSpent,
        "I cannot answer: {reason}.{hint} Then send /retry to try again.",
        "Today's limit has been reached. Send /retry tomorrow to try again.",
    ),
    (
        ContextTooLong,
        "Even when shortened, this conversation doesn't fit in the model's context window. To "
        "start a new one, send /new. If the model's window is smaller than model.context_window, "
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
        "nanobot had an internal error ({kind}). See the log for details. To try again, "
        "send /retry.",
        _NOT_ANSWERED,
    ),
)
"""Texts of an error for the owner and for other people."""

_RETRY = " To try again, send /retry."


def stored_reason(inbound: InboundMessage, error: Exception) -> str:
    """Return the reason of a failure for the journal. A server's text may repeat the prompt."""
    is_shown = isinstance(error, ProviderError) and not inbound.is_temporary
    return str(error) if is_shown else type(error).__name__


def failure_text(error: Exception, *, is_owner: bool) -> str:
    """Return the message that ends a turn which cannot succeed."""
    hint = f" {error.hint}" if isinstance(error, NanobotError) and error.hint else ""
    texts = next(texts for kind, *texts in _FAILURES if isinstance(error, kind))
    text = texts[0 if is_owner else 1]
    return text.format(reason=_reason_of(error), hint=hint, kind=type(error).__name__)


def _reason_of(error: Exception) -> str:
    return str(error).rstrip(". ")
