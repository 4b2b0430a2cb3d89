"""A connection to a model server: what is asked of one, and the usual way, by aiohttp.

What goes wrong is a `ProviderError` of the endpoint's. Nothing is retried here, no redirect is
followed, no cookie is kept, and the environment adds no headers: of it only proxies (for servers
elsewhere) and certificates count. aiohttp is loaded when a connection is first used, in a thread.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import socket
import ssl
from abc import ABC, abstractmethod
from base64 import b64encode
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    aclosing,
    asynccontextmanager,
    suppress,
)
from contextvars import ContextVar
from functools import cache, partial
from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, unquote, urlsplit

from loguru import logger

from nanobot.errors import (
    ProviderError,
    ProviderGarbage,
    ProviderRejected,
    ProviderUnavailable,
)
from nanobot.providers.endpoint import Endpoint

if TYPE_CHECKING:
    import aiohttp
    from aiohttp.client_proto import ResponseHandler

CONNECT_SECONDS = 15.0
_ERROR_BYTES = 64 * 1024
_ANSWER_BYTES = 64 * 1024 * 1024
_PIECE_BYTES = 256 * 1024
_LONGEST_HEADER = 64 * 1024
_CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR")
_API_PATHS = frozenset({"/chat/completions", "/models", "/embeddings", "/audio/speech"})
_EXCERPT = 256
_SOCKS = ("socks5", "socks5h")
_LOOPBACK = ("localhost", "127.0.0.1", "::1")

Chunks = AsyncGenerator[bytes, None]


class Connection(ABC):
    """A client of one server, opened when it is first used, and again after `close`. A connection
    must stand within `connect` seconds, and no more than `stall` may pass without a byte. With
    `finds_v1`, a server whose address has no path is asked under /v1 as well. What it raises are
    `ProviderError`s."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        stall: float,
        connect: float = CONNECT_SECONDS,
        finds_v1: bool = True,
    ) -> None:
        self._endpoint, self._stall, self._connect = endpoint, stall, connect
        self._opening = asyncio.Lock()
        self._prefix, self._is_settled = "", not finds_v1 or _has_path(endpoint.base_url)

    @abstractmethod
    def _request(self, method: str, path: str, body: bytes) -> AbstractAsyncContextManager[Chunks]:
        """Send JSON, or nothing; the body of the answer as it arrives, with a status that means
        success."""

    @abstractmethod
    async def close(self) -> None:
        """Release the sockets."""

    @asynccontextmanager
    async def post(self, path: str, body: bytes) -> AsyncIterator[AsyncIterator[bytes]]:
        """Send `body`, which is JSON; the context is the body of the answer as it arrives."""
        async with self._located("POST", path, body) as chunks, aclosing(chunks):
            yield chunks

    async def ask(self, path: str, body: object = None) -> Mapping[str, object]:
        """The JSON object at `path`, or what is answered to `body`, which is sent as JSON."""
        method, content = ("GET", b"") if body is None else ("POST", json.dumps(body).encode())
        seconds = 2 * self._stall  # for all of it, however often a byte arrives
        try:
            async with asyncio.timeout(seconds), self._located(method, path, content) as chunks:
                return await self._object(chunks)
        except TimeoutError as error:
            raise self._endpoint.stalled(seconds) from error

    @asynccontextmanager
    async def _located(self, method: str, path: str, body: bytes) -> AsyncIterator[Chunks]:
        """The same as `_request`. If the server's address has no path and it does not know `path`,
        it is asked under /v1, where most servers have their API, and from then on there."""
        is_unsure = not self._is_settled and path in _API_PATHS
        async with AsyncExitStack() as stack:
            try:
                request = self._request(method, self._prefix + path, body)
                chunks = await stack.enter_async_context(request)
                if is_unsure:
                    chunks = await self._checked(chunks)
            except (ProviderRejected, ProviderGarbage) as error:
                if not (is_unsure and _is_missing(error)):
                    raise
                await stack.aclose()
                chunks = await self._under_v1(stack, method, path, body, error)
            self._is_settled = self._is_settled or path in _API_PATHS
            yield chunks

    async def _under_v1(
        self, stack: AsyncExitStack, method: str, path: str, body: bytes, error: ProviderError
    ) -> Chunks:
        """Ask under /v1. Raises `error`, the first answer, if the path is missing there too."""
        try:
            chunks = await stack.enter_async_context(self._request(method, "/v1" + path, body))
            chunks = await self._checked(chunks)
        except (ProviderRejected, ProviderGarbage) as second:
            if _is_missing(second) and "model" not in second.detail.lower():
                raise error from None
            self._note_v1()
            raise
        self._note_v1()
        return chunks

    def _note_v1(self) -> None:
        endpoint = self._endpoint
        self._prefix, self._is_settled = "/v1", True
        logger.warning(
            "the model server answers at {}/v1: set {}.base_url to that",
            endpoint.place.rstrip("/"),
            endpoint.settings,
        )

    async def _checked(self, chunks: Chunks) -> Chunks:
        """The body, unless it is what some servers answer to a path that they don't know."""
        first = await anext(chunks, b"")
        start = first.lstrip()[:_EXCERPT]
        if start.startswith(b"<"):
            raise self._endpoint.garbage("a web page", first)
        if b"Unexpected endpoint" in start:  # LM Studio, with status 200
            raise self._endpoint.refused(404, {}, first)
        return _chained(first, chunks)

    def _address(self) -> SplitResult:
        """The server's address. Raises `ProviderRejected` where that or the key cannot be right."""
        endpoint = self._endpoint
        if not (endpoint.api_key.isascii() and endpoint.api_key.isprintable()):
            raise endpoint.unusable(
                f"{endpoint.settings}.api_key holds characters that no HTTP header can carry",
                "Copy the key again; it is plain letters and digits.",
            )
        url = _http_url(endpoint.base_url)
        if url is None:
            raise self._no_address()
        return url

    def _proxy_for(self, url: SplitResult) -> str | None:
        """The proxy that the environment (`HTTPS_PROXY`, `ALL_PROXY`, …) names for this address.
        Raises `ProviderRejected` where it is none that can be used."""
        from urllib.request import getproxies_environment

        proxies = getproxies_environment()
        proxy = (proxies.get(url.scheme) or proxies.get("all") or "").strip()
        if not proxy or url.hostname in _LOOPBACK or _is_direct(url, proxies.get("no", "")):
            return None
        proxy = proxy if "://" in proxy else f"http://{proxy}"
        if _usable_url(proxy, "http", "https", *_SOCKS) is None:
            raise self._endpoint.unusable(
                "the environment names a proxy that can't be used",  # it may hold a password
                "Let HTTPS_PROXY name an http or socks5 proxy, or add the server to NO_PROXY.",
            )
        return proxy

    def _no_address(self) -> ProviderError:
        return self._endpoint.unusable(
            f"{self._endpoint.settings}.base_url is not an http or https address",
            "It looks like https://api.example.com/v1.",
        )

    async def _refused(
        self, status: int, headers: Mapping[str, str], chunks: Chunks
    ) -> ProviderError:
        """What a status other than success means. Reads no more than the beginning of the body,
        which may break off."""
        body = b""
        with suppress(ProviderUnavailable):
            async with aclosing(chunks):
                async for chunk in chunks:
                    body += chunk
                    if len(body) >= _ERROR_BYTES:
                        break
        lower = {name.lower(): value for name, value in headers.items()}
        return self._endpoint.refused(status, lower, body[:_ERROR_BYTES])

    async def _object(self, chunks: Chunks) -> Mapping[str, object]:
        answer = bytearray()
        async with aclosing(chunks):
            async for chunk in chunks:
                answer += chunk
                if len(answer) > _ANSWER_BYTES:
                    raise self._endpoint.garbage("more than was asked for")
        return self._endpoint.object_in(bytes(answer))

    def _certificates(self) -> ssl.SSLContext:
        """Blocks. Raises `ProviderRejected` where there are none to check the server's by."""
        named = next((name for name in _CERTIFICATES if os.environ.get(name)), "")
        place = os.environ.get(named, "")
        try:
            return _trusted(named, place)
        except OSError as error:
            hint = (
                f"Let {named} name certificates in PEM form, or unset it, and start nanobot again."
            )
            what = f"{named} ({place})" if named else "the certificates of this machine"
            raise self._endpoint.unusable(
                f"cannot use {what}: {error.strerror or error}",
                hint if named else "Install them (the package ca-certificates).",
            ) from error


