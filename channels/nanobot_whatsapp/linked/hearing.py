"""Hearing what the helper says, line by line; whatever goes wrong in that is its failure."""

from __future__ import annotations

import asyncio

from loguru import logger

from nanobot.clock import Clock
from nanobot.errors import NanobotError
from nanobot_whatsapp.linked.parsing import parse
from nanobot_whatsapp.linked.protocol import MAX_LINE, Garbage, Said

_LEAVING_SECONDS = 2.0


class HelperFailed(NanobotError):
    """The helper ended, hung, or said something that is none of the protocol."""


async def next_line(reader: asyncio.StreamReader) -> bytes:
    """The next line, empty at the end of what comes. Raises `HelperFailed` for one too long."""
    try:
        return await reader.readuntil(b"\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return b""
    except asyncio.LimitOverrunError:
        raise HelperFailed(
            f"the WhatsApp helper sent a line of more than {MAX_LINE:,} bytes"
        ) from None


async def hung_up(clock: Clock) -> HelperFailed:
    """What to say of a helper that ended the connection. How it ended says more, so whoever watches
    its process goes first."""
    await clock.sleep(_LEAVING_SECONDS)
    return HelperFailed("the WhatsApp helper hung up")


def understood(line: bytes) -> Said | None:
    """What a line says; None where this is of a type that is not known. Raises `HelperFailed`."""
    try:
        said = parse(line)
    except Garbage as error:
        raise HelperFailed(f"the WhatsApp helper does not keep to the protocol: {error}") from None
    if said is None:
        logger.debug("the WhatsApp helper said something of a type that is not known")
    return said
