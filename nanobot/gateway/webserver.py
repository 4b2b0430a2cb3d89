"""The HTTP servers: webhooks of platforms, and `/health` and `/metrics` for other programs.

`WebServer` listens from the first `serve` on, by default for this machine alone; a reverse proxy in
front of it brings the encryption and the public name. Invariants: a request is heard only under a
name that was configured, or under an address or `localhost` (so that no web page can reach it under
a name of its own), and not at all from within a web page (those name their `Origin`); a body is
never larger than `MAX_BODY`, arrives in time or not at all, and is passed on as it came; a failing
handler costs its request a status 500. Being reachable is no permission: each handler checks that
the platform made the request. Nothing of a request is logged but its path.

`/health` answers 200 while messages are taken in and kept (`ok` or `degraded`) and 503 otherwise,
with the same health in JSON as `nanobot status --json`. `/metrics` is the text format of
Prometheus. Neither contains a word of a conversation.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import json
import logging
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Container,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING

from loguru import logger

from nanobot.bus.events import TERMINAL
from nanobot.channel import WebhookHandler, WebhookReply, WebhookRequest
from nanobot.errors import ChannelOff, NanobotError
from nanobot.gateway.health import Vitals
from nanobot.gateway.status import Report

if TYPE_CHECKING:
    from aiohttp import web
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

    from nanobot.gateway.status import SinceStart, Today, Work


MAX_BODY = 3_000_000
"""Bytes of a request's body; beyond it the answer is status 413."""

_METHODS = ("GET", "POST")
_MAX_UNDER_WAY = 1_000
_MAX_HELD = 64_000_000
"""Requests handled at once, and bytes of their bodies; beyond it the answer is status 503, and the
platform tries again."""
_MAX_READING = 1_000
_MAX_EXPECTED = 192_000_000
"""Bodies on their way at once, and the bytes that they may have; beyond it the one that takes
longest is given up. A platform's comes at once, so whoever sends slowly, which takes no secret,
keeps nobody out."""
_BUSY = WebhookReply(503, headers={"Retry-After": "5"})
_REACHED_AT = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - not bound, only named
_NAMED = 8
"""So many refused host names are told of, one line each; the rest would be noise."""


