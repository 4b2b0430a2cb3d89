"""The HTTP server for webhooks of platforms, for `/health` and `/metrics`, and for pages and APIs.

`WebServer` listens from the first `serve` on, by default only for this machine. A reverse proxy
adds encryption and the public name. Invariants of a `serve` request:

- Its host is a configured name, an address or `localhost` (so that no web page can reach it under
  its own name), and it is not from a web page (those send `Origin`).
- Its body is at most `MAX_BODY`, arrives in time, and is passed on unchanged.
- If its handler fails, it gets a status 500. Only its path is logged.

Reaching the server gives no permission: each handler checks that the platform made the request.
`serve_http` handlers get whole requests, also from web pages, of any size and duration. Only the
host name is checked."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
from collections.abc import AsyncIterator, Container, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from loguru import logger

from nanobot.channel import HttpHandler, WebhookHandler, WebhookReply, WebhookRequest
from nanobot.errors import ChannelOff, NanobotError

if TYPE_CHECKING:
    from aiohttp import web

MAX_BODY = 3_000_000
"""Bytes of a request's body. A larger one gets status 413."""

_METHODS = ("GET", "POST")
_MAX_HELD = 64_000_000
"""Bytes of bodies in handlers. Beyond it the answer is status 503, and the platform retries."""
_MAX_EXPECTED = 192_000_000
"""Bytes of bodies being received. Beyond it the slowest one is dropped. A platform's body arrives
at once, so slow senders, who need no secret, can't keep platforms out."""
_LEAST_SIZE = 16_000
"""Minimum bytes that a request counts for, which bounds their number."""
_BUSY = WebhookReply(503, headers={"Retry-After": "5"})
_REACHED_AT = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - not bound, only named
_SILENT = logging.CRITICAL + 1
"""Log level that hides aiohttp's messages on invalid requests."""
_ELSEWHERE = "Set {0}.host and {0}.port to a free address on this machine."
_LISTENING = {
    errno.EADDRINUSE: "Another program is using this port. Stop it, or set {0}.port to a free "
    "port.",
    errno.EADDRNOTAVAIL: "This machine does not have that address. Correct {0}.host.",
    errno.EACCES: "Set {0}.port to 1024 or higher. Lower ports need root.",
}
_NAMED = 8
"""Most rejected host names to log, one line each."""


