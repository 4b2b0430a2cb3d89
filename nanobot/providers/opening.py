"""Opening a connection to a model server, once what the person configured was looked at.

Blocks: it imports the `openai` package, which takes half a second, so callers use a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
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


class LazyConnection:
    """A client that is opened when it is first needed, and again after `close`."""

    def __init__(self, endpoint: Endpoint, *, connect: float, stall: float) -> None:
        self._endpoint, self._connect, self._stall = endpoint, connect, stall
        self._opening = asyncio.Lock()
        self._connection: Connection | None = None

    async def open(self) -> Connection:
        """The client. Raises as `open_connection`."""
        async with self._opening:
            if self._connection is None:
                self._connection = await asyncio.to_thread(
                    open_connection, self._endpoint, connect=self._connect, stall=self._stall
                )
        return self._connection

    async def close(self) -> None:
        """Give back the sockets."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()


async def whole(chunks: AsyncIterator[bytes], limit: int, endpoint: Endpoint) -> bytes:
    """A whole answer. Raises `ProviderGarbage` for more than `limit` bytes."""
    answer = bytearray()
    async for chunk in chunks:
        answer += chunk
        if len(answer) > limit:
            raise endpoint.garbage("more than was asked for")
    return bytes(answer)