class WebServer:
    """Serves paths while their `serve` lasts.

    `section` of the configuration says where it listens; `public_hosts` are the names under which a
    proxy passes requests on, None where the section has no such setting. A connection may rest for
    `patience` seconds, and a body or the lines before it may take as long; a handler may take
    `handler_seconds`.
    """

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 8087,
        *,
        section: str = "http",
        public_hosts: Sequence[str] | None = (),
        patience: float = 20.0,
        handler_seconds: float = 55.0,
    ) -> None:
        self._host, self._port, self._section = host, port, section
        self._names = frozenset(name.lower() for name in public_hosts or ())
        self._patience, self._handler_seconds = patience, handler_seconds
        self._advice = (
            "ask it by address, or as localhost"
            if public_hosts is None
            else f"if that is its name, add it to {section}.public_hosts"
        )
        self._handlers: dict[str, WebhookHandler] = {}
        self._served: set[str] = set()
        self._refused: set[str] = set()
        self._under_way = self._held = 0
        self._reading: dict[asyncio.Timeout, int] = {}
        self._runner: web.AppRunner | None = None
        self._starting = asyncio.Lock()

    @asynccontextmanager
    async def serve(self, path: str, handler: WebhookHandler) -> AsyncIterator[str]:
        """Pass requests at `path` (begins with a slash) and beneath it to `handler` while inside;
        gives the address on this machine.

        Raises `ChannelOff` for a path that is served already, `NanobotError` where the server
        cannot listen.
        """
        path = _normal(path)
        if path in self._handlers:
            raise ChannelOff(f"two channels want the same path {path or '/'} on the HTTP server")
        self._handlers[path] = handler
        self._served.add(path)
        try:
            yield f"{await self._start()}{path}"
        finally:
            del self._handlers[path]

    async def close(self) -> None:
        """Stop listening; requests under way may end within two seconds."""
        async with self._starting:
            runner, self._runner = self._runner, None
            if runner is not None:
                await runner.cleanup()

    async def _start(self) -> str:
        """Listen, unless it does already; the address on this machine."""
        from aiohttp import web  # most nanobots have no webhook

        async with self._starting:
            if self._runner is not None:
                return _address(self._runner)
            app = web.Application(client_max_size=MAX_BODY)
            app.router.add_route("*", "/{path:.*}", self._answer)
            runner = web.AppRunner(
                app,
                access_log=None,
                logger=_silence(),
                keepalive_timeout=self._patience,
                lingering_time=min(2.0, self._patience),
                auto_decompress=False,  # signatures are of the body as it was sent
                shutdown_timeout=2.0,
            )
            await runner.setup()
            try:
                await web.TCPSite(runner, self._host, self._port).start()
            except OSError as error:
                await runner.cleanup()
                raise NanobotError(
                    f"cannot listen on {self._host}:{self._port}: {error.strerror or error}",
                    hint=f"Set {self._section}.host and {self._section}.port to an address of this "
                    "machine that is free.",
                ) from error
            self._runner = runner
            logger.info("the HTTP server listens on {}", address := _address(runner))
            return address

    async def _answer(self, http: web.Request) -> web.StreamResponse:
        """One request. Whatever happens, it ends in a status."""
        from aiohttp import web

        reply = self._refusal(http) or await self._handled(http)
        headers = {"Server": "nanobot", **reply.headers}
        return web.Response(status=reply.status, body=reply.body or None, headers=headers)

    def _refusal(self, http: web.Request) -> WebhookReply | None:
        """What is refused before the body is read."""
        if not self._is_ours(http.headers.get("Host", "")):
            return WebhookReply(421)
        if "Origin" in http.headers:
            return WebhookReply(403)
        path = _served_at(http.path, self._served)
        if path is None:
            return WebhookReply(404)
        if http.method not in _METHODS:
            return WebhookReply(405, headers={"Allow": ", ".join(_METHODS)})
        if path not in self._handlers or self._under_way >= _MAX_UNDER_WAY:
            return _BUSY
        return None

    def _is_ours(self, host: str) -> bool:
        name = _without_port(host).lower()
        if name == "localhost" or name in self._names or _is_address(name):
            return True
        if name not in self._refused and len(self._refused) < _NAMED:
            self._refused.add(name)
            logger.warning(
                "the HTTP server refused a request for the host {!r}; {}", name[:100], self._advice
            )
        return False

    async def _handled(self, http: web.Request) -> WebhookReply:
        body = await self._body(http)
        if isinstance(body, WebhookReply):
            return body
        if self._under_way >= _MAX_UNDER_WAY or self._held + len(body) > _MAX_HELD:
            return _BUSY
        self._under_way += 1
        self._held += len(body)
        try:
            return await self._passed_on(http, body)
        finally:
            self._under_way -= 1
            self._held -= len(body)

    async def _body(self, http: web.Request) -> bytes | WebhookReply:
        from aiohttp import web

        if (http.content_length or 0) > MAX_BODY:
            return WebhookReply(413)
        try:
            async with asyncio.timeout(self._patience) as time:
                with self._among_those_read(time, http.content_length or MAX_BODY):
                    return await http.read()
        except TimeoutError:
            return WebhookReply(408, headers={"Connection": "close"})
        except web.HTTPRequestEntityTooLarge:
            return WebhookReply(413)
        except (web.RequestPayloadError, ConnectionError):
            return WebhookReply(400)

    @contextmanager
    def _among_those_read(self, time: asyncio.Timeout, size: int) -> Iterator[None]:
        """Make room for one more body of at most `size` bytes, and count it while inside. `time`
        ends the reading."""
        while self._reading and (
            len(self._reading) >= _MAX_READING or sum(self._reading.values()) + size > _MAX_EXPECTED
        ):
            oldest = next(iter(self._reading))
            del self._reading[oldest]
            if not oldest.expired():
                oldest.reschedule(0)
        self._reading[time] = size
        try:
            yield
        finally:
            self._reading.pop(time, None)

    async def _passed_on(self, http: web.Request, body: bytes) -> WebhookReply:
        path = _served_at(http.path, self._handlers)
        if path is None:  # the channel went while the body came
            return _BUSY
        request = WebhookRequest(
            method=http.method,
            path=http.path.removeprefix(path).removeprefix("/"),
            headers=_joined(http.headers.items()),
            query=dict(http.query.items()),
            body=body,
        )
        try:
            async with asyncio.timeout(self._handler_seconds):
                return await self._handlers[path](request)
        except NanobotError as error:
            logger.warning("a request at {} failed: {}", path or "/", error)
        except Exception as error:  # noqa: BLE001 - the boundary: the platform tries again
            logger.opt(exception=error).error("a request at {} failed", path or "/")
        return WebhookReply(500)


