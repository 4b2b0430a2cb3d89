"""What an update of the Bot API says, as values of the core: pure, and the only reader of updates.

`parse_update` never uses the network. Each kind of message is parsed (`content`), described in a
note, or knowingly ignored. Decisions rest on ids; names are for texts only. What is sent in the
name of a chat (anonymous admins, channels) has the sender `chat:<id>`, which no list of people
holds by accident: it could be anyone who may speak for that chat.
"""

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
    MaybeInaccessibleMessage,
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

from nanobot.bus.events import InboundMessage, Media, Quote
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
"""Gives the first id that a chat had: a group that became a supergroup keeps it."""

_ID_LIMIT = 2**53
_GENERAL = 1
"""The thread of a forum's General topic; nothing can be sent to it by that number."""
_SOMEONE = "someone"
_OURS = "you"
"""The author of what the agent itself wrote, in its own context."""
_QUOTED_FILES = frozenset({"image", "document"})
"""Kinds of quoted files that come along. Sound does not: it would pass for what the person said."""
_ALBUMS = 256
"""How many albums are remembered: their items come within seconds of each other."""


class Press(Struct, frozen=True):
    """A button under one of our messages was pressed. `button_id` is what it was sent with, `place`
    the id of the chat where that message stands, as Telegram has it."""

    query_id: str
    button_id: str
    place: str
    message_id: int

    def __post_init__(self) -> None:
        if not (isinstance(self.query_id, str) and isinstance(self.button_id, str)):
            raise TypeError("a button without an id")


class ParsedUpdate(Struct, frozen=True):
    """One update: who, where, and one of the things that can be in it.

    `addressed`: it was meant for the agent (always so in private). `moved` are the old and the new
    id of a group that became a supergroup, as Telegram has them. `gone`: the chat is closed to us
    (we were blocked or removed), or, where False, open again. `ephemeral`: it is a message in a
    group that only its sender and we can see, which has no id to answer to.
    """

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


def from_press(parsed: ParsedUpdate, press: Press, value: str, at: datetime) -> InboundMessage:
    """What pressing a button said: `value`, as if typed `at` that time (aware)."""
    event = _event_id(press.message_id, press.place, parsed.chat)
    return _inbound(
        parsed.sender, parsed.chat, value, f"callback:{press.query_id}", at, message_id=event
    )


def unreadable(update: object, canonical: Canonical, now: datetime) -> ParsedUpdate | None:
    """A private message that could not be parsed, as a note in its place, so that its sender gets
    an answer; None where it is not clear who that is. `now` is aware."""
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
    said = _inbound(sender, chat, "", str(number), now, message_id=str(number), notes=notes)
    return ParsedUpdate(sender, chat, addressed=True, message=said)


class AlbumTracker:
    """Albums in groups that were meant for the agent. One for all batches of a channel.

    Every item comes as an update of its own, and only one carries the text with the mention: where
    one item is addressed, they all are.
    """

    def __init__(self) -> None:
        self._addressed: OrderedDict[tuple[str, str, str], None] = OrderedDict()

    def complete(self, batch: Sequence[ParsedUpdate | None]) -> tuple[ParsedUpdate | None, ...]:
        """The same batch, in which an album is addressed as a whole. An item that came in an
        earlier batch than the one with the mention cannot be reached any more."""
        for item in batch:
            if item and item.addressed and (album := _album(item)):
                self._addressed[album] = None
                self._addressed.move_to_end(album)
        while len(self._addressed) > _ALBUMS:
            self._addressed.popitem(last=False)
        return tuple(
            replace(item, addressed=True) if item and _album(item) in self._addressed else item
            for item in batch
        )


def _album(item: ParsedUpdate) -> tuple[str, str, str] | None:
    message = item.message
    if message is None or not message.group_id or not message.is_group:
        return None
    return message.chat_id, message.sender_id, message.group_id


# --- kinds of updates


def _reaction(
    change: MessageReactionUpdated, canonical: Canonical, zone: tzinfo
) -> ParsedUpdate | None:
    """A mark that a person put on a message or took away: a wish to keep it, or no longer. Any
    other is a note that asks for nothing; in groups it is for others."""
    sender = _person(change.user) if change.user is not None else None
    chat = _chat(change.chat, canonical)
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
    said = _inbound(sender, chat, wish, event, at, notes=notes, reply_to=quote, unanswered=True)
    return ParsedUpdate(sender, chat, addressed=chat.is_group, message=said)


def _membership(change: ChatMemberUpdated, canonical: Canonical) -> ParsedUpdate | None:
    """We were blocked or removed, or may be in a chat (again), be it by a bot."""
    chat = _chat(change.chat, canonical)
    if chat is None:
        return None
    sender = Sender(str(change.from_user.id), _user_name(change.from_user))
    now = change.new_chat_member
    outside = isinstance(now, ChatMemberRestricted) and not now.is_member
    gone = outside or now.status in {ChatMember.LEFT, ChatMember.BANNED}
    return ParsedUpdate(sender, chat, addressed=False, gone=gone)


