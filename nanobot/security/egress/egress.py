"""The HTTP client of tools, and their checked connections.

Invariant: each hop of a redirect is checked like the first address; nothing is remembered from one
request to the next (no cookies, no credentials, no referer); time, size, redirects and types have
limits, and what goes beyond them is an error with its reason. Of a body, bytes are counted as they
come and again as they are unpacked.
"""

from __future__ import annotations

import asyncio
import ssl
import zlib
from collections.abc import AsyncIterable, Iterable, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING

from nanobot import __version__
from nanobot.security.egress.dialling import (
    Dialler,
    Resolve,
    ask_the_system,
    parse_domains,
    parse_exceptions,
    parse_proxy,
)
from nanobot.security.egress.urls import (
    MEGABYTE,
    EgressError,
    EgressLimits,
    EgressRefused,
    EgressRequest,
    EgressResponse,
    Url,
    parse_url,
)

if TYPE_CHECKING:
    import httpx2

    from nanobot.security.egress.transport import EgressTransport


ENCODINGS = "gzip, deflate"
"""What is asked for: what the standard library unpacks in bounded steps."""


class Unpacker:
    """Unpacks one body of at most `limit` bytes."""

    def __init__(self, encoding: str, limit: int) -> None:
        if encoding not in ("", "identity", "gzip", "x-gzip", "deflate"):
            raise EgressError(f"it is packed in a way that was not asked for ({encoding[:40]})")
        self._encoding, self._limit = encoding, limit
        self._unpack = zlib.decompressobj(31) if encoding.endswith("gzip") else None
        self._taken = 0
        self._body = bytearray()

    def take(self, chunk: bytes) -> None:
        """Add what came. Raises `EgressError`."""
        self._taken += len(chunk)
        if self._taken > self._limit:
            raise too_large(self._limit)
        if self._encoding == "deflate" and self._unpack is None and chunk:
            # The standard says zlib; some servers send what zlib wraps, without its head.
            self._unpack = zlib.decompressobj(15 if chunk[0] & 0x0F == 8 else -15)
        if self._unpack is None:
            self._body += chunk
        elif not self._unpack.eof:
            try:
                self._body += self._unpack.decompress(chunk, self._limit - len(self._body) + 1)
            except zlib.error as error:
                raise EgressError("its compressed data is damaged") from error
        if len(self._body) > self._limit:
            raise too_large(self._limit)

    def finished(self) -> bytes:
        """The body. Raises `EgressError` where it breaks off."""
        if self._unpack is not None and not self._unpack.eof:
            raise EgressError("its compressed data breaks off")
        return bytes(self._body)


async def read_body(chunks: AsyncIterable[bytes], headers: Mapping[str, str], limit: int) -> bytes:
    """All of it, unpacked. Raises `EgressError` for more than `limit` bytes, before they are read
    where the other side says how many there are."""
    length = headers.get("content-length", "")
    if length.isascii() and length.isdigit() and int(length[:20]) > limit:
        raise too_large(limit)
    unpacker = Unpacker(headers.get("content-encoding", "").strip().lower(), limit)
    async for chunk in chunks:
        unpacker.take(chunk)
    return unpacker.finished()


def too_large(limit: int) -> EgressError:
    """The error for what is longer than it may be."""
    return EgressError(f"it is larger than {limit / MEGABYTE:g} MB, the most that is read")


USER_AGENT = f"Mozilla/5.0 (compatible; nanobot/{__version__})"
"""Says what it is, in the form that sites expect of a program."""

_ORDINARY = EgressLimits()
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_KEEPING_THE_BODY = frozenset({307, 308})


