"""Who sent something, and where. Decisions rest on ids; names are for texts only.

What is sent in the name of a chat (anonymous admins, channels) has the sender `chat:<id>`, which no
list of people holds by accident: whoever may speak for a chat is nobody in particular.
"""

from __future__ import annotations

from collections.abc import Callable

import telegram
from telegram import (
    Message,
    MessageOrigin,
    MessageOriginChannel,
    MessageOriginChat,
    MessageOriginHiddenUser,
    MessageOriginUser,
    User,
)

from nanobot.channel import Chat, Sender
from nanobot.channel.text import one_line

Canonical = Callable[[str], str]
"""Gives the first id that a chat had: a group that became a supergroup keeps it."""

_GENERAL = 1
"""The thread of a forum's General topic; nothing can be sent to it by that number."""
_SOMEONE = "someone"


def sender_of(message: Message, canonical: Canonical) -> Sender | None:
    """Who sent a message; None for bots (the agent never talks to one, nor to itself), and for
    posts of a channel that Telegram itself copies into the discussion group."""
    if message.sender_chat is not None:
        return None if message.is_automatic_forward else _as_chat(message, canonical)
    return None if message.from_user is None else person(message.from_user)


def person(user: User) -> Sender | None:
    """A person; None for a bot."""
    return None if user.is_bot else Sender(str(user.id), user_name(user))


def chat_of(chat: telegram.Chat, canonical: Canonical, thread_id: str = "") -> Chat | None:
    """The chat; None where it is no place to talk: a channel, or the inbox of a channel, whose
    threads are not those of a group."""
    if chat.type not in {"private", "group", "supergroup"} or chat.is_direct_messages:
        return None
    is_group = chat.type != "private"
    title = one_line(chat.title or "") if is_group else ""
    return Chat(canonical(str(chat.id)), is_group, title, thread_id)


def thread_of(message: Message) -> str:
    """The topic that a message is in; empty for none. (Outside topics Telegram numbers the threads
    of replies in the same field, which divide no conversation.)"""
    thread = message.message_thread_id
    return str(thread) if message.is_topic_message and thread and thread != _GENERAL else ""


def user_name(user: User) -> str:
    """What a user is called, never empty, as even the first name may be (a deleted account)."""
    full = " ".join(filter(None, (user.first_name, user.last_name)))
    return one_line(full) or one_line(user.username or "") or str(user.id)


def chat_name(chat: telegram.Chat, signature: str | None = None) -> str:
    """What a chat is called, never empty, and who signed for it."""
    name = one_line(chat.title or chat.first_name or chat.username or "") or str(chat.id)
    signed = one_line(signature or "")
    return f"{name} ({signed})" if signed else name


def author_name(message: Message) -> str:
    """Who wrote a message that is quoted, bots included."""
    if message.sender_chat is not None:
        return chat_name(message.sender_chat, message.author_signature)
    return _SOMEONE if message.from_user is None else user_name(message.from_user)


def origin_name(origin: MessageOrigin) -> str:
    """Who wrote what was forwarded, never empty: whatever is forwarded must be seen to be."""
    if isinstance(origin, MessageOriginUser):
        return user_name(origin.sender_user)
    if isinstance(origin, MessageOriginHiddenUser):
        return one_line(origin.sender_user_name) or _SOMEONE
    if isinstance(origin, MessageOriginChat):
        return chat_name(origin.sender_chat, origin.author_signature)
    if isinstance(origin, MessageOriginChannel):
        return chat_name(origin.chat, origin.author_signature)
    return _SOMEONE


def is_from(origin: MessageOrigin, user_id: int) -> bool:
    """Whether that user wrote it."""
    return isinstance(origin, MessageOriginUser) and origin.sender_user.id == user_id


def _as_chat(message: Message, canonical: Canonical) -> Sender | None:
    chat = message.sender_chat
    if chat is None:
        return None
    return Sender(f"chat:{canonical(str(chat.id))}", chat_name(chat, message.author_signature))
