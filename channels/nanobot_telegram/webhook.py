"""Webhook mode: Telegram calls us. A call gets status 200 only when its update is in the inbox.
Telegram repeats calls that got another status.

Calls are authenticated by a secret that only Telegram knows. It is derived from the bot's token, so
that several workers behind one address accept each other's calls."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Awaitable, Callable
from datetime import timedelta

from telegram.error import BadRequest, InvalidToken, TelegramError

from nanobot.channel import ChannelHost, WebhookReply, WebhookRequest
from nanobot.channel.health import HealthReporter
from nanobot.clock import Backoff
from nanobot.errors import ChannelOff, StorageError
from nanobot.parsing import off_loop, parse_json
from nanobot_telegram.client import ALLOWED_UPDATES, TelegramClient, wait_after
from nanobot_telegram.ingest import UpdateIngest
from nanobot_telegram.settings import TelegramSettings

HEADER = "x-telegram-bot-api-secret-token"

_CHECK = 300.0  # seconds between checks of Telegram's webhook status

_INVALID_ADDRESS = (
    "https url must be provided",
    "can be set up only on ports",
    "invalid webhook url",
    "url host is empty",
)
"""Telegram's texts for an address that will never work. All other refusals may pass: a name that
does not resolve yet, a refused connection, a late certificate."""


class Webhook:
    """Server of Telegram's calls. It keeps the webhook registered until cancelled."""

    def __init__(
        self,
        client: TelegramClient,
        host: ChannelHost,
        ingest: UpdateIngest,
        options: TelegramSettings,
        health: HealthReporter,
    ) -> None:
        self._client, self._host, self._ingest = client, host, ingest
        self._options, self._health = options, health
        token = options.token.get_secret_value().encode()
        self._secret = hmac.new(token, b"webhook", "sha256").hexdigest()
        self._order = asyncio.Lock()

    async def run(self) -> None:
        """Serve until cancelled. Raises `ChannelOff` for an invalid token or, at the start, an
        invalid address."""
        async with self._host.serve_webhook(self._options.local_path, self._receive):
            await self._insist(self._register_first)
            while True:
                await self._host.clock.sleep(_CHECK)
                await self._insist(self._check)

    async def _receive(self, request: WebhookRequest) -> WebhookReply:
        """Answer one call."""
        if request.method != "POST":
            return WebhookReply(405)
        given = request.headers.get(HEADER, "").encode("utf-8", "surrogateescape")
        if not hmac.compare_digest(given, self._secret.encode()):
            return WebhookReply(403)
        try:
            update = await off_loop(len(request.body), parse_json, request.body)
        except ValueError as error:
            self._ingest.quarantine(request.body.decode("utf-8", "replace"), error)
            return WebhookReply(200)
        try:
            async with self._order:
                await self._ingest.ingest([update])
        except StorageError as error:
            self._health.report(
                "connection", f"new messages can't be stored and remain at Telegram: {error}"
            )
            return WebhookReply(500)
        self._health.resolve("connection")
        return WebhookReply(200)

    async def _register_first(self) -> None:
        try:
            await self._register()
        except BadRequest as error:
            if not any(words in error.message.casefold() for words in _INVALID_ADDRESS):
                raise
            raise ChannelOff(
                f"Telegram rejects the webhook address: {error}",
                hint="Correct channels.telegram.webhook_url, or set mode to polling.",
            ) from None

    async def _register(self) -> None:
        await self._client.bot.set_webhook(
            self._options.webhook_url,
            allowed_updates=ALLOWED_UPDATES,
            drop_pending_updates=False,
            secret_token=self._secret,
            max_connections=1,  # several would reorder updates
        )
        self._health.resolve("connection")

    async def _check(self) -> None:
        info = await self._client.bot.get_webhook_info()
        failed = info.last_error_date
        if info.url != self._options.webhook_url:
            await self._register()
        elif failed is not None and self._host.clock.now() - failed < timedelta(seconds=_CHECK):
            said = str(info.last_error_message)[:200]
            self._health.report("connection", f"Telegram cannot deliver to the webhook: {said}")
        else:
            self._health.resolve("connection")

    async def _insist(self, call: Callable[[], Awaitable[None]]) -> None:
        """Retry a call until it succeeds."""
        backoff = Backoff(self._host.clock)
        while True:
            try:
                return await call()
            except InvalidToken as error:
                await self._client.verify_token(error, self._health)
                pause = 0.0
            except TelegramError as error:
                what = "does not accept the webhook yet (retrying)"
                if not isinstance(error, BadRequest):
                    what = "cannot be reached"
                self._health.report("connection", f"Telegram {what}: {error}")
                pause = wait_after(error)
            await backoff.wait(pause)
