"""HTTP to the Graph API: whoever calls gets Meta's answer, or one of the errors of `failures`.

What holds: the token is in a header of the request and nowhere else, not in an error, a log line or
anything that is printed. An answer is never larger than a bound, and a request ends within a bound
of time even when its answer trickles in. No redirect is followed, nothing is decompressed, and the
environment names no proxy.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import ssl
from collections.abc import Generator, Mapping
from functools import cache
from typing import BinaryIO

import httpx
from pydantic import SecretStr

from nanobot.channel import fault_in_words
from nanobot.channel.text import one_line
from nanobot_whatsapp.cloud.failures import Fault, GraphError, MaybeSent, NotSent, Refused
from nanobot_whatsapp.cloud.reading import Raw, number_in, object_in, text_in

_CONNECT = 10.0
_WRITE = 30.0
_IDLE = 30.0
_CALL_SECONDS = 60.0
_UPLOAD_SECONDS = 600.0
_ANSWER_BYTES = 1_000_000
_WORDS = 300
"""As much of what Meta says as is repeated, in characters."""

_TOKEN_LIKE = re.compile(r"EAA[A-Za-z0-9]{12,}")
"""Meta sometimes repeats a token that it does not accept."""

_UNSENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError)
# A server acts on whole requests only, so one that broke off while it was written had no effect.
_BROKEN_OFF = (httpx.WriteError, httpx.WriteTimeout, httpx.UnsupportedProtocol)


class _Bearer(httpx.Auth):
    """Puts the token into each request; nothing of it shows when this is printed."""

    def __init__(self, token: SecretStr) -> None:
        self._token = token

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        request.headers["Authorization"] = f"Bearer {self._token.get_secret_value()}"
        yield request


class Wire:
    """Connections to `base_url` and to where Meta keeps files. Close it at the end."""

    def __init__(self, base_url: str, token: SecretStr) -> None:
        for name in ("httpx", "httpcore"):  # below warnings, these log addresses and headers
            logging.getLogger(name).setLevel(logging.WARNING)
        self._base_url, self._token = base_url, token
        self._client = httpx.AsyncClient(
            auth=_Bearer(token),
            headers={"User-Agent": "nanobot", "Accept-Encoding": "identity"},
            verify=_trusted(),
            trust_env=False,
            follow_redirects=False,
            limits=httpx.Limits(max_connections=None, keepalive_expiry=_IDLE),
        )

    async def close(self) -> None:
        """Cut all connections."""
        await self._client.aclose()

    async def get(self, path: str, query: Mapping[str, str]) -> Raw:
        """What is said of something. Raises the errors of `failures`, as all of these do."""
        request = self._client.build_request("GET", f"{self._base_url}{path}", params=query)
        return await self._ask(request, _CALL_SECONDS)

    async def post(self, path: str, body: Mapping[str, object]) -> Raw:
        """Have something done."""
        request = self._client.build_request("POST", f"{self._base_url}{path}", json=body)
        return await self._ask(request, _CALL_SECONDS)

    async def upload(
        self, path: str, fields: Mapping[str, str], name: str, mime: str, file: BinaryIO
    ) -> Raw:
        """Hand a file over; it is streamed from where it is open."""
        request = self._client.build_request(
            "POST", f"{self._base_url}{path}", data=fields, files={"file": (name, file, mime)}
        )
        return await self._ask(request, _UPLOAD_SECONDS)

    async def download(self, url: str, limit: int) -> bytes:
        """A file of at most `limit` bytes. The token goes along: check the address first."""
        try:
            request = self._client.build_request("GET", url)
        except (httpx.InvalidURL, ValueError):  # also of a host name that cannot be
            raise Fault("an address that is none") from None
        status, body, retry_after = await self._exchange(request, _CALL_SECONDS, limit)
        if status != httpx.codes.OK:
            self._result(status, body, retry_after)
            raise Fault(f"HTTP status {status}")
        return body

    async def _ask(self, request: httpx.Request, seconds: float) -> Raw:
        return self._result(*await self._exchange(request, seconds, _ANSWER_BYTES))

    async def _exchange(
        self, request: httpx.Request, seconds: float, limit: int
    ) -> tuple[int, bytes, str]:
        """Status, body and `Retry-After` of an answer."""
        failure: GraphError
        try:
            async with asyncio.timeout(seconds):
                return await self._answer(request, seconds, limit)
        except httpx.HTTPError as error:
            said = one_line(self._scrubbed(str(error)), 200)
            text = fault_in_words(error, said)
            sent = not isinstance(error, _UNSENT + _BROKEN_OFF)
            failure = MaybeSent(text) if sent else NotSent(text)
        except TimeoutError:
            failure = MaybeSent(f"no whole answer within {seconds:.0f} s")
        except RuntimeError:  # how httpx says that its client is closed
            failure = NotSent("the connection to Meta is closed")
        except OSError as error:
            failure = NotSent(f"a file to send cannot be read ({error.strerror})")
        raise failure  # outside of the handlers: httpx's own errors know the request

    async def _answer(
        self, request: httpx.Request, seconds: float, limit: int
    ) -> tuple[int, bytes, str]:
        timeout = httpx.Timeout(connect=_CONNECT, read=seconds, write=_WRITE, pool=_CONNECT)
        request.extensions["timeout"] = timeout.as_dict()
        response = await self._client.send(request, stream=True)
        try:
            body = await _body(response, limit)
        finally:
            await response.aclose()
        return response.status_code, body, response.headers.get("Retry-After", "")

    def _result(self, status: int, body: bytes, retry_after: str) -> Raw:
        answer = _json(body)
        if answer is not None and "error" in answer:
            raise self._refusal(object_in(answer, "error"), status, retry_after)
        if 200 <= status < 300:
            if answer is None:
                raise MaybeSent("an answer that is not Meta's")
            return answer
        if status in {413, 429}:
            raise Refused(f"HTTP status {status}", code=0, status=status, seconds=_s(retry_after))
        raise Fault(f"HTTP status {status}")

    def _refusal(self, error: Raw, status: int, retry_after: str) -> Refused:
        details = text_in(object_in(error, "error_data"), "details")
        said = details or text_in(error, "message") or f"HTTP status {status}"
        return Refused(
            one_line(self._scrubbed(said), _WORDS).rstrip("."),
            code=int(number_in(error, "code") or 0),
            subcode=int(number_in(error, "error_subcode") or 0),
            status=status,
            seconds=_s(retry_after),
        )

    def _scrubbed(self, text: str) -> str:
        return _TOKEN_LIKE.sub("…", text.replace(self._token.get_secret_value(), "…"))


async def _body(response: httpx.Response, limit: int) -> bytes:
    too_large = TooLarge(limit)
    told = response.headers.get("Content-Length", "")
    if told.isdigit() and int(told) > limit:
        raise too_large
    body = bytearray()
    async for chunk in response.aiter_raw():
        body += chunk
        if len(body) > limit:
            raise too_large
    return bytes(body)


class TooLarge(MaybeSent):
    """An answer of more than `limit` bytes; nothing more of it was read."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"an answer of more than {limit:,} bytes")


def _json(body: bytes) -> Raw | None:
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return answer if isinstance(answer, dict) else None


def _s(retry_after: str) -> float:
    """Seconds that an answer asks to wait; 0.0 for none that can be read."""
    return max(0.0, number_in({"": retry_after}, "") or 0.0)


@cache
def _trusted() -> ssl.SSLContext:
    return httpx.create_ssl_context(trust_env=False)
