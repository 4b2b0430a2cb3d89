"""Answers to requests: each message is published once, and its answer given to the client.

A request ends with its turn, or before: if its client has gone, if it waits too long, or if a call
of its turn waits for an approval, which the client is told. Then the turn goes on, as far as
something can come back for its answer.
"""

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

from nanobot.bus.events import InboundMessage
from nanobot.channel import ChannelHost
from nanobot.clock import first_error, with_timeout
from nanobot.errors import NanobotError, StorageError
from nanobot_api.exchanges import (
    Answered,
    Asked,
    Event,
    Exchange,
    Exchanges,
    Left,
    Refused,
    Wrote,
)
from nanobot_api.memory import Ask
from nanobot_api.problems import Problem, not_yet, notice, problem_of, stopped_late, too_late
from nanobot_api.records import ONCE, REPEATABLE, Answer, Record, Records, record_id
from nanobot_api.shapes import ChatShape, Shape
from nanobot_api.stream import Stream

WAIT_SECONDS = 600.0
"""How long a request waits for its answer, as clients of OpenAI's API do; the answer is worked on
however long it takes."""
KEEP_ALIVE_SECONDS = 15.0
"""Without anything else, a stream says after so long that it goes on; until then an error still has
a status of its own."""

_LOOK_SECONDS = 1.0
"""How often a repetition looks into its record where another worker of a team may answer it."""
_LEFT_SECONDS = 0.25
"""How often a request that ends with its client looks whether the client is still there."""
_NOTICE_SECONDS = 25.0
"""So long after the owner was asked, a request ends with a notice, and its turn goes on."""


class Order(Struct, frozen=True):
    """One request that is to be answered: its message, its record (only kept where it can be
    repeated or followed), the form of the answer, and the fields without effect."""

    message: InboundMessage
    record: Record
    shape: Shape
    stream: bool
    ignored: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """What the request is called."""
        return record_id(self.message.chat_id, self.message.event_id)

    @property
    def headers(self) -> dict[str, str]:
        """More headers of the answer."""
        return {"X-Nanobot-Ignored": ", ".join(self.ignored)} if self.ignored else {}

    @property
    def is_repeatable(self) -> bool:
        """Whether the client gave it a key, by which it can ask again."""
        return self.message.event_id.startswith(REPEATABLE)

    def ended(self, event: Answered) -> Event:
        """Return the end of the turn as the client gets it."""
        answer = event.answer
        if answer.error:
            return Refused(problem_of(answer.error, answer.whole))
        return replace(event, answer=replace(answer, before="")) if self.record.formatted else event

    def noticed(self, text: str) -> Event:
        """Return what ends the request while its turn goes on. A client that reads JSON gets an
        error."""
        return Refused(not_yet(text)) if self.record.formatted else Answered(Answer(text), text)

    @property
    def ends_with_client(self) -> bool:
        """Whether the request ends if its client disconnects. Then the client cannot repeat it, and
        it is in no conversation and not stored; or it streams a chat, where Stop is all that a chat
        client has to say."""
        is_chat = self.stream and isinstance(self.shape, ChatShape)
        return self.message.event_id.startswith(ONCE) and (self.record.alone or is_chat)


