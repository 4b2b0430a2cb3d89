"""Meta's webhook calls, and their messages on the way into the core's inbox.

Invariant: Meta gets status 200 only when a call's content is durable, and repeats calls with
another status. All waiting calls are stored at once. Messages before a change of number are stored
before the change, under the old number. Errors of the core propagate, and nothing is confirmed.
Meta may also repeat calls at other times, when the sender's number has already changed, so recently
stored messages are recognized here too.

Calls are authenticated by their signature, which is checked on the raw body before parsing. It uses
the app's secret, which only Meta and the owner know."""

from __future__ import annotations

import asyncio
import hmac
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from hashlib import sha256
from itertools import chain
from typing import TypeVar

from loguru import logger
from msgspec import Struct
from msgspec.structs import replace

from nanobot.bus.events import BUTTON_ID, EXPIRED_BUTTON
from nanobot.channel import ChannelHost, Chat, WebhookReply, WebhookRequest
from nanobot.channel.documents import Quarantine
from nanobot.channel.health import HealthReporter
from nanobot.errors import StorageError
from nanobot.io import FENCE
from nanobot.parsing import off_loop, parse_json
from nanobot.validation import SecretStr
from nanobot_whatsapp.cloud.graph import explain
from nanobot_whatsapp.cloud.payload import BrokenItem, DeliveryFailure, IdChange, Remark, read
from nanobot_whatsapp.ingest import IncomingMessage, Ingest, RecentMessages
from nanobot_whatsapp.people import People

K = TypeVar("K")
V = TypeVar("V")

HEADER = "x-hub-signature-256"

_CHALLENGE_CHARACTERS = 256
_PLAIN = {"Content-Type": "text/plain; charset=utf-8", "X-Content-Type-Options": "nosniff"}
_MAX_CHATS = 1_000
_MAX_MESSAGES = 2_000
_SLICE = 50  # the number of items that are handled before other tasks get a turn


def signature_of(body: bytes, app_secret: str) -> str:
    """Return the value of Meta's signature header for this body."""
    return "sha256=" + hmac.new(app_secret.encode(), body, sha256).hexdigest()


class _Call(Struct):
    """A parsed call. `reply` is None until an attempt to store it."""

    document: object
    reply: WebhookReply | None = None


class Receiver:
    """A `nanobot.channel.WebhookHandler`. `ingest` is the method of an `Inbox`, `put_aside` that
    of its quarantine."""

    def __init__(
        self,
        app_secret: SecretStr,
        verify_token: SecretStr,
        ingest: Callable[..., Awaitable[None]],
        put_aside: Callable[[object, str], None],
        health: HealthReporter,
    ) -> None:
        self._app_secret, self._verify_token = app_secret, verify_token
        self._ingest, self._put_aside, self._health = ingest, put_aside, health
        self._order = asyncio.Lock()
        self._waiting: list[_Call] = []

    async def __call__(self, request: WebhookRequest) -> WebhookReply:
        """Answer one call."""
        if request.method == "GET":
            return self._verify(request.query)
        if request.method != "POST":
            return WebhookReply(405)
        expected = signature_of(request.body, self._app_secret.get_secret_value())
        if not _is_same(request.headers.get(HEADER, ""), expected):
            return WebhookReply(403)
        try:
            call = _Call(await off_loop(len(request.body), parse_json, request.body))
        except ValueError as error:
            text = request.body.decode("utf-8", "replace")
            self._put_aside(text, type(error).__name__)
            return WebhookReply(200)  # a repetition would not help
        self._waiting.append(call)
        async with self._order:  # in order, so that answers are in order too
            if call.reply is None:
                await self._store()
        return call.reply or WebhookReply(500)

    async def _store(self) -> None:
        """Store all waiting calls at once, so that a slow disk delays them only once. If it fails,
        Meta repeats them, and already stored messages are recognized."""
        calls, self._waiting = self._waiting, []
        status = 500
        try:
            await self._ingest(*(call.document for call in calls))
            status = 200
            self._health.resolve("disk")
        except StorageError as error:
            self._health.report("disk", f"new messages can't be stored and remain at Meta: {error}")
        finally:
            for call in calls:
                call.reply = WebhookReply(status)

    def _verify(self, query: Mapping[str, str]) -> WebhookReply:
        """Answer Meta's verification request, sent when the webhook is configured there."""
        expected = self._verify_token.get_secret_value()
        is_known = _is_same(query.get("hub.verify_token", ""), expected)
        if not is_known or query.get("hub.mode") != "subscribe":
            return WebhookReply(403)
        challenge = query.get("hub.challenge", "")[:_CHALLENGE_CHARACTERS]
        return WebhookReply(200, challenge.encode("utf-8", "replace"), _PLAIN)


