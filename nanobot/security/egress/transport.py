"""HTTP over checked connections, for httpx2 and for `Egress`.

A transport has no cookies, credentials or proxies from the environment: they belong to a client."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import cast

import httpcore2
import httpx2

from nanobot.parsing import TooManyValues, ValueCounter
from nanobot.security.egress.connector import NO_PROXY, Dialler, read_proxy_answer
from nanobot.security.egress.urls import EgressError

_ERRORS = (
    httpcore2.TimeoutException,
    httpcore2.NetworkError,
    httpcore2.ProtocolError,
    httpcore2.UnsupportedProtocol,
)


Unreachable = httpx2.TransportError
"""Raised to clients if a server cannot be reached or is lost."""


class EgressTransport(httpx2.AsyncBaseTransport):
    """Raises `EgressRefused` for a rejected destination, and httpx2's errors for all other
    failures. With `most_bytes`, an answer is limited to that size and to `most_values` of JSON, is
    never compressed, and GET is rejected."""

    def __init__(
        self, dialler: Dialler, tls: ssl.SSLContext, most_bytes: int = 0, most_values: int = 0
    ) -> None:
        self._most_bytes, self._most_values = most_bytes, most_values
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=tls,
            max_connections=100,
            max_keepalive_connections=10,
            keepalive_expiry=30.0,
            network_backend=_Backend(dialler),
        )

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if self._most_bytes and request.method == "GET":
            return httpx2.Response(405, request=request)
        url = request.url
        with _translate_errors():
            answer = await self._pool.handle_async_request(
                httpcore2.Request(
                    method=request.method,
                    url=httpcore2.URL(
                        scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path
                    ),
                    headers=request.headers.raw,
                    content=request.stream,
                    extensions=request.extensions,
                )
            )
        stream: httpx2.AsyncByteStream = cast("httpx2.AsyncByteStream", answer.stream)
        stream = _Body(stream, self._most_bytes, self._most_values)
        response = httpx2.Response(
            answer.status, headers=answer.headers, stream=stream, extensions=answer.extensions
        )
        packed = response.headers.get("content-encoding", "identity") != "identity"
        if self._most_bytes and packed:
            await response.aclose()
            raise httpx2.DecodingError(
                "the server sent a compressed response that was not requested"
            )
        return response

    async def aclose(self) -> None:
        await self._pool.aclose()


class _Body(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream, most: int, values: int) -> None:
        self._stream, self._most = stream, most
        self._values = ValueCounter(values) if values else None

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        with _translate_errors():
            async for chunk in self._stream:
                size += len(chunk)
                if self._most and size > self._most:
                    raise httpx2.StreamError(f"the response has more than {self._most:,} bytes")
                try:
                    if self._values:
                        self._values.feed(chunk)
                except TooManyValues as error:
                    raise httpx2.StreamError(f"the response has {error}") from error
                yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()


class _Backend(httpcore2.AnyIOBackend):
    """Connects to checked addresses."""

    def __init__(self, dialler: Dialler) -> None:
        self._dialler = dialler

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        try:
            async with asyncio.timeout(timeout):
                return await self._dialler.dial(host, port, partial(self._connect, port))
        except TimeoutError as error:
            raise httpcore2.ConnectTimeout("no response") from error
        except EgressError as error:
            raise httpcore2.ConnectError(str(error)) from error

    async def _connect(self, port: int, address: str) -> httpcore2.AsyncNetworkStream:
        proxy = self._dialler.proxy
        where = (proxy.host, proxy.port) if proxy else (address, port)
        try:
            stream = await super().connect_tcp(*where)
        except httpcore2.ConnectError as error:
            if proxy:
                raise EgressError(NO_PROXY) from error
            raise ConnectionError(0, str(error)) from error
        if proxy:
            try:
                await stream.write(proxy.build_request(address, port))
                await read_proxy_answer(stream.read)
            except BaseException:
                await stream.aclose()
                raise
        return stream


@contextmanager
def _translate_errors() -> Iterator[None]:
    """Raise httpx2's errors, which have the same names."""
    try:
        yield
    except _ERRORS as error:
        raise getattr(httpx2, type(error).__name__)(str(error)) from error
