"""Answers to requests: each message is published once, and its answer sent to the client.

A request ends with its turn, or earlier: if its client has gone, if it waits too long, or if a call
of its turn needs an approval, which the client is notified of. Then the turn continues, if its
answer can still be delivered."""

from __future__ import annotations

import asyncio
import math
import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress

from aiohttp import web
from loguru import logger
from msgspec import Struct
from msgspec.structs import replace

from nanobot.bus.events import Delivery, InboundMessage
from nanobot.channel import ChannelHost
from nanobot.clock import first_error
from nanobot.errors import NanobotError, StorageError
from nanobot_api.exchanges import (
    WAITING,
    AnswerEvent,
    Event,
    Exchange,
    Exchanges,
    FailureEvent,
    OwnerQuestion,
    ProgressEvent,
    TextEvent,
)
from nanobot_api.memory import Ask
from nanobot_api.problems import Problem, not_yet, notice, problem_of, too_late, too_late_to_deliver
from nanobot_api.records import ONCE, REPEATABLE, Answer, Record, Records, record_id
from nanobot_api.shapes import ChatShape, Shape
from nanobot_api.stream import Stream

WAIT_SECONDS = 600.0
"""Timeout of a request, as in clients of OpenAI's API. Its turn continues without a limit."""
KEEP_ALIVE_SECONDS = 15.0
"""Seconds after which a silent stream sends a keep-alive. Until then an error has its own
status."""

_LOOK_SECONDS = 1.0
"""Poll interval of a repetition for its record, if another worker of a team may answer it."""
_NOTICE_SECONDS = 25.0  # seconds after a question to the owner until the request ends with a notice


_PLACES = {"cli": "in the terminal", "web": "on the page", "whatsapp": "in your WhatsApp chat"}


class Order(Struct, frozen=True):
    """A request to answer: its message, its record (stored only if it can be repeated or followed),
    the form of the answer, and the fields without effect."""

    message: InboundMessage
    record: Record
    shape: Shape
    stream: bool
    ignored: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """The id of the request."""
        return record_id(self.message.chat_id, self.message.event_id)

    @property
    def headers(self) -> dict[str, str]:
        """Extra headers of the answer."""
        return {"X-Nanobot-Ignored": ", ".join(self.ignored)} if self.ignored else {}

    @property
    def is_repeatable(self) -> bool:
        """True if the client gave a key to ask again with."""
        return self.message.event_id.startswith(REPEATABLE)

    def convert_end(self, event: AnswerEvent) -> Event:
        """Return the end of the turn in the client's form."""
        answer = event.answer
        if answer.error:
            return FailureEvent(problem_of(answer.error, answer.whole))
        return replace(event, answer=replace(answer, before="")) if self.record.formatted else event

    def skips(self, event: Event, stream: Stream | None) -> bool:
        """True for text that is not in its final form yet, and for a wait before the stream begins,
        because the request may still end with a status."""
        if isinstance(event, TextEvent):
            return self.record.formatted
        is_wait = isinstance(event, ProgressEvent) and event.kind == WAITING
        return is_wait and (stream is None or not stream.has_begun)

    def make_notice(self, text: str) -> Event:
        """Return the notice that ends the request while its turn continues. A client that reads
        JSON gets an error."""
        return (
            FailureEvent(not_yet(text))
            if self.record.formatted
            else AnswerEvent(Answer(text), text)
        )

    @property
    def ends_with_client(self) -> bool:
        """True if the request ends when its client disconnects. Such a request cannot be repeated.
        Either it is in no conversation and not stored, or it streams a chat, whose client can only
        stop it by disconnecting."""
        is_chat = self.stream and isinstance(self.shape, ChatShape)
        return self.message.event_id.startswith(ONCE) and (self.record.alone or is_chat)


