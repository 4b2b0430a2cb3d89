"""Updates of the Bot API as values of the core: pure, and the only reader of updates.

`parse_update` never uses the network. Each kind of message is parsed (`content`), described in a
note, or deliberately ignored. Decisions use ids. Names are for texts only. A message in the name of
a chat (anonymous admins, channels) has the sender `chat:<id>`, which no list of people holds by
accident: anyone who may speak for that chat could have sent it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, tzinfo
from hashlib import blake2s
from typing import Any

import telegram
from msgspec import Struct
from msgspec.structs import replace
from telegram import (
    CallbackQuery,
    ChatMember,
    ChatMemberRestricted,
    ChatMemberUpdated,
    ExternalReplyInfo,
    Message,
    MessageOrigin,
    MessageOriginChannel,
    MessageOriginChat,
    MessageOriginHiddenUser,
    MessageOriginUser,
    MessageReactionUpdated,
    ReactionTypeEmoji,
    Update,
    User,
)

from nanobot.bus.events import Delivery, InboundMessage, Media, Quote
from nanobot.channel import KEEP, NO_LONGER, Chat, Sender, asks_to_keep
from nanobot.text import one_line, valid_unicode
from nanobot_telegram.content import (
    Me,
    file_of,
    label_of,
    note,
    note_of,
    parse_text,
    rich_links,
    unknown_in,
    words_of,
)

Canonical = Callable[[str], str]
"""Returns the first id of a chat, which a group keeps when it becomes a supergroup."""

_ID_LIMIT = 2**53
_GENERAL = 1  # the thread of a forum's General topic. Messages can't be sent to it by that number.
_SOMEONE = "someone"
_OURS = "you"  # the author of the agent's own texts, in its context
_QUOTED_FILES = frozenset({"image", "document"})
"""Kinds of quoted files that are included. Quoted sound would count as the sender's words."""
_ALBUMS = 256  # the number of remembered albums. Their items arrive within seconds.


class Press(Struct, frozen=True):
    """A pressed button under one of our messages. `button_id` is the id it was sent with, `place`
    Telegram's id of the message's chat."""

    query_id: str
    button_id: str
    place: str
    message_id: int

    def __post_init__(self) -> None:
        if not (isinstance(self.query_id, str) and isinstance(self.button_id, str)):
            raise TypeError("a button without an id")


class ParsedUpdate(Struct, frozen=True):
    """One update: sender, chat, and one of the possible contents.

    `addressed`: it was meant for the agent (always True in private). `moved`: Telegram's old and
    new id of a group that became a supergroup. `gone`: True if the chat is closed to the bot
    (blocked or removed), False if it is open again. `ephemeral`: a message in a group that only its
    sender and the bot can see, without an id to answer to."""

    sender: Sender
    chat: Chat
    addressed: bool
    message: InboundMessage | None = None
    press: Press | None = None
    moved: tuple[str, str] | None = None
    gone: bool | None = None
    ephemeral: bool = False


def parse_update(
    update: Update, me: Me, canonical: Canonical = str, zone: tzinfo = UTC
) -> ParsedUpdate | None:
    """Parse an update, or return None if it is irrelevant (channel posts, service messages,
    messages of bots, moves of a live location, commands for another bot, …).

    `canonical` returns the first id of a chat. `zone` is the person's time zone. Never raises for
    updates that the Bot API allows. A value with an undocumented type may raise anything."""
    if update.my_chat_member is not None:
        return parse_membership(update.my_chat_member, canonical)
    if update.callback_query is not None:
        return parse_press(update.callback_query, canonical)
    if update.message_reaction is not None:
        return parse_reaction(update.message_reaction, canonical, zone)
    message = update.message or update.edited_message
    if message is None:
        return None
    return parse_message(message, me, canonical, zone, edited=update.message is None)


def from_press(parsed: ParsedUpdate, press: Press, value: str, at: datetime) -> InboundMessage:
    """Return the message for a pressed button: `value`, as if typed at the (aware) time `at`."""
    event = make_event_id(press.message_id, press.place, parsed.chat)
    return make_message(
        parsed.sender, parsed.chat, value, f"callback:{press.query_id}", at, message_id=event
    )


def unreadable(update: object, canonical: Canonical, now: datetime) -> ParsedUpdate | None:
    """Return a note in place of a private message that could not be parsed, so that its sender gets
    an answer. None if the sender is unclear. `now` is aware."""
    message = update.get("message") if isinstance(update, dict) else None
    if not isinstance(message, dict):
        return None
    number, place, author = message.get("message_id"), message.get("chat"), message.get("from")
    if not isinstance(place, dict) or not isinstance(author, dict) or author.get("is_bot"):
        return None
    person = author.get("id")
    are_ids = all(type(value) is int and 0 < value < _ID_LIMIT for value in (number, person))
    if not are_ids or person != place.get("id"):
        return None
    sender, chat = Sender(str(person)), Chat(canonical(str(person)))
    notes = ("a message that nanobot could not read",)
    said = make_message(sender, chat, "", str(number), now, message_id=str(number), notes=notes)
    return ParsedUpdate(sender, chat, addressed=True, message=said)


