"""Cutting messages into what a channel can send."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from loguru import logger

from nanobot.bus.events import OutboundMessage
from nanobot.bus.split import split_message
from nanobot.channel import Channel, Limits


def split_for(
    channels: Mapping[str, Channel], message: OutboundMessage
) -> tuple[OutboundMessage, ...]:
    """A message in parts that its channel can send; none where there is nothing to say."""
    channel = channels.get(message.channel)
    limits = channel.limits if channel else Limits()
    if not message.content and not message.media and not limits.closing:
        return ()
    try:
        return split_message(message, limits)
    except Exception as error:  # noqa: BLE001 - the boundary: an adapter that cannot judge a text
        logger.opt(exception=error).error("{} could not judge a text", message.channel)
        return split_message(message, replace(limits, fits=None))
