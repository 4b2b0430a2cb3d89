"""`/health` and `/metrics`: how a nanobot is, for other programs. No word of a conversation.

`/health` answers 200 while messages are taken in and kept (`ok` or `degraded`), 503 where they are
not, with the same health in JSON as `nanobot status --json` has. `/metrics` is the text format of
Prometheus.
"""

from __future__ import annotations

import asyncio
import hmac
import json
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

from loguru import logger

from nanobot.channel import WebhookReply, WebhookRequest
from nanobot.errors import NanobotError
from nanobot.gateway.metrics import CONTENT_TYPE, exposition
from nanobot.gateway.report import Report
from nanobot.gateway.vitals import Vitals
from nanobot.gateway.webserver import WebServer

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