def _pressed(query: CallbackQuery, canonical: Canonical) -> ParsedUpdate | None:
    """A button of ours; None for those of games and of messages sent inline, which we never send.
    The message it is under may be too old to be shown; where it is, is known all the same."""
    message = query.message
    if message is None or not query.data:
        return None
    thread = _thread(message) if isinstance(message, Message) else ""
    sender, chat = _person(query.from_user), _chat(message.chat, canonical, thread)
    if sender is None or chat is None or _is_elsewhere(message):
        return None
    press = Press(query.id, query.data, str(message.chat.id), message.message_id)
    return ParsedUpdate(sender, chat, addressed=True, press=press)


def _message(
    message: Message, me: Me, canonical: Canonical, zone: tzinfo, *, edited: bool
) -> ParsedUpdate | None:
    thread = _thread(message) if message.is_topic_message else ""
    chat = _chat(message.chat, canonical, thread)
    if chat is None or message.business_connection_id or message.guest_query_id:
        return None
    here = str(message.chat.id)
    if message.migrate_to_chat_id:  # it comes in the old group as well as in the new one
        moved = here, str(message.migrate_to_chat_id)
        return ParsedUpdate(Sender(""), chat, addressed=False, moved=moved)
    if message.migrate_from_chat_id:
        moved = str(message.migrate_from_chat_id), here
        return ParsedUpdate(Sender(""), chat, addressed=False, moved=moved)
    sender = _sender(message, canonical)
    if sender is None:
        return None
    if not message.message_id:
        is_ephemeral = "ephemeral_message_id" in message.api_kwargs
        return ParsedUpdate(sender, chat, addressed=True, ephemeral=True) if is_ephemeral else None
    return _said(message, me, sender, chat, zone, edited=edited)


def _said(
    message: Message, me: Me, sender: Sender, chat: Chat, zone: tzinfo, *, edited: bool
) -> ParsedUpdate | None:
    origin = _forwarded_from(message, me)
    content = _content(message, me, origin, edited=edited)
    if content is None:
        return None
    reference = _reference(message, me)
    files = (content.file, reference.file if reference else None)
    event = _event_id(message.message_id, str(message.chat.id), chat)
    said = _inbound(
        sender,
        chat,
        content.text,
        event,
        message.date.astimezone(zone),
        message_id=event,
        media=tuple(filter(None, files)),
        reply_to=reference.quote if reference else None,
        forwarded_from=origin,
        group_id=message.media_group_id or "",
        notes=content.notes,
    )
    if edited:
        said = _edit_of(said, message, f"{content.text}\n{content.described}", zone)
    addressed = not chat.is_group or content.addressed or bool(reference and reference.is_ours)
    return ParsedUpdate(sender, chat, addressed, said)


class _Content(Struct, frozen=True):
    """The content of a message. `described` is a note on content that is neither text nor file."""

    text: str
    addressed: bool
    described: str
    notes: tuple[str, ...]
    file: Media | None


def _content(message: Message, me: Me, origin: str, *, edited: bool) -> _Content | None:
    """Return the content, or None if there is nothing to answer."""
    file, words = file_of(message), words_of(message, links=bool(origin))
    if edited and not (words or message.checklist or file):
        return None  # not by hand: a live location moves, votes come in
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


def _inbound(
    sender: Sender, chat: Chat, text: str, event_id: str, at: datetime, **more: Any
) -> InboundMessage:
    """A message of this person in this chat."""
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


def _event_id(message_id: int, place: str, chat: Chat) -> str:
    """Message ids begin again when a group becomes a supergroup, while its chat id here stays:
    `place` is the one that it has at Telegram."""
    return str(message_id) if place == chat.id else f"{place}/{message_id}"


def _edit_of(said: InboundMessage, message: Message, content: str, zone: tzinfo) -> InboundMessage:
    """The same message as an edit. The stamp has whole seconds: the content tells two edits in the
    same second apart."""
    at, event = message.edit_date or message.date, said.event_id
    digest = blake2s(content.encode("utf-8", "replace"), digest_size=4).hexdigest()
    id = f"{event}:e{int(at.timestamp())}-{digest}"
    return replace(said, event_id=id, timestamp=at.astimezone(zone), edits=event)


def _is_elsewhere(message: MaybeInaccessibleMessage) -> bool:
    """Whether it is in another person's chat, to which we are connected or were called."""
    return isinstance(message, Message) and bool(
        message.business_connection_id or message.guest_query_id
    )


# --- what a message refers to


class _Reference(Struct, frozen=True):
    """The message that another one replies to, or the part of it that its sender chose. `is_ours`:
    we wrote it. `file` is a picture or document that is spoken about."""

    quote: Quote
    is_ours: bool = False
    file: Media | None = None


