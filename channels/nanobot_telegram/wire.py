"""HTTP to the Bot API: a call gives Telegram's result, or raises one of the errors of `failures`.

Invariants: no error, context or log line has an address in it, since addresses hold the token. An
answer is never larger than a bound. A request ends within a bound of time even when its answer
trickles in. Nothing waits for a free connection, so that no stuck one can starve the others. No
redirect is followed, nothing is decompressed, and the environment names no proxy.
"""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import httpx
from telegram.error import BadRequest, TelegramError
from telegram.request import BaseRequest, RequestData

from nanobot.channel.documents import document_of
from nanobot.channel.health import fault_in_words
from nanobot_telegram.failures import Flooded, MaybeSent, NotSent, ServerFault, refusal, wait

_CONNECT = 10.0
_WRITE = 30.0
_IDLE = 30.0
"""Seconds for which a connection without a request is kept."""
_IDLE_CONNECTIONS = 100
_WITH_FILES = 600.0
"""Seconds that a request with files may take."""

_UNSENT = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.ProxyError,
    # A server acts on whole requests only: one that broke off while it was written had no effect.
    httpx.WriteError,
    httpx.WriteTimeout,
    httpx.UnsupportedProtocol,
)


class Connections:
    """HTTP connections that are kept for the next request; each serves one request at a time.

    httpx has a pool of its own, which looks at every connection for each request (a system call for
    each idle one) and closes idle ones while many are in use. With dozens of chats that costs more
    than all the rest of a request, and new handshakes besides. So each connection is a client of
    its own here, made by `new`, and the one used last is used first. One that was not used for
    `idle` seconds is closed when others are.
    """

    def __init__(self, new: Callable[[], httpx.AsyncClient], idle: float) -> None:
        self._new, self._keep_for = new, idle
        self._idle: deque[tuple[httpx.AsyncClient, float]] = deque()
        self._busy: set[asyncio.Timeout] = set()
        self._is_cut = False

    @asynccontextmanager
    async def one(self) -> AsyncIterator[httpx.AsyncClient]:
        """A client for one request. Raises `MaybeSent` when it is cut meanwhile."""
        client = self._idle.pop()[0] if self._idle else self._new()
        try:
            async with asyncio.timeout(None) as use:
                self._busy.add(use)
                try:
                    yield client
                finally:
                    self._busy.remove(use)
        except TimeoutError:
            if use.expired():
                raise MaybeSent("the connection was given up") from None
            raise
        finally:
            now = asyncio.get_running_loop().time()
            self._idle.append((client, now))
            while self._idle and (
                self._is_cut
                or len(self._idle) > _IDLE_CONNECTIONS
                or self._idle[0][1] < now - self._keep_for
            ):
                await self._idle.popleft()[0].aclose()

    async def cut(self) -> None:
        """End all, for good. Requests are stopped whatever they are at (a client closes only what
        is connected already), and each closes its own client at once."""
        self._is_cut = True
        now = asyncio.get_running_loop().time()
        for use in self._busy:
            use.reschedule(now)
        while self._idle:
            await self._idle.pop()[0].aclose()


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    body: bytes
    retry_after: str


