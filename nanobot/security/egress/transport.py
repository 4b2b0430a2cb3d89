"""HTTP over connections that were checked, for httpx2 and for `Egress` itself.

Neither cookies nor credentials nor proxies from the environment: all of those belong to a client,
and this is only its transport.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import cast

import httpcore2
import httpx2

from nanobot.security.egress.dialling import Dialler
from nanobot.security.egress.urls import EgressError

_ERRORS: tuple[tuple[type[Exception], type[httpx2.TransportError]], ...] = (
    (httpcore2.ConnectTimeout, httpx2.ConnectTimeout),
    (httpcore2.ReadTimeout, httpx2.ReadTimeout),
    (httpcore2.WriteTimeout, httpx2.WriteTimeout),
    (httpcore2.PoolTimeout, httpx2.PoolTimeout),
    (httpcore2.ConnectError, httpx2.ConnectError),
    (httpcore2.ReadError, httpx2.ReadError),
    (httpcore2.WriteError, httpx2.WriteError),
    (httpcore2.RemoteProtocolError, httpx2.RemoteProtocolError),
    (httpcore2.LocalProtocolError, httpx2.LocalProtocolError),
    (httpcore2.UnsupportedProtocol, httpx2.UnsupportedProtocol),
)


class EgressTransport(httpx2.AsyncBaseTransport):
    """For `httpx2.AsyncClient(transport=…)`. A destination that is refused raises `EgressRefused`;
    everything else that fails is one of httpx2's own errors."""

    def __init__(self, dialler: Dialler, tls: ssl.SSLContext) -> None:
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=tls,
            max_connections=100,
            max_keepalive_connections=10,
            keepalive_expiry=30.0,
            network_backend=_Backend(dialler),
        )

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """See httpx2."""
        url = request.url
        with _translated():
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
        return httpx2.Response(
            status_code=answer.status,
            headers=answer.headers,
            stream=_Body(cast("httpx2.AsyncByteStream", answer.stream)),
            extensions=answer.extensions,
        )

    async def aclose(self) -> None:
        """Close all connections."""
        await self._pool.aclose()


class _Body(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with _translated():
            async for chunk in self._stream:
                yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()


class _Backend(httpcore2.AsyncNetworkBackend):
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
                return _Stream(await self._dialler.dial(host, port))
        except TimeoutError as error:
            raise httpcore2.ConnectTimeout("no answer") from error
        except EgressError as error:
            raise httpcore2.ConnectError(str(error)) from error

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class _Stream(httpcore2.AsyncNetworkStream):
    """One connection. Whether it will be TLS is known only when it is first used, and asyncio
    wants to know when it takes a socket over: so the bare one is kept until then."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        try:
            async with asyncio.timeout(timeout):
                reader, _ = await self._opened()
                return await reader.read(max_bytes)
        except TimeoutError as error:
            raise httpcore2.ReadTimeout("no answer") from error
        except OSError as error:
            raise httpcore2.ReadError(_words(error)) from error

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        try:
            async with asyncio.timeout(timeout):
                _, writer = await self._opened()
                writer.write(buffer)
                await writer.drain()
        except TimeoutError as error:
            raise httpcore2.WriteTimeout("it takes nothing more") from error
        except OSError as error:
            raise httpcore2.WriteError(_words(error)) from error

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        try:
            async with asyncio.timeout(timeout):
                self._streams = await asyncio.open_connection(
                    sock=self._connection, ssl=ssl_context, server_hostname=server_hostname
                )
        except TimeoutError as error:
            self._connection.close()
            raise httpcore2.ConnectTimeout("the TLS handshake did not end") from error
        except (OSError, ssl.CertificateError) as error:
            self._connection.close()
            raise httpcore2.ConnectError(_words(error)) from error
        except BaseException:
            self._connection.close()
            raise
        return self

    async def aclose(self) -> None:
        if self._streams is None:
            self._connection.close()
            return
        # Without a farewell: the other side may not answer one.
        writer = self._streams[1]
        writer.transport.abort()
        with suppress(OSError):  # where nobody waits, asyncio may log what broke the connection
            await writer.wait_closed()

    def get_extra_info(self, info: str) -> object:
        if self._streams is None:
            return None
        reader, writer = self._streams
        if info == "is_readable":  # of an idle connection: it was closed, or says what nobody asked
            return reader.at_eof() or writer.transport.is_closing()
        names = {"server_addr": "peername", "client_addr": "sockname"}
        return writer.get_extra_info(names.get(info, info))

    async def _opened(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._streams is None:
            self._streams = await asyncio.open_connection(sock=self._connection)
        return self._streams


def _words(error: OSError | ssl.CertificateError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not valid: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return "no encrypted connection could be made"
    return error.strerror or "the connection broke"


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except tuple(ours for ours, _ in _ERRORS) as error:
        theirs = next(theirs for ours, theirs in _ERRORS if isinstance(error, ours))
        raise theirs(str(error)) from error
