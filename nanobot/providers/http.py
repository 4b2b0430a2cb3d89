"""A connection to a model server, the only module that imports the `openai` package.

Importing it takes half a second, so that happens when a connection is first used, in a thread. What
is used of the package are connections, authentication and headers. Request bodies go in as bytes,
past the typed transform (150 ms for a thousand messages), and answers come out as bytes. Nothing is
retried here, no redirect is followed, and environment variables add no headers.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from nanobot.providers.endpoint import Endpoint

if TYPE_CHECKING:
    import httpx2
    from openai import AsyncOpenAI

CONNECT_SECONDS = 15.0
_ERROR_BYTES = 64 * 1024
_ANSWER_BYTES = 64 * 1024 * 1024
_CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR")
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class HttpConnection:
    """A client of one server, opened when it is first used, and again after `close`. A connection
    must stand within `connect` seconds, and no more than `stall` may pass without a byte. What it
    raises are `ProviderError`s."""

    def __init__(
        self, endpoint: Endpoint, *, stall: float, connect: float = CONNECT_SECONDS
    ) -> None:
        self._endpoint, self._stall, self._connect = endpoint, stall, connect
        self._opening = asyncio.Lock()
        self._client: AsyncOpenAI | None = None

    @asynccontextmanager
    async def post(self, path: str, body: bytes) -> AsyncIterator[AsyncIterator[bytes]]:
        """Send `body`; the context is the body of the answer as it arrives, with status 200."""
        async with (
            self._answer("POST", path, content=body) as response,
            aclosing(self._chunks(response)) as chunks,
        ):
            yield chunks

    async def ask(self, path: str, body: object = None) -> Mapping[str, object]:
        """The JSON object at `path`, or what is answered to `body`, which is sent as JSON."""
        request = {} if body is None else {"content": json.dumps(body).encode()}
        async with self._answer("GET" if body is None else "POST", path, **request) as response:
            return await self._object(response)

    async def upload(
        self, path: str, fields: Mapping[str, str], file: tuple[str, bytes, str]
    ) -> Mapping[str, object]:
        """Send a form with the file (name, content, MIME type) as `file`; the JSON object of the
        answer."""
        async with self._answer("POST", path, body=fields, files={"file": file}) as response:
            return await self._object(response)

    async def close(self) -> None:
        """Release the sockets."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    @asynccontextmanager
    async def _answer(
        self, method: str, path: str, **request: Any
    ) -> AsyncIterator[httpx2.Response]:
        async with self._opening:
            if self._client is None:
                self._client = await asyncio.to_thread(self._open)
        response = await self._send(self._client, method, path, request)
        try:
            yield response
        finally:
            await response.aclose()

    def _open(self) -> AsyncOpenAI:
        """Raises `ProviderRejected` for an address or a key that cannot be right, and where there
        are no certificates to check the server's by. Blocks."""
        endpoint = self._endpoint
        if not (endpoint.api_key.isascii() and endpoint.api_key.isprintable()):
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
        import httpx2
        from openai import AsyncOpenAI, DefaultAsyncHttpxClient

        timeout = httpx2.Timeout(self._stall, connect=self._connect)
        return AsyncOpenAI(
            api_key=endpoint.api_key or "none",
            base_url=endpoint.base_url,
            max_retries=0,
            timeout=timeout,
            http_client=DefaultAsyncHttpxClient(
                timeout=timeout,
                verify=_certificates(endpoint),
                trust_env=url.hostname not in _LOOPBACK,
                event_hooks={"response": [self._refuse]},
            ),
        )

    async def _refuse(self, response: httpx2.Response) -> None:
        """Raise what a status other than success means. Reads no more than the beginning of the
        body, where the package by itself would read an endless one."""
        if response.is_success:
            return
        body = b""
        async with aclosing(self._chunks(response)) as chunks:
            async for chunk in chunks:
                body += chunk
                if len(body) >= _ERROR_BYTES:
                    break
        headers = {name.lower(): value for name, value in response.headers.items()}
        raise self._endpoint.refused(response.status_code, headers, body[:_ERROR_BYTES])

    async def _send(
        self, client: AsyncOpenAI, method: str, path: str, request: Mapping[str, Any]
    ) -> httpx2.Response:
        import httpx2
        import openai

        headers: dict[str, str | openai.Omit] = {
            "Accept-Encoding": "identity",  # no small answer becomes a large one
            "OpenAI-Organization": openai.Omit(),
            "OpenAI-Project": openai.Omit(),
        }
        if "files" in request:
            headers["Content-Type"] = "multipart/form-data"
        ask: Any = client.post if method == "POST" else client.get
        try:
            answer = await ask(
                path,
                cast_to=httpx2.Response,
                options={"headers": headers, "follow_redirects": False},
                stream=True,
                stream_cls=openai.AsyncStream[Any],
                **request,
            )
        except openai.APIConnectionError as error:
            if isinstance(error.__cause__, httpx2.ConnectTimeout):
                reason = f"no connection within {self._connect:g} seconds"
                raise self._endpoint.unreachable(reason) from error
            if isinstance(error.__cause__, httpx2.ConnectError):
                raise self._endpoint.unreachable(_root_cause(error)) from error
            if isinstance(error, openai.APITimeoutError):
                raise self._endpoint.stalled(self._stall) from error
            raise self._endpoint.cut(_root_cause(error)) from error
        # Asked for the response itself, the package gives it, stream or not; its types deny that.
        return cast("httpx2.Response", answer)

    async def _object(self, response: httpx2.Response) -> Mapping[str, object]:
        answer = bytearray()
        async with aclosing(self._chunks(response)) as chunks:
            async for chunk in chunks:
                answer += chunk
                if len(answer) > _ANSWER_BYTES:
                    raise self._endpoint.garbage("more than was asked for")
        return self._endpoint.object_in(bytes(answer))

    async def _chunks(self, response: httpx2.Response) -> AsyncGenerator[bytes, None]:
        import httpx2

        try:
            async for chunk in response.aiter_bytes():
                yield chunk
        except httpx2.TimeoutException as error:
            raise self._endpoint.stalled(self._stall) from error
        except httpx2.HTTPError as error:
            raise self._endpoint.cut(_root_cause(error)) from error


def _certificates(endpoint: Endpoint) -> ssl.SSLContext:
    named = next((name for name in _CERTIFICATES if os.environ.get(name)), "")
    place = os.environ.get(named, "")
    try:
        return _trusted(place)
    except OSError as error:
        hint = f"Let {named} name certificates in PEM form, or unset it, and start nanobot again."
        raise endpoint.unusable(
            f"cannot use {f'{named} ({place})' if named else 'the certificates of this machine'}:"
            f" {error.strerror or error}",
            hint if named else "Install them (the package ca-certificates).",
        ) from error


@cache
def _trusted(_: str) -> ssl.SSLContext:
    """The certificates to trust, those of the environment's place for them if it names one. Loading
    them takes 100 ms, so all connections share them."""
    import httpx2

    return httpx2.create_ssl_context()


_OWN_NUMBERS = (ssl.SSLError, socket.gaierror)


def _root_cause(error: BaseException) -> str:
    """What the operating system said, under the layers that wrapped it."""
    cause = error
    while (inner := cause.__cause__ or cause.__context__) is not None:
        cause = inner
    if isinstance(cause, OSError) and cause.errno and not isinstance(cause, _OWN_NUMBERS):
        return os.strerror(cause.errno).lower()  # asyncio's own words name a call and an address
    return getattr(cause, "strerror", None) or str(cause) or type(cause).__name__
