"""Meta's calls on the way in: the webhook, and from its calls to messages in the core's inbox.

Invariant: Meta gets the status 200 only when what a call contained is durable, and repeats calls
that got another. All calls that wait are stored at once. What was said before somebody changed
their number is stored before the change, as theirs. An error of the core is no fault of what came:
it is raised, nothing is confirmed. Meta may repeat calls at any other time, too, when the number of
the sender has changed already: so what was stored lately is known here as well.

Calls are authenticated by their signature, which is checked on the raw body before any of it is
parsed. It is made with the app's secret, which only Meta and the owner know.
"""

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
from nanobot_whatsapp.cloud.payload import Broken, Moved, Remark, Undelivered, read
from nanobot_whatsapp.ingest import Incoming, Ingest, RecentMessages
from nanobot_whatsapp.people import People

K = TypeVar("K")
V = TypeVar("V")

HEADER = "x-hub-signature-256"

_CHALLENGE_CHARACTERS = 256
_PLAIN = {"Content-Type": "text/plain; charset=utf-8", "X-Content-Type-Options": "nosniff"}
_MAX_CHATS = 1_000
_MAX_MESSAGES = 2_000
_SLICE = 50
"""Items that are handled before others have their turn."""


def signature_of(body: bytes, app_secret: str) -> str:
    """The value of Meta's header for a call with this body."""
    return "sha256=" + hmac.new(app_secret.encode(), body, sha256).hexdigest()


class _Call(Struct):
    """A parsed call; `reply` is None until an attempt was made to store it."""

    document: object
    reply: WebhookReply | None = None


class Receiver:
    """Implements `nanobot.channel.WebhookHandler`. `ingest` is that of an `Inbox`, `put_aside` that
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
        """The answer to one call."""
        if request.method == "GET":
            return self._challenged(request.query)
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
            return WebhookReply(200)  # repeated, it would be no better
        self._waiting.append(call)
        async with self._order:  # as they came: what was said first is answered first
            if call.reply is None:
                await self._store()
        return call.reply or WebhookReply(500)

    async def _store(self) -> None:
        """Store all waiting calls at once, so that a slow disk is waited for once. If it fails,
        Meta repeats them, and what is stored already is recognized."""
        calls, self._waiting = self._waiting, []
        status = 500
        try:
            await self._ingest(*(call.document for call in calls))
            status = 200
            self._health.resolve("disk")
        except StorageError as error:
            self._health.report("disk", f"messages wait at Meta: {error}")
        finally:
            for call in calls:
                call.reply = WebhookReply(status)

    def _challenged(self, query: Mapping[str, str]) -> WebhookReply:
        """Meta asks once, when the webhook is entered there, whether it is wanted here."""
        expected = self._verify_token.get_secret_value()
        is_known = _is_same(query.get("hub.verify_token", ""), expected)
        if not is_known or query.get("hub.mode") != "subscribe":
            return WebhookReply(403)
        challenge = query.get("hub.challenge", "")[:_CHALLENGE_CHARACTERS]
        return WebhookReply(200, challenge.encode("utf-8", "replace"), _PLAIN)


def _is_same(given: str, expected: str) -> bool:
    """Compared in constant time."""
    return hmac.compare_digest(
        given.strip().encode("utf-8", "surrogateescape"), expected.encode("utf-8")
    )


class Inbox:
    """Ingests the calls for one business number. `quarantine` keeps what cannot be read."""

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
        """By id, and all ids of the sender."""

    async def ingest(self, *documents: object) -> None:
        """Handle the calls, in order; returns when all of it is durable.

        Raises `StorageError`, and then nothing is confirmed.
        """
        received: list[Incoming] = []
        now = self._host.clock.now()
        items = [read(document, self._phone_number_id, now) for document in documents]
        for number, item in enumerate(chain.from_iterable(items)):
            if number % _SLICE == _SLICE - 1:
                await asyncio.sleep(0)  # others have their turn
            match item:
                case Incoming():
                    if (item.id, item.person.ids) not in self._stored:
                        received.append(await self._completed(item))
                case Moved(old, new):
                    await self._store(received)
                    received = []
                    self._people.change_id(old, new)
                case Undelivered(id, code, reason):
                    await self._host.report_undelivered(id, explain(code, reason))
                case Broken(raw, reason):
                    self.quarantine.keep(raw, reason)
                case Remark(text, level):
                    logger.log(level, "whatsapp: {}", text)
        await FENCE.wait_aside()
        self._people.save()
        await self._store(received)

    def last_in(self, chat_id: str) -> str:
        """The id of the last message in a chat; empty if it is unknown."""
        return self._last.get(chat_id, "")

    async def _completed(self, said: Incoming) -> Incoming:
        """The message, with what it quotes and with the value of the button that was pressed. The
        label speaks for buttons of others, as those of a template."""
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

    async def _store(self, received: Sequence[Incoming]) -> None:
        """Hand over what was said, and remember what was admitted of it."""
        for one in await self._ingest.store(received) if received else ():
            _put(self._stored, (one.id, one.person.ids), None, _MAX_MESSAGES)
            file = one.media and f"{one.media.kind} {one.media.name}".rstrip()
            shown = one.text or file or "; ".join(one.notes)
            self._recent.remember(one.id, one.person.name, shown)
            _put(self._last, self._people.chat_of(one.person.ids), one.id, _MAX_CHATS)


def _put(known: OrderedDict[K, V], key: K, value: V, limit: int) -> None:
    """Set it as the newest of at most `limit` entries."""
    known[key] = value
    known.move_to_end(key)
    if len(known) > limit:
        known.popitem(last=False)