def _reference(message: Message, me: Me) -> _Reference | None:
    elsewhere, chosen = message.external_reply, message.quote
    text = valid_unicode(chosen.text) if chosen else ""
    if (reply := _replied_to(message)) is not None:
        author, by_chat = reply.from_user, reply.sender_chat
        is_ours = author is not None and author.id == me.id and by_chat is None
        quote = Quote(
            str(reply.message_id),
            _OURS if is_ours else _other(_author_name(reply)),
            text or _quoted_text(reply),
        )
        return _Reference(quote, is_ours, None if is_ours else _quoted_file(reply))
    if elsewhere is not None:
        is_ours = _is_from(elsewhere.origin, me)
        quote = Quote(
            str(elsewhere.message_id or ""),
            _OURS if is_ours else _other(_origin_name(elsewhere.origin)),
            text or label_of(elsewhere) or "[a message elsewhere]",
        )
        return _Reference(quote, is_ours, None if is_ours else _quoted_file(elsewhere))
    return _Reference(Quote("", "", "[story]")) if message.reply_to_story is not None else None


def _replied_to(message: Message) -> Message | None:
    """The message that this one replies to. In a topic everything that replies to nothing is, to
    Telegram, a reply to the message that opened the topic."""
    reply = message.reply_to_message
    if reply is None or reply.forum_topic_created is not None:
        return None
    is_root = message.is_topic_message and reply.message_id == message.message_thread_id
    return None if is_root else reply


def _quoted_file(quoted: Message | ExternalReplyInfo) -> Media | None:
    file = file_of(quoted)
    return file if file and file.kind in _QUOTED_FILES else None


def _quoted_text(message: Message) -> str:
    words = valid_unicode(words_of(message))
    unknown = "" if words else unknown_in(message)
    label = label_of(message) or (unknown and f"[{unknown}]")
    return " ".join(filter(None, (label, words))) or "[a message]"


def _forwarded_from(message: Message, me: Me) -> str:
    """Who wrote the text, where it was not the sender; empty where it was. What a person let
    another bot write into the chat counts as forwarded from it."""
    origin = message.forward_origin
    if origin is not None:
        return _OURS if _is_from(origin, me) else _other(_origin_name(origin))
    return "" if message.via_bot is None else _other(_user_name(message.via_bot))


def _other(name: str) -> str:
    """The name of another person, who may have chosen one that means the agent."""
    return f"someone called {name}" if name.casefold() == _OURS else name


# --- people and chats


def _sender(message: Message, canonical: Canonical) -> Sender | None:
    """Who sent a message; None for bots (the agent never talks to one, nor to itself), and for
    posts of a channel that Telegram itself copies into the discussion group."""
    chat = message.sender_chat
    if chat is None:
        return None if message.from_user is None else _person(message.from_user)
    if message.is_automatic_forward:
        return None
    name = _chat_name(chat, message.author_signature)
    return Sender(f"chat:{canonical(str(chat.id))}", name)


def _person(user: User) -> Sender | None:
    return None if user.is_bot else Sender(str(user.id), _user_name(user))


def _chat(chat: telegram.Chat, canonical: Canonical, thread_id: str = "") -> Chat | None:
    """The chat; None where it is no place to talk: a channel, or the inbox of a channel, whose
    threads are not those of a group."""
    if chat.type not in {"private", "group", "supergroup"} or chat.is_direct_messages:
        return None
    is_group = chat.type != "private"
    title = one_line(chat.title or "") if is_group else ""
    return Chat(canonical(str(chat.id)), is_group, title, thread_id)


def _thread(message: Message) -> str:
    """The topic that a message is in; empty for none. (Outside topics Telegram numbers the threads
    of replies in the same field, which divide no conversation.)"""
    thread = message.message_thread_id
    return str(thread) if message.is_topic_message and thread and thread != _GENERAL else ""


def _user_name(user: User) -> str:
    """What a user is called, never empty, as even the first name may be (a deleted account)."""
    full = " ".join(filter(None, (user.first_name, user.last_name)))
    return one_line(full) or one_line(user.username or "") or str(user.id)


def _chat_name(chat: telegram.Chat, signature: str | None = None) -> str:
    """What a chat is called, never empty, and who signed for it."""
    name = one_line(chat.title or chat.first_name or chat.username or "") or str(chat.id)
    signed = one_line(signature or "")
    return f"{name} ({signed})" if signed else name


def _author_name(message: Message) -> str:
    """Who wrote a message that is quoted, bots included."""
    if message.sender_chat is not None:
        return _chat_name(message.sender_chat, message.author_signature)
    return _SOMEONE if message.from_user is None else _user_name(message.from_user)


def _origin_name(origin: MessageOrigin) -> str:
    """Who wrote what was forwarded, never empty: what is forwarded must be seen to be."""
    match origin:
        case MessageOriginUser():
            return _user_name(origin.sender_user)
        case MessageOriginHiddenUser():
            return one_line(origin.sender_user_name) or _SOMEONE
        case MessageOriginChat():
            return _chat_name(origin.sender_chat, origin.author_signature)
        case MessageOriginChannel():
            return _chat_name(origin.chat, origin.author_signature)
    return _SOMEONE


def _is_from(origin: MessageOrigin, me: Me) -> bool:
    return isinstance(origin, MessageOriginUser) and origin.sender_user.id == me.id
