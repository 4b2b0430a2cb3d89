"""Network access of tools, limited to public addresses.

Invariant: a name is resolved once, all its addresses must be public, and the connection goes to a
checked address. Each redirect is checked like the first address. No state is kept between requests
(no cookies, credentials or referer). Time, size, redirects and types are limited; exceeding a limit
is an error with its reason. A body is counted as received and as decompressed.

This module has the client. `urls` decides which addresses are public and which URLs are plain,
`connector` checks and connects, `transport` speaks HTTP."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable, Mapping
from contextlib import aclosing
from functools import cache
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from nanobot import __version__
from nanobot.security.egress.connector import (
    Dialler,
    Resolve,
    parse_domains,
    parse_exceptions,
    parse_proxy,
    resolve_by_system,
)
from nanobot.security.egress.urls import EgressError, EgressRefused, Url, parse_url

if TYPE_CHECKING:
    import httpx2

    from nanobot.security.egress.transport import EgressTransport

MEGABYTE = 1_000_000


class EgressRequest(Struct, frozen=True):
    """A request. `headers` and `body` are sent only to the first address: a redirect to another one
    gets neither, and is not followed if there is a body."""

    url: str
    method: str = "GET"
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


class EgressLimits(Struct, frozen=True):
    """`seconds` include redirects. `bytes` limits the body, as sent and as decompressed. `types`
    are prefixes of accepted content types; none means any. More than `redirects` redirects are an
    error; with `https_only`, so is one to any other scheme."""

    seconds: float = 30.0
    bytes: int = 10 * MEGABYTE
    redirects: int = 5
    types: tuple[str, ...] = ()
    https_only: bool = False


class EgressResponse(Struct, frozen=True):
    """A response. `url` is the final address, `headers` have lower-case names, and `body` is
    decompressed."""

    status: int
    url: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def content_type(self) -> str:
        """The lower-case MIME type without parameters, or an empty text."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()


_ENCODINGS = ("", "identity", "gzip", "deflate")
"""Accepted one at a time, because nested encodings could grow without bounds."""

USER_AGENT = f"Mozilla/5.0 (compatible; nanobot/{__version__})"
"""Identifies nanobot in the form that sites expect of a program."""

_CONNECT_SECONDS = 15.0
_ORDINARY = EgressLimits()
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_KEEPING_THE_BODY = frozenset({307, 308})