class AlbumTracker:
    """Albums in groups that were meant for the agent, shared by all batches of a channel.

    Each item is a separate update, and only one has the text with the mention: if one item is
    addressed, all are."""

    def __init__(self) -> None:
        self._addressed: OrderedDict[tuple[str, str, str], None] = OrderedDict()

    def complete(self, batch: Sequence[ParsedUpdate | None]) -> tuple[ParsedUpdate | None, ...]:
        """Return the batch with albums addressed as a whole. An item in an earlier batch than the
        mention is missed."""
        for item in batch:
            if item and item.addressed and (album := album_key(item)):
                self._addressed[album] = None
                self._addressed.move_to_end(album)
        while len(self._addressed) > _ALBUMS:
            self._addressed.popitem(last=False)
        return tuple(
            replace(item, addressed=True) if item and album_key(item) in self._addressed else item
            for item in batch
        )


def album_key(item: ParsedUpdate) -> tuple[str, str, str] | None:
    message = item.message
    if message is None or not message.delivery.group_id or not message.is_group:
        return None
    return message.chat_id, message.sender_id, message.delivery.group_id


# --- kinds of updates


def parse_reaction(
    change: MessageReactionUpdated, canonical: Canonical, zone: tzinfo
) -> ParsedUpdate | None:
    """Parse a reaction that was added or removed: a wish to keep the message, or its withdrawal.
    Any other reaction is a note in private chats, and ignored in groups."""
    sender = as_sender(change.user) if change.user is not None else None
    chat = as_chat(change.chat, canonical)
    before, marks = (
        [mark.emoji for mark in reactions if isinstance(mark, ReactionTypeEmoji)]
        for reactions in (change.old_reaction, change.new_reaction)
    )
    wish = KEEP if asks_to_keep(marks) else NO_LONGER if asks_to_keep(before) else ""
    if sender is None or chat is None or not (wish or (marks and not chat.is_group)):
        return None
    event = f"reaction:{change.message_id}:{int(change.date.timestamp())}-{''.join(marks)}"
    if chat.is_group:
        event = f"{event}:{sender.id}"
    at, quote, notes = change.date.astimezone(zone), None, tuple[str, ...]()
    if wish:
        quote = Quote(str(change.message_id))
    else:
        notes = (note("reaction to an earlier message", " ".join(marks)),)
    delivery = Delivery(unanswered=True)
    said = make_message(
        sender, chat, wish, event, at, notes=notes, reply_to=quote, delivery=delivery
    )
    return ParsedUpdate(sender, chat, addressed=chat.is_group, message=said)


def parse_membership(change: ChatMemberUpdated, canonical: Canonical) -> ParsedUpdate | None:
    """Parse a change of the bot's membership: blocked or removed, or admitted (again)."""
    chat = as_chat(change.chat, canonical)
    if chat is None:
        return None
    sender = Sender(str(change.from_user.id), name_user(change.from_user))
    now = change.new_chat_member
    outside = isinstance(now, ChatMemberRestricted) and not now.is_member
    gone = outside or now.status in {ChatMember.LEFT, ChatMember.BANNED}
    return ParsedUpdate(sender, chat, addressed=False, gone=gone)


def parse_press(query: CallbackQuery, canonical: Canonical) -> ParsedUpdate | None:
    """Parse a pressed button. None for buttons of games and inline messages, which the bot never
    sends. Its message may be too old to be included, but its chat and id are known."""
    message = query.message
    if message is None or not query.data:
        return None
    thread = find_topic(message) if isinstance(message, Message) else ""
    sender, chat = as_sender(query.from_user), as_chat(message.chat, canonical, thread)
    # In another person's chat, through a business connection or a guest query.
    is_elsewhere = isinstance(message, Message) and bool(
        message.business_connection_id or message.guest_query_id
    )
    if sender is None or chat is None or is_elsewhere:
        return None
    press = Press(query.id, query.data, str(message.chat.id), message.message_id)
    return ParsedUpdate(sender, chat, addressed=True, press=press)


