"""From what a channel delivered to a message of a conversation: which conversation it goes into and
whose that is, and the message with its marks, quotes, files and speech.

A message that is off the record has a conversation made of what it brings, for its one turn. What
nanobot adds to a message is in lines in brackets, and nothing that is told in one can end it. What
a person recorded for the chat are their own words like what they type; of any other sound, what is
said in it is only told about.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager

from loguru import logger
from msgspec import Struct
from msgspec.structs import replace

from nanobot.agent.media import FOLDER, MAX_BYTES, MediaStore
from nanobot.bus.events import NANOBOT, InboundMessage, Media
from nanobot.channel import Channel
from nanobot.clock import Clock
from nanobot.errors import WITHHELD, NanobotError, SendRefused, StorageError
from nanobot.memory.scopes import Scopes
from nanobot.messages import ATTACHED, EDITED, Message
from nanobot.session.manager import SessionManager
from nanobot.session.records import JsonValue
from nanobot.session.session import Contents, Session
from nanobot.text import one_line, without_brackets

Transcribe = Callable[[bytes, str, str], Awaitable[str]]
"""What is said in a sound: content, MIME type, name. May fail in any way."""

KEPT = "kept:"
"""Begins the reference of a file that is kept already, in a message that is run again."""

_FETCH_SECONDS = 60.0
_NAME_CHARACTERS = 80

_LINE_END = re.compile("\r\n|[\n\v\f\r\x1c-\x1e\x85\u2028\u2029]")
_UNSEEN = r"\s\x00-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u180b-\u180f\u200b-\u200f\u202a-\u202e"
_UNSEEN += r"\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0"
_MARK = re.compile(rf"[{_UNSEEN}]*[\[\uff3b]")
"""Begins a line that looks like one of nanobot's: what goes before the bracket is not seen."""


class _Taken(Struct, frozen=True):
    """What became of a file: its name in the store, what to say about it, the person's words."""

    name: str = ""
    note: str = ""
    words: str = ""


class Intake:
    """Makes stored messages of delivered ones. Slow downloads happen here, in the lane.

    `channels` fetch the files. `scopes` tell whose words in a group are the owner's: those of
    others are marked, since no instruction of theirs may become a memory. Without `transcribe`
    voice messages are files.
    """

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
        """The person's message. A file that cannot be fetched becomes a note, never a failure.

        Raises `StorageError` where a file cannot be kept.
        """
        return self._message(inbound, [await self._take(inbound, i) for i in inbound.media], notice)

    def text_of(self, inbound: InboundMessage) -> Message:
        """The message as it is before its files are fetched."""
        notes = [_Taken(note=f"[{_label(item)}: not fetched]") for item in inbound.media]
        return self._message(inbound, notes)

    async def _take(self, inbound: InboundMessage, item: Media) -> _Taken:
        if inbound.delivery.answers and item.ref.startswith(KEPT):
            return _Taken(item.ref.removeprefix(KEPT))
        label = _label(item)
        try:
            async with asyncio.timeout(_FETCH_SECONDS):
                data = await self._channels[inbound.channel].fetch(item, MAX_BYTES)
        except Exception as error:  # noqa: BLE001 - the boundary: an adapter's failure is a note
            logger.warning("could not fetch {} from {}: {}", label, inbound.channel, _reason(error))
            reason = self._told(error, inbound)
            return _Taken(note=f"[{label}: it could not be fetched: {reason}]")
        name = await asyncio.to_thread(self._store.put, data, item.mime, item.name)
        kept = f"{label}, kept as {FOLDER}/{name}"
        if item.kind not in ("voice", "audio"):
            return _Taken(name, f"[{kept}]")
        return await self._listen(inbound, item, data, _Taken(name, kept))

    def _told(self, error: Exception, inbound: InboundMessage) -> str:
        """Why something could not be done, as the people in the chat may read it."""
        if self._scopes.is_owners(inbound) or isinstance(error, SendRefused):
            return _reason(error)
        return WITHHELD

    async def _listen(
        self, inbound: InboundMessage, item: Media, data: bytes, taken: _Taken
    ) -> _Taken:
        """What is said in a sound: the person's words, or a part of the note about the file."""
        said = ""
        if self._transcribe is None:
            note = "nobody can listen to it: model.transcription is not set"
        else:
            try:
                transcript = await self._transcribe(data, item.mime, item.name)
                said = without_brackets(transcript).strip()
                note = "transcribed above" if said else "nobody speaks in it"
                if said and item.kind != "voice":
                    note, said = f"in it is said: “{one_line(said, None)}”", ""
            except Exception as error:  # noqa: BLE001 - the boundary: what fails to listen is a note
                logger.warning("{}: could not transcribe it: {}", taken.name, _reason(error))
                note = f"it could not be transcribed: {self._told(error, inbound)}"
        return replace(taken, note=f"[{taken.note}; {note}]", words=said)

    def _message(
        self, inbound: InboundMessage, files: Sequence[_Taken], notice: str = ""
    ) -> Message:
        notes = [f"[{one_line(note, None)}]" for note in filter(None, inbound.notes)]
        notes += filter(None, (file.note for file in files))
        media = tuple(filter(None, (file.name for file in files)))
        quoted = inbound.reply_to.text if inbound.reply_to else ""
        lines = [*_before(inbound), _said(inbound), *(file.words for file in files), *notes]
        attached = ATTACHED if any((quoted, notes, media)) else ""
        return Message(
            "user",
            "\n".join(filter(None, lines)),
            inbound.timestamp,
            media=media,
            notice=notice,
            origin=self._origin(inbound) or attached,
        )

    def _origin(self, inbound: InboundMessage) -> str:
        """Whose words they are, if not the person's in their own chat or the owner's."""
        if inbound.origin.mark or inbound.forwarded_from:
            return inbound.origin.mark or "forwarded"
        if not inbound.is_group or self._scopes.is_owner(inbound.channel, inbound.sender_id):
            return ""
        return f"person:{one_line(inbound.sender_id, None)[:80]}"


