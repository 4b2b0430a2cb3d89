"""How a conversation with a helper begins: its hello, and our welcome."""

from __future__ import annotations

import asyncio

from loguru import logger

from nanobot.clock import Clock
from nanobot_whatsapp.linked.hearing import HelperFailed, hung_up, next_line, understood
from nanobot_whatsapp.linked.lines import goodbye_line, welcome_line
from nanobot_whatsapp.linked.protocol import PROTOCOL, Hello, Welcome


async def greet(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    welcome: Welcome,
    clock: Clock,
) -> None:
    """Take the helper's hello and welcome it. Raises `HelperFailed` for one of another version."""
    line = await next_line(reader)
    if not line:
        raise await hung_up(clock)
    hello = understood(line)
    if not isinstance(hello, Hello):
        raise HelperFailed("the WhatsApp helper did not say hello")
    if hello.protocol != PROTOCOL:
        writer.write(goodbye_line(f"this nanobot speaks version {PROTOCOL}"))
        raise HelperFailed(
            f"the WhatsApp helper speaks version {hello.protocol} of the protocol, not {PROTOCOL}",
            hint="Build the one of this nanobot: `nanobot channels login whatsapp`.",
        )
    writer.write(welcome_line(welcome))
    logger.debug(
        "whatsapp helper {} with baileys {} on node {}", hello.bridge, hello.baileys, hello.node
    )
