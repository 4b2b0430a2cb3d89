"""Which conversation a message goes into, and whose it is.

A message that is off the record has a conversation made of what it brings, for its one turn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager

from loguru import logger
from msgspec.structs import replace

from nanobot.bus.events import NANOBOT, InboundMessage
from nanobot.clock import Clock
from nanobot.errors import NanobotError, StorageError
from nanobot.memory.scopes import Scopes
from nanobot.messages import Message
from nanobot.session.manager import SessionManager
from nanobot.session.records import JsonValue
from nanobot.session.session import Contents, Session


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

    async def admit(self, inbound: InboundMessage) -> tuple[Session, str]:
        """The conversation that a message goes into, and the scope that it is answered in. In a
        chat that is another scope's now, a new conversation begins, and the old one stays with its
        own. Raises `OthersConversation` and `StorageError`."""
        sessions, key = self._sessions, inbound.session_key
        if inbound.off_record:
            session = off_record_session(inbound, self._clock)
            return session, self._scopes.of_message(inbound, key, session.metadata)
        session = await sessions.get_or_create(key)
        if owner := self._scopes.expect_own(inbound, key, session.metadata):
            logger.info("{} is another scope's now: its conversation is set aside", key)
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
        if inbound.off_record:  # no file has it
            return
        known, facts = session.metadata, dict[str, JsonValue]()
        if inbound.scope or (inbound.sender_id != NANOBOT and not known.get("scope")):
            facts["scope"] = scope
        if not inbound.session_override and not inbound.scope:
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
            facts |= {
                "sender": None if inbound.is_group else inbound.sender_id,
                "group": True if inbound.is_group else None,
                "chat": inbound.chat_id if inbound.thread_id else None,
            }
        if inbound.sender_name and not inbound.is_group:
            facts["name"] = inbound.sender_name
        return facts


def messages_before(
    message: InboundMessage, known: Sequence[Message] = (), *, is_first: bool = True
) -> Sequence[Message]:
    """Return the earlier messages that a program sends along, for a conversation that has `known`.
    Its context counts if the message `is_first`, its instructions if they are new."""
    said = message.context if is_first else ()
    if (given := message.instructions) is not None:
        before = {*(one.content for one in known), *(one.text for one in said)}
        said = said if given.text in before else (*said, given)
    moment = message.timestamp
    return [Message(one.role, one.text, moment, name=one.name, origin=one.origin) for one in said]


def off_record_session(message: InboundMessage, clock: Clock) -> Session:
    """The conversation of a message that is off the record, for its one turn.

    It is made of what the message brings, so it is the same after a crash. The message and the
    steps of its turn are in the journal until it is answered, and nothing of it anywhere else: the
    turn's end stores no lines of it (`Turns`), so there is no file that a memory, a search or a
    list of conversations could find.
    """
    moment = message.timestamp
    said = enumerate(messages_before(message), 1)
    before = tuple(replace(one, seq=number) for number, one in said)
    contents = Contents(moment, moment, before, {"sender": message.sender_id})
    return Session(message.session_key, clock, replace(contents, next_seq=len(before) + 1))
