"""Base of the fake servers: honest answers and armed faults, waiting for conditions without
polling, and an aiohttp application on loopback."""

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
"""The moment of a failure: before the effect of a call, or after it."""

Answer = Callable[[], Coroutine[object, object, Reply]]


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request. `answer` runs it and returns the honest reply. `stopping`: the server is about
    to end."""

    http: web.Request
    answer: Answer
    stopping: Callable[[], bool]


class Step(Protocol):
    """A replacement of an honest answer."""

    def play(self, exchange: Exchange) -> Coroutine[object, object, Reply | None]:
        """Return the reply to send, or None after handling the connection itself."""
        ...


@dataclass(frozen=True, slots=True)
class Instead:
    """This reply in place of the answer, and with `effect` the call still runs. A gateway that
    timed out on its server answers 504, and one with an unusable answer 502, whatever the server
    did (RFC 9110, 15.6.3 and 15.6.5)."""

    reply: Reply
    effect: bool = False

    async def play(self, exchange: Exchange) -> Reply | None:
        if self.effect:
            await exchange.answer()
        return self.reply


@dataclass(frozen=True, slots=True)
class Hang:
    """Nothing until `gate` is set. Then the call runs, or the connection ends, as when the server
    stops."""

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
    """The call runs at once, and is answered after this many seconds."""

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
    """A body of that many bytes, made while it is sent, without an announced length."""

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
    """The faulty part of a fake server: a call takes the first matching fault."""

    def __init__(self) -> None:
        self._armed: list[_Armed[CallT]] = []
        self._gates: list[asyncio.Event] = []

    def heal(self) -> None:
        """Forget all faults, and release held calls."""
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
"""Seconds of real time after which a test's wait fails, so that a broken test ends."""


class Changes:
    """Lets many tasks wait for conditions. Changes have to be announced with `tell`."""

    def __init__(self) -> None:
        self._waiting: list[asyncio.Future[None]] = []

    def tell(self) -> None:
        """Let all waiters check again."""
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            if not one.done():
                one.set_result(None)

    async def until(self, ready: Callable[[], T]) -> T:
        """Return the value of `ready()` once it is true."""
        while not (value := ready()):
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            await turn
        return value

    async def within(
        self, patience: float | None, ready: Callable[[], T], told: Callable[[], str]
    ) -> T:
        """Return the value of `ready()` once it is true. Raise `TimeoutError` with the text of
        `told` after `patience` seconds of real time (None: never)."""
        try:
            async with asyncio.timeout(patience):
                return await self.until(ready)
        except TimeoutError:
            raise TimeoutError(f"still waiting; {told()}") from None


_TURNS = 3
"""Runs of the event loop until aiohttp has a newly accepted connection."""


class Served:
    """A served application, until `stop`. Created by `start`."""

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
        """Serve, on any free port if `port` is 0. Running requests may end within
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
        """Stop serving, and close every connection.

        asyncio (up to Python 3.11 at least) leaks an open connection if its server ends between
        accepting it and creating its transport. So accepting stops first, and the server ends when
        aiohttp has the accepted ones."""
        asyncio.get_running_loop().remove_reader(self._listener)
        for _ in range(_TURNS):
            await asyncio.sleep(0)
        await self._runner.cleanup()
