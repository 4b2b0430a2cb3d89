"""HTTP requests to a platform's API.

Invariants: no error, context or log line contains an address or the secret. Size and total time of
an answer are bounded, even if it trickles in. The pool has spare connections, so that stuck ones
don't starve the others, and a limit that protects the process's descriptors. No redirects, no
decompression, and no proxy from the environment."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import Any

import httpx
from msgspec import Struct

from nanobot.channel import WRITING
from nanobot.errors import NanobotError
from nanobot.text import one_line

_CONNECT_SECONDS = 10.0
_WRITE_SECONDS = 30.0
_IDLE_SECONDS = 30.0
_IDLE_CONNECTIONS = 50  # httpx scans all of them on every request
MOST_CONNECTIONS = 256
_WORDS_CHARACTERS = 200  # of an error's text


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
        # Otherwise the first request imports this and blocks the loop for a tenth of a second.
        import_module("anyio._backends._asyncio")
        for name in ("httpx", "httpcore"):  # below warnings, these log addresses and headers
            logging.getLogger(name).setLevel(logging.WARNING)
        self._secret, self._proxy, self._most = secret, proxy or None, most
        self._headers = {"User-Agent": "nanobot", "Accept-Encoding": "identity", **(headers or {})}
        self._client: httpx.AsyncClient | None = self._new_client()

    async def close(self) -> None:
        """Close all connections. Pending requests raise `Unconfirmed`."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def renew(self) -> None:
        """Close all connections. The next request opens new ones."""
        await self.close()
        self._client = self._new_client()

    async def request(
        self, method: str, url: str, seconds: float, limit: int, **content: Any
    ) -> HttpAnswer:
        """Return the answer, of at most `limit` bytes, within `seconds`. `content` are arguments
        for httpx. Raises `HttpFault`."""
        failure: HttpFault
        is_own = is_written = False

        async def note(event: str, known: Mapping[str, Any]) -> None:
            """Track how much of the request was written. A server acts on whole requests only, so
            an interrupted one had no effect. httpcore also reports the steps of a proxy's
            CONNECT."""
            nonlocal is_own, is_written
            if event.endswith(".send_request_headers.started"):
                is_own = known["request"].method != b"CONNECT"
                if is_own:
                    WRITING.get()()
            elif event.endswith(".send_request_body.complete"):
                is_written = is_own

        content["extensions"] = {"trace": note}
        try:
            async with asyncio.timeout(seconds):
                return await self._exchange(method, parse_url(url), seconds, limit, content)
        except httpx.HTTPError as error:
            said = one_line(self.redact(str(error)), _WORDS_CHARACTERS)
            why = f" ({said or type(error).__name__})"
            failure = Unsent(f"no connection{why}")
            if is_written:
                failure = Unconfirmed(f"the connection broke off before the end of the answer{why}")
        except httpx.InvalidURL:
            failure = BadAddress("an invalid address")
        except TimeoutError:
            failure = Unconfirmed(f"no complete answer within {seconds:.0f} s")
        except OSError as error:
            failure = Unsent(f"a file to send cannot be read ({error.strerror})")
        raise failure  # outside the handlers: the library's errors hold the request

    async def _exchange(
        self, method: str, url: httpx.URL, seconds: float, limit: int, content: dict[str, Any]
    ) -> HttpAnswer:
        if (client := self._client) is None:
            raise Unsent("the connection is closed")
        timeout = httpx.Timeout(
            connect=_CONNECT_SECONDS, read=seconds, write=_WRITE_SECONDS, pool=_CONNECT_SECONDS
        )
        async with client.stream(method, url, timeout=timeout, **content) as response:
            try:
                headers, body = response.headers, bytearray()
                length = headers.get("Content-Length", "")
                is_too_large = length.isdigit() and int(length) > limit
                if not is_too_large:
                    async for chunk in response.aiter_raw():
                        body += chunk
                        if is_too_large := len(body) > limit:
                            break
                if is_too_large:
                    raise AnswerTooLarge(f"the answer is larger than {limit:,} bytes")
                return HttpAnswer(response.status_code, bytes(body), headers.get("Retry-After", ""))
            finally:
                # After `close` during the request, httpx forgets a connection that was just being
                # opened, and would leave it open.
                if client is not self._client:
                    await response.extensions["network_stream"].aclose()

    def redact(self, text: str) -> str:
        return text.replace(self._secret, "…")

    def _new_client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            headers=self._headers,
            proxy=self._proxy,
            verify=load_trusted_certificates(),
            trust_env=False,  # no proxy from the environment
            follow_redirects=False,
            limits=httpx.Limits(
                max_connections=self._most,
                max_keepalive_connections=_IDLE_CONNECTIONS,
                keepalive_expiry=_IDLE_SECONDS,
            ),
        )


def parse_url(url: str) -> httpx.URL:
    address = httpx.URL(url)
    try:
        _ = address.host
    except ValueError:  # an impossible host name
        raise httpx.InvalidURL("") from None
    return address


@cache
def load_trusted_certificates() -> ssl.SSLContext:
    return httpx.create_ssl_context(trust_env=False)