def parse_message(
    message: Message, me: Me, canonical: Canonical, zone: tzinfo, *, edited: bool
) -> ParsedUpdate | None:
    thread = find_topic(message) if message.is_topic_message else ""
    chat = as_chat(message.chat, canonical, thread)
    if chat is None or message.business_connection_id or message.guest_query_id:
        return None
    here = str(message.chat.id)
    if message.migrate_to_chat_id:  # it arrives in both the old and the new group
        moved = here, str(message.migrate_to_chat_id)
        return ParsedUpdate(Sender(""), chat, addressed=False, moved=moved)
    if message.migrate_from_chat_id:
        moved = str(message.migrate_from_chat_id), here
        return ParsedUpdate(Sender(""), chat, addressed=False, moved=moved)
    sender = find_sender(message, canonical)
    if sender is None:
        return None
    if not message.message_id:
        is_ephemeral = "ephemeral_message_id" in message.api_kwargs
        return ParsedUpdate(sender, chat, addressed=True, ephemeral=True) if is_ephemeral else None
    return build_message(message, me, sender, chat, zone, edited=edited)


def build_message(
    message: Message, me: Me, sender: Sender, chat: Chat, zone: tzinfo, *, edited: bool
) -> ParsedUpdate | None:
    origin = find_forward_author(message, me)
    content = parse_content(message, me, origin, edited=edited)
    if content is None:
        return None
    reference = find_reference(message, me)
    files = (content.file, reference.file if reference else None)
    event = make_event_id(message.message_id, str(message.chat.id), chat)
    said = make_message(
        sender,
        chat,
        content.text,
        event,
        message.date.astimezone(zone),
        message_id=event,
        media=tuple(filter(None, files)),
        reply_to=reference.quote if reference else None,
        forwarded_from=origin,
        notes=content.notes,
        delivery=Delivery(group_id=message.media_group_id or ""),
    )
    if edited:
        said = as_edit(said, message, f"{content.text}\n{content.described}", zone)
    addressed = not chat.is_group or content.addressed or bool(reference and reference.is_ours)
    return ParsedUpdate(sender, chat, addressed, said)


class _Content(Struct, frozen=True):
    """The content of a message. `described` is a note on content that is neither text nor file."""

    text: str
    addressed: bool
    described: str
    notes: tuple[str, ...]
    file: Media | None


def parse_content(message: Message, me: Me, origin: str, *, edited: bool) -> _Content | None:
    """Return the content, or None if there is nothing to answer."""
    file, words = file_of(message), words_of(message, links=bool(origin))
    if edited and not (words or message.checklist or file):
        return None  # an automatic edit: a live location moves, votes arrive
    parsed = parse_text(words, message.entities or message.caption_entities, me, own=not origin)
    if parsed is None:
        return None
    described = note_of(message)
    if not (parsed.text or described or file):
        described = unknown_in(message)
        if not described:
            return None
    links = (*parsed.links, *(() if origin else rich_links(message)))
    notes = tuple(filter(None, (described, *links)))
    return _Content(parsed.text, parsed.addressed, described, notes, file)


def make_message(
    sender: Sender, chat: Chat, text: str, event_id: str, at: datetime, **more: Any
) -> InboundMessage:
    """Return a message of this person in this chat."""
    return InboundMessage(
        "telegram",
        chat.id,
        sender.id,
        text,
        event_id,
        at,
        thread_id=chat.thread_id,
        is_group=chat.is_group,
        sender_name=sender.name,
        **more,
    )


def make_event_id(message_id: int, place: str, chat: Chat) -> str:
    """Return an unambiguous id. Message ids restart when a group becomes a supergroup, while its
    chat id here stays. `place` is its id at Telegram."""
    return str(message_id) if place == chat.id else f"{place}/{message_id}"


def as_edit(said: InboundMessage, message: Message, content: str, zone: tzinfo) -> InboundMessage:
    """Return the message as an edit. The timestamp has whole seconds, so a hash of the content
    tells two edits in the same second apart."""
    at, event = message.edit_date or message.date, said.event_id
    digest = blake2s(content.encode("utf-8", "replace"), digest_size=4).hexdigest()
    id = f"{event}:e{int(at.timestamp())}-{digest}"
    delivery = replace(said.delivery, edits=event)
    return replace(said, event_id=id, timestamp=at.astimezone(zone), delivery=delivery)


# --- references to other messages


class _Reference(Struct, frozen=True):
    """The message that another one replies to, or the quoted part of it. `is_ours`: the bot wrote
    it. `file` is a quoted picture or document."""

    quote: Quote
    is_ours: bool = False
    file: Media | None = None


def find_reference(message: Message, me: Me) -> _Reference | None:
    elsewhere, chosen = message.external_reply, message.quote
    text = valid_unicode(chosen.text) if chosen else ""
    if (reply := find_replied_message(message)) is not None:
        author, by_chat = reply.from_user, reply.sender_chat
        is_ours = author is not None and author.id == me.id and by_chat is None
        quote = Quote(
            str(reply.message_id),
            _OURS if is_ours else name_other(name_author(reply)),
            text or quote_text(reply),
        )
        return _Reference(quote, is_ours, None if is_ours else find_quoted_file(reply))
    if elsewhere is not None:
        is_ours = _is_from(elsewhere.origin, me)
        quote = Quote(
            str(elsewhere.message_id or ""),
            _OURS if is_ours else name_other(name_origin(elsewhere.origin)),
            text or label_of(elsewhere) or "[a message elsewhere]",
        )
        return _Reference(quote, is_ours, None if is_ours else find_quoted_file(elsewhere))
    return _Reference(Quote("", "", "[story]")) if message.reply_to_story is not None else None


