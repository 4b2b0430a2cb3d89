"""Intake of messages: finds the conversation of a delivered message and its owner, and builds the
stored message with its marks, quotes, files and transcripts.

An off-record message has a conversation made of its contents, for one turn. nanobot's additions to
a message are lines in brackets, and no text in such a line can end it. Voice messages recorded for
the chat count as the person's own words. The transcript of any other sound is only quoted in a
note."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager

from loguru import logger
from msgspec.structs import replace

from nanobot.agent.media import MAX_BYTES, MediaStore
from nanobot.bus.events import NANOBOT, InboundMessage, Media
from nanobot.channel import Channel
from nanobot.clock import Clock
from nanobot.errors import WITHHELD, NanobotError, SendRefused, StorageError
from nanobot.memory.scopes import Scopes
from nanobot.messages import ATTACHED, EDITED, Attachment, Message
from nanobot.session.manager import SessionManager
from nanobot.session.records import JsonValue
from nanobot.session.session import DELETED, Contents, Session
from nanobot.text import one_line, without_brackets

Transcribe = Callable[[bytes, str, str], Awaitable[str]]
"""Transcriber of a sound (content, MIME type, name). May raise any error."""

KEPT = "kept:"
"""Prefix of the reference of a stored file, in a message that runs again."""

_FETCH_SECONDS = 60.0
_NAME_CHARACTERS = 80

_LINE_END = "\r\n|[\n\v\f\r\x1c-\x1e\x85\u2028\u2029]"
_UNSEEN = r"\s\x00-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u180b-\u180f\u200b-\u200f\u202a-\u202e"
_UNSEEN += r"\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0"
_MARK = rf"[{_UNSEEN}]*[\[\uff3b]"
"""Start of a line that looks like one of nanobot's. Invisible characters may precede the
bracket."""


class Intake:
    """Conversion of delivered messages to stored ones. Slow downloads happen here, in the lane.

    `channels` fetch the files. `scopes` decide if a group message is the owner's. Others' messages
    are marked, as their instructions must never become memories. Without `transcribe` voice
    messages are files."""

    def __init__(
        self,
        store: MediaStore,
        channels: Mapping[str, Channel],
        scopes: Scopes,
        transcribe: Transcribe | None = None,
    ) -> None:
        self._store = store
        self._transcribe = transcribe
        self._channels, self._scopes = channels, scopes

    async def to_message(self, inbound: InboundMessage, notice: str = "") -> Message:
        """Return the person's message with its files. A file that can't be fetched becomes a note.

        Raises `StorageError` if a file can't be stored."""
        taken = [await self._take(inbound, item) for item in inbound.media]
        return replace(self._message(inbound, taken), notice=notice)

    def text_of(self, inbound: InboundMessage) -> Message:
        """Return the person's message without its files."""
        return self._message(
            inbound, [(_describe(item, note="not fetched"), "") for item in inbound.media]
        )

    async def _take(self, inbound: InboundMessage, item: Media) -> tuple[Attachment, str]:
        """Fetch and store a file. Return it, and the person's words in it."""
        if inbound.delivery.answers and item.ref.startswith(KEPT):
            return _describe(item, item.ref.removeprefix(KEPT)), ""
        try:
            async with asyncio.timeout(_FETCH_SECONDS):
                data = await self._channels[inbound.channel].fetch(item, MAX_BYTES)
        except Exception as error:  # noqa: BLE001 - the boundary: an adapter's failure is a note
            label = f"{item.kind} {item.name}"
            logger.warning("could not fetch {} from {}: {}", label, inbound.channel, _reason(error))
            reason = self._explain_error(error, inbound)
            return _describe(item, note=f"could not be fetched: {reason}"), ""
        name = await asyncio.to_thread(self._store.put, data, item.mime, item.name)
        stored = _describe(item, name, len(data))
        if item.kind not in ("voice", "audio"):
            return stored, ""
        return await self._listen(inbound, item, data, stored)

    def _explain_error(self, error: Exception, inbound: InboundMessage) -> str:
        """Return the reason of an error, as the people in the chat may read it."""
        if self._scopes.is_owners(inbound) or isinstance(error, SendRefused):
            return _reason(error)
        return WITHHELD

    async def _listen(
        self, inbound: InboundMessage, item: Media, data: bytes, taken: Attachment
    ) -> tuple[Attachment, str]:
        """Transcribe a sound, as the person's words or as a part of the note about the file."""
        words = ""
        if self._transcribe is None:
            note = "not transcribed: model.transcription is not set"
        else:
            try:
                transcript = await self._transcribe(data, item.mime, item.name)
                words = without_brackets(transcript).strip()
                note = "transcribed above" if words else "no speech found"
                if words and item.kind != "voice":
                    note, words = f"transcript: “{one_line(words, None)}”", ""
            except Exception as error:  # noqa: BLE001 - the boundary: what fails to listen is a note
                logger.warning("{}: could not transcribe it: {}", taken.file, _reason(error))
                note = f"could not be transcribed: {self._explain_error(error, inbound)}"
        return replace(taken, note=note), words

    def _message(self, inbound: InboundMessage, files: Sequence[tuple[Attachment, str]]) -> Message:
        """Return a message with its files, each with the person's words in it."""
        notes = [f"[{one_line(note, None)}]" for note in filter(None, inbound.notes)]
        quoted = inbound.reply_to.text if inbound.reply_to else ""
        lines = [
            *_introduce(inbound),
            _strip_marks(inbound),
            *(words for _, words in files),
            *notes,
        ]
        attached = ATTACHED if quoted or notes or files else ""
        return Message(
            "user",
            "\n".join(filter(None, lines)),
            inbound.timestamp,
            media=tuple(file for file, _ in files),
            about=inbound.origin.about,
            origin=self._origin(inbound) or attached,
            replaces=inbound.delivery.replaces,
        )

    def _origin(self, inbound: InboundMessage) -> str:
        """Return the origin of the words, or "" for a person in their own chat and for the
        owner."""
        if inbound.origin.mark or inbound.forwarded_from:
            return inbound.origin.mark or "forwarded"
        if not inbound.is_group or self._scopes.is_owner(inbound.channel, inbound.sender_id):
            return ""
        return f"person:{one_line(inbound.sender_id, None)[:80]}"


