"""HTTP to the Bot API: whoever calls gets Telegram's result, or one of the errors of `failures`.

What holds: no error, context or log line has an address in it, since addresses hold the token. An
answer is never larger than a bound. A request ends within a bound of time even when its answer
trickles in. Nothing waits for a free connection, so that no stuck one can starve the others. No
redirect is followed, nothing is decompressed, and the environment names no proxy.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Mapping
from functools import cache
from typing import Any

import httpx
from telegram.error import BadRequest, TelegramError
from telegram.request import BaseRequest, RequestData

from nanobot.channel import document_of, fault_in_words
from nanobot_telegram.answers import slim
from nanobot_telegram.connections import Connections
from nanobot_telegram.failures import Flooded, MaybeSent, NotSent, ServerFault, refusal, wait

_CONNECT = 10.0
_WRITE = 30.0
_IDLE = 30.0
"""Seconds for which a connection without a request is kept."""

_WITH_FILES = 600.0
"""Seconds that a request with files may take."""

_UNSENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError)
# A server acts on whole requests only, so one that broke off while it was written had no effect.
_BROKEN_OFF = (httpx.WriteError, httpx.WriteTimeout, httpx.UnsupportedProtocol)


class Wire:
    """Connections of one kind. `answer_bytes` bounds an answer, `seconds` a request without files.

    Open it first, close it at the end; `renew` gives up all connections for new ones.
    """

    def __init__(self, token: str, proxy: str, *, answer_bytes: int, seconds: float) -> None:
        quiet_libraries()  # before the library's bot is made: it logs its addresses
        self._secret = token.partition(":")[2] or token
        self._proxy = proxy or None
        self._answer_bytes = answer_bytes
        self._seconds = seconds
        self._connections: Connections | None = None
        self.date = ""
        """The `Date` of the newest answer, as it came."""

    def open(self) -> None:
        """Get ready; connects to nothing."""
        self._connections = Connections(self._new_client, _IDLE)

    async def close(self) -> None:
        """Cut all connections."""
        connections, self._connections = self._connections, None
        if connections is not None:
            await connections.cut()

    async def renew(self) -> None:
        """Cut all connections and begin with new ones."""
        await self.close()
        self.open()

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
        answer = await self._exchange("POST", url, seconds, self._answer_bytes, fields, files)
        return self._result(*answer), answer[1]

    async def get(self, url: str, limit: int, seconds: float) -> bytes:
        """A file of at most `limit` bytes. Raises the errors of `failures`."""
        answer = await self._exchange("GET", url, seconds, limit)
        if answer[0] != httpx.codes.OK:
            self._result(*answer)
            raise ServerFault("an answer that is no file", answer[0])
        return answer[1]

    async def _exchange(
        self,
        method: str,
        url: str,
        seconds: float,
        limit: int,
        fields: Mapping[str, str] | None = None,
        files: Mapping[str, Any] | None = None,
    ) -> tuple[int, bytes, str]:
        """Status, body and `Retry-After` of an answer."""
        failure: TelegramError
        try:
            async with asyncio.timeout(seconds):
                return await self._answer(method, url, seconds, limit, fields, files)
        except httpx.HTTPError as error:
            failure = self._failure(error)
        except httpx.InvalidURL:
            failure = BadRequest("Telegram names an address that is none")
        except TimeoutError:
            failure = MaybeSent(f"no whole answer within {seconds:.0f} s")
        except OSError as error:
            failure = NotSent(f"a file to send cannot be read ({error.strerror})")
        raise failure  # outside of the handlers: httpx's own errors know the address

    async def _answer(
        self,
        method: str,
        url: str,
        seconds: float,
        limit: int,
        fields: Mapping[str, str] | None,
        files: Mapping[str, Any] | None,
    ) -> tuple[int, bytes, str]:
        if self._connections is None:
            raise NotSent("the connection to Telegram is closed")
        timeout = httpx.Timeout(connect=_CONNECT, read=seconds, write=_WRITE, pool=_CONNECT)
        async with (
            self._connections.one() as client,
            client.stream(
                method, url, data=fields, files=files or None, timeout=timeout
            ) as response,
        ):
            # Of a call that was answered nobody knows the effect; a file has none.
            self.date = response.headers.get("Date", "")
            body = await _body(response, limit, MaybeSent if method == "POST" else BadRequest)
            return response.status_code, body, response.headers.get("Retry-After", "")

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

    def _result(self, status: int, body: bytes, retry_after: str) -> object:
        try:
            answer = document_of(body)
        except ValueError:
            answer = None
        if isinstance(answer, dict):
            if answer.get("ok") is True and "result" in answer and status < 300:
                return answer["result"]
            if answer.get("ok") is False:
                code, said = answer.get("error_code"), answer.get("description")
                raise refusal(
                    code if isinstance(code, int) else status,
                    self._scrubbed(said) if isinstance(said, str) else "",
                    answer.get("parameters"),
                )
        raise _not_telegram(status, retry_after)

    def _failure(self, error: httpx.HTTPError) -> TelegramError:
        said = self._scrubbed(str(error))[:200]
        text = fault_in_words(error, said)
        return NotSent(text) if isinstance(error, _UNSENT + _BROKEN_OFF) else MaybeSent(text)

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
        """The wire is opened by whoever owns it."""

    async def shutdown(self) -> None:
        """The wire is closed by whoever owns it."""

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
        """The status, always 200, and the answer (`slim`). Raises the errors of `failures`."""
        fields = request_data.json_parameters if request_data else {}
        files = request_data.multipart_data if request_data else None
        return int(httpx.codes.OK), slim(*await self._wire.post(url, fields, files))


def quiet_libraries() -> None:
    """Below warnings, these log whole addresses."""
    for name in ("httpx", "httpcore", "telegram"):
        logging.getLogger(name).setLevel(logging.WARNING)


async def _body(response: httpx.Response, limit: int, error: type[TelegramError]) -> bytes:
    too_large = error(f"an answer of more than {limit:,} bytes")
    told = response.headers.get("Content-Length", "")
    if told.isdigit() and int(told) > limit:
        raise too_large
    body = bytearray()
    async for chunk in response.aiter_raw():
        body += chunk
        if len(body) > limit:
            raise too_large
    return bytes(body)


def _not_telegram(status: int, retry_after: str) -> TelegramError:
    """The error for an answer that Telegram itself would not give."""
    match status:
        case 413:
            return BadRequest("the request is too large")
        case 429:
            return Flooded(wait(retry_after))
        case _ if 200 <= status < 300:
            return MaybeSent("an answer that is not Telegram's")
        case _:
            return ServerFault(f"HTTP status {status}", status)


@cache
def _trusted() -> ssl.SSLContext:
    return httpx.create_ssl_context(trust_env=False)
