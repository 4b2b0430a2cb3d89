"""Answers the calls of Meta. It is told 200 only when what it brought is in the inbox, and calls
again with what got another answer.

Calls are known by their signature, which is checked on the body as it came and before anything of
it is read. The signature is of the app's secret, which Meta and the owner alone know.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Protocol

from pydantic import SecretStr

from nanobot.channel import WebhookReply, WebhookRequest, document_of
from nanobot.channel.health import HealthReporter
from nanobot.errors import StorageError

HEADER = "x-hub-signature-256"

_SCHEME = "sha256="
_LONGEST_CHALLENGE = 256
_PLAIN = {"Content-Type": "text/plain; charset=utf-8", "X-Content-Type-Options": "nosniff"}


class Take(Protocol):
    """What becomes of the calls; see `Inbox`."""

    async def take(self, *documents: object) -> None:
        """Returns when all of them are durable; raises `StorageError`, and then they are not."""
        ...

    def put_aside(self, raw: object, reason: str) -> None:
        """Keeps what cannot be read."""
        ...


def signature_of(body: bytes, app_secret: str) -> str:
    """What Meta's header says of a call with this body."""
    return _SCHEME + hmac.new(app_secret.encode(), body, sha256).hexdigest()


@dataclass(slots=True)
class _Call:
    """A call that was read; `reply` is None until it was tried to store it."""

    document: object
    reply: WebhookReply | None = None


class Receiver:
    """Implements `nanobot.channel.WebhookHandler`."""

    def __init__(
        self, app_secret: SecretStr, verify_token: SecretStr, inbox: Take, health: HealthReporter
    ) -> None:
        self._app_secret, self._verify_token = app_secret, verify_token
        self._inbox, self._health = inbox, health
        self._order = asyncio.Lock()
        self._waiting: list[_Call] = []

    async def __call__(self, request: WebhookRequest) -> WebhookReply:
        """The answer to one call."""
        if request.method == "GET":
            return self._challenged(request.query)
        if request.method != "POST":
            return WebhookReply(405)
        expected = signature_of(request.body, self._app_secret.get_secret_value())
        if not _is_same(request.headers.get(HEADER, ""), expected):
            return WebhookReply(403)
        try:
            call = _Call(document_of(request.body))
        except ValueError as error:
            self._inbox.put_aside(request.body.decode("utf-8", "replace"), type(error).__name__)
            return WebhookReply(200)  # it would come again, and be no better
        self._waiting.append(call)
        async with self._order:  # as they came: what was said first is answered first
            if call.reply is None:
                await self._store()
        return call.reply or WebhookReply(500)

    async def _store(self) -> None:
        """Store all calls that wait at once: a slow disk is waited for once, not by each call.
        Whatever goes wrong, Meta makes them again, and what is stored already is known."""
        calls, self._waiting = self._waiting, []
        status = 500
        try:
            await self._inbox.take(*(call.document for call in calls))
            status = 200
            self._health.resolve("disk")
        except StorageError as error:
            self._health.report("disk", f"messages wait at Meta: {error}")
        finally:
            for call in calls:
                call.reply = WebhookReply(status)

    def _challenged(self, query: Mapping[str, str]) -> WebhookReply:
        """Meta asks once, when the webhook is entered there, whether it is wanted here."""
        wanted = self._verify_token.get_secret_value()
        known = _is_same(query.get("hub.verify_token", ""), wanted)
        if not known or query.get("hub.mode") != "subscribe":
            return WebhookReply(403)
        challenge = query.get("hub.challenge", "")[:_LONGEST_CHALLENGE]
        return WebhookReply(200, challenge.encode("utf-8", "replace"), _PLAIN)


def _is_same(given: str, expected: str) -> bool:
    """Compared in a time that does not tell how much of it is right."""
    return hmac.compare_digest(
        given.strip().encode("utf-8", "surrogateescape"), expected.encode("utf-8")
    )