def _describe(item: Media, file: str = "", size: int = 0, note: str = "") -> Attachment:
    return Attachment(file, item.kind, item.name, item.mime, size or item.size, note)


def _introduce(inbound: InboundMessage) -> Iterator[str]:
    """Yield the lines before the text: the sender in a group (unless the message runs again and has
    the line already), the quoted message, the source of a forward, and the mark of an edit."""
    is_new = inbound.is_group and not inbound.delivery.answers
    if is_new and (name := one_line(inbound.sender_name, _NAME_CHARACTERS)):
        yield f"[from {name}]"
    quote = inbound.reply_to
    if quote is not None and quote.text:
        sender, text = one_line(quote.sender) or "a message", one_line(quote.text, None)
        yield f"[in reply to {sender}: “{text}”]"
    if inbound.forwarded_from:
        yield f"[forwarded from {one_line(inbound.forwarded_from)}]"
    if inbound.delivery.edits:
        yield EDITED


def _strip_marks(inbound: InboundMessage) -> str:
    """Return the text of a message. Other people's lines can't look like nanobot's own. A message
    that runs again keeps the lines that nanobot has added."""
    is_own = inbound.delivery.answers or not (inbound.is_group or inbound.forwarded_from)
    return inbound.content if is_own else strip_marks(inbound.content)


def strip_marks(text: str) -> str:
    """Return another person's text without lines that look like nanobot's."""
    lines = re.split(_LINE_END, text)
    return "\n".join(without_brackets(line) if re.match(_MARK, line) else line for line in lines)


def _reason(error: Exception) -> str:
    return one_line(str(error), None) or type(error).__name__


class MessageLost(NanobotError):
    """A message of a temporary chat is from an earlier process, so only its facts were stored."""

    def __init__(self) -> None:
        super().__init__(
            "nanobot was restarted, and this chat is temporary, so your message was not stored. To "
            "get an answer, send it again."
        )


