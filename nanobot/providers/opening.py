"""Opening a connection to a model server, once what the person configured was looked at.

Blocks: it imports the `openai` package, which takes half a second, so callers use a thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from nanobot.providers.failures import Endpoint

if TYPE_CHECKING:
    from nanobot.providers.sdk import Connection


def open_connection(endpoint: Endpoint, *, connect: float, stall: float) -> Connection:
    """A client of `endpoint`; times in seconds. Raises `ProviderRejected` for an address or a key
    that cannot be right, and where there are no certificates to check the server's by."""
    key = endpoint.api_key
    if not (key.isascii() and key.isprintable()):
        raise endpoint.unusable(
            f"{endpoint.settings}.api_key holds characters that no HTTP header can carry",
            "Copy the key again; it is plain letters and digits.",
        )
    try:
        url = urlsplit(endpoint.base_url)
        usable = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise endpoint.unusable(
            f"{endpoint.settings}.base_url is not an http or https address",
            "It looks like https://api.example.com/v1.",
        )
    from nanobot.providers.sdk import Connection

    loopback = url.hostname in ("localhost", "127.0.0.1", "::1")
    return Connection(endpoint, connect=connect, stall=stall, proxies=not loopback)
