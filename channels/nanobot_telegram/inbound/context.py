"""What a message refers to: the one it replies to, and where it was forwarded from."""

from __future__ import annotations

from telegram import Message, TextQuote

from nanobot.bus.events import Media, Quote
from nanobot.channel.text import valid_unicode
from nanobot_telegram.inbound.files import Content, file_of
from nanobot_telegram.inbound.notes import label_of, unknown_in
from nanobot_telegram.inbound.people import author_name, is_from, origin_name, user_name
from nanobot_telegram.inbound.rich import rich_text
from nanobot_telegram.inbound.values import Me

_OURS = "you"
"""Who wrote what the agent itself wrote, as it is told."""
_LOOKED_AT = frozenset({"image", "document"})
"""Kinds of quoted files that come along. Sound does not: it would pass for what the person said."""


def forwarded_from(message: Message, me: Me) -> str:
    """Who wrote the words, where it was not the sender; empty where it was. What a person let
    another bot write into the chat counts as forwarded from it."""
    origin = message.forward_origin
    if origin is not None:
        return _OURS if is_from(origin, me.id) else _other(origin_name(origin))
    return "" if message.via_bot is None else _other(user_name(message.via_bot))


def replies_to_me(message: Message, me: Me) -> bool:
    """Whether it is a reply to something that we wrote."""
    reply, elsewhere = _replied(message), message.external_reply
    if reply is not None:
        return _is_ours(reply, me)
    return elsewhere is not None and is_from(elsewhere.origin, me.id)


def quote_of(message: Message, me: Me) -> Quote | None:
    """The message that this one replies to, or the part of it that its sender chose."""
    reply, elsewhere = _replied(message), message.external_reply
    if reply is not None:
        sender = _OURS if _is_ours(reply, me) else _other(author_name(reply))
        text = _chosen(message.quote) or _content(reply)
        return Quote(str(reply.message_id), sender, text or "[a message]")
    if elsewhere is not None:
        sender = (
            _OURS if is_from(elsewhere.origin, me.id) else _other(origin_name(elsewhere.origin))
        )
        text = _chosen(message.quote) or label_of(elsewhere)
        return Quote(str(elsewhere.message_id or ""), sender, text or "[a message elsewhere]")
    return Quote("", "", "[story]") if message.reply_to_story is not None else None


def quoted_file(message: Message, me: Me) -> Media | None:
    """A picture or document that is spoken about, unless the agent sent it itself."""
    if replies_to_me(message, me):
        return None
    quoted: Content | None = _replied(message) or message.external_reply
    file = None if quoted is None else file_of(quoted)
    return file if file is not None and file.kind in _LOOKED_AT else None


def words_of(message: Message) -> str:
    """Text, caption, or the words of a rich message, without what entities add."""
    return message.text or message.caption or rich_text(message.api_kwargs.get("rich_message"))


def _replied(message: Message) -> Message | None:
    """The message replied to. In a topic everything that replies to nothing is, to Telegram, a
    reply to the message that opened the topic."""
    reply = message.reply_to_message
    if reply is None or reply.forum_topic_created is not None:
        return None
    is_root = message.is_topic_message and reply.message_id == message.message_thread_id
    return None if is_root else reply


def _is_ours(message: Message, me: Me) -> bool:
    author = message.from_user
    return author is not None and author.id == me.id and message.sender_chat is None


def _content(message: Message) -> str:
    words = valid_unicode(words_of(message))
    label, unknown = label_of(message), "" if words else unknown_in(message)
    return " ".join(filter(None, (label or (unknown and f"[{unknown}]"), words)))


def _chosen(quote: TextQuote | None) -> str:
    return "" if quote is None else valid_unicode(quote.text)


def _other(name: str) -> str:
    """The name of somebody else, who may have chosen one that means the agent."""
    return f"someone called {name}" if name.casefold() == _OURS else name
