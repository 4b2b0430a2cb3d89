"""HTTP requests to a platform's API.

Invariants: no error, context or log line contains an address or the secret. Size and total time of
an answer are bounded, even if it trickles in. The pool has spare connections, so that stuck ones
don't starve the others, and a limit that protects the process's descriptors. No redirects, no
decompression, and no proxy from the environment. A server acts on whole requests only, so an
interrupted one had no effect."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import cache, partial
from importlib import import_module
from io import SEEK_END, BytesIO
from secrets import token_hex
from types import SimpleNamespace
from typing import IO, Any
from urllib.parse import unquote, urlencode, urlsplit
from weakref import WeakSet

import aiohttp
import certifi
import msgspec
from aiohttp.connector import Connection
from msgspec import Struct
from yarl import URL

from nanobot.channel import WRITING
from nanobot.errors import NanobotError, root_cause
from nanobot.text import one_line

_CONNECT_SECONDS = 15.0
_WRITE_SECONDS = 30.0  # for a piece
_IDLE_SECONDS = 30.0
_CLOSE_SECONDS = 1.0
MOST_CONNECTIONS = 256
_PIECE_BYTES = 64 * 1024
_WORDS_CHARACTERS = 200  # of an error's text
_ADDRESS = re.compile(r"(?:[\w\-.~:/?\[\]@!$&'()*+,;=]|%[0-9A-Fa-f]{2})*", re.ASCII)
_ESCAPES = str.maketrans({'"': "%22", "\\": r"\\", "\r": "%0D", "\n": "%0A"})  # as browsers do

Files = Mapping[str, tuple[str, IO[bytes], str]]
"""The files of a form: name, content and MIME type of each field."""


class HttpFault(NanobotError):
    """A request failed."""


class Unsent(HttpFault):
    """The request did not reach the server as a whole. It can be repeated without a duplicate."""


class Unconfirmed(HttpFault):
    """The request was sent, and the server may have acted on it."""


class AnswerTooLarge(Unconfirmed):
    """The answer exceeds the limit. The rest was not read."""


class BadAddress(HttpFault):
    """The address is invalid."""


class HttpAnswer(Struct, frozen=True):
    """The server's answer. `retry_after` is the raw header, or empty."""

    status: int
    body: bytes
    retry_after: str


class HttpClient:
    """At most `most` connections to one platform. Close it at the end. No error contains
    `secret`."""

    def __init__(
        self,
        secret: str,
        *,
        headers: Mapping[str, str] | None = None,
        proxy: str = "",
        most: int = MOST_CONNECTIONS,
    ) -> None:
        self._secret, self._most = secret, most
        self._headers = {"User-Agent": "nanobot", "Accept-Encoding": "identity", **(headers or {})}
        self._proxy, self._socks = proxy or None, None
        self._failures: tuple[type[Exception], ...] = (aiohttp.ClientError, OSError, ValueError)
        if proxy.startswith("socks5"):
            self._proxy, self._socks = None, urlsplit(proxy)
            lib = import_module("aiohttp_socks")
            self._failures += (lib.ProxyError, lib.ProxyConnectionError, lib.ProxyTimeoutError)
            self._failures += (EOFError,)  # the proxy hung up
        self._deadlines: set[asyncio.Timeout] = set()
        self._session: aiohttp.ClientSession | None = self._new_session()

    async def close(self) -> None:
        """Close all connections. Pending requests raise `Unconfirmed`."""
        session, self._session = self._session, None
        for deadline in self._deadlines:
            if not deadline.expired():
                deadline.reschedule(0)
        if session is not None:
            with suppress(TimeoutError):  # a stuck connection may still have data to write
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await session.close()

    async def renew(self) -> None:
        """Close all connections. The next request opens new ones."""
        await self.close()
        self._session = self._new_session()

    async def request(
        self, method: str, url: str, seconds: float, limit: int, *, params: Any = None, **sent: Any
    ) -> HttpAnswer:
        """Return the answer, of at most `limit` bytes, within `seconds`. `sent` is `json`, or
        `data` and `files` of a form. Raises `HttpFault`."""
        if (address := parse_url(url)) is None:
            raise BadAddress("an invalid address")
        for _ in range(2):  # the loop notices idle connections that the server has closed
            await asyncio.sleep(0)
        if (session := self._session) is None:
            raise Unsent("the connection is closed")
        content = _Content(**sent)
        try:
            async with asyncio.timeout(seconds) as deadline:
                self._deadlines.add(deadline)
                try:
                    response = await session.request(
                        method,
                        address,
                        params=params,
                        data=content if content.size else None,
                        headers=self._headers,
                        allow_redirects=False,
                        trace_request_ctx=content,
                    )
                    return await read_answer(response, limit)
                finally:
                    self._deadlines.discard(deadline)
        except self._failures as error:
            why = one_line(self.redact(explain(error)), _WORDS_CHARACTERS)
        # Outside the handler, because the library's errors hold the request.
        if content.is_begun and not content.left:
            raise Unconfirmed(f"no complete answer ({why})")
        raise Unsent(why)

    def redact(self, text: str) -> str:
        return text.replace(self._secret, "…")

    def _new_session(self) -> aiohttp.ClientSession:
        tracing = aiohttp.TraceConfig()
        tracing.on_request_headers_sent.append(begin_writing)
        build: Callable[..., aiohttp.BaseConnector] = _Connector
        if (socks := self._socks) is not None:
            library = import_module("aiohttp_socks")
            build = partial(
                type("_SocksConnector", (_Connector, library.ProxyConnector), {}),
                host=socks.hostname,
                port=socks.port or 1080,
                username=unquote(socks.username or "") or None,
                password=unquote(socks.password or "") or None,
                rdns=True,  # the proxy looks up the server's name
            )
        connector = build(
            ssl=load_trusted_certificates(), limit=self._most, keepalive_timeout=_IDLE_SECONDS
        )
        return aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, connect=_CONNECT_SECONDS),
            trace_configs=[tracing],
            middlewares=[send_once],
            auto_decompress=False,
            proxy=self._proxy,
        )


