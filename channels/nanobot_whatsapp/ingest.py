"""Inbound messages for both transports, on their way into the core's inbox.

Changes of people's ids are on disk before their messages are, so that a message is in the same chat
when it is delivered again. A batch is published at once. Only an invalid message is dropped. Errors
of the core propagate: nothing is confirmed, and the platform delivers the batch again.

Senders choose the ids of their messages. So event ids in groups contain the sender, and a message
or edit cannot be confused with another person's."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Sequence
from datetime import datetime

from loguru import logger
from msgspec import Struct
from msgspec.structs import replace

from nanobot.bus.events import Delivery, InboundMessage, Media, Quote
from nanobot.channel import ChannelHost, Chat, Sender
from nanobot.io import FENCE
from nanobot.text import one_line, valid_unicode
from nanobot_whatsapp.people import People, Person, is_group, is_id

OURS = "you"
"""The sender of a quote that the agent wrote."""
UNREADABLE = "a message that nanobot could not read"
"""The note in place of an unreadable message, so that its sender gets an answer."""

_COMMAND = re.compile(r"/([A-Za-z][\w-]*)(?=\s|$)", re.ASCII)
_NOTE_CHARACTERS = 1000
_MAX_RECENT = 2_000
_EXCERPT = 500


class IncomingMessage(Struct, frozen=True):
    """An inbound message, the same for both transports. `at` is aware.

    `group` is the group's id, empty in private, and `title` its name. `own`: the account's owner
    wrote it to themselves. `addressed`: in a group, the agent was mentioned or replied to. `text`
    no longer begins with that mention. `edits` is the id of the sender's message that this one
    corrects, `deletes` the id of a message that they deleted. `unanswered`: it needs no answer (a
    reaction). `notes` are lines about content that is neither text nor a file. The `sender` of the
    `quote` is `OURS` or a name, which is never the same. `button` is the id of the pressed button,
    and `text` its label."""

    id: str
    person: Person
    at: datetime
    group: str = ""
    title: str = ""
    own: bool = False
    addressed: bool = True
    text: str = ""
    media: Media | None = None
    quote: Quote | None = None
    forwarded: bool = False
    notes: tuple[str, ...] = ()
    edits: str = ""
    deletes: str = ""
    unanswered: bool = False
    button: str = ""


class RecentMessages:
    """The latest messages, in memory, by id and chat: WhatsApp identifies a quoted message only by
    its id, or requires its text again. Messages before a restart and old ones are unknown.

    If the platform's ids are globally unique (the Cloud API), `chat` is left out."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, str], tuple[str, str]] = OrderedDict()

    def remember(self, id: str, sender: str, text: str, chat: str = "") -> None:
        """Store a message. A later one with the same id does not replace it, because senders choose
        ids."""
        self._known.setdefault((chat, id), (sender, text[:_EXCERPT]))
        if len(self._known) > _MAX_RECENT:
            self._known.popitem(last=False)

    def find(self, id: str, chat: str = "") -> tuple[str, str] | None:
        """Return the sender and start of a message, or None."""
        return self._known.get((chat, id))