class Egress:
    """Network access of the process. Call `close` at the end.

    `allow_hosts` are the owner's exceptions (`host`, `host:port`, an address, `[::1]:80`, a
    network). `domains`, if any, are the only other reachable names, including subdomains. `proxy`
    is `http://[user:password@]host:port` or empty, `tls` replaces the system's certificates. Raise
    `ValueError` for an invalid entry or proxy."""

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
            resolve or resolve_by_system,
            parse_domains(domains),
        )
        self._tls = tls
        self._own: EgressTransport | None = None

    async def connect(
        self, host: str, port: int
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open a connection without TLS to a name or address. The caller closes the writer. Raise
        `EgressRefused` and `EgressError`."""
        return await self._dialler.open(host, port)

    def client(
        self,
        headers: Mapping[str, str],
        seconds: float,
        most_bytes: int,
        most_values: int,
        allow_hosts: Iterable[str] = (),
    ) -> httpx2.AsyncClient:
        """Return a client, which the caller closes. Each request has one answer of at most
        `most_bytes` and `most_values` of JSON, whose parts arrive within `seconds`. There is no
        stream (GET). `allow_hosts` are exceptions for this client only."""
        import httpx2

        from nanobot.security.egress.transport import EgressTransport

        return httpx2.AsyncClient(
            transport=EgressTransport(
                self._dialler.with_exceptions(allow_hosts),
                self._load_certificates(),
                most_bytes,
                most_values,
            ),
            headers={**headers, "accept-encoding": "identity"},
            timeout=httpx2.Timeout(_CONNECT_SECONDS, read=seconds),
            trust_env=False,
        )

    async def fetch(
        self, request: EgressRequest, limits: EgressLimits = _ORDINARY
    ) -> EgressResponse:
        """Send a request, follow redirects and read the body. An error status is a normal answer.
        Raise `EgressRefused` and `EgressError`."""
        url = parse_url(request.url)
        try:
            async with asyncio.timeout(limits.seconds) as time:
                return await self._follow_redirects(url, request, limits)
        except TimeoutError:
            if not time.expired():
                raise
            raise EgressError(
                f"{url.host} did not send a complete response within {limits.seconds:g} seconds"
            ) from None

    async def close(self) -> None:
        """Close all connections. Later requests open new ones."""
        if self._own is not None:
            own, self._own = self._own, None
            await own.aclose()

    async def _follow_redirects(
        self, url: Url, request: EgressRequest, limits: EgressLimits
    ) -> EgressResponse:
        for _ in range(limits.redirects + 1):
            if limits.https_only and url.scheme != "https":
                raise EgressRefused(f"{url} is not an https address")
            answer = await self._exchange(url, request, limits)
            if isinstance(answer, EgressResponse):
                return answer
            status, location = answer
            target = url.join(location)
            request = build_redirect(request, status, same_origin=target.origin == url.origin)
            url = target
        raise EgressError(f"more than {limits.redirects} redirects, the last one to {url}")

    async def _exchange(
        self, url: Url, request: EgressRequest, limits: EgressLimits
    ) -> EgressResponse | tuple[int, str]:
        """Return the response, or the status and target of a redirect."""
        import httpx2

        if self._own is None:
            from nanobot.security.egress.transport import EgressTransport

            self._own = EgressTransport(self._dialler, self._load_certificates())
        headers = {"User-Agent": USER_AGENT, "Accept": "*/*", "Accept-Encoding": "gzip, deflate"}
        question = httpx2.Request(
            request.method, str(url), headers=headers | dict(request.headers), content=request.body
        )
        try:
            answer = await self._own.handle_async_request(question)
            try:
                return await read_response(answer, url, limits)
            finally:
                await answer.aclose()
        except httpx2.TransportError as error:
            raise EgressError(f"{url.host} could not be read: {error}") from error

    def _load_certificates(self) -> ssl.SSLContext:
        try:
            return self._tls or load_system_certificates()
        except OSError as error:  # SSL_CERT_FILE is invalid
            said = error.strerror or error
            raise EgressError(f"the trusted certificates cannot be read: {said}") from error


@cache
def load_system_certificates() -> ssl.SSLContext:
    """Load the certificates once, because it takes 20 ms."""
    import httpx2

    return httpx2.create_ssl_context()


async def read_response(
    answer: httpx2.Response, url: Url, limits: EgressLimits
) -> EgressResponse | tuple[int, str]:
    headers = dict(answer.headers)
    if answer.status_code in _REDIRECTS and headers.get("location"):
        return answer.status_code, headers["location"]
    read = EgressResponse(answer.status_code, str(url), headers, b"")
    wanted = not (limits.types and read.content_type) or read.content_type.startswith(limits.types)
    if answer.is_success and not wanted:
        raise EgressError(f"{url} has an unsupported type: {read.content_type[:80]}")
    encoding = headers.get("content-encoding", "").strip().lower()
    if encoding not in _ENCODINGS:
        raise EgressError(f"{url} has an unsupported encoding ({encoding[:40]})")
    return replace(read, body=await read_body(answer, url, limits))


async def read_body(answer: httpx2.Response, url: Url, limits: EgressLimits) -> bytes:
    import httpx2

    length, body = answer.headers.get("content-length", ""), bytearray()
    size = int(length[:20]) if length.isascii() and length.isdigit() else 0
    try:
        async with aclosing(answer.aiter_bytes()) as chunks:
            while max(size, len(body), answer.num_bytes_downloaded) <= limits.bytes:
                chunk = await anext(chunks, None)
                if chunk is None:
                    return bytes(body)
                body += chunk
    except httpx2.DecodingError as error:
        raise EgressError(f"{url} was not read: its compressed data is damaged") from error
    most = f"the limit of {limits.bytes / MEGABYTE:g} MB"
    raise EgressError(f"{url} was not read: it is larger than {most}")


def build_redirect(request: EgressRequest, status: int, *, same_origin: bool) -> EgressRequest:
    """Return the request for the next address."""
    if request.body and status in _KEEPING_THE_BODY and not same_origin:
        raise EgressRefused("a redirect would send the request's body to another address")
    headers = request.headers if same_origin else {}
    if status in _KEEPING_THE_BODY or request.method in ("GET", "HEAD"):
        return replace(request, headers=headers)
    return replace(request, method="GET", headers=headers, body=b"")