def _normal(path: str) -> str:
    if not path.startswith("/"):
        raise ValueError("a path begins with a slash")
    return path.rstrip("/")


def _address(runner: web.AppRunner) -> str:
    """Where it is reached on this machine."""
    host, port = runner.addresses[0][:2]
    host = _REACHED_AT.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _served_at(path: str, served: Container[str]) -> str | None:
    """The longest of the `served` paths that `path` is or lies beneath."""
    path = path.rstrip("/")
    while path not in served:
        if not path:
            return None
        path = path.rpartition("/")[0]
    return path


def _joined(headers: Iterable[tuple[str, str]]) -> Mapping[str, str]:
    """With lower-case names; what stands there twice is joined, as HTTP has it, lest a second
    signature go unseen."""
    joined: dict[str, str] = {}
    for written, value in headers:
        name = written.lower()
        joined[name] = f"{joined[name]}, {value}" if name in joined else value
    return joined


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdecimal() and "]" not in port else host


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True


def _silence() -> logging.Logger:
    """For what aiohttp says about requests that are none."""
    quiet = logging.Logger("nanobot.webserver")
    quiet.addHandler(logging.NullHandler())
    return quiet


CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_STATES = ("ok", "degraded", "failing")


def exposition(report: Report) -> bytes:
    """The text format, version 0.0.4."""
    from prometheus_client import generate_latest  # only where somebody asks for it
    from prometheus_client.registry import Collector, CollectorRegistry

    class Once(Collector):
        def collect(self) -> Iterator[Metric]:
            return _metrics(report)

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Once())
    return generate_latest(registry)


def _metrics(report: Report) -> Iterator[Metric]:
    if report.work is not None:
        yield from _work(report.work)
    yield _by("nanobot_queue", "Rows that are not at their end.", "state", asdict(report.queue))
    yield _one("nanobot_sessions", "Conversations.", report.sessions)
    if report.today is not None:
        yield from _today(report.today)
    yield _by("nanobot_size_bytes", "What lies in the home.", "what", report.sizes)


def _work(work: Work) -> Iterator[Metric]:
    states = {name: int(name == work.health.state) for name in _STATES}
    yield _by("nanobot_health", "1 for what the health is now.", "state", states)
    yield _one("nanobot_uptime_seconds", "Since the start.", work.uptime_seconds)
    yield _one("nanobot_turns_running", "Turns under way.", work.turns_running)
    channels = [channel for channel in work.channels if channel.name != TERMINAL]
    up = {channel.name: int(channel.state == "running") for channel in channels}
    yield _by("nanobot_channel_up", "Whether a channel runs.", "channel", up)
    heard = {c.name: c.heard_seconds for c in channels if c.heard_seconds is not None}
    meaning = "Seconds since something last came from a platform."
    yield _by("nanobot_channel_heard_seconds", meaning, "channel", heard)
    yield from _since_start(work.since_start)
    process = work.process
    yield _one("nanobot_resident_bytes", "Memory of the process.", process.resident)
    yield _one("nanobot_descriptors", "Open file descriptors.", process.descriptors)
    yield _one("nanobot_tasks", "Tasks of the event loop.", process.tasks)


