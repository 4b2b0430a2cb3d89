"""From what was received to messages in the core's inbox: the one way in, for both transports.

What is known of people is on disk before what they said is, so that a message is in the same chat
when it is delivered again. A batch is published at once. What cannot be understood is left out
alone. A fault of the core is no fault of a message: it is raised, nothing is confirmed, and the
platform delivers the batch again.

The sender chooses the id of a message. So in groups the ids of events contain their sender, and
nobody's message or edit is taken for one of somebody else's.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Sequence
from datetime import datetime

from loguru import logger
from msgspec import Struct
from msgspec.structs import replace

from nanobot.bus.events import InboundMessage, Media, Quote
from nanobot.channel import ChannelHost, Chat, Sender
from nanobot.io import FENCE
from nanobot.text import one_line, valid_unicode
from nanobot_whatsapp.people import People, Person, is_group, is_id

OURS = "you"
"""The sender of a quote that the agent wrote."""
UNREADABLE = "a message that nanobot could not read"
"""The note in place of one, so that its sender is answered."""

_COMMAND = re.compile(r"/([A-Za-z][\w-]*)(?=\s|$)", re.ASCII)
_NOTE_CHARACTERS = 1000
_MAX_RECENT = 2_000
_EXCERPT = 500


class Incoming(Struct, frozen=True):
    """Something that was said, the same for both transports. `at` is aware.

    `group` is the id of the group it was said in, empty in private, and `title` its name. `own`:
    the person whose account this is wrote it to themselves. `addressed`: in a group, that the agent
    was mentioned or replied to; `text` does not begin with that mention any more. `edits` is the id
    of the message, by the same sender, that this one corrects; `deletes` is that of one that they
    deleted. `unanswered`: it is for the conversation and asks for nothing (a reaction). `notes` are
    lines about what is neither text nor a file. The `sender` of the `quote` is `OURS` or a name,
    which is never the same. `button` is the id of the button that was pressed; `text` is its label.
    """

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
    """The latest messages, in memory, by id and chat: WhatsApp names a quoted message by its id
    alone, or wants its text again. What was said before a restart, or long ago, is unknown.

    Where the platform's ids are unique over all chats (the Cloud API), `chat` is left out.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, str], tuple[str, str]] = OrderedDict()

    def remember(self, id: str, sender: str, text: str, chat: str = "") -> None:
        """Another message under the same id does not replace it: senders choose them."""
        self._known.setdefault((chat, id), (sender, text[:_EXCERPT]))
        if len(self._known) > _MAX_RECENT:
            self._known.popitem(last=False)

    def find(self, id: str, chat: str = "") -> tuple[str, str] | None:
        """Sender and beginning of a message, as they were given."""
        return self._known.get((chat, id))


class Ingest:
    """Stores what was received. `self_chat`: what the person whose account this is writes to
    themselves is for the agent, except what begins with `prefix`, which an agent wrote there;
    `pairing`: a stranger who writes in private is told how to get access."""

    def __init__(
        self, host: ChannelHost, people: People, *, self_chat: bool, pairing: bool, prefix: str = ""
    ) -> None:
        self._host, self._people = host, people
        self._self_chat, self._pairing, self._prefix = self_chat, pairing, prefix
        self._commands = frozenset(entry.name for entry in host.menu())

    async def store(self, received: Sequence[Incoming]) -> Sequence[Incoming]:
        """Store what is admitted and return when that is durable; what was admitted, in order.

        Raises `StorageError`, and then none of it is stored.
        """
        admitted: list[tuple[Incoming, InboundMessage]] = []
        for incoming in received:
            message = self._admitted(incoming)
            if message is not None:
                admitted.append((incoming, message))
        await FENCE.wait_aside()
        self._people.save()
        if admitted:
            await self._host.publish([message for _, message in admitted])
        return [incoming for incoming, _ in admitted]

    def _admitted(self, incoming: Incoming) -> InboundMessage | None:
        """The message, if it says something and its sender is admitted."""
        # Another nanobot of the same account writes into the chat with oneself as well, and the two
        # would never stop.
        is_ours = bool(self._prefix) and incoming.text.startswith(self._prefix)
        if incoming.own and (is_ours or not self._self_chat):
            return None
        try:
            sender, chat = self._sender_and_chat(incoming)
            person = self._people.chat_of(incoming.person.ids)
            message = _message(incoming, person, sender, chat, self._host)
        except (TypeError, ValueError) as error:
            logger.warning("whatsapp: a message is left out: {}", error)
            return None
        if message is None:
            return None
        if message.deletes or message.unanswered:
            return message  # `publish` accepts it from who may talk; no stranger is told to pair
        addressed = self._is_addressed(incoming)
        if self._host.admit(sender, chat, addressed=addressed) != "allowed":
            logger.debug("whatsapp: not let in, or not meant: {} in {}", sender.id, chat.id)
            return None
        self._people.mark_admitted(person)
        return message

    def _sender_and_chat(self, incoming: Incoming) -> tuple[Sender, Chat]:
        """Raises `ValueError` for an id that is none."""
        if not is_id(incoming.id) or (incoming.group and not is_group(incoming.group)):
            raise ValueError("its id or that of its group is none")
        sender = self._people.sender(incoming.person)
        chat = Chat(sender.id)
        if incoming.group:
            chat = Chat(incoming.group, is_group=True, title=one_line(incoming.title))
        # The owner is known by the id that makes them the owner, whichever of theirs that is.
        ids = (sender.id, *sender.also)
        listed = next((id for id in self._host.owners if id in ids), sender.id)
        also = tuple(id for id in ids if id != listed)
        return Sender(listed, one_line(sender.name), also), chat

    def _is_addressed(self, incoming: Incoming) -> bool:
        if incoming.group:
            command = _COMMAND.match(incoming.text)
            is_command = command is not None and command[1].lower() in self._commands
            return incoming.addressed or (is_command and not incoming.forwarded)
        # Where the number is a person's own, no robot answers everybody who writes to them; what
        # they write to themselves nobody else gets to read.
        return self._pairing or incoming.own


def _message(
    incoming: Incoming, person: str, sender: Sender, chat: Chat, host: ChannelHost
) -> InboundMessage | None:
    """The message for the core; None if it says nothing. `person` is the id of the sender's own
    chat, which never changes."""
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
        media=_clean_media(incoming.media),
        reply_to=_clean_quote(incoming.quote),
        forwarded_from="someone" if incoming.forwarded else "",
        is_group=chat.is_group,
        sender_name=sender.name,
        edits=event if incoming.edits else "",
        deletes=event if incoming.deletes else "",
        unanswered=incoming.unanswered,
        notes=notes,
    )


def _clean_media(media: Media | None) -> tuple[Media, ...]:
    if media is None:
        return ()
    mime, name = one_line(media.mime), one_line(media.name)
    return (replace(media, ref=valid_unicode(media.ref), mime=mime, name=name),)


def _clean_quote(quote: Quote | None) -> Quote | None:
    if quote is None:
        return None
    return Quote(valid_unicode(quote.message_id), one_line(quote.sender), valid_unicode(quote.text))
