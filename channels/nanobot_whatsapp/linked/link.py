"""The connection with one helper: requests and answers, events and confirmations.

Invariants: an event is confirmed only after `ingest` returned for it, and then permanently. A
request ends in an answer or in a `SendError`, however the connection ends. The helper can't make
this side keep more than a bounded amount. A helper that breaks the protocol or does not answer
three pings has failed and is restarted. Time is the clock's."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from itertools import count

from loguru import logger

from nanobot.clock import Clock, first_error, with_timeout
from nanobot.errors import NanobotError, SendError, SendLater, SendRefused, SendUnknown
from nanobot_whatsapp.linked.protocol import (
    MAX_LINE,
    PROTOCOL,
    WINDOW,
    Answer,
    Change,
    Event,
    Failure,
    FromHelper,
    Hello,
    Identity,
    Log,
    Me,
    Method,
    PairCode,
    Pong,
    ProtocolViolation,
    Qr,
    State,
    Welcome,
    encode,
    parse,
    request_line,
    welcome_line,
)

PING_SECONDS = 20.0
_MAX_UNANSWERED = 3
"""Pings. They are counted, so that a suspended daemon does not blame the helper."""

_MAX_REQUESTS = 64
_MAX_UNREAD = 4 * MAX_LINE  # bytes that may be pending for a helper that does not read
_MAX_CHANGES = 256
_RETRY_SECONDS = 5.0
_LEAVING_SECONDS = 2.0

IngestEvents = Callable[[Sequence[Event], Me | None], Awaitable[None]]
"""Makes events of an account durable, in order. An exception ends the link, and the events are sent
again on the next one."""


class HelperFailed(NanobotError):
    """The helper ended, hung, or broke the protocol."""


async def greet(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, welcome: Welcome, clock: Clock
) -> None:
    """Read the helper's hello and welcome it. Raises `HelperFailed`, also for another version."""
    line = await read_line(reader)
    if not line:
        raise await hangup_error(clock)
    hello = parse_or_fail(line)
    if not isinstance(hello, Hello):
        raise HelperFailed("the WhatsApp helper did not begin with a hello message")
    if hello.protocol != PROTOCOL:
        writer.write(encode("goodbye", reason=f"this nanobot speaks version {PROTOCOL}"))
        raise HelperFailed(
            f"the WhatsApp helper uses protocol version {hello.protocol}, not {PROTOCOL}",
            hint="To install this version's helper, run `nanobot channels login whatsapp`.",
        )
    writer.write(welcome_line(welcome))
    logger.debug(
        "whatsapp helper {} with baileys {} on node {}", hello.bridge, hello.baileys, hello.node
    )


