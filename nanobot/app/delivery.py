"""Cutting messages into what a channel can send; a text of too many parts goes out as a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from loguru import logger

from nanobot.agent.media import MediaStore
from nanobot.bus.events import OutboundMessage
from nanobot.bus.split import split_message, split_text, utf16_length
from nanobot.channel import Channel, Limits
from nanobot.errors import StorageError

_AS_FILE = "\n\n[This is the beginning. The whole text, {:,} characters, is in the file below.]"


def split_for(
    channels: Mapping[str, Channel], media: MediaStore, message: OutboundMessage
) -> tuple[OutboundMessage, ...]:
    """A message in parts that its channel can send; none where there is nothing to say."""
    channel = channels.get(message.channel)
    limits = channel.limits if channel else Limits()
    if not message.content and not message.media and not limits.closing:
        return ()
    try:
        return _split(media, message, limits)
    except Exception as error:  # noqa: BLE001 - the boundary: an adapter that cannot judge a text
        logger.opt(exception=error).error("{} could not judge a text", message.channel)
        return _split(media, message, replace(limits, fits=None))


def _split(
    media: MediaStore, message: OutboundMessage, limits: Limits
) -> tuple[OutboundMessage, ...]:
    most = limits.parts * limits.text
    if not most:
        return split_message(message, limits)
    if utf16_length(message.content) <= most:  # else cutting it would be long work for nothing
        parts = split_message(message, limits)
        if len(parts) <= limits.parts + len(message.media):
            return parts
    try:
        file = media.put_outgoing(message.content.encode("utf-8", "replace"), "answer.md")
    except StorageError as error:
        logger.warning("a long answer goes out in many parts: {}", error)
        return split_message(message, limits)
    told = _AS_FILE.format(len(message.content))
    room = limits.text - utf16_length(told)
    beginning = split_text(message.content[:room], room, limits.fits)[0]
    short = replace(message, content=beginning + told, media=(file, *message.media))
    return split_message(short, replace(limits, caption=0))