def _is_same(given: str, expected: str) -> bool:
    """Compare in constant time."""
    return hmac.compare_digest(
        given.strip().encode("utf-8", "surrogateescape"), expected.encode("utf-8")
    )


class Inbox:
    """Ingestion of the calls for one business number. `quarantine` keeps unreadable input."""

    def __init__(
        self,
        host: ChannelHost,
        people: People,
        ingest: Ingest,
        recent: RecentMessages,
        phone_number_id: str,
    ) -> None:
        self._host, self._people, self._ingest = host, people, ingest
        self._recent, self._phone_number_id = recent, phone_number_id
        self.quarantine = Quarantine("whatsapp", host)
        self._last: OrderedDict[str, str] = OrderedDict()
        self._stored: OrderedDict[tuple[str, tuple[str, ...]], None] = OrderedDict()
        """Keys: the id, and all ids of the sender."""

    async def ingest(self, *documents: object) -> None:
        """Handle the calls in order. Returns when all of it is durable.

        Raises `StorageError`, and then nothing is confirmed."""
        received: list[IncomingMessage] = []
        now = self._host.clock.now()
        items = [read(document, self._phone_number_id, now) for document in documents]
        for number, item in enumerate(chain.from_iterable(items)):
            if number % _SLICE == _SLICE - 1:
                await asyncio.sleep(0)  # give other tasks a turn
            match item:
                case IncomingMessage():
                    if (item.id, item.person.ids) not in self._stored:
                        received.append(await self._complete(item))
                case IdChange(old, new):
                    await self._store(received)
                    received = []
                    self._people.change_id(old, new)
                case DeliveryFailure(id, code, reason):
                    await self._host.report_undelivered(id, explain(code, reason))
                case BrokenItem(raw, reason):
                    self.quarantine.keep(raw, reason)
                case Remark(text, level):
                    logger.log(level, "whatsapp: {}", text)
        await FENCE.wait_aside()
        self._people.save()
        await self._store(received)

    def last_in(self, chat_id: str) -> str:
        """Return the id of the last message in a chat, or empty."""
        return self._last.get(chat_id, "")

    async def _complete(self, said: IncomingMessage) -> IncomingMessage:
        """Add the quoted text and the value of the pressed button. Other buttons, such as a
        template's, keep their label."""
        if (quote := said.quote) is not None:
            sender, text = self._recent.find(quote.message_id) or ("", "")
            quote = replace(quote, sender=quote.sender or sender, text=quote.text or text)
            said = replace(said, quote=quote)
        if not said.button:
            return said
        chat = Chat(self._people.chat_of(said.person.ids))
        value = await self._host.resolve_button(said.button, self._people.sender(said.person), chat)
        if value is None and BUTTON_ID.fullmatch(said.button):
            value = EXPIRED_BUTTON
        return said if value is None else replace(said, text=value)

    async def _store(self, received: Sequence[IncomingMessage]) -> None:
        """Ingest messages, and remember the admitted ones."""
        for one in await self._ingest.store(received) if received else ():
            put_newest(self._stored, (one.id, one.person.ids), None, _MAX_MESSAGES)
            file = one.media and f"{one.media.kind} {one.media.name}".rstrip()
            shown = one.text or file or "; ".join(one.notes)
            self._recent.remember(one.id, one.person.name, shown)
            put_newest(self._last, self._people.chat_of(one.person.ids), one.id, _MAX_CHATS)


def put_newest(known: OrderedDict[K, V], key: K, value: V, limit: int) -> None:
    """Set the newest of at most `limit` entries."""
    known[key] = value
    known.move_to_end(key)
    if len(known) > limit:
        known.popitem(last=False)
