"""Requests: their authentication, and the orders that they become.

Every request has a key, except rejected ones: the body of a request without a key is not read. A
web page of another origin gets nothing, even with a key. A request becomes a message of the key's
person, in a conversation under the key's name. A client cannot name a conversation of another key.
All of it is untrusted content, except the last message of the user if the key was made for a
program that sends only the person's own words."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from hashlib import sha256
from urllib.parse import urlsplit

from aiohttp import web
from loguru import logger
from msgspec.structs import replace

from nanobot.bus.events import API, OWNER_ACCOUNT, InboundMessage, Origin, Said, program_origin
from nanobot.channel import ChannelHost, Chat, Sender
from nanobot.channel.keys import ApiKey, ApiKeys
from nanobot.clock import with_timeout
from nanobot.errors import ExtraMissing, StorageError
from nanobot_api import shapes
from nanobot_api.answers import Order, Responder
from nanobot_api.exchanges import Exchanges
from nanobot_api.memory import Ask as AskGateway
from nanobot_api.memory import McpEndpoint
from nanobot_api.problems import Problem, invalid, not_stored
from nanobot_api.records import (
    FOLLOWED,
    ONCE,
    REPEATABLE,
    Record,
    Records,
    is_kept,
    record_id,
)
from nanobot_api.requests import (
    MODEL,
    Ask,
    Headers,
    chat_request,
    clean_name,
    refuse_items,
    response_request,
)
from nanobot_api.shapes import ChatShape, Facts, ResponseShape, Shape

_BODY_SECONDS = 120.0
_LATE = "The request timed out before all of it arrived."
MOST_MEGABYTES = 30
"""The largest request, with its files: ten photos of a phone."""
_QUICK_BYTES = 16_000  # a larger body is parsed in a thread
_LONGEST_KEY = 255
_SESSIONS = ("X-Nanobot-Session", "X-OpenWebUI-Chat-Id")
_TASK = "X-Nanobot-Task"
_FOLLOWING = "resp-"  # prefix of a conversation that follows a response

Parse = Callable[[bytes, Headers], Ask]
_FORMS: dict[tuple[str, str], tuple[Parse, Callable[[Facts], Shape]]] = {
    ("POST", "chat/completions"): (chat_request, ChatShape),
    ("POST", "responses"): (response_request, ResponseShape),
}
_CONVERSATIONS = ("POST", "conversations")
_MODELS = {("GET", "models"): shapes.models(), ("GET", f"models/{MODEL}"): shapes.model()}
_PLACES = {place for _, place in (*_FORMS, _CONVERSATIONS, *_MODELS)}


class Server:
    """Server of the requests at `/v1`."""

    def __init__(
        self,
        host: ChannelHost,
        keys: ApiKeys,
        exchanges: Exchanges,
        ask: AskGateway,
    ) -> None:
        self._host, self._keys = host, keys
        self._clock, self._ask = host.clock, ask
        self.records = Records(host.state_folder)
        self._responder = Responder(host, self.records, exchanges, ask, self._expect_key)
        self._held = 0

    async def handle(self, http: web.Request) -> web.StreamResponse:
        """Answer one request."""
        return await self._guard(http, self._answer)

    async def handle_memory(self, endpoint: McpEndpoint, http: web.Request) -> web.StreamResponse:
        """Answer one request of another agent for a memory."""

        async def answer(http: web.Request) -> web.StreamResponse:
            _refuse_pages(http)
            key = await self.authenticate(http)
            try:
                return await endpoint.handle(http, key.person, key.writable, f"mcp:{key.name}")
            except ExtraMissing as error:
                told = error.redact_for(is_owner=key.person == OWNER_ACCOUNT).for_people()
                raise Problem(501, told, "not_installed", again=False) from error
            except TimeoutError:
                raise Problem(408, _LATE, "timeout") from None

        return await self._guard(http, answer)

    async def _guard(
        self,
        http: web.Request,
        handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
    ) -> web.StreamResponse:
        """Return the answer of a handler, or its error in the one shape of errors."""
        headers = {"x-request-id": f"req_{secrets.token_hex(16)}"}
        try:
            answer = await handler(http)
        except Problem as problem:
            answer = _refusal(problem)
        except StorageError as error:
            logger.warning("api: a request could not be stored: {}", error)
            answer = _refusal(not_stored())
        except (web.HTTPException, ConnectionError):
            raise
        except Exception as error:  # noqa: BLE001 - the boundary: clients read one shape of errors
            logger.opt(exception=error).error("a request to {} failed", http.path)
            answer = _refusal(Problem(500, "nanobot could not answer this.", again=False))
        if not answer.prepared:
            answer.headers.update(headers)
        return answer

    async def _answer(self, http: web.Request) -> web.StreamResponse:
        _refuse_pages(http)
        key = await self.authenticate(http)
        place = http.path.removeprefix("/v1").strip("/")
        if (http.method, place) in _FORMS:
            return await self._serve(http, key, *_FORMS[http.method, place])
        if (http.method, place) == _CONVERSATIONS:
            return await self._new_conversation(http)
        if (http.method, place) in _MODELS:
            return web.json_response(_MODELS[http.method, place])
        kind, _, name = place.partition("/")
        is_response = kind == "responses" and bool(name)
        if is_response and http.method in ("GET", "DELETE"):
            return await self._serve_stored(http.method, key, name)
        if is_response or place in _PLACES:
            raise Problem(405, f"{http.method} is not allowed here.", "method_not_allowed")
        raise Problem(404, f"There is nothing at {http.method} {http.path[:100]}.", "not_found")

    async def authenticate(self, http: web.Request) -> ApiKey:
        """Return the key of a request. Raises `Problem`."""
        key, now = self._welcome(http, self._find_key(http)), self._clock.now()
        if self._keys.is_use_new(key.name, now):
            await asyncio.to_thread(self._keys.note_use, key.name, now)
        return key

    def _expect_key(self, http: web.Request) -> None:
        """Raise `Problem` if the key of a request is no longer valid."""
        self._welcome(http, self._find_key(http))

    def _find_key(self, http: web.Request) -> ApiKey | None:
        secret = _secret_in(http)
        return self._keys.find(secret) if secret and len(secret) <= _LONGEST_KEY else None

    def _welcome(self, http: web.Request, key: ApiKey | None) -> ApiKey:
        """Return the key if it may be used now. Raises `Problem`."""
        if key is None:
            text = "An API key is required in the header `Authorization: Bearer KEY` or `api-key`."
            if _secret_in(http):
                text = "Incorrect API key. To create one, run `nanobot api keys add NAME`."
            raise Problem(401, text, "invalid_api_key")
        if self._host.admit(Sender(key.person), Chat(key.name), addressed=False) != "allowed":
            raise Problem(
                403, "This key's person no longer has access to nanobot.", "access_revoked"
            )
        return key

    async def _new_conversation(self, http: web.Request) -> web.StreamResponse:
        async with self._body(http) as body:
            await asyncio.to_thread(refuse_items, body)
        id = f"conv_{secrets.token_hex(16)}"
        return web.json_response(shapes.new_conversation(id, self._now()))

    @asynccontextmanager
    async def _body(self, http: web.Request) -> AsyncIterator[bytes]:
        """Yield the body of a request, which counts against the limit while inside."""
        most = MOST_MEGABYTES * 1_000_000
        if http.headers.get("Content-Encoding", "identity") != "identity":
            raise Problem(415, "The body must not be compressed.", "unsupported_encoding")
        expected = http.content_length or 0
        too_large = Problem(
            413,
            f"The request is larger than {MOST_MEGABYTES} MB.",
            "request_too_large",
        )
        if expected > most:
            raise too_large
        size = expected or most
        if self._held and self._held + size > 2 * most:
            raise Problem(503, "Too much data is being sent at once.", "overloaded", retry_after=5)
        self._held += size
        try:
            read = _read(http, most)
            has_arrived = http.content.is_eof()
            body = await (read if has_arrived else with_timeout(self._clock, _BODY_SECONDS, read))
            if body is None:
                raise too_large
            yield body
        except TimeoutError:
            raise Problem(408, _LATE, "timeout") from None
        finally:
            self._held -= size

    async def _serve(
        self,
        http: web.Request,
        key: ApiKey,
        parse: Parse,
        shape: Callable[[Facts], Shape],
    ) -> web.StreamResponse:
        """Parse a request, store all that must be stored of it, and answer it. Raises
        `Problem`."""
        session = next((name for h in _SESSIONS if (name := http.headers.get(h, ""))), "")
        token = http.headers.get("Idempotency-Key", "")
        headers = Headers(session, bool(http.headers.get(_TASK, "").strip()), token)
        async with self._body(http) as body:
            if len(body) <= _QUICK_BYTES:
                ask = parse(body, headers)
            else:
                ask = await asyncio.to_thread(parse, body, headers)
            order = await self._make_order(token, key, ask, shape)
        return await self._responder.serve(http, order)

    async def _make_order(
        self, token: str, key: ApiKey, ask: Ask, shape: Callable[[Facts], Shape]
    ) -> Order:
        """Return the order of a request, with its record and files on disk. `token` identifies
        repetitions."""
        if token:
            event_id = f"{REPEATABLE}{sha256(token.encode('utf-8', 'replace')).hexdigest()[:32]}"
        else:
            event_id = f"{FOLLOWED if ask.store else ONCE}{secrets.token_hex(16)}"
        origin = program_origin(key.name)
        own = key.own_words and not ask.is_task
        asked = Said("user", ask.text, "" if own else origin)
        alone = not (ask.conversation or ask.previous)
        name, context = await self._place(key, ask, event_id, origin)
        chat = f"{key.name}:{name}"
        id = record_id(chat, event_id)
        said = (*context, asked) if alone and ask.store else ()
        record = Record(
            1, key.name, chat, ask.digest, self._now(), alone, said,
            conversation=ask.conversation, previous=ask.previous, formatted=bool(ask.schema),
            state="stored" if ask.store else "unstored",
        )  # fmt: skip
        if is_kept(event_id):
            record = await asyncio.to_thread(self.records.begin, id, record)
        _expect_same(record, ask)
        files = ask.files if record.answer is None else ()
        media = await asyncio.to_thread(self.records.keep_files, id, files) if files else ()
        facts = Facts(
            id,
            record.created,
            ask.conversation,
            ask.previous,
            ask.store,
            ask.with_usage,
            ask.schema,
        )
        instructions: Said | None = None
        if key.reads_system and ask.instructions and not alone:
            instructions = Said("user", ask.instructions, origin)
        terms = Origin(
            mark=asked.origin,
            by_program=True,
            context=context,
            instructions=instructions,
            schema=ask.schema,
            off_record=alone,
        )
        now = self._clock.now()
        message = InboundMessage(
            API, chat, key.person, ask.text, event_id, now, media=media, origin=terms
        )
        return Order(message, record, shape(facts), ask.stream, ask.ignored)

    async def _place(
        self, key: ApiKey, ask: Ask, event_id: str, origin: str
    ) -> tuple[str, tuple[Said, ...]]:
        """Return the name of a request's conversation, and the messages before it began. Raises
        `Problem`."""
        if ask.conversation:
            return clean_name(ask.conversation), ()
        if not ask.previous:
            return f"once-{event_id.rpartition('-')[2]}", _as_sent(ask.context, origin)
        id = ask.previous.removeprefix("resp_")
        record = await self._record_of(key, id)
        if record is None:
            raise invalid(
                f"Previous response with id {ask.previous[:100]!r} not found.",
                "previous_response_id",
                "previous_response_not_found",
            )
        if not record.alone:
            return record.chat.partition(":")[2], ()
        said = record.said
        if record.answer is not None and not record.answer.error:
            said += (Said("assistant", record.answer.whole, record.answer.origin),)
        return f"{_FOLLOWING}{id}", said

    async def _record_of(self, key: ApiKey, id: str) -> Record | None:
        """Return the record of a key's stored response, or None."""
        record = await asyncio.to_thread(self.records.read, id)
        is_there = record is not None and record.key == key.name and record.state == "stored"
        return record if is_there else None

    async def _serve_stored(self, method: str, key: ApiKey, name: str) -> web.StreamResponse:
        """Return a response again, or delete it."""
        id = name.removeprefix("resp_")
        record = await self._record_of(key, id)
        if record is None or id == name:
            raise Problem(404, f"Response with id {name[:100]!r} not found.", "not_found")
        if method == "DELETE":
            if record.answer is not None or record.alone:  # else it is removed when it is answered
                chat, turn = record.chat, record.answer.turn if record.answer else ""
                if record.alone:  # it is part of the conversation that followed it
                    chat, turn = f"{record.key}:{_FOLLOWING}{id}", ""
                taken = {"key": f"{API}:{chat}", "turn": turn, "by": f"{API}:{record.key}"}
                await self._ask("conversations.take_back", taken)
            await asyncio.to_thread(self.records.delete, id)
            return web.json_response({"id": name, "object": "response", "deleted": True})
        facts = Facts(id, record.created, record.conversation, record.previous, store=True)
        return web.json_response(ResponseShape(facts).repeat(record.answer))

    def _now(self) -> int:
        return int(self._clock.now().timestamp())