class Admission:
    """Lookup of the conversations of messages. `holding` a scope protects changes of its files that
    no message of it caused."""

    def __init__(
        self,
        sessions: SessionManager,
        scopes: Scopes,
        clock: Clock,
        holding: Callable[[str], AbstractAsyncContextManager[None]],
    ) -> None:
        self._sessions, self._scopes, self._clock = sessions, scopes, clock
        self._holding = holding

    async def session_of(self, inbound: InboundMessage) -> Session:
        """Return the conversation of a message, of any owner. The conversation of an off-record
        message is made of the message's contents, so it is the same after a crash. Until it is
        answered, the journal holds the message and the steps of its turn. `Turns` stores no lines
        of it at the end, so no memory, search or list of conversations can find it."""
        if not inbound.origin.off_record:
            return await self._sessions.get_or_create(inbound.session_key)
        moment = inbound.timestamp
        numbered = enumerate(messages_before(inbound), 1)
        before = tuple(replace(one, seq=number) for number, one in numbered)
        contents = Contents(
            moment, moment, before, {"sender": inbound.sender_id}, next_seq=len(before) + 1
        )
        return Session(inbound.session_key, self._clock, contents)

    async def admit(self, inbound: InboundMessage) -> tuple[Session, str]:
        """Return the conversation for a message and the scope that answers it. If the chat now
        belongs to another scope, a new conversation begins, and the old one stays with its scope.
        Raises `OthersConversation`, `MessageLost` and `StorageError`."""
        sessions, key = self._sessions, inbound.session_key
        session = await self.session_of(inbound)
        if inbound.is_temporary and not inbound.content:
            raise MessageLost
        if inbound.origin.off_record:
            return session, self._scopes.of_message(inbound, key, session.metadata)
        if owner := self._scopes.expect_own(inbound, key, session.metadata):
            logger.info("{} now belongs to another scope. Its conversation will be set aside", key)
            try:
                async with self._holding(owner):
                    await sessions.set_aside(session, scope=owner)
            except StorageError:
                raise
            except NanobotError as error:  # another worker holds it: retried later
                raise StorageError(key, str(error), hint=error.hint) from error
            session = await sessions.get_or_create(key)
        return session, self._scopes.of_message(inbound, key, session.metadata)

    def identify(self, session: Session, inbound: InboundMessage, scope: str) -> None:
        """Stage the scope of a conversation once, and the facts about its partner that its key
        lacks."""
        if inbound.origin.off_record:  # it has no file
            return
        known, facts = session.metadata, dict[str, JsonValue]()
        if inbound.origin.scope or (inbound.sender_id != NANOBOT and not known.get("scope")):
            facts["scope"] = scope
        if not inbound.session_override and not inbound.origin.scope:
            facts |= self._partner(session, inbound, scope)
        facts[DELETED] = None  # it begins again
        changes = {name: value for name, value in facts.items() if known.get(name) != value}
        if changes:
            session.set_metadata(**changes)

    def _partner(
        self, session: Session, inbound: InboundMessage, scope: str
    ) -> dict[str, JsonValue]:
        """Return the facts about a conversation's partner that its key lacks."""
        facts: dict[str, JsonValue] = {}
        unowned = {name: value for name, value in session.metadata.items() if name != "scope"}
        if self._scopes.of_session(session.key, unowned) != scope:
            facts["sender"] = None if inbound.is_group else inbound.sender_id
            facts["group"] = True if inbound.is_group else None
            facts["chat"] = inbound.chat_id if inbound.thread_id else None
        if inbound.sender_name and not inbound.is_group:
            facts["name"] = inbound.sender_name
        return facts


def messages_before(
    message: InboundMessage, known: Sequence[Message] = (), *, is_first: bool = True
) -> Sequence[Message]:
    """Return the earlier messages that a program sends along, for a conversation that has `known`.
    Its context counts if the message `is_first`, its instructions if they are new."""
    parts = message.origin.context if is_first else ()
    if (given := message.origin.instructions) is not None:
        before = {*(one.content for one in known), *(one.text for one in parts)}
        parts = parts if given.text in before else (*parts, given)
    moment = message.timestamp
    return [Message(one.role, one.text, moment, name=one.name, origin=one.origin) for one in parts]