def find_replied_message(message: Message) -> Message | None:
    """Return the message that this one replies to. In a topic, Telegram marks every other message
    as a reply to the message that opened the topic."""
    reply = message.reply_to_message
    if reply is None or reply.forum_topic_created is not None:
        return None
    is_root = message.is_topic_message and reply.message_id == message.message_thread_id
    return None if is_root else reply


def find_quoted_file(quoted: Message | ExternalReplyInfo) -> Media | None:
    file = file_of(quoted)
    return file if file and file.kind in _QUOTED_FILES else None


def quote_text(message: Message) -> str:
    words = valid_unicode(words_of(message))
    unknown = "" if words else unknown_in(message)
    label = label_of(message) or (unknown and f"[{unknown}]")
    return " ".join(filter(None, (label, words))) or "[a message]"


def find_forward_author(message: Message, me: Me) -> str:
    """Return the author of the text if it was not the sender, or empty. A text that a person
    inserted through another bot counts as forwarded from it."""
    origin = message.forward_origin
    if origin is not None:
        return _OURS if _is_from(origin, me) else name_other(name_origin(origin))
    return "" if message.via_bot is None else name_other(name_user(message.via_bot))


def name_other(name: str) -> str:
    """Return another person's name, made distinct from the agent's."""
    return f"someone called {name}" if name.casefold() == _OURS else name


# --- people and chats


def find_sender(message: Message, canonical: Canonical) -> Sender | None:
    """Return the sender of a message. None for bots (the agent never talks to one, nor to itself),
    and for channel posts that Telegram copies into the discussion group."""
    chat = message.sender_chat
    if chat is None:
        return None if message.from_user is None else as_sender(message.from_user)
    if message.is_automatic_forward:
        return None
    name = name_chat(chat, message.author_signature)
    return Sender(f"chat:{canonical(str(chat.id))}", name)


def as_sender(user: User) -> Sender | None:
    return None if user.is_bot else Sender(str(user.id), name_user(user))


def as_chat(chat: telegram.Chat, canonical: Canonical, thread_id: str = "") -> Chat | None:
    """Return the chat, or None if it is no place to talk: a channel, or a channel's inbox, whose
    threads differ from a group's."""
    if chat.type not in {"private", "group", "supergroup"} or chat.is_direct_messages:
        return None
    is_group = chat.type != "private"
    title = one_line(chat.title or "") if is_group else ""
    return Chat(canonical(str(chat.id)), is_group, title, thread_id)


def find_topic(message: Message) -> str:
    """Return the topic of a message, or empty. Outside topics, Telegram numbers reply threads in
    the same field, which do not divide a conversation."""
    thread = message.message_thread_id
    return str(thread) if message.is_topic_message and thread and thread != _GENERAL else ""


def name_user(user: User) -> str:
    """Return the name of a user, never empty: even the first name may be (a deleted account)."""
    full = " ".join(filter(None, (user.first_name, user.last_name)))
    return one_line(full) or one_line(user.username or "") or str(user.id)


def name_chat(chat: telegram.Chat, signature: str | None = None) -> str:
    """Return the name of a chat, never empty, with a signature if there is one."""
    name = one_line(chat.title or chat.first_name or chat.username or "") or str(chat.id)
    signed = one_line(signature or "")
    return f"{name} ({signed})" if signed else name


def name_author(message: Message) -> str:
    """Return the author of a quoted message, bots included."""
    if message.sender_chat is not None:
        return name_chat(message.sender_chat, message.author_signature)
    return _SOMEONE if message.from_user is None else name_user(message.from_user)


def name_origin(origin: MessageOrigin) -> str:
    """Return the author of a forwarded text, never empty, so that it always shows as forwarded."""
    match origin:
        case MessageOriginUser():
            return name_user(origin.sender_user)
        case MessageOriginHiddenUser():
            return one_line(origin.sender_user_name) or _SOMEONE
        case MessageOriginChat():
            return name_chat(origin.sender_chat, origin.author_signature)
        case MessageOriginChannel():
            return name_chat(origin.chat, origin.author_signature)
    return _SOMEONE


def _is_from(origin: MessageOrigin, me: Me) -> bool:
    return isinstance(origin, MessageOriginUser) and origin.sender_user.id == me.id