def _label(item: Media) -> str:
    return one_line(f"{item.kind} {item.name}", None)


def _before(inbound: InboundMessage) -> Iterator[str]:
    """The lines before what was said: who speaks, where several can (what is run again says so
    already), what is replied to, where it was forwarded from, that it was edited."""
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


def _said(inbound: InboundMessage) -> str:
    """What was said, where others can speak: no line of theirs looks like one that nanobot adds.
    What is run again holds those that it has added before."""
    if inbound.delivery.answers or not (inbound.is_group or inbound.forwarded_from):
        return inbound.content
    lines = _LINE_END.split(inbound.content)
    return "\n".join(without_brackets(line) if _MARK.match(line) else line for line in lines)


def _reason(error: Exception) -> str:
    return one_line(str(error), None) or type(error).__name__


class Admission:
    """Finds the conversations of messages. `holding` a scope is entered around changes of its files
    that no message of it asked for."""

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
        """The conversation of a message, whoever owns it. One that is off the record is made of
        what the message brings, so it is the same after a crash. The message and the steps of its
        turn are in the journal until it is answered, and nothing of it anywhere else: the turn's
        end stores no lines of it (`Turns`), so there is no file that a memory, a search or a list
        of conversations could find."""
        if not inbound.origin.off_record:
            return await self._sessions.get_or_create(inbound.session_key)
        moment = inbound.timestamp
        said = enumerate(messages_before(inbound), 1)
        before = tuple(replace(one, seq=number) for number, one in said)
        contents = Contents(
            moment, moment, before, {"sender": inbound.sender_id}, next_seq=len(before) + 1
        )
        return Session(inbound.session_key, self._clock, contents)

    async def admit(self, inbound: InboundMessage) -> tuple[Session, str]:
        """The conversation that a message goes into, and the scope that it is answered in. In a
        chat that is another scope's now, a new conversation begins, and the old one stays with its
        own. Raises `OthersConversation` and `StorageError`."""
        sessions, key = self._sessions, inbound.session_key
        session = await self.session_of(inbound)
        if inbound.origin.off_record:
            return session, self._scopes.of_message(inbound, key, session.metadata)
        if owner := self._scopes.expect_own(inbound, key, session.metadata):
            logger.info("{} now belongs to another scope, so its conversation is set aside", key)
            try:
                async with self._holding(owner):
                    await sessions.set_aside(session, scope=owner)
            except StorageError:
                raise
            except NanobotError as error:  # another worker has it; it is tried again
                raise StorageError(key, str(error), hint=error.hint) from error
            session = await sessions.get_or_create(key)
        return session, self._scopes.of_message(inbound, key, session.metadata)

    def identify(self, session: Session, inbound: InboundMessage, scope: str) -> None:
        """Stage whose a conversation is, once, and what its key does not tell about who it is
        with."""
        if inbound.origin.off_record:  # no file has it
            return
        known, facts = session.metadata, dict[str, JsonValue]()
        if inbound.origin.scope or (inbound.sender_id != NANOBOT and not known.get("scope")):
            facts["scope"] = scope
        if not inbound.session_override and not inbound.origin.scope:
            facts |= self._partner(session, inbound, scope)
        changes = {name: value for name, value in facts.items() if known.get(name) != value}
        if changes:
            session.set_metadata(**changes)

    def _partner(
        self, session: Session, inbound: InboundMessage, scope: str
    ) -> dict[str, JsonValue]:
        """Who a conversation is with, as far as its key does not tell."""
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
    said = message.origin.context if is_first else ()
    if (given := message.origin.instructions) is not None:
        before = {*(one.content for one in known), *(one.text for one in said)}
        said = said if given.text in before else (*said, given)
    moment = message.timestamp
    return [Message(one.role, one.text, moment, name=one.name, origin=one.origin) for one in said]
