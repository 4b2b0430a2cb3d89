"""From what was heard to messages in the core's inbox: the one way in, for both transports.

What is known of people is on disk before what they said is, so that a message is in the same chat
when it comes again. All of a batch is published at once. What cannot be understood is left out by
itself, and the others are taken. A fault of the core is no fault of a message: it is raised,
nothing is confirmed, and the platform delivers the batch again.

Whoever writes chooses the id of a message. So in groups the ids of events carry their sender, and
nobody's message or edit is taken for one of somebody else's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from loguru import logger

from nanobot.bus.events import InboundMessage, Media, Quote
from nanobot.channel import ChannelHost, Chat, Sender
from nanobot.channel.health import RateLimitedLog
from nanobot.channel.text import one_line, valid_unicode
from nanobot_whatsapp.ids import is_group, is_id
from nanobot_whatsapp.people import People
from nanobot_whatsapp.values import Heard

_CHANNEL = "whatsapp"
_COMMAND = re.compile(r"/([A-Za-z][\w-]*)(?=\s|$)", re.ASCII)
_SOMEONE = "someone"
_NOTE = 1000


class Taking:
    """Takes what was heard. `self_chat`: what the person whose account this is writes to themselves
    is for the agent, but for what begins with `prefix`, which an agent wrote there; `pairing`: a
    stranger who writes in private is told how to be let in."""

    def __init__(
        self,
        host: ChannelHost,
        people: People,
        *,
        self_chat: bool,
        pairing: bool,
        prefix: str = "",
    ) -> None:
        self._host, self._people = host, people
        self._self_chat, self._pairing, self._prefix = self_chat, pairing, prefix
        self._commands = frozenset(entry.name for entry in host.menu())
        self._left_out = RateLimitedLog("whatsapp", host.clock)

    async def take(self, heard: Sequence[Heard]) -> Sequence[Heard]:
        """Store what may be heard and return when that is durable; what was admitted, in order.

        Raises `StorageError`, and then none of it is stored.
        """
        taken: list[tuple[Heard, InboundMessage]] = []
        for one in heard:
            message = self._taken(one)
            if message is not None:
                taken.append((one, message))
        self._people.keep()
        if taken:
            await self._host.publish([message for _, message in taken])
        return [one for one, _ in taken]

    def _taken(self, heard: Heard) -> InboundMessage | None:
        """The message, where it says something and its sender is admitted."""
        if heard.own and not self._is_for_us(heard.text):
            return None
        try:
            sender, chat = self._placed(heard)
            person = self._people.met(heard.person.ids)
            message = _message(heard, person, sender, chat, self._host)
        except (TypeError, ValueError) as error:
            self._left_out.warn(f"a message is left out: {error}")
            return None
        if message is None:
            return None
        if message.deletes or message.unanswered:
            return message  # `publish` takes it from who may talk; nobody is told how to be let in
        addressed = self._is_addressed(heard)
        if self._host.admit(sender, chat, addressed=addressed) != "allowed":
            logger.debug("whatsapp: not let in, or not meant: {} in {}", sender.id, chat.id)
            return None
        self._people.admitted(person)
        return message

    def _is_for_us(self, note: str) -> bool:
        """Whether what stands in the chat with oneself is to be answered. Another nanobot of the
        same account writes there as well, and the two would never stop."""
        return self._self_chat and not (self._prefix and note.startswith(self._prefix))

    def _placed(self, heard: Heard) -> tuple[Sender, Chat]:
        """Who it is, and where. Raises `ValueError` where an id is none."""
        if not is_id(heard.id) or (heard.group and not is_group(heard.group)):
            raise ValueError("its id or that of its group is none")
        known = self._people.sender(heard.person)
        sender = _as_listed(replace(known, name=one_line(known.name)), self._host.owners)
        if heard.group:
            return sender, Chat(heard.group, is_group=True, title=one_line(heard.title))
        return sender, Chat(known.id)

    def _is_addressed(self, heard: Heard) -> bool:
        if heard.group:
            command = _COMMAND.match(heard.text)
            known = command is not None and command[1].lower() in self._commands
            return heard.addressed or (known and not heard.forwarded)
        # Where the number is a person's own, no robot answers whoever writes to them; what they
        # write to themselves nobody else gets to read.
        return self._pairing or heard.own


def _as_listed(sender: Sender, owners: Iterable[str]) -> Sender:
    """The owner is known by the id that makes them the owner, whichever of theirs that is."""
    ids = (sender.id, *sender.also)
    listed = next((id for id in owners if id in ids), sender.id)
    return replace(sender, id=listed, also=tuple(id for id in ids if id != listed))


def _message(
    heard: Heard, person: str, sender: Sender, chat: Chat, host: ChannelHost
) -> InboundMessage | None:
    """What was said; None where that is nothing. `person` is the id of the sender's own chat, which
    stays the same whatever makes them known."""
    text = valid_unicode(heard.text)
    notes = tuple(filter(None, (one_line(note, _NOTE) for note in heard.notes)))
    changed = heard.edits or heard.deletes
    if not text.strip() and heard.media is None and not notes and not changed:
        return None
    first = changed or heard.id
    event = f"{person}:{first}" if chat.is_group else first
    return InboundMessage(
        _CHANNEL,
        chat.id,
        sender.id,
        text,
        f"{event}:edit:{heard.id}" if changed else event,
        heard.at.astimezone(host.clock.now().tzinfo),
        message_id=first,
        media=() if heard.media is None else (_file(heard.media),),
        reply_to=None if heard.quote is None else _quote(heard.quote),
        forwarded_from=_SOMEONE if heard.forwarded else "",
        is_group=chat.is_group,
        sender_name=sender.name,
        edits=event if heard.edits else "",
        deletes=event if heard.deletes else "",
        unanswered=heard.unanswered,
        notes=notes,
    )


def _file(media: Media) -> Media:
    mime, name = one_line(media.mime), one_line(media.name)
    return replace(media, ref=valid_unicode(media.ref), mime=mime, name=name)


def _quote(quote: Quote) -> Quote:
    return Quote(valid_unicode(quote.message_id), one_line(quote.sender), valid_unicode(quote.text))