def _since_start(since: SinceStart) -> Iterator[Metric]:
    yield _counted("nanobot_turns", "Turns that ended.", "outcome", since.turns)
    tokens = {"prompt": since.prompt_tokens, "completion": since.completion_tokens}
    yield _counted("nanobot_tokens", "Tokens of turns that ended.", "kind", tokens)
    logged = {"error": since.errors, "warning": since.warnings}
    yield _counted("nanobot_logged", "Lines of the log.", "level", logged)


def _today(today: Today) -> Iterator[Metric]:
    tokens = {
        "prompt": today.prompt_tokens,
        "cached": today.cached_tokens,
        "completion": today.completion_tokens,
        "memory": today.memory_tokens,
    }
    yield _by("nanobot_today_tokens", "Tokens used since midnight.", "kind", tokens)
    if today.cost is not None:
        yield _one("nanobot_today_cost", "Their cost, by model.prices.", today.cost)


def _one(name: str, meaning: str, value: float) -> Metric:
    from prometheus_client.core import GaugeMetricFamily

    return GaugeMetricFamily(name, meaning, value=value)


def _by(name: str, meaning: str, label: str, values: Mapping[str, float]) -> Metric:
    from prometheus_client.core import GaugeMetricFamily

    return _filled(GaugeMetricFamily(name, meaning, labels=(label,)), values)


def _counted(name: str, meaning: str, label: str, values: Mapping[str, float]) -> Metric:
    from prometheus_client.core import CounterMetricFamily

    return _filled(CounterMetricFamily(name, meaning, labels=(label,)), values)


def _filled(family: GaugeMetricFamily | CounterMetricFamily, values: Mapping[str, float]) -> Metric:
    for key, value in values.items():
        family.add_metric((key,), value)
    return family


_UNKNOWN = WebhookReply(401, headers={"WWW-Authenticate": "Bearer"})

StatusOf = Callable[[], Awaitable[Report]]


class HealthEndpoint:
    """Serves until stopped, on a `web` of its own. Without `metrics` there are none; with a `token`
    only for who sends it."""

    def __init__(
        self, web: WebServer, vitals: Vitals, status: StatusOf, *, metrics: bool, token: str = ""
    ) -> None:
        self._web, self._vitals, self._status, self._metrics = web, vitals, status, metrics
        self._token = token
        self._stop = asyncio.Event()

    async def run_forever(self) -> None:
        """Until `stop`. Where nobody can listen, the log says so, and all else goes on."""
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._web.close)
            try:
                await stack.enter_async_context(self._web.serve("/health", self._health))
                if self._metrics:
                    await stack.enter_async_context(self._web.serve("/metrics", self._measure))
            except NanobotError as error:
                logger.error("no /health: {} {}", error, error.hint)
                return
            await self._stop.wait()

    def stop(self) -> None:
        """Serve no more."""
        self._stop.set()

    def _is_known(self, request: WebhookRequest) -> bool:
        kind, _, sent = request.headers.get("authorization", "").partition(" ")
        same = hmac.compare_digest(sent.strip().encode("utf-8", "replace"), self._token.encode())
        return not self._token or (kind.lower() == "bearer" and same)

    async def _health(self, request: WebhookRequest) -> WebhookReply:
        if not self._is_known(request):
            return _UNKNOWN
        health = (await self._vitals.look()).health
        body = json.dumps(health.as_json()).encode()
        status = 503 if health.state == "failing" else 200
        return WebhookReply(status, body, {"Content-Type": "application/json"})

    async def _measure(self, request: WebhookRequest) -> WebhookReply:
        if not self._is_known(request):
            return _UNKNOWN
        body = exposition(await self._status())
        return WebhookReply(200, body, {"Content-Type": CONTENT_TYPE})