class Wire:
    """Connections of one kind. `answer_bytes` bounds an answer, `seconds` a request without files.

    Connects when the first request is made; close it at the end.
    """

    def __init__(self, token: str, proxy: str, *, answer_bytes: int, seconds: float) -> None:
        for name in ("httpx", "httpcore", "telegram"):  # below warnings, these log whole addresses
            logging.getLogger(name).setLevel(logging.WARNING)
        self._secret = token.partition(":")[2] or token
        self._proxy = proxy or None
        self._answer_bytes = answer_bytes
        self._seconds = seconds
        self._connections: Connections | None = Connections(self._new_client, _IDLE)
        self.date = ""
        """The `Date` of the newest answer, as it came."""

    async def aclose(self) -> None:
        """Cut all connections."""
        connections, self._connections = self._connections, None
        if connections is not None:
            await connections.cut()

    async def renew(self) -> None:
        """Cut all connections; the next request opens new ones."""
        await self.aclose()
        self._connections = Connections(self._new_client, _IDLE)

    async def post(
        self,
        url: str,
        fields: Mapping[str, str],
        files: Mapping[str, Any] | None = None,
        *,
        patience: float = 0.0,
    ) -> tuple[object, bytes]:
        """Call a method: its result, and the answer as it came.

        `patience` are seconds that the server may take before it answers, beyond the usual ones.
        Raises the errors of `failures`.
        """
        seconds = patience + (_WITH_FILES if files else self._seconds)
        limit = self._answer_bytes
        answer = await self._request("POST", url, seconds, limit, data=fields, files=files or None)
        return self._result(answer), answer.body

    async def get(self, url: str, limit: int, seconds: float) -> bytes:
        """A file of at most `limit` bytes. Raises the errors of `failures`."""
        answer = await self._request("GET", url, seconds, limit)
        if answer.status != httpx.codes.OK:
            self._result(answer)
            raise ServerFault("an answer that is no file", answer.status)
        return answer.body

    async def _request(
        self, method: str, url: str, seconds: float, limit: int, **content: Any
    ) -> _Answer:
        failure: TelegramError
        try:
            async with asyncio.timeout(seconds):
                return await self._exchange(method, url, seconds, limit, content)
        except httpx.HTTPError as error:
            text = fault_in_words(error, self._scrubbed(str(error))[:200])
            failure = NotSent(text) if isinstance(error, _UNSENT) else MaybeSent(text)
        except httpx.InvalidURL:
            failure = BadRequest("Telegram names an address that is none")
        except TimeoutError:
            failure = MaybeSent(f"no whole answer within {seconds:.0f} s")
        except OSError as error:
            failure = NotSent(f"a file to send cannot be read ({error.strerror})")
        raise failure  # outside of the handlers: httpx's own errors know the address

    async def _exchange(
        self, method: str, url: str, seconds: float, limit: int, content: dict[str, Any]
    ) -> _Answer:
        if self._connections is None:
            raise NotSent("the connection to Telegram is closed")
        timeout = httpx.Timeout(connect=_CONNECT, read=seconds, write=_WRITE, pool=_CONNECT)
        async with (
            self._connections.one() as client,
            client.stream(method, url, timeout=timeout, **content) as response,
        ):
            self.date = response.headers.get("Date", "")
            body = bytearray()
            length = response.headers.get("Content-Length", "")
            is_too_large = length.isdigit() and int(length) > limit
            if not is_too_large:
                async for chunk in response.aiter_raw():
                    body += chunk
                    if is_too_large := len(body) > limit:
                        break
            if is_too_large:
                # The effect of a call that was answered is unknown; fetching a file has none.
                error = MaybeSent if method == "POST" else BadRequest
                raise error(f"an answer of more than {limit:,} bytes")
            retry_after = response.headers.get("Retry-After", "")
            return _Answer(response.status_code, bytes(body), retry_after)

    def _new_client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            headers={"User-Agent": "nanobot", "Accept-Encoding": "identity"},
            proxy=self._proxy,
            verify=_trusted(),
            trust_env=False,
            follow_redirects=False,
            http2=False,
            limits=httpx.Limits(keepalive_expiry=_IDLE),
        )

    def _result(self, answer: _Answer) -> object:
        status = answer.status
        try:
            document = document_of(answer.body)
        except ValueError:
            document = None
        if isinstance(document, dict):
            if document.get("ok") is True and "result" in document and status < 300:
                return document["result"]
            if document.get("ok") is False:
                code, said = document.get("error_code"), document.get("description")
                raise refusal(
                    code if isinstance(code, int) else status,
                    self._scrubbed(said) if isinstance(said, str) else "",
                    document.get("parameters"),
                )
        # An answer that Telegram itself would not give.
        if status == httpx.codes.REQUEST_ENTITY_TOO_LARGE:
            raise BadRequest("the request is too large")
        if status == httpx.codes.TOO_MANY_REQUESTS:
            raise Flooded(wait(answer.retry_after))
        if 200 <= status < 300:
            raise MaybeSent("an answer that is not Telegram's")
        raise ServerFault(f"HTTP status {status}", status)

    def _scrubbed(self, text: str) -> str:
        return text.replace(self._secret, "…")


class ApiRequest(BaseRequest):
    """The library's way to make requests, over a `Wire`. All but success is raised here, before
    the library can put an answer or an address into an error of its own."""

    __slots__ = ("_wire",)

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    @property
    def read_timeout(self) -> float | None:
        """None: the wire bounds each request as a whole."""
        return None

    async def initialize(self) -> None:
        """The wire is opened by its owner."""

    async def shutdown(self) -> None:
        """The wire is closed by its owner."""

    async def do_request(
        self,
        url: str,
        method: str,
        request_data: RequestData | None = None,
        read_timeout: object = None,
        write_timeout: object = None,
        connect_timeout: object = None,
        pool_timeout: object = None,
    ) -> tuple[int, bytes]:
        """The status, always 200, and the answer. Raises the errors of `failures`.

        An answer of `ok` means that Telegram took the message. However it then describes that
        message (a new kind of entity, another server that leaves things out), the library must not
        stumble over the description: the message would count as not delivered and be sent once
        more. So the library sees little more than the ids of messages.
        """
        fields = request_data.json_parameters if request_data else {}
        files = request_data.multipart_data if request_data else None
        result, body = await self._wire.post(url, fields, files)
        short: object = _slim(result)
        if isinstance(result, list):
            messages = [_slim(one) for one in result]
            short = messages if None not in messages else None
        if short:
            body = json.dumps({"ok": True, "result": short}).encode()
        return int(httpx.codes.OK), body


def _slim(message: object) -> dict[str, object] | None:
    """A message with its id alone, in the shortest form that the library parses."""
    number = message.get("message_id") if isinstance(message, dict) else None
    if not isinstance(number, int):
        return None
    return {"message_id": number, "date": 1, "chat": {"id": 1, "type": "private"}}


@cache
def _trusted() -> ssl.SSLContext:
    return httpx.create_ssl_context(trust_env=False)
