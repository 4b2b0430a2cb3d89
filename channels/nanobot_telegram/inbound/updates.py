"""From one update to one `Understood`: which kinds of update and of message are for us at all."""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo
from hashlib import blake2s

from telegram import (
    CallbackQuery,
    ChatMember,
    ChatMemberRestricted,
    ChatMemberUpdated,
    MaybeInaccessibleMessage,
    Message,
    MessageReactionUpdated,
    ReactionTypeEmoji,
    Update,
)

from nanobot.bus.events import InboundMessage
from nanobot.channel import Chat, Sender
from nanobot_telegram.inbound.context import (
    forwarded_from,
    quote_of,
    quoted_file,
    replies_to_me,
    words_of,
)
from nanobot_telegram.inbound.files import file_of
from nanobot_telegram.inbound.notes import note_of, unknown_in
from nanobot_telegram.inbound.people import (
    Canonical,
    chat_of,
    person,
    sender_of,
    thread_of,
    user_name,
)
from nanobot_telegram.inbound.plain import note
from nanobot_telegram.inbound.values import Me, Press, Understood
from nanobot_telegram.inbound.words import hear

_CHANNEL = "telegram"
_NO_ID = 2**53


def understand(
    update: Update, me: Me, canonical: Canonical = str, zone: tzinfo = UTC
) -> Understood | None:
    """What an update says; None where it is nothing for us (channel posts, service messages, what
    bots write, the moves of a live location, commands for another bot, …).

    `canonical` gives the first id that a chat had; `zone` is the person's, for the timestamps.
    Raises nothing for what the Bot API allows; a value of another type than documented may raise
    anything.
    """
    if update.my_chat_member is not None:
        return _membership(update.my_chat_member, canonical)
    if update.callback_query is not None:
        return _pressed(update.callback_query, canonical)
    if update.message_reaction is not None:
        return _reaction(update.message_reaction, canonical, zone)
    message = update.message or update.edited_message
    if message is None:
        return None
    return _message(message, me, canonical, zone, edited=update.message is None)


def from_press(understood: Understood, value: str, at: datetime) -> InboundMessage:
    """What pressing a button said: `value`, as if typed `at` that time (aware).

    Raises `ValueError` where nothing was pressed.
    """
    press, sender, chat = understood.press, understood.sender, understood.chat
    if press is None:
        raise ValueError("no button was pressed")
    return InboundMessage(
        _CHANNEL,
        chat.id,
        sender.id,
        value,
        f"callback:{press.query_id}",
        at,
        message_id=_name(press.message_id, press.place, chat),
        thread_id=chat.thread_id,
        is_group=chat.is_group,
        sender_name=sender.name,
    )


def _reaction(
    change: MessageReactionUpdated, canonical: Canonical, zone: tzinfo
) -> Understood | None:
    """A mark that a person put on a message in private, as a note that asks for nothing; in groups
    marks are for others."""
    sender = person(change.user) if change.user is not None else None
    chat = chat_of(change.chat, canonical)
    marks = [mark.emoji for mark in change.new_reaction if isinstance(mark, ReactionTypeEmoji)]
    if sender is None or chat is None or chat.is_group or not marks:
        return None
    stamp = f"{int(change.date.timestamp())}-{''.join(marks)}"
    said = InboundMessage(
        _CHANNEL,
        chat.id,
        sender.id,
        "",
        f"reaction:{change.message_id}:{stamp}",
        change.date.astimezone(zone),
        sender_name=sender.name,
        notes=(note("reaction to an earlier message", " ".join(marks)),),
        unanswered=True,
    )
    return Understood(sender, chat, addressed=False, message=said)


def unreadable(update: object, canonical: Canonical, now: datetime) -> Understood | None:
    """A private message that could not be read, as a note in its place, so that whoever wrote it is
    answered; None where it is not clear who wrote it. `now` is aware."""
    message = update.get("message") if isinstance(update, dict) else None
    if not isinstance(message, dict):
        return None
    number, place, author = message.get("message_id"), message.get("chat"), message.get("from")
    if not isinstance(place, dict) or not isinstance(author, dict) or author.get("is_bot"):
        return None
    person = author.get("id")
    if person != place.get("id") or not (_is_id(number) and _is_id(person)):
        return None
    sender, chat = Sender(str(person)), Chat(canonical(str(person)))
    said = InboundMessage(
        _CHANNEL,
        chat.id,
        sender.id,
        "",
        str(number),
        now,
        message_id=str(number),
        notes=("a message that nanobot could not read",),
    )
    return Understood(sender, chat, addressed=True, message=said)


def _is_id(value: object) -> bool:
    """Whether it is the number of a message or person."""
    return type(value) is int and 0 < value < _NO_ID


