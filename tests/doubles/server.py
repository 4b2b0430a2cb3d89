"""How a fake server answers one request: honestly, or in a way that a test armed.

Faults that wait for the calls which they are meant for, and let go at the end what they hold.

Waiting in a fake server until something is so, without asking again and again.

An application of aiohttp's on loopback, as the fake servers use it.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Generic, Literal, Protocol, TypeVar

from aiohttp import web


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer that is ready to be sent."""

    body: bytes
    status: int = 200
    content_type: str = "application/json"


After = Literal["request", "effect"]
"""When a call goes wrong: before it is carried out, or after."""

Answer = Callable[[], Coroutine[object, object, Reply]]


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request; `answer` carries it out and gives the honest reply. `stopping`: whether the
    server is about to end."""

    http: web.Request
    answer: Answer
    stopping: Callable[[], bool]


class Step(Protocol):
    """What happens instead of an honest answer."""

    def play(self, exchange: Exchange) -> Coroutine[object, object, Reply | None]:
        """The reply to send; None if this dealt with the connection itself."""
        ...


@dataclass(frozen=True, slots=True)
class Instead:
    """This reply in the place of the answer; with `effect`, of a call that is carried out all the
    same. A gateway that waited long enough for its server says 504, and one that got an answer it
    cannot use says 502, whatever the server did (RFC 9110, 15.6.3 and 15.6.5)."""

    reply: Reply
    effect: bool = False

    async def play(self, exchange: Exchange) -> Reply | None:
        if self.effect:
            await exchange.answer()
        return self.reply


@dataclass(frozen=True, slots=True)
class Hang:
    """Nothing until `gate` is set; then the call is carried out, or the connection ends, as it
    does when the server stops."""

    gate: asyncio.Event
    honest: bool = True

    async def play(self, exchange: Exchange) -> Reply | None:
        await self.gate.wait()
        if self.honest and not exchange.stopping():
            return await exchange.answer()
        drop(exchange.http)
        return None


@dataclass(frozen=True, slots=True)
class Cut:
    """The connection ends, with or without the effect of the call."""

    effect: bool

    async def play(self, exchange: Exchange) -> Reply | None:
        if self.effect:
            await exchange.answer()
        drop(exchange.http)
        return None


@dataclass(frozen=True, slots=True)
class Late:
    """The call is carried out at once, and answered after so many seconds."""

    seconds: float

    async def play(self, exchange: Exchange) -> Reply | None:
        reply = await exchange.answer()
        await asyncio.sleep(self.seconds)
        return reply


@dataclass(frozen=True, slots=True)
class Slow:
    """Half of the honest body, the rest once `gate` is set."""

    gate: asyncio.Event

    async def play(self, exchange: Exchange) -> Reply | None:
        reply = await exchange.answer()
        response = web.StreamResponse(
            status=reply.status, headers={"Content-Type": reply.content_type}
        )
        response.content_length = len(reply.body)
        await response.prepare(exchange.http)
        half = len(reply.body) // 2
        await response.write(reply.body[:half])
        await self.gate.wait()
        try:
            await response.write(reply.body[half:])
            await response.write_eof()
        except ConnectionError:
            pass  # the client did not wait
        return None


@dataclass(frozen=True, slots=True)
class Huge:
    """A body of that many bytes, made while it is sent, without saying its length before."""

    size: int

    async def play(self, exchange: Exchange) -> Reply | None:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(exchange.http)
        left = self.size
        try:
            while left > 0:
                await response.write(b"x" * min(left, 65_536))
                left -= 65_536
            await response.write_eof()
        except ConnectionError:
            pass  # the client has had enough
        return None


def drop(http: web.Request) -> None:
    """End the connection without another byte."""
    if http.transport is not None:
        http.transport.abort()


CallT = TypeVar("CallT")


@dataclass(slots=True)
class _Armed(Generic[CallT]):
    fits: Callable[[CallT], bool]
    step: Step
    left: int


class Arming(Generic[CallT]):
    """The part of a fake server that misbehaves: a call takes the first fault that fits it."""

    def __init__(self) -> None:
        self._armed: list[_Armed[CallT]] = []
        self._gates: list[asyncio.Event] = []

    def heal(self) -> None:
        """Forget all faults, and let go what they hold."""
        self._armed.clear()
        self._let_go()

    def _let_go(self) -> None:
        for gate in self._gates:
            gate.set()
        self._gates.clear()

    def _take(self, call: CallT) -> Step | None:
        for armed in self._armed:
            if armed.fits(call):
                armed.left -= 1
                self._armed = [one for one in self._armed if one.left]
                return armed.step
        return None

    def _arm_for(self, fits: Callable[[CallT], bool], step: Step, times: int) -> None:
        self._armed.append(_Armed(fits, step, times))

    def _gate(self) -> asyncio.Event:
        gate = asyncio.Event()
        self._gates.append(gate)
        return gate


T = TypeVar("T")

PATIENCE = 60.0
"""Seconds of real time after which a wait of a test's fails, so that a broken test ends."""


class Changes:
    """Lets many wait until something is so; whoever changes something tells them."""

    def __init__(self) -> None:
        self._waiting: list[asyncio.Future[None]] = []

    def tell(self) -> None:
        """Everybody who waits looks again."""
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            if not one.done():
                one.set_result(None)

    async def until(self, ready: Callable[[], T]) -> T:
        """The value of `ready()` once it is true."""
        while not (value := ready()):
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            await turn
        return value

    async def within(
        self, patience: float | None, ready: Callable[[], T], told: Callable[[], str]
    ) -> T:
        """The same, but raises `TimeoutError` with what `told` says after `patience` seconds of
        real time (None: never)."""
        try:
            async with asyncio.timeout(patience):
                return await self.until(ready)
        except TimeoutError:
            raise TimeoutError(f"still waiting; {told()}") from None


_TURNS = 3
"""So often the loop turns until aiohttp has a connection that was just taken."""


class Served:
    """An application that is served, until `stop`. Made by `start`."""

    def __init__(self, runner: web.AppRunner, listener: socket.socket) -> None:
        self._runner, self._listener = runner, listener
        self.port: int = listener.getsockname()[1]

    @classmethod
    async def start(
        cls,
        app: web.Application,
        port: int = 0,
        *,
        shutdown_timeout: float = 0.5,
        handler_cancellation: bool = False,
    ) -> Served:
        """Serve; on any free port if `port` is 0. Requests under way may end within
        `shutdown_timeout` seconds after `stop`, then within as many after they were cancelled."""
        runner = web.AppRunner(
            app,
            access_log=None,
            shutdown_timeout=shutdown_timeout,
            handler_cancellation=handler_cancellation,
        )
        await runner.setup()
        listener = socket.create_server(("127.0.0.1", port))
        await web.SockSite(runner, listener).start()
        return cls(runner, listener)

    async def stop(self) -> None:
        """Serve no more, and close every connection.

        asyncio (up to Python 3.11 at least) drops a connection, unclosed, whose server ends between
        taking it and making its transport. So nobody is taken any more first, and the server ends
        when those who were are with aiohttp.
        """
        asyncio.get_running_loop().remove_reader(self._listener)
        for _ in range(_TURNS):
            await asyncio.sleep(0)
        await self._runner.cleanup()
