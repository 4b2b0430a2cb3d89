"""Servers on the network, through the one way out.

Invariant: each question has one answer of bounded size. There is no stream beside that: a
server could keep it busy for ever.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import httpx2

from nanobot.tools.mcp.values import McpServer

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams

Transport = httpx2.AsyncBaseTransport
Way = Callable[[McpServer], Transport]
"""Makes the way to a server."""

MOST_BYTES = 24_000_000
_CONNECT_SECONDS = 15.0


class _Bounded(httpx2.AsyncBaseTransport):
    """Passes questions on, cuts answers that do not end, and offers no other stream."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if request.method == "GET":
            return httpx2.Response(405, request=request)
        response = await self._inner.handle_async_request(request)
        if response.headers.get("content-encoding", "identity") != "identity":
            await response.aclose()
            raise httpx2.DecodingError("the server compresses although it was asked not to")
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        response.stream = _Cut(response.stream)
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Cut(httpx2.AsyncByteStream):
    def __init__(self, inner: httpx2.AsyncByteStream) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._inner:
            size += len(chunk)
            if size > MOST_BYTES:
                raise httpx2.StreamError(f"the answer has more than {MOST_BYTES:,} bytes")
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()


@asynccontextmanager
async def address(server: McpServer, transport: Transport) -> AsyncIterator[TransportStreams]:
    """Talk to the server at `server.url` by way of `transport`, which is closed afterwards."""
    from mcp.client.streamable_http import streamable_http_client

    client = httpx2.AsyncClient(
        transport=_Bounded(transport),
        headers={**server.headers, "accept-encoding": "identity"},
        timeout=httpx2.Timeout(_CONNECT_SECONDS, read=server.timeout_seconds),
        trust_env=False,
    )
    async with (
        client,
        streamable_http_client(
            server.url, http_client=client, max_sse_event_size=MOST_BYTES
        ) as streams,
    ):
        yield streams