class HttpConnection(Connection):
    """See `Connection`. Connections are kept open between requests."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        stall: float,
        connect: float = CONNECT_SECONDS,
        finds_v1: bool = True,
    ) -> None:
        super().__init__(endpoint, stall=stall, connect=connect, finds_v1=finds_v1)
        self._session: aiohttp.ClientSession | None = None
        self._unkept: aiohttp.ClientSession | None = None
        self._trusted: ssl.SSLContext | bool = True
        self._proxy: str | None = None
        self._reading: dict[ResponseHandler, aiohttp.StreamReader] = {}

    async def close(self) -> None:
        sessions = self._session, self._unkept
        self._session = self._unkept = None
        for session in filter(None, sessions):
            await session.close()

    @asynccontextmanager
    async def _request(self, method: str, path: str, body: bytes) -> AsyncIterator[Chunks]:
        session = await self._opened()
        import aiohttp  # it is loaded by now, and not on the event loop

        try:
            response = await self._send(session, method, path, body)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise self._failed(error) from error
        except ValueError as error:
            raise self._no_address() from error
        async with response:
            self._watch(response)
            chunks = self._chunks(response)
            if not 200 <= response.status < 300:
                raise await self._refused(response.status, response.headers, chunks)
            yield chunks

    async def _send(
        self, session: aiohttp.ClientSession, method: str, path: str, body: bytes
    ) -> aiohttp.ClientResponse:
        """The answer, of which the head has arrived. A server may close a connection that was kept
        just when it is used again: then a new one is used, because the others that were kept may
        have gone the same way."""
        import aiohttp

        closed = aiohttp.ServerDisconnectedError, aiohttp.ClientOSError, ConnectionResetError
        while True:
            opened: list[socket.socket] = []
            _opened_sockets.set(opened)
            try:
                return await session.request(
                    method,
                    self._url(path),
                    data=_pieces(body) if body else None,
                    headers=self._headers(body),
                    allow_redirects=False,
                    proxy=None if _is_socks(self._proxy) else self._proxy,
                )
            except closed as error:
                connected = opened or session is self._unkept  # a SOCKS connection is not counted
                if connected or isinstance(error, aiohttp.ClientConnectorError):
                    raise
                if self._unkept is None:
                    self._unkept = self._new_session(is_kept=False)
                session = self._unkept

    def _watch(self, response: aiohttp.ClientResponse) -> None:
        """Let the reader of the body know when the connection is lost. aiohttp does not where
        `close` cut it, or where bytes arrived that belong to no body."""
        connection = response.connection
        protocol = None if connection is None else connection.protocol
        lost = None if protocol is None else protocol.closed
        if protocol is None or lost is None:  # the body is here
            return
        if protocol not in self._reading:
            lost.add_done_callback(partial(self._lost, protocol))
        self._reading[protocol] = response.content

    def _lost(self, protocol: ResponseHandler, lost: asyncio.Future[None]) -> None:
        import aiohttp

        error = None if lost.cancelled() else lost.exception()
        content = self._reading.pop(protocol)
        if not content.is_eof() and content.exception() is None:
            content.set_exception(error or aiohttp.ServerDisconnectedError())

    async def _opened(self) -> aiohttp.ClientSession:
        async with self._opening:
            if self._session is None:
                self._trusted = await asyncio.to_thread(self._prepare)
                self._session = self._new_session()
            return self._session

    def _url(self, path: str) -> str:
        url = urlsplit(self._endpoint.base_url)
        host = url.netloc.rpartition("@")[2]
        return url._replace(netloc=host, path=url.path.rstrip("/") + path, fragment="").geturl()

    def _headers(self, body: bytes) -> dict[str, str]:
        """Given with each request: those of a session go to proxies as well."""
        own = self._endpoint.headers
        headers = {
            **(own or {"Authorization": self._authorization()}),
            "Accept": "application/json",
            "Accept-Encoding": "identity",  # no small answer becomes a large one
            "User-Agent": "nanobot",
        }
        if body:
            headers["Content-Length"] = str(len(body))
            headers["Content-Type"] = "application/json"
        return self._endpoint.with_own_headers(headers)

    def _authorization(self) -> str:
        """The key, or the name and password that the address has for a proxy in front of it."""
        url = urlsplit(self._endpoint.base_url)
        if url.username is None:
            return f"Bearer {self._endpoint.api_key or 'none'}"
        pair = f"{unquote(url.username)}:{unquote(url.password or '')}"
        return f"Basic {b64encode(pair.encode()).decode()}"

    def _prepare(self) -> ssl.SSLContext | bool:
        """Everything that may be refused or takes long; True stands for the certificates of this
        machine, which aiohttp loads anyway. Blocks."""
        url = self._address()
        importlib.import_module("aiohttp")
        self._proxy = self._proxy_for(url)
        if _is_socks(self._proxy):
            importlib.import_module("nanobot.providers.socks")
        is_named = any(os.environ.get(name) for name in _CERTIFICATES)
        return self._certificates() if is_named else True

    def _new_session(self, *, is_kept: bool = True) -> aiohttp.ClientSession:
        """`is_kept`: whether connections are kept open for the next request."""
        import aiohttp

        build: Callable[..., aiohttp.TCPConnector] = aiohttp.TCPConnector
        if self._proxy and _is_socks(self._proxy):
            from nanobot.providers.socks import SocksConnector  # loaded by now, as aiohttp is

            build = partial(SocksConnector, self._proxy)
        connector = build(
            ssl=self._trusted, limit=0, socket_factory=_new_socket, force_close=not is_kept
        )
        return aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, connect=self._connect, sock_read=self._stall),
            max_line_size=_LONGEST_HEADER,
            max_field_size=_LONGEST_HEADER,
        )

    async def _chunks(self, response: aiohttp.ClientResponse) -> Chunks:
        import aiohttp

        try:
            async for chunk in response.content.iter_any():
                yield chunk
        except (aiohttp.ClientError, aiohttp.ServerTimeoutError) as error:
            raise self._failed(error) from error

    def _failed(self, error: Exception) -> ProviderError:
        import aiohttp

        if isinstance(error, aiohttp.ConnectionTimeoutError):
            return self._endpoint.unreachable(f"no connection within {self._connect:g} seconds")
        if isinstance(error, aiohttp.ClientHttpProxyError):
            return self._endpoint.unreachable(f"the proxy answered {error.status}")
        if isinstance(error, aiohttp.ClientConnectorError):
            return self._endpoint.unreachable(root_cause(error))
        if isinstance(error, TimeoutError):
            return self._endpoint.stalled(self._stall)
        return self._endpoint.cut(root_cause(error))


async def _chained(first: bytes, rest: Chunks) -> Chunks:
    """A body of which the beginning was read already."""
    async with aclosing(rest):
        if first:
            yield first
        async for chunk in rest:
            yield chunk


def _is_missing(error: ProviderRejected | ProviderGarbage) -> bool:
    """Whether an answer may mean that the server does not know the path."""
    return isinstance(error, ProviderGarbage) or error.status in (404, 405)


def _has_path(base_url: str) -> bool:
    try:
        return bool(urlsplit(base_url).path.strip("/"))
    except ValueError:  # the first request says so
        return True


async def _pieces(body: bytes) -> AsyncIterator[memoryview]:
    """A request in pieces: handed over at once, a large one would hold up everything else."""
    view = memoryview(body)
    for start in range(0, len(body), _PIECE_BYTES):
        yield view[start : start + _PIECE_BYTES]


_opened_sockets: ContextVar[list[socket.socket]] = ContextVar("opened_sockets")
"""Those of the request under way: none where it goes by a connection that was kept."""


def _new_socket(address: aiohttp.AddrInfoType) -> socket.socket:
    family, kind, protocol, *_ = address
    opened = socket.socket(family, kind, protocol)
    _opened_sockets.get().append(opened)
    return opened


def _is_socks(proxy: str | None) -> bool:
    return urlsplit(proxy or "").scheme in _SOCKS


def _http_url(text: str) -> SplitResult | None:
    """The parts of an http or https address; None where it is none."""
    return _usable_url(text, "http", "https")


def _usable_url(text: str, *schemes: str) -> SplitResult | None:
    """Return the parts of an address with one of these schemes, or None."""
    try:
        url = urlsplit(text)
        usable = url.scheme in schemes and url.hostname and url.port != 0
    except ValueError:
        usable = False
    return url if usable else None


def _is_direct(url: SplitResult, exceptions: str) -> bool:
    """Whether `NO_PROXY` has the host: by its name or a domain around it (`example.org`,
    `.example.org`, `*.example.org`), a port with it or not, as an address, or in a network."""
    host, port = url.hostname or "", url.port or {"http": 80, "https": 443}[url.scheme]
    for entry in exceptions.lower().replace(",", " ").split():
        with suppress(ValueError):
            network = ip_network(entry.strip("[]"), strict=False)
            with suppress(ValueError):
                if ip_address(host) in network:
                    return True
            continue
        name, colon, digits = entry.rpartition(":")
        if not colon:
            name = entry
        elif digits != str(port):
            continue
        name = name.strip("[]").removeprefix("*.").removeprefix(".")
        if name == "*" or f".{host}".endswith(f".{name}"):
            return True
    return False


@cache
def _trusted(named: str, place: str) -> ssl.SSLContext:
    """The certificates to trust: those at `place`, else the system's. Loading them takes up to
    100 ms, so all connections share them."""
    if named == "SSL_CERT_FILE":
        return ssl.create_default_context(cafile=place)
    return ssl.create_default_context(capath=place or None)


_OWN_NUMBERS = (ssl.SSLError, socket.gaierror)


def root_cause(error: BaseException) -> str:
    """What the operating system said, under the layers that wrapped it."""
    cause = error
    while (inner := cause.__cause__ or cause.__context__) is not None:
        cause = inner
    if isinstance(cause, OSError) and cause.errno and not isinstance(cause, _OWN_NUMBERS):
        return os.strerror(cause.errno).lower()  # asyncio's own words name a call and an address
    return getattr(cause, "strerror", None) or str(cause) or type(cause).__name__
