"""Delivers updates to the bot's webhook.

Updates are sent one at a time and in order. An update leaves the queue after a 2xx, and is sent
again after any other answer. After a failure there is a pause of `retry` seconds, which `hurry`
ends."""

from __future__ import annotations

import asyncio

import aiohttp

from tests.doubles.server import Changes
from tests.doubles.telegram.updates import Pending, Updates
from tests.doubles.telegram.values import Json

SECRET_HEADER = "X-Telegram-Bot-Api-Secret-Token"  # its name


class Webhook:
    """`url` is "" without a webhook. `route` is the real target, whatever the url."""

    def __init__(self, updates: Updates, changes: Changes, retry: float) -> None:
        self._updates = updates
        self._changes = changes
        self._retry = retry
        self._hurry = asyncio.Event()
        self._secret = ""
        self._error = ""
        self.url = ""
        self.route = ""
        self.failures = 0

    def set(self, url: str, secret: str) -> None:
        """Deliver to `url` from now on. "" ends it."""
        self.url, self._secret, self._error = url, secret, ""
        self._updates.webhook_set = bool(url)
        if url:
            self._updates.conflict()
        self.hurry()

    def hurry(self) -> None:
        """Try again now."""
        self._hurry.set()
        self._changes.tell()

    def info(self) -> Json:
        """Return the `WebhookInfo` object."""
        error: Json = {"last_error_message": self._error} if self._error else {}
        return {
            "url": self.url,
            "has_custom_certificate": False,
            "pending_update_count": self._updates.pending,
            **error,
        }

    async def deliver(self) -> None:
        """Run until cancelled."""
        await self._changes.until(lambda: self.url)
        timeout = aiohttp.ClientTimeout(total=30)
        async with aiohttp.ClientSession(timeout=timeout) as client:  # no egress
            while True:
                update = await self._changes.until(
                    lambda: self._updates.first() if self.url else None
                )
                assert update is not None
                self._hurry.clear()
                if await self._post(client, update):
                    self._updates.confirm(update.update_id + 1)
                else:
                    await self._pause()

    async def _post(self, client: aiohttp.ClientSession, update: Pending) -> bool:
        headers = {SECRET_HEADER: self._secret} if self._secret else {}
        try:
            async with client.post(
                self.route or self.url, json=update.payload, headers=headers
            ) as answer:
                await answer.read()
                good = answer.ok
                error = f"Wrong response from the webhook: {answer.status} {answer.reason}"
        except (aiohttp.ClientError, TimeoutError) as failure:
            good, error = False, f"Connection failed: {failure}"
        self._error = "" if good else error
        self.failures += not good
        self._changes.tell()
        return good

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(self._retry):
                await self._hurry.wait()
        except TimeoutError:
            pass