class _Connector(aiohttp.TCPConnector):
    """A pool whose connections have no unread data. aiohttp would take data that came without a
    request, such as a status 408 on an idle connection, for the answer to the next request."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._used = WeakSet[object]()

    async def connect(self, *args: Any, **kwargs: Any) -> Connection:
        while True:
            connection = await super().connect(*args, **kwargs)
            protocol: Any = connection.protocol
            if protocol not in self._used or not protocol.should_close:
                self._used.add(protocol)
                return connection
            connection.close()


class _Content(aiohttp.Payload):
    """The content of a request, which may be empty. `is_begun` is True once the request is being
    written, and `left` is the rest of the content in bytes."""

    _autoclose = True  # the caller closes the files

    def __init__(
        self, json: object = None, data: Mapping[str, str] | None = None, files: Files | None = None
    ) -> None:
        mime, text = "application/x-www-form-urlencoded", urlencode(data or {}).encode()
        if json is not None:
            mime, text = "application/json", msgspec.json.encode(json)
        parts: Iterable[IO[bytes]] = [BytesIO(text)]
        if files:
            boundary = token_hex(16)
            mime = f"multipart/form-data; boundary={boundary}"
            parts = build_form(boundary, data or {}, files)
        super().__init__(None, content_type=mime)
        self._parts = [(part, part.seek(0, SEEK_END)) for part in parts]
        self._size = self.left = sum(size for _, size in self._parts)
        self.is_begun = False

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        raise TypeError("the content may be a file")

    async def write(self, writer: Any) -> None:
        """Write everything. An interruption also drops the data that waits to be sent."""
        transport = writer.transport
        try:
            for part, size in self._parts:
                part.seek(0)
                for start in range(0, size, _PIECE_BYTES):
                    await self._write_piece(writer, part, min(size - start, _PIECE_BYTES))
        except BaseException:
            if transport is not None:
                transport.abort()
            raise

    async def _write_piece(self, writer: Any, part: IO[bytes], size: int) -> None:
        if len(piece := part.read(size)) < size:
            raise OSError("a file became shorter")
        self.left -= size
        try:
            async with asyncio.timeout(_WRITE_SECONDS):
                await writer.write(piece)
        except ConnectionError:  # a part of it was not sent
            self.left += size
            raise


async def begin_writing(session: object, context: SimpleNamespace, headers: object) -> None:
    """Called before a request is written, but not for a proxy's CONNECT."""
    context.trace_request_ctx.is_begun = True
    WRITING.get()()


async def send_once(
    request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    """Replace the errors after which aiohttp would repeat a GET."""
    try:
        return await send(request)
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise aiohttp.ClientConnectionError from error


async def read_answer(response: aiohttp.ClientResponse, limit: int) -> HttpAnswer:
    """Return the whole answer, of at most `limit` bytes."""
    body, is_too_large = bytearray(), (response.content_length or 0) > limit
    try:
        while not is_too_large and (chunk := await response.content.readany()):
            body += chunk
            is_too_large = len(body) > limit
    finally:
        response.close()  # a complete answer has released its connection already
    if is_too_large:
        raise AnswerTooLarge(f"the answer is larger than {limit:,} bytes")
    return HttpAnswer(response.status, bytes(body), response.headers.get("Retry-After", ""))


def build_form(boundary: str, data: Mapping[str, str], files: Files) -> Iterable[IO[bytes]]:
    """Return the parts of a form (RFC 7578)."""
    start = f'--{boundary}\r\nContent-Disposition: form-data; name="'
    yield BytesIO("".join(f'{start}{name}"\r\n\r\n{data[name]}\r\n' for name in data).encode())
    for field, (name, file, mime) in files.items():
        head = f'{start}{field}"; filename="{name.translate(_ESCAPES)}"\r\nContent-Type: {mime}'
        yield from (BytesIO(f"{head}\r\n\r\n".encode()), file, BytesIO(b"\r\n"))
    yield BytesIO(f"--{boundary}--\r\n".encode())


def explain(error: Exception) -> str:
    """Return the reason for a failure, without addresses."""
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return f"the proxy answered with status {error.status}"
    return "timed out" if isinstance(error, TimeoutError) else root_cause(error)


def parse_url(text: str) -> URL | None:
    """Return the address of a server, or None."""
    try:
        url = URL(text)
        is_usable = url.scheme in {"http", "https"} and url.host and text.isprintable()
    except ValueError:  # also an impossible host name
        return None
    # A signature may cover the exact text of an address, which `URL` would change.
    is_exact = _ADDRESS.fullmatch(text) and "/." not in text
    return (URL(text, encoded=True) if is_exact else url) if is_usable else None


@cache
def load_trusted_certificates() -> ssl.SSLContext:
    return ssl.create_default_context(cafile=certifi.where())
