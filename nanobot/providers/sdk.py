"""The door to the `openai` package, the only module that imports it.

Importing it takes half a second, so nothing imports this module before the first call needs it, and
then in a thread. Of the package it uses connections, authentication and headers. Request bodies go
in as bytes, past the typed transform (150 ms for a thousand messages), and answers come out as
bytes. Nothing is retried here, no redirect is followed, and environment variables add no headers.
"""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from functools import cache, partial
from typing import Any, cast

import httpx2
from openai import (
    APIConnectionError,
    APIStatusError,
    APITimeoutError,
    AsyncOpenAI,
    AsyncStream,
    DefaultAsyncHttpxClient,
    Omit,
)

from nanobot.providers.endpoint import Endpoint

_ERROR_BODY_BYTES = 64 * 1024
_HEADERS: Mapping[str, str | Omit] = {
    "Accept-Encoding": "identity",
    "OpenAI-Organization": Omit(),
    "OpenAI-Project": Omit(),
}
"""No compression, so that no small answer becomes a large one, and nothing from the environment."""
_NO_EXTRA: Mapping[str, str] = {}
_CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR")


class Connection:
    """An open client of one server. `stall` is how many seconds may pass without a byte. Raises
    `ProviderRejected` where the certificates to trust cannot be loaded."""

    def __init__(self, endpoint: Endpoint, *, connect: float, stall: float, proxies: bool) -> None:
        self._endpoint = endpoint
        self._connect = connect
        self._stall = stall
        timeout = httpx2.Timeout(stall, connect=connect)
        self._client = AsyncOpenAI(
            api_key=endpoint.api_key or "none",
            base_url=endpoint.base_url,
            max_retries=0,
            timeout=timeout,
            http_client=DefaultAsyncHttpxClient(
                timeout=timeout,
                verify=_certificates(endpoint),
                trust_env=proxies,
                event_hooks={"response": [_bound_error_body]},
            ),
        )

    def post(self, path: str, body: bytes) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Send `body`; the context is the answer's body as it arrives, with status 200.

        Raises `ProviderError`s, here and while iterating.
        """
        return self._exchange(path, partial(self._client.post, content=body))

    def upload(
        self, path: str, fields: Mapping[str, str], file: tuple[str, bytes, str]
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Send a form with the file (name, content, MIME type) as `file`; else as `post`."""
        ask = partial(self._client.post, body=fields, files={"file": file})
        return self._exchange(path, ask, {"Content-Type": "multipart/form-data"})

    @asynccontextmanager
    async def _exchange(
        self, path: str, ask: Callable[..., Awaitable[object]], extra: Mapping[str, str] = _NO_EXTRA
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        response = await self._send(path, ask, {**_HEADERS, **extra})
        try:
            async with aclosing(self._chunks(response)) as chunks:
                yield chunks
        finally:
            await response.aclose()

    async def get(self, path: str, limit: int) -> tuple[bytes, str]:
        """The first `limit` bytes of what is at `path`, and the `Date` of the answer, empty where
        it has none. Raises `ProviderError`s like `post`."""
        said = b""
        response = await self._send(path, self._client.get, _HEADERS)
        try:
            async with aclosing(self._chunks(response)) as chunks:
                async for chunk in chunks:
                    said += chunk
                    if len(said) >= limit:
                        break
        finally:
            await response.aclose()
        return said[:limit], response.headers.get("Date", "")

    async def close(self) -> None:
        """Give back the sockets."""
        await self._client.close()

    async def _send(
        self,
        path: str,
        ask: Callable[..., Awaitable[object]],
        headers: Mapping[str, str | Omit],
    ) -> httpx2.Response:
        try:
            answer = await ask(
                path,
                cast_to=httpx2.Response,
                options={"headers": headers, "follow_redirects": False},
                stream=True,
                stream_cls=AsyncStream[Any],
            )
        except APIStatusError as error:
            answer = error.response
            raise self._endpoint.refused(
                error.status_code, dict(answer.headers), answer.content
            ) from None  # what the server said, maybe with the key in it, goes no further
        except APITimeoutError as error:
            if isinstance(error.__cause__, httpx2.ConnectTimeout):
                raise self._endpoint.unreachable(
                    f"no connection within {self._connect:g} seconds"
                ) from error
            raise self._endpoint.stalled(self._stall) from error
        except APIConnectionError as error:
            if isinstance(error.__cause__, httpx2.ConnectError):
                raise self._endpoint.unreachable(_root_cause(error)) from error
            raise self._endpoint.cut(_root_cause(error)) from error
        except httpx2.HTTPError as error:  # while reading the body of an error answer
            raise self._endpoint.cut(_root_cause(error)) from error
        # Asked for the response itself, the package gives it, stream or not; its types deny that.
        return cast(httpx2.Response, answer)

    async def _chunks(self, response: httpx2.Response) -> AsyncGenerator[bytes, None]:
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
    return httpx2.create_ssl_context()


class _FirstBytes(httpx2.AsyncByteStream):
    """A body that ends after so many bytes."""

    def __init__(self, body: httpx2.AsyncByteStream, limit: int) -> None:
        self._body = body
        self._limit = limit

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = self._limit
        async for chunk in self._body:
            yield chunk[:left]
            left -= len(chunk)
            if left <= 0:
                return

    async def aclose(self) -> None:
        await self._body.aclose()


async def _bound_error_body(response: httpx2.Response) -> None:
    """Keep the package from reading an error's body without end, as it does by itself."""
    if not response.is_success and isinstance(response.stream, httpx2.AsyncByteStream):
        response.stream = _FirstBytes(response.stream, _ERROR_BODY_BYTES)


_OWN_NUMBERS = (ssl.SSLError, socket.gaierror)


def _root_cause(error: BaseException) -> str:
    """What the operating system said, under the layers that wrapped it."""
    cause = error
    while (inner := cause.__cause__ or cause.__context__) is not None:
        cause = inner
    if isinstance(cause, OSError) and cause.errno and not isinstance(cause, _OWN_NUMBERS):
        return os.strerror(cause.errno).lower()  # asyncio's own words name a call and an address
    return getattr(cause, "strerror", None) or str(cause) or type(cause).__name__