def _membership(change: ChatMemberUpdated, canonical: Canonical) -> Understood | None:
    """We were blocked or removed, or may be in a chat (again), be it by a bot."""
    chat = chat_of(change.chat, canonical)
    if chat is None:
        return None
    sender = Sender(str(change.from_user.id), user_name(change.from_user))
    now = change.new_chat_member
    outside = isinstance(now, ChatMemberRestricted) and not now.is_member
    gone = outside or now.status in {ChatMember.LEFT, ChatMember.BANNED}
    return Understood(sender, chat, addressed=False, gone=gone)


def _pressed(query: CallbackQuery, canonical: Canonical) -> Understood | None:
    """A button of ours; None for those of games and of messages sent inline, which we never send.
    The message it is under may be too old to be shown; where it is, is known all the same."""
    message = query.message
    if message is None or not query.data:
        return None
    thread = thread_of(message) if isinstance(message, Message) else ""
    sender, chat = person(query.from_user), chat_of(message.chat, canonical, thread)
    if sender is None or chat is None or _is_elsewhere(message):
        return None
    press = Press(query.id, query.data, str(message.chat.id), message.message_id)
    return Understood(sender, chat, addressed=True, press=press)


def _message(
    message: Message, me: Me, canonical: Canonical, zone: tzinfo, *, edited: bool
) -> Understood | None:
    chat = chat_of(message.chat, canonical, thread_of(message))
    if chat is None or _is_elsewhere(message):
        return None
    if moved := _moved(message):
        return Understood(Sender(""), chat, addressed=False, moved=moved)
    sender = sender_of(message, canonical)
    if sender is None:
        return None
    if not message.message_id:
        is_ephemeral = "ephemeral_message_id" in message.api_kwargs
        return Understood(sender, chat, addressed=True, ephemeral=True) if is_ephemeral else None
    return _said(message, me, sender, chat, zone, edited=edited)


def _said(
    message: Message, me: Me, sender: Sender, chat: Chat, zone: tzinfo, *, edited: bool
) -> Understood | None:
    origin, words = forwarded_from(message, me), words_of(message)
    heard = hear(words, message.entities or message.caption_entities, me, own=not origin)
    if heard is None or (edited and not _can_be_corrected(message)):
        return None
    file, quoted = file_of(message), quoted_file(message, me)
    note = note_of(message)
    if not heard.text and not note and file is None and not (note := unknown_in(message)):
        return None
    event = _name(message.message_id, str(message.chat.id), chat)
    said = InboundMessage(
        _CHANNEL,
        chat.id,
        sender.id,
        heard.text,
        _edit_id(event, message, f"{heard.text}\n{note}") if edited else event,
        ((edited and message.edit_date) or message.date).astimezone(zone),
        message_id=event,
        media=tuple(filter(None, (file, quoted))),
        thread_id=chat.thread_id,
        reply_to=quote_of(message, me),
        forwarded_from=origin,
        group_id=message.media_group_id or "",
        is_group=chat.is_group,
        sender_name=sender.name,
        edits=event if edited else "",
        notes=(note,) if note else (),
    )
    addressed = not chat.is_group or heard.addressed or replies_to_me(message, me)
    return Understood(sender, chat, addressed, said)


def _can_be_corrected(message: Message) -> bool:
    """People edit words, files and lists. What else changes does so by itself (a live location that
    moves, votes in a poll)."""
    by_hand = words_of(message) or message.checklist or file_of(message)
    return bool(by_hand)


def _name(message_id: int, place: str, chat: Chat) -> str:
    """Message ids begin again when a group becomes a supergroup, while its chat id here stays:
    `place` is the one that it has at Telegram."""
    return str(message_id) if place == chat.id else f"{place}/{message_id}"


def _edit_id(event: str, message: Message, content: str) -> str:
    """The stamp has whole seconds: what it says tells two edits in the same second apart."""
    stamp = int((message.edit_date or message.date).timestamp())
    digest = blake2s(content.encode("utf-8", "replace"), digest_size=4).hexdigest()
    return f"{event}:e{stamp}-{digest}"


def _moved(message: Message) -> tuple[str, str] | None:
    """Told in the old group as well as in the new one."""
    if message.migrate_to_chat_id:
        return str(message.chat.id), str(message.migrate_to_chat_id)
    if message.migrate_from_chat_id:
        return str(message.migrate_from_chat_id), str(message.chat.id)
    return None


def _is_elsewhere(message: MaybeInaccessibleMessage) -> bool:
    """Whether it belongs to somebody else's chat, to which we are connected or were called."""
    return isinstance(message, Message) and bool(
        message.business_connection_id or message.guest_query_id
    )