class Egress:
    """The way out. One for the whole process; `close` when it ends.

    `allow_hosts` are the owner's exceptions (`host`, `host:port`, an address, `[::1]:80`, a
    network), `domains` what else is reached where there are any, with all names below them,
    `proxy` is `http://[user:password@]host:port` or empty, `tls` replaces the system's
    certificates. Raises `ValueError` for an entry or a proxy that cannot be read.
    """

    def __init__(
        self,
        *,
        allow_hosts: Iterable[str] = (),
        domains: Iterable[str] = (),
        proxy: str = "",
        resolve: Resolve | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._dialler = Dialler(
            parse_exceptions(allow_hosts),
            parse_proxy(proxy),
            resolve or ask_the_system,
            parse_domains(domains),
        )
        self._tls = tls
        self._own: EgressTransport | None = None

    async def connect(
        self, host: str, port: int
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection without TLS. `host` is a name or an address. Raises `EgressRefused` and
        `EgressError`; the caller closes the writer."""
        return await self._dialler.open(host, port)

    def transport(self) -> httpx2.AsyncBaseTransport:
        """A transport for an `httpx2.AsyncClient` of the caller's, which closes it. The client
        should be made with `trust_env=False`; each redirect it follows is checked here."""
        from nanobot.security.egress.transport import EgressTransport

        return EgressTransport(self._dialler, self._certificates())

    async def fetch(
        self, request: EgressRequest, limits: EgressLimits = _ORDINARY
    ) -> EgressResponse:
        """Ask, follow redirects, read the body. A status that says "no" is an answer like any
        other. Raises `EgressRefused` and `EgressError`."""
        url = parse_url(request.url)
        try:
            async with asyncio.timeout(limits.seconds) as time:
                return await self._followed(url, request, limits)
        except TimeoutError:
            if not time.expired():
                raise
            raise EgressError(
                f"{url.host} did not answer completely within {limits.seconds:g} seconds"
            ) from None

    async def close(self) -> None:
        """Close what is connected. Later requests open new connections."""
        if self._own is not None:
            own, self._own = self._own, None
            await own.aclose()

    async def _followed(
        self, url: Url, request: EgressRequest, limits: EgressLimits
    ) -> EgressResponse:
        for _ in range(limits.redirects + 1):
            answer = await self._asked(url, request, limits)
            if isinstance(answer, EgressResponse):
                return answer
            status, location = answer
            target = url.join(location)
            request = _redirected(request, status, same_origin=target.origin == url.origin)
            url = target
        raise EgressError(f"more than {limits.redirects} redirects, the last one to {url}")

    async def _asked(
        self, url: Url, request: EgressRequest, limits: EgressLimits
    ) -> EgressResponse | tuple[int, str]:
        """The answer, or the status and target of a redirect."""
        import httpx2

        if self._own is None:
            from nanobot.security.egress.transport import EgressTransport

            self._own = EgressTransport(self._dialler, self._certificates())
        headers = {"User-Agent": USER_AGENT, "Accept": "*/*", "Accept-Encoding": ENCODINGS}
        question = httpx2.Request(
            request.method, str(url), headers=headers | dict(request.headers), content=request.body
        )
        try:
            answer = await self._own.handle_async_request(question)
            try:
                return await _read(answer, url, limits)
            finally:
                await answer.aclose()
        except httpx2.TransportError as error:
            raise EgressError(f"{url.host} could not be read: {error}") from error

    def _certificates(self) -> ssl.SSLContext:
        if self._tls is None:
            import httpx2

            try:
                self._tls = httpx2.create_ssl_context()
            except OSError as error:  # SSL_CERT_FILE names none
                said = error.strerror or error
                raise EgressError(f"the certificates to trust cannot be read: {said}") from error
        return self._tls


async def _read(
    answer: httpx2.Response, url: Url, limits: EgressLimits
) -> EgressResponse | tuple[int, str]:
    headers = dict(answer.headers)
    if answer.status_code in _REDIRECTS and headers.get("location"):
        return answer.status_code, headers["location"]
    read = EgressResponse(answer.status_code, str(url), headers, b"")
    wanted = not (limits.types and read.content_type) or read.content_type.startswith(limits.types)
    if answer.is_success and not wanted:
        raise EgressError(f"{url} is of a type that is not read: {read.content_type[:80]}")
    try:
        async with aclosing(answer.aiter_raw()) as chunks:
            return replace(read, body=await read_body(chunks, headers, limits.bytes))
    except EgressError as error:
        raise EgressError(f"{url} was not read: {error}") from error


def _redirected(request: EgressRequest, status: int, *, same_origin: bool) -> EgressRequest:
    """What is asked of the next address."""
    if request.body and status in _KEEPING_THE_BODY and not same_origin:
        raise EgressRefused("a redirect would send the request's body to another address")
    headers = request.headers if same_origin else {}
    if status in _KEEPING_THE_BODY or request.method in ("GET", "HEAD"):
        return replace(request, headers=headers)
    return replace(request, method="GET", headers=headers, body=b"")