def _expect_same(record: Record, ask: Ask) -> None:
    """Raise `Problem` unless a repetition has the same content, and its response still exists."""
    if record.digest != ask.digest:
        raise Problem(
            422,
            "This Idempotency-Key was already used for another request.",
            "idempotency_key_reused",
            param="Idempotency-Key",
        )
    if record.state == "deleted":
        raise Problem(409, "The response for this Idempotency-Key was deleted.", "deleted")


def _secret_in(http: web.Request) -> str:
    """Return the key in a request, empty if there is none."""
    kind, _, secret = http.headers.get("Authorization", "").partition(" ")
    if secret.strip() and kind.lower() == "bearer":
        return secret.strip()
    return http.headers.get("api-key", "").strip()  # as clients of Azure's API send it


def _as_sent(context: Sequence[Said], origin: str) -> tuple[Said, ...]:
    """Mark the earlier messages in a request as the program's. Answers that it attributes to
    nanobot get the program's name."""
    name = f"the program {origin.partition(':')[2]}"
    return tuple(
        replace(one, origin=origin, name=name if one.role == "assistant" else "") for one in context
    )


def _refusal(problem: Problem) -> web.Response:
    return web.Response(
        status=problem.status,
        body=problem.body,
        headers=problem.headers,
        content_type="application/json",
    )


def _refuse_pages(http: web.Request) -> None:
    """Raise `Problem` for a web page of another origin, even with a valid key."""
    if (origin := http.headers.get("Origin")) is None:
        return
    try:
        host: str | None = urlsplit(origin).netloc
    except ValueError:
        host = None
    if host != http.headers.get("Host"):
        raise Problem(403, "Web pages are not allowed to use this API.", "origin_refused")


async def _read(http: web.Request, most: int) -> bytes | None:
    """Return the body, or None if it is larger than `most` bytes."""
    pieces, size = list[bytes](), 0
    async for piece in http.content.iter_any():
        size += len(piece)
        if size > most:
            return None
        pieces.append(piece)
    return b"".join(pieces)
