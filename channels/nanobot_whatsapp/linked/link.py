"""The connection with one helper: requests and their answers, events and their confirmation.

What always holds: an event is confirmed only when `take` has returned for it, and then for good; a
request ends in an answer or in one of the `SendError`s, however the connection ends; nothing that
the helper does makes this side keep more than a bounded amount. A helper that says something which
is none of the protocol, or does not answer three pings, has failed, and is to be started again.
Time is the clock's.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

from loguru import logger

from nanobot.channel.waiting import first_error
from nanobot.clock import Clock
from nanobot.errors import SendError, SendLater, SendRefused, SendUnknown
from nanobot_whatsapp.linked.hearing import HelperFailed, hung_up, next_line, understood
from nanobot_whatsapp.linked.lines import ack_line, ping_line, request_line
from nanobot_whatsapp.linked.protocol import (
    MAX_LINE,
    WINDOW,
    Answer,
    Change,
    Event,
    Failure,
    Garbage,
    Hello,
    Identity,
    Log,
    Me,
    Method,
    PairCode,
    Pong,
    Qr,
    Said,
    State,
)

PING_SECONDS = 20.0
_MOST_UNANSWERED = 3
"""Pings: counted, so that a daemon that was held up itself does not blame the helper."""

_MOST_REQUESTS = 64
_MOST_UNREAD = 4 * MAX_LINE
"""Bytes that may wait for a helper that does not read."""
_MOST_CHANGES = 256
_LATER_SECONDS = 5.0

Take = Callable[[Sequence[Event], Me | None], Awaitable[None]]
"""Makes events durable, in order, of the account that they came to. What it raises ends the link;
they come again on the next one."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    """Somebody who waits for an answer until `deadline`, on the clock."""

    answer: asyncio.Future[Answer]
    deadline: float
    method: Method


class BridgeLink:
    """A helper that was greeted (see `greeting`). `helper.started` makes one and runs it.

    `take` gets the events; without one they stay in the helper's spool for another time.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        clock: Clock,
        take: Take | None = None,
    ) -> None:
        self._reader, self._writer = reader, writer
        self._clock, self._take = clock, take
        self._numbers = count(1)
        self._waiting: dict[int, _Waiting] = {}
        self._room = asyncio.Semaphore(_MOST_REQUESTS)
        self._events: deque[Event] = deque()
        self._changes: deque[Change] = deque(maxlen=_MOST_CHANGES)
        self._news = asyncio.Event()
        self._arrived = asyncio.Event()
        self._confirmed = 0
        self._unanswered = 0
        self._me: Me | None = None
        self._ended = self._closed = False

    @property
    def me(self) -> Me | None:
        """The account that is linked, as far as it is known."""
        return self._me

    @property
    def answers(self) -> bool:
        """Whether the helper has answered the pings before the latest."""
        return self._unanswered < _MOST_UNANSWERED - 1

    async def states(self) -> AsyncGenerator[Change, None]:
        """What becomes known of the connection and its account, from the first on, in order. For
        one reader; ends with the link."""
        while True:
            while self._changes:
                yield self._changes.popleft()
            if self._closed:
                return
            self._news.clear()
            await self._news.wait()

    async def request(
        self, method: Method, params: Mapping[str, object], patience: float = 60.0
    ) -> Mapping[str, object]:
        """Ask the helper for something; what it answers.

        Raises `SendLater` where nothing was done and it may work later, `SendRefused` where it
        never will, and `SendUnknown` where it may have been done: no answer came before the link
        ended, or within about `patience` seconds.
        """
        async with self._room:
            answer = await self._ask(method, params, patience)
        if answer.failure is not None:
            raise _error(answer.failure)
        return answer.data

    async def run(self) -> None:
        """Keep the conversation going. Raises `HelperFailed` when it ends, or what `take` raises;
        never returns."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._read())
                group.create_task(self._confirm())
                group.create_task(self._keep_alive())
        except BaseExceptionGroup as errors:
            raise first_error(errors) from None
        finally:
            self.close()

    def close(self) -> None:
        """End the connection. Whoever still waits for an answer gets `SendUnknown`."""
        self._end()
        self._closed = True
        self._news.set()
        self._writer.close()

    def _end(self) -> None:
        """No answer comes any more."""
        self._ended = True
        for waiting in self._waiting.values():
            _fail(waiting, "the WhatsApp helper ended before it answered")

    async def _ask(self, method: Method, params: Mapping[str, object], patience: float) -> Answer:
        if self._ended or self._writer.transport.get_write_buffer_size() > _MOST_UNREAD:
            raise SendLater("the WhatsApp helper is not there", retry_after=_LATER_SECONDS)
        number = next(self._numbers)
        try:
            line = request_line(number, method, params)
        except Garbage as error:
            raise SendRefused(str(error)) from None
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        deadline = self._clock.monotonic() + patience
        self._waiting[number] = _Waiting(answer, deadline, method)
        try:
            self._writer.write(line)
            return await answer
        finally:
            del self._waiting[number]

    async def _read(self) -> None:
        while line := await next_line(self._reader):
            said = understood(line)
            if said is not None:
                self._handle(said)
        self._end()
        raise await hung_up(self._clock)

    def _handle(self, said: Said) -> None:
        match said:
            case State() | Qr() | PairCode() | Identity():
                self._changes.append(said)
                self._news.set()
                if isinstance(said, State):
                    self._me = said.me or self._me
            case Event():
                self._keep(said)
            case Answer(id=number):
                waiting = self._waiting.get(number)
                if waiting is not None and not waiting.answer.done():
                    waiting.answer.set_result(said)
            case Pong():
                self._unanswered = 0
            case Log(level=level, message=message):
                logger.log(level, "whatsapp helper: {}", message)
            case Hello():
                raise HelperFailed("the WhatsApp helper said hello twice")

    def _keep(self, event: Event) -> None:
        if self._take is None:
            return
        if len(self._events) >= 2 * WINDOW:
            raise HelperFailed("the WhatsApp helper sends events that nobody confirmed yet")
        self._events.append(event)
        self._arrived.set()

    async def _confirm(self) -> None:
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            batch = list(self._events)
            if new := [event for event in batch if event.seq > self._confirmed]:
                assert self._take is not None
                await self._take(new, self._me)
                self._confirmed = max(event.seq for event in new)
            for _ in batch:
                self._events.popleft()
            if self._events:
                self._arrived.set()
            self._say(ack_line(self._confirmed))

    async def _keep_alive(self) -> None:
        for number in count(1):
            if self._unanswered >= _MOST_UNANSWERED:
                raise HelperFailed("the WhatsApp helper does not answer")
            self._unanswered += 1
            self._say(ping_line(number))
            await self._clock.sleep(PING_SECONDS)
            self._give_up()

    def _give_up(self) -> None:
        now = self._clock.monotonic()
        for waiting in self._waiting.values():
            if waiting.deadline <= now:
                _fail(waiting, f"the WhatsApp helper does not answer ({waiting.method})")

    def _say(self, line: bytes) -> None:
        if not self._ended and not self._writer.is_closing():
            self._writer.write(line)


def _fail(waiting: _Waiting, reason: str) -> None:
    if not waiting.answer.done():
        waiting.answer.set_exception(SendUnknown(reason))


def _error(failure: Failure) -> SendError:
    words = failure.message or "the WhatsApp helper did not say why"
    match failure.code:
        case "later":
            return SendLater(words, retry_after=failure.retry_after or _LATER_SECONDS)
        case "refused":
            return SendRefused(words)
        case "unknown":
            return SendUnknown(words)