class Answering:
    """Gives the answers. `ask` does operations of the gateway; `expect_key` raises `Problem` for a
    request whose key may not be used any more."""

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
        """Publish the message of a request, once, and give its answer."""
        if order.record.answer is not None:
            return await self._replay(http, order, order.record.answer)
        message = order.message
        with self._exchanges.waiting(message.chat_id, message.event_id) as exchange:
            try:
                new = await self._host.publish([message])
            except StorageError:
                await self._give_up(order)
                raise
            if not new and (answer := await self._known_answer(order)) is not None:
                return await self._replay(http, order, answer)
            return await self._converse_watched(http, order, exchange, is_new=bool(new))

    async def _converse_watched(
        self, http: web.Request, order: Order, exchange: Exchange, *, is_new: bool
    ) -> web.StreamResponse:
        """Give the answer. Poll for changes that have no event: an answer of another worker, a
        client that disconnects from a request that ends with it."""
        try:
            async with asyncio.TaskGroup() as group:
                watchers = []
                if self._host.is_folder_shared and not is_new:
                    watchers.append(group.create_task(self._look(order, exchange)))
                if order.ends_with_client:
                    watchers.append(group.create_task(self._watch_client(http, exchange)))
                answered = await self._converse(http, order, exchange)
                for watcher in watchers:
                    watcher.cancel()
        except BaseExceptionGroup as failures:
            error = first_error(failures)
            if isinstance(error, ConnectionError) and order.ends_with_client:
                await self._take_back(order)
            raise error from None
        return answered

    async def _known_answer(self, order: Order) -> Answer | None:
        """The answer to a message that the core did not take, because it has it; None while that
        is being answered. Raises `Problem` where it has it not."""
        if not await self._host.has_received(order.message.chat_id, order.message.event_id):
            await self._give_up(order)
            raise Problem(
                429, "Too many requests within a minute.", "rate_limit_exceeded", retry_after=60
            )
        return await self._recorded(order)

    async def _give_up(self, order: Order) -> None:
        """Keep nothing of a request whose message was not taken, so that whoever sends too much
        fills no disk. A repetition leaves what the first one has."""
        chat, event_id = order.message.chat_id, order.message.event_id
        alone = self._exchanges.waits_alone(chat, event_id)
        if alone and not await self._host.has_received(chat, event_id):
            await asyncio.to_thread(self._records.give_up, order.id)

    async def _replay(self, http: web.Request, order: Order, answer: Answer) -> web.StreamResponse:
        exchange = Exchange()
        exchange.events.put_nowait(Answered(answer, answer.text))
        return await self._converse(http, order, exchange)

    async def _converse(
        self, http: web.Request, order: Order, exchange: Exchange
    ) -> web.StreamResponse:
        """Give the answer when it is there, as a stream or as a whole."""
        deadline = self._clock.monotonic() + WAIT_SECONDS
        stream = Stream(http, order.shape, order.headers) if order.stream else None
        while True:
            event = await self._event(order, exchange, deadline)
            try:
                self._expect_key(http)
            except Problem as problem:  # since the request was taken
                event = Refused(problem)
            if isinstance(event, Refused):
                if event.waits and not order.is_repeatable:
                    await self._take_back(order)
                if stream is None or not stream.has_begun:
                    raise event.problem
            if stream is None:
                if isinstance(event, Answered):
                    whole = order.shape.whole(event.answer)
                    return web.json_response(whole, headers=order.headers)
            elif await stream.show(event):
                return stream.response

    async def _event(self, order: Order, exchange: Exchange, deadline: float) -> Event | None:
        """Return the next event for the client; None: it is time for a sign of life."""
        heard = self._clock.monotonic()
        while True:
            now = self._clock.monotonic()
            asked = min((one.at for one in exchange.asked.values()), default=math.inf)
            left = min(deadline, asked + _NOTICE_SECONDS, heard + KEEP_ALIVE_SECONDS) - now
            event = await self._next(exchange, max(0.0, left))
            if isinstance(event, Wrote) and order.record.formatted:
                event = None  # it may be put into its form yet
            if isinstance(event, Answered):
                return order.ended(event)
            if event is not None:
                return event
            now = self._clock.monotonic()
            if exchange.asked and now >= asked + _NOTICE_SECONDS:
                return order.noticed(await self._notice(order, exchange.asked))
            if now >= deadline:
                return self._too_late(order)
            if now >= heard + KEEP_ALIVE_SECONDS:
                return None

    async def _notice(self, order: Order, asked: Mapping[str, Asked]) -> str:
        """Return the notice for a client that must not wait for an approval any longer."""
        person, first = {"person": order.message.sender_id}, next(iter(asked.values()))
        if (await self._ask("memory.scope_of", person))["scope"] != "owner":
            return notice(first.what, "", stateless=order.record.alone)
        where = _place(first)
        with suppress(NanobotError):  # the page may not be served
            page = await self._ask("web.list", {})
            where = f"at {page['address']}/approvals" if page["sessions"] else where
        return notice(first.what, where, stateless=order.record.alone)

    def _too_late(self, order: Order) -> Refused:
        """The client is waited for no longer."""
        if order.ends_with_client:
            return Refused(stopped_late(), waits=True)
        return Refused(too_late(order.is_repeatable))

    async def _next(self, exchange: Exchange, seconds: float) -> Event | None:
        """Return the next event, None if none comes or there is something else to look at. Raises
        `ConnectionError` if the client has left."""
        event: Event | Left | None = None
        if not exchange.events.empty():
            event = exchange.events.get_nowait()
        else:
            with suppress(TimeoutError):
                event = await with_timeout(self._clock, seconds, exchange.events.get())
        if isinstance(event, Left):
            raise ConnectionResetError("the client has closed its connection")
        return event

    async def _look(self, order: Order, exchange: Exchange) -> None:
        """Wait for the answer to a message that another worker took, and may answer."""
        while (answer := await self._recorded(order)) is None:
            await self._clock.sleep(_LOOK_SECONDS)
        await self._clock.sleep(_LOOK_SECONDS)  # what is answered here is heard of in a moment
        exchange.events.put_nowait(Answered(answer, answer.text))

    async def _recorded(self, order: Order) -> Answer | None:
        """The answer in the record of a request, where it has one."""
        record = await asyncio.to_thread(self._records.read, order.id)
        return record.answer if record else None

    async def _watch_client(self, http: web.Request, exchange: Exchange) -> None:
        """Report that the client has closed its connection. aiohttp only tells who reads or writes,
        and while the model works there is nothing to read or write."""
        while http.transport is not None and not http.transport.is_closing():
            await self._clock.sleep(_LEFT_SECONDS)
        exchange.events.put_nowait(Left())

    async def _take_back(self, order: Order) -> None:
        """Stop a request that can't deliver its answer: its client is gone, or is told to try
        again without a key that names this request, so it must not be answered twice."""
        message = order.message
        taken = replace(
            message,
            content="",
            event_id=f"drop-{secrets.token_hex(16)}",
            deletes=message.event_id,
            media=(),
            context=(),
        )
        try:
            await self._host.publish([taken])
        except NanobotError as error:
            logger.warning("api: a request could not be taken back: {}", error)
        else:
            await asyncio.to_thread(self._records.drop_files, order.id)


def _place(asked: Asked) -> str:
    """Where a question was asked, for the owner."""
    channel = asked.place.channel
    named = {"cli": "in the terminal", "web": "on the page", "whatsapp": "in your WhatsApp chat"}
    place = named.get(channel, f"in your {channel.capitalize()} chat")
    return f"{place} (question {asked.code})"
