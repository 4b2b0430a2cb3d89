"""Temporary chats, which nothing remembers.

Only the client has the conversation, and sends its earlier messages each time. No session, memory,
search index, or journal gets their text. If nanobot is restarted before the answer, the message is
lost, and its sender gets a note. Effects of tools stay, and the audit log lists the calls."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import ValidationError, convert
from msgspec.structs import replace

from nanobot.bus.events import Delivery, InboundMessage, Origin, Said
from nanobot.errors import NanobotError

MOST_CHARACTERS = 400_000
"""In the earlier messages of a chat."""


def make_temporary(message: InboundMessage, earlier: Sequence[object]) -> InboundMessage:
    """Return a person's message as one of a temporary chat. Its conversation needs a key that no
    other chat has (`session_override`, or a random chat id).

    `earlier` are the messages before it, as the client got and sent them: `{"role": "user", "text":
    …}` or `{"role": "assistant", "text": …, "origin": …}`, with the `origin` of the answer's
    `TurnEnded`: untrusted content that it may repeat. Raises `NanobotError`."""
    try:
        said = tuple(map(_read_message, earlier))
    except (ValidationError, KeyError, TypeError) as error:
        raise NanobotError("the earlier messages of the temporary chat are invalid") from error
    if message.media or not message.content.strip():
        raise NanobotError("a message in a temporary chat needs text and can't have files")
    if sum(len(one.text) for one in said) > MOST_CHARACTERS:
        raise NanobotError("this temporary chat is too long", hint="Start a new one.")
    origin = Origin(context=said, off_record=True)
    return replace(message, delivery=Delivery(), origin=origin)


def _read_message(given: object) -> Said:
    fields = convert(given, dict[str, str])
    origin = fields["origin"] if fields["role"] == "assistant" else ""
    return convert([fields["role"], fields["text"], origin], Said)