class Ingest:
    """Store of inbound messages. `self_chat`: the account owner's messages to themselves are for
    the agent, unless they begin with `prefix`, which an agent wrote. `pairing`: strangers in
    private chats get pairing instructions."""

    def __init__(
        self, host: ChannelHost, people: People, *, self_chat: bool, pairing: bool, prefix: str = ""
    ) -> None:
        self._host, self._people = host, people
        self._self_chat, self._pairing, self._prefix = self_chat, pairing, prefix
        self._commands = frozenset(entry.name for entry in host.menu())

    async def store(self, received: Sequence[IncomingMessage]) -> Sequence[IncomingMessage]:
        """Store the admitted messages and return them in order, once they are durable.

        On `StorageError`, nothing is stored."""
        admitted: list[tuple[IncomingMessage, InboundMessage]] = []
        for incoming in received:
            message = self._admit(incoming)
            if message is not None:
                admitted.append((incoming, message))
        await FENCE.wait_aside()
        self._people.save()
        if admitted:
            await self._host.publish([message for _, message in admitted])
        return [incoming for incoming, _ in admitted]

    def _admit(self, incoming: IncomingMessage) -> InboundMessage | None:
        """Return the core's message, or None if it is empty or its sender is not admitted."""
        # Two nanobots with the same account both write into the chat with oneself, and would
        # answer each other forever.
        is_ours = bool(self._prefix) and incoming.text.startswith(self._prefix)
        if incoming.own and (is_ours or not self._self_chat):
            return None
        try:
            sender, chat = self._sender_and_chat(incoming)
            person = self._people.chat_of(incoming.person.ids)
            message = build_message(incoming, person, sender, chat, self._host)
        except (TypeError, ValueError) as error:
            logger.warning("whatsapp: skipped a message: {}", error)
            return None
        if message is None:
            return None
        if message.delivery.deletes or message.delivery.unanswered:
            return message  # `publish` checks access, without pairing instructions for strangers
        addressed = self._is_addressed(incoming)
        if self._host.admit(sender, chat, addressed=addressed) != "allowed":
            logger.debug(
                "whatsapp: ignored a message from {} in {} (not admitted or not addressed)",
                sender.id,
                chat.id,
            )
            return None
        self._people.mark_admitted(person)
        return message

    def _sender_and_chat(self, incoming: IncomingMessage) -> tuple[Sender, Chat]:
        """Return the sender and the chat. Raises `ValueError` for an invalid id."""
        if not is_id(incoming.id) or (incoming.group and not is_group(incoming.group)):
            raise ValueError("its id or its group's id is invalid")
        sender = self._people.sender(incoming.person)
        chat = Chat(sender.id)
        if incoming.group:
            chat = Chat(incoming.group, is_group=True, title=one_line(incoming.title))
        # The owner's id is the one in the list of owners, whichever of their ids that is.
        ids = (sender.id, *sender.also)
        listed = next((id for id in self._host.owners if id in ids), sender.id)
        also = tuple(id for id in ids if id != listed)
        return Sender(listed, one_line(sender.name), also), chat

    def _is_addressed(self, incoming: IncomingMessage) -> bool:
        if incoming.group:
            command = _COMMAND.match(incoming.text)
            is_command = command is not None and command[1].lower() in self._commands
            return incoming.addressed or (is_command and not incoming.forwarded)
        # If the number is a person's own, no robot answers everyone who writes to them. Their
        # messages to themselves are private.
        return self._pairing or incoming.own


def build_message(
    incoming: IncomingMessage, person: str, sender: Sender, chat: Chat, host: ChannelHost
) -> InboundMessage | None:
    """Return the message for the core, or None if it is empty. `person` is the id of the sender's
    private chat, which never changes."""
    text = valid_unicode(incoming.text)
    notes = tuple(filter(None, (one_line(note, _NOTE_CHARACTERS) for note in incoming.notes)))
    changed = incoming.edits or incoming.deletes
    if not text.strip() and incoming.media is None and not notes and not changed:
        return None
    first = changed or incoming.id
    event = f"{person}:{first}" if chat.is_group else first
    return InboundMessage(
        "whatsapp",
        chat.id,
        sender.id,
        text,
        f"{event}:edit:{incoming.id}" if changed else event,
        incoming.at.astimezone(host.clock.now().tzinfo),
        message_id=first,
        media=clean_media(incoming.media),
        reply_to=clean_quote(incoming.quote),
        forwarded_from="someone" if incoming.forwarded else "",
        is_group=chat.is_group,
        sender_name=sender.name,
        notes=notes,
        delivery=Delivery(
            edits=event if incoming.edits else "",
            deletes=event if incoming.deletes else "",
            unanswered=incoming.unanswered,
        ),
    )


def clean_media(media: Media | None) -> tuple[Media, ...]:
    if media is None:
        return ()
    mime, name = one_line(media.mime), one_line(media.name)
    return (replace(media, ref=valid_unicode(media.ref), mime=mime, name=name),)


def clean_quote(quote: Quote | None) -> Quote | None:
    if quote is None:
        return None
    return Quote(valid_unicode(quote.message_id), one_line(quote.sender), valid_unicode(quote.text))
