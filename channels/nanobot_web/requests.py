"""Values of requests, and the answers to failed requests."""

from __future__ import annotations

import ipaddress

from aiohttp import web
from loguru import logger

from nanobot.errors import NanobotError

_DIGITS = 15


def to_number(text: str, default: int = 0) -> int:
    """Return the number of 0 or more in a request, or the default."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _DIGITS else default


def to_sentences(error: NanobotError) -> str:
    """Return an error and its hint as one line."""
    return f"{str(error).rstrip('.')}. {error.hint}" if error.hint else str(error)


def is_local(name: str) -> bool:
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name.partition("%")[0]).is_loopback
    except ValueError:
        return False


def break_off(
    request: web.Request, response: web.StreamResponse, error: Exception
) -> web.StreamResponse:
    """End an answer that has begun, so that no client takes it for complete."""
    if not isinstance(error, ConnectionError):
        logger.opt(exception=error).warning("web: an answer at {} was cut off", request.path)
    if request.transport is not None:
        request.transport.close()
    return response