class WebServer:
    """Server of paths while their `serve` lasts.

    `section` of the configuration has its address. `public_hosts` are the host names of a proxy's
    requests, None if the section has no such setting. `timeout` in seconds applies to an idle
    connection, and to receiving the headers or a body. `handler_seconds` is the timeout of a
    handler."""

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 8087,
        *,
        section: str = "http",
        public_hosts: Sequence[str] | None = (),
        timeout: float = 20.0,
        handler_seconds: float = 55.0,
    ) -> None:
        self._host, self._port, self._section = host, port, section
        self._names = frozenset(name.lower() for name in public_hosts or ())
        self._timeout, self._handler_seconds = timeout, handler_seconds
        self._advice = (
            "Use the machine's address or localhost"
            if public_hosts is None
            else f"If this is the server's name, add it to {section}.public_hosts"
        )
        self._handlers: dict[str, HttpHandler | None] = {}
        """Handlers by path. None if the path was served before or will be."""
        self._refused: set[str] = set()
        self._held = 0
        self._reading: dict[asyncio.Timeout, int] = {}
        self._runner: web.AppRunner | None = None
        self._starting = asyncio.Lock()

    def reserve(self, paths: Iterable[str]) -> None:
        """Reserve paths: until they are served, clients are asked to retry."""
        for path in paths:
            self._handlers.setdefault(_normal(path), None)

    @asynccontextmanager
    async def serve(self, path: str, handler: WebhookHandler) -> AsyncIterator[str]:
        """Pass requests at `path` (begins with a slash) and beneath it to `handler` while inside.
        Yield the address on this machine.

        Raise `ChannelOff` if the path is already served, and `NanobotError` if the server can't
        listen."""
        at = _normal(path)

        async def answer(http: web.Request) -> web.StreamResponse:
            body = _refusal(http) or await self._body(http)
            if isinstance(body, WebhookReply):
                return _response(body)
            if self._handlers[at] is not answer:  # the channel has just ended
                return _response(_BUSY)
            return _response(await self._pass_on(http, at, body, handler))

        async with self.serve_http(path, answer) as address:
            yield address

    @asynccontextmanager
    async def serve_http(self, path: str, handler: HttpHandler) -> AsyncIterator[str]:
        """Do the same as `serve`, for a handler of whole requests."""
        path = _normal(path)
        if self._handlers.get(path) is not None:
            raise ChannelOff(f"two channels use the same path {path or '/'} on the HTTP server")
        self._handlers[path] = handler
        try:
            yield f"{await self._start()}{path}"
        finally:
            self._handlers[path] = None

    async def close(self) -> None:
        """Stop listening, with two seconds for running requests."""
        async with self._starting:
            runner, self._runner = self._runner, None
            if runner is not None:
                await runner.cleanup()

    async def _start(self) -> str:
        """Listen, if not done yet, and return the address on this machine."""
        from aiohttp import web  # most nanobots need no server

        async with self._starting:
            if self._runner is not None:
                return _address(self._runner)
            app = web.Application(client_max_size=MAX_BODY)
            app.router.add_route("*", "/{path:.*}", self._answer)
            runner = web.AppRunner(
                app,
                access_log=None,
                logger=logging.Logger("nanobot.webserver", _SILENT),
                keepalive_timeout=self._timeout,
                lingering_time=min(2.0, self._timeout),
                auto_decompress=False,  # signatures cover the raw body
                shutdown_timeout=2.0,
            )
            await runner.setup()
            try:
                await web.TCPSite(runner, self._host, self._port).start()
            except OSError as error:
                await runner.cleanup()
                raise NanobotError(
                    f"cannot listen on {self._host}:{self._port}: {error.strerror or error}",
                    hint=_LISTENING.get(error.errno or 0, _ELSEWHERE).format(self._section),
                ) from error
            self._runner = runner
            logger.info("the HTTP server listens on {}", address := _address(runner))
            return address

    async def _answer(self, http: web.Request) -> web.StreamResponse:
        """Answer one request, always with a status."""
        from aiohttp import web

        if not self._is_ours(http.headers.get("Host", "")):
            return _response(WebhookReply(421))
        path = _find_path(http.path, self._handlers)
        if path is None:
            return _response(WebhookReply(404))
        handler, status = self._handlers[path], 500
        try:
            return await handler(http) if handler else _response(_BUSY)
        except web.HTTPException as error:
            return error
        except NanobotError as error:
            logger.warning("a request to {} failed: {}", http.path, error)
        except Exception as error:  # noqa: BLE001 - the boundary: one request fails
            is_gone = http.transport is None or http.transport.is_closing()
            if isinstance(error, ConnectionError) and is_gone:  # the client is gone
                status = 499
            else:
                logger.opt(exception=error).error("a request to {} failed", http.path)
        return _response(WebhookReply(status))

    def _is_ours(self, host: str) -> bool:
        name = ""
        with suppress(ValueError):
            if not set("@/?#") & set(host):
                name = urlsplit(f"//{host}").hostname or ""  # in lower case, without the port
        if name == "localhost" or name in self._names:
            return True
        with suppress(ValueError):
            ipaddress.ip_address(name)
            return True
        if name not in self._refused and len(self._refused) < _NAMED:
            self._refused.add(name)
            logger.warning(
                "the HTTP server rejected a request for the host {!r}. {}", name[:100], self._advice
            )
        return False

    async def _body(self, http: web.Request) -> bytes | WebhookReply:
        from aiohttp import web

        try:
            async with asyncio.timeout(self._timeout) as time:
                size = max(http.content_length or MAX_BODY, _LEAST_SIZE)
                with self._among_those_read(time, size):
                    return await http.read()
        except TimeoutError:
            # Close it, because the rest of the body may follow.
            return WebhookReply(408, headers={"Connection": "close"})
        except web.HTTPRequestEntityTooLarge:
            return WebhookReply(413)
        except (web.RequestPayloadError, ConnectionError):
            return WebhookReply(400)

    @contextmanager
    def _among_those_read(self, time: asyncio.Timeout, size: int) -> Iterator[None]:
        """Make room for a body of at most `size` bytes, and count it while inside. `time` ends the
        reading."""
        while self._reading and sum(self._reading.values()) + size > _MAX_EXPECTED:
            oldest = next(iter(self._reading))
            del self._reading[oldest]
            if not oldest.expired():
                oldest.reschedule(0)
        self._reading[time] = size
        try:
            yield
        finally:
            self._reading.pop(time, None)

    async def _pass_on(
        self, http: web.Request, path: str, body: bytes, handler: WebhookHandler
    ) -> WebhookReply:
        # Join repeated headers, as in HTTP, so that a second signature is not overlooked.
        headers = {name.lower(): ", ".join(http.headers.getall(name)) for name in http.headers}
        request = WebhookRequest(
            method=http.method,
            path=http.path.removeprefix(path).removeprefix("/"),
            headers=headers,
            query=dict(http.query.items()),
            body=body,
        )
        size = max(len(body), _LEAST_SIZE)
        if self._held + size > _MAX_HELD:
            return _BUSY
        self._held += size
        try:
            async with asyncio.timeout(self._handler_seconds):
                return await handler(request)
        finally:
            self._held -= size


def _refusal(http: web.Request) -> WebhookReply | None:
    """Return the rejection of a platform's request before its body is read, or None."""
    if "Origin" in http.headers:
        return WebhookReply(403)
    if http.method not in _METHODS:
        return WebhookReply(405, headers={"Allow": ", ".join(_METHODS)})
    return WebhookReply(413) if (http.content_length or 0) > MAX_BODY else None


def _response(reply: WebhookReply) -> web.Response:
    from aiohttp import web

    headers = {"Server": "nanobot", **reply.headers}
    return web.Response(status=reply.status, body=reply.body or None, headers=headers)


def _normal(path: str) -> str:
    if not path.startswith("/"):
        raise ValueError("a path must begin with a slash")
    return path.rstrip("/")


def _address(runner: web.AppRunner) -> str:
    """Return the address on this machine."""
    host, port = runner.addresses[0][:2]
    host = _REACHED_AT.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _find_path(path: str, served: Container[str]) -> str | None:
    """Return the longest of the `served` paths that equals or contains `path`, or None."""
    path = path.rstrip("/")
    while path not in served:
        if not path:
            return None
        path = path.rpartition("/")[0]
    return path