class Responder:
    """Responder to requests. `ask` runs operations of the gateway. `expect_key` raises `Problem` if
    the key of a request is no longer valid."""

    def __init__(
        self,
        host: ChannelHost,
        records: Records,
        exchanges: Exchanges,
        ask: Ask,
        expect_key: Callable[[web.Request], object],
    ) -> None:
        self._host, self._records, self._exchanges = host, records, exchanges
        self._expect_key = expect_key
        self._ask, self._clock = ask, host.clock

    async def serve(self, http: web.Request, order: Order) -> web.StreamResponse:
        """Publish the message of a request, once, and send its answer."""
        if order.record.answer is not None:
            return await self._replay(http, order, order.record.answer)
        message = order.message
        # Listen before the message is published, so that no event is missed.
        with self._exchanges.listen(message, is_stream=order.stream) as exchange:
            try:
                new = await self._host.publish([message])
            except StorageError:
                await self._give_up(order)
                raise
            if not new:  # the core has it already, or rejected it
                if not await self._host.has_received(message.chat_id, message.event_id):
                    await self._give_up(order)
                    raise Problem(
                        429, "Too many requests within a minute.", "rate_limit_exceeded",
                        retry_after=60,
                    )  # fmt: skip
                if (answer := await self._read_answer(order)) is not None:
                    return await self._replay(http, order, answer)
            try:
                if self._host.is_folder_shared and not new:
                    return await self._converse_watched(http, order, exchange)
                return await self._converse(http, order, exchange)
            except ConnectionError:
                if order.ends_with_client:
                    await self._take_back(order)
                raise

    async def _converse_watched(
        self, http: web.Request, order: Order, exchange: Exchange
    ) -> web.StreamResponse:
        """Send the answer. Poll for an answer of another worker."""
        try:
            async with asyncio.TaskGroup() as group:
                looking = group.create_task(self._look(order, exchange))
                answered = await self._converse(http, order, exchange)
                looking.cancel()
        except BaseExceptionGroup as failures:
            raise first_error(failures) from None
        return answered

    async def _give_up(self, order: Order) -> None:
        """Keep nothing of a request whose message was rejected, so that floods do not fill the
        disk. A repetition keeps the data of the first request."""
        chat, event_id = order.message.chat_id, order.message.event_id
        alone = self._exchanges.waits_alone(chat, event_id)
        if alone and not await self._host.has_received(chat, event_id):
            await asyncio.to_thread(self._records.give_up, order.id)

    async def _replay(self, http: web.Request, order: Order, answer: Answer) -> web.StreamResponse:
        if order.message.media:  # stored after those of the first request were deleted
            await asyncio.to_thread(self._records.drop_files, order.id)
        exchange = Exchange()
        exchange.events.put_nowait(AnswerEvent(answer, answer.text))
        return await self._converse(http, order, exchange)

    async def _converse(
        self, http: web.Request, order: Order, exchange: Exchange
    ) -> web.StreamResponse:
        """Send the answer, as a stream or as a whole."""
        deadline = self._clock.monotonic() + WAIT_SECONDS
        stream = Stream(http, order.shape, order.headers) if order.stream else None
        while True:
            event = await self._event(http, order, exchange, deadline, stream)
            try:
                self._expect_key(http)
            except Problem as problem:  # revoked since the request began
                event = FailureEvent(problem)
            if isinstance(event, FailureEvent):
                if event.waits and not order.is_repeatable:
                    await self._take_back(order)
                if stream is None or not stream.has_begun:
                    raise event.problem
            if stream is None:
                if isinstance(event, AnswerEvent):
                    whole = order.shape.whole(event.answer)
                    return web.json_response(whole, headers=order.headers)
            elif await stream.show(event):
                return stream.response

    async def _event(
        self,
        http: web.Request,
        order: Order,
        exchange: Exchange,
        deadline: float,
        stream: Stream | None,
    ) -> Event | None:
        """Return the next event for the client, or None if a keep-alive is due. Raises
        `ConnectionError` if the client has left a request that ends with it."""
        heard = self._clock.monotonic()
        while True:
            event = await exchange.events.get()
            if isinstance(event, AnswerEvent):
                return order.convert_end(event)
            if event is not None and not order.skips(event, stream):
                return event
            # aiohttp reports this only in reads and writes, and there are none at the moment.
            if order.ends_with_client and (http.transport is None or http.transport.is_closing()):
                raise ConnectionResetError("the client has closed its connection")
            now = self._clock.monotonic()
            asked = min((one.at for one in exchange.asked.values()), default=math.inf)
            if now >= asked + _NOTICE_SECONDS:
                return order.make_notice(await self._notice(order, exchange.asked))
            if now >= deadline:
                return self._too_late(order)
            if now >= heard + KEEP_ALIVE_SECONDS:
                return None

    async def _notice(self, order: Order, asked: Mapping[str, OwnerQuestion]) -> str:
        """Return the notice for a client that must not wait for an approval any longer."""
        person, first = {"person": order.message.sender_id}, next(iter(asked.values()))
        if (await self._ask("memory.scope_of", person))["scope"] != "owner":
            return notice(first.what, "", stateless=order.record.alone)
        channel = first.place.channel
        where = _PLACES.get(channel, f"in your {channel.capitalize()} chat")
        where += f" (question {first.code})"
        with suppress(NanobotError):  # the page may not be served
            page = await self._ask("web.list", {})
            where = f"at {page['address']}/approvals" if page["sessions"] else where
        return notice(first.what, where, stateless=order.record.alone)

    def _too_late(self, order: Order) -> FailureEvent:
        """Return the timeout of the request."""
        if order.ends_with_client:
            return FailureEvent(too_late_to_deliver(), waits=True)
        return FailureEvent(too_late(order.is_repeatable))

    async def _look(self, order: Order, exchange: Exchange) -> None:
        """Wait for the answer to a message that another worker received and may answer."""
        while (answer := await self._read_answer(order)) is None:
            await self._clock.sleep(_LOOK_SECONDS)
        await self._clock.sleep(_LOOK_SECONDS)  # an answer of this worker may come first
        exchange.events.put_nowait(AnswerEvent(answer, answer.text))

    async def _read_answer(self, order: Order) -> Answer | None:
        """Return the answer in the record of a request, or None."""
        record = await asyncio.to_thread(self._records.read, order.id)
        return record.answer if record else None

    async def _take_back(self, order: Order) -> None:
        """Stop a request that cannot deliver its answer, so that it is not answered twice: its
        client is gone, or has to retry without a key for this request."""
        message = order.message
        taken = replace(
            message,
            content="",
            event_id=f"drop-{secrets.token_hex(16)}",
            media=(),
            delivery=Delivery(deletes=message.event_id),
            origin=replace(message.origin, context=()),
        )
        try:
            await self._host.publish([taken])
        except NanobotError as error:
            logger.warning("api: a request could not be withdrawn: {}", error)
        else:
            await asyncio.to_thread(self._records.drop_files, order.id)