class BridgeLink:
    """The link to a greeted helper. `process.run_helper` creates and runs it.

    `ingest` gets the events. Without it they stay in the helper's spool."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        clock: Clock,
        ingest: IngestEvents | None = None,
    ) -> None:
        self._reader, self._writer = reader, writer
        self._clock, self._ingest = clock, ingest
        self._numbers = count(1)
        self._waiting: dict[int, asyncio.Future[Answer]] = {}
        self._room = asyncio.Semaphore(_MAX_REQUESTS)
        self._events: deque[Event] = deque()
        self._arrived = asyncio.Event()
        self._confirmed = 0
        self._changes: asyncio.Queue[Change | None] = asyncio.Queue()
        self._unanswered = 0
        self._me: Me | None = None
        self._ended = False

    @property
    def me(self) -> Me | None:
        """The linked account, if known."""
        return self._me

    @property
    def is_responsive(self) -> bool:
        """True if the helper has answered the pings before the latest."""
        return self._unanswered < _MAX_UNANSWERED - 1

    async def changes(self) -> AsyncGenerator[Change, None]:
        """Yield the changes of the connection and its account in order. For one reader. Ends with
        the link."""
        while (change := await self._changes.get()) is not None:
            yield change

    async def request(
        self, method: Method, params: Mapping[str, object], patience: float = 60.0
    ) -> Mapping[str, object]:
        """Send a request and return its answer.

        Raises `SendLater` if nothing was done and it may work later, `SendRefused` if it never
        will, and `SendUnknown` if it may have been done: no answer came before the link ended, or
        within `patience` seconds."""
        async with self._room:
            if self._ended or self._writer.transport.get_write_buffer_size() > _MAX_UNREAD:
                raise SendLater("the WhatsApp helper is not available", retry_after=_RETRY_SECONDS)
            number = next(self._numbers)
            try:
                line = request_line(number, method, params)
            except ProtocolViolation as error:
                raise SendRefused(str(error)) from None
            self._waiting[number] = future = asyncio.get_running_loop().create_future()
            try:
                self._writer.write(line)
                answer = await with_timeout(self._clock, patience, _result(future))
            except TimeoutError:
                late = f"the WhatsApp helper does not answer ({method})"
                raise SendUnknown(late) from None
            finally:
                del self._waiting[number]
        if not answer.ok:
            raise as_send_error(answer.error or Failure("unknown"))
        return answer.data

    async def run(self) -> None:
        """Run the connection. Raises `HelperFailed` when it ends, or the exception of `ingest`.
        Never returns."""
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
        """End the connection. Pending requests raise `SendUnknown`."""
        self._end()
        self._changes.put_nowait(None)
        self._writer.close()

    def _end(self) -> None:
        self._ended = True
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(SendUnknown("the WhatsApp helper exited before it answered"))

    async def _read(self) -> None:
        while line := await read_line(self._reader):
            if (received := parse_or_fail(line)) is not None:
                self._handle(received)
        self._end()
        raise await hangup_error(self._clock)

    def _handle(self, received: FromHelper) -> None:
        match received:
            case State() | Qr() | PairCode() | Identity():
                if self._changes.qsize() >= _MAX_CHANGES:
                    self._changes.get_nowait()
                self._changes.put_nowait(received)
                self._me = (received.me if isinstance(received, State) else None) or self._me
            case Event() if self._ingest is not None:
                if len(self._events) >= 2 * WINDOW:
                    raise HelperFailed("the WhatsApp helper sent too many unconfirmed events")
                self._events.append(received)
                self._arrived.set()
            case Answer(id=number) if (future := self._waiting.get(number)) is not None:
                if not future.done():
                    future.set_result(received)
            case Pong():
                self._unanswered = 0
            case Log(level=level, message=message):
                logger.log(level.upper(), "whatsapp helper: {}", message)
            case Hello():
                raise HelperFailed("the WhatsApp helper sent hello twice")
            case _:
                pass  # an event that is not ingested, or a late answer

    async def _confirm(self) -> None:
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            batch = list(self._events)
            if new := [event for event in batch if event.seq > self._confirmed]:
                assert self._ingest is not None
                await self._ingest(new, self._me)
                self._confirmed = max(event.seq for event in new)
            for _ in batch:
                self._events.popleft()
            if self._events:
                self._arrived.set()
            self._write(encode("ack", seq=self._confirmed))

    async def _keep_alive(self) -> None:
        for number in count(1):
            if self._unanswered >= _MAX_UNANSWERED:
                raise HelperFailed("the WhatsApp helper does not answer")
            self._unanswered += 1
            self._write(encode("ping", id=number))
            await self._clock.sleep(PING_SECONDS)

    def _write(self, line: bytes) -> None:
        if not self._ended and not self._writer.is_closing():
            self._writer.write(line)


async def _result(future: asyncio.Future[Answer]) -> Answer:
    return await future


def as_send_error(failure: Failure) -> SendError:
    reason = failure.message or "the WhatsApp helper gave no reason"
    match failure.code:
        case "later":
            return SendLater(reason, retry_after=failure.retry_after or _RETRY_SECONDS)
        case "refused":
            return SendRefused(reason)
        case "unknown":
            return SendUnknown(reason)


async def read_line(reader: asyncio.StreamReader) -> bytes:
    """Return the next line, or empty at the end. Raises `HelperFailed` if it is too long."""
    try:
        return await reader.readuntil(b"\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return b""
    except asyncio.LimitOverrunError:
        raise HelperFailed(
            f"the WhatsApp helper sent a line of more than {MAX_LINE:,} bytes"
        ) from None


async def hangup_error(clock: Clock) -> HelperFailed:
    """Return the error for a closed connection, after a delay: the watcher of the process has a
    more helpful error."""
    await clock.sleep(_LEAVING_SECONDS)
    return HelperFailed("the WhatsApp helper closed the connection")


def parse_or_fail(line: bytes) -> FromHelper | None:
    """Parse a line, with errors as `HelperFailed`. None for an unknown type."""
    try:
        received = parse(line)
    except ProtocolViolation as error:
        raise HelperFailed(f"the WhatsApp helper violated the protocol: {error}") from None
    if received is None:
        logger.debug("the WhatsApp helper sent a line of an unknown type")
    return received
