"""How a fake server answers one request: honestly, or in a way that a test armed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Protocol

from aiohttp import web


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer that is ready to be sent."""

    body: bytes
    status: int = 200
    content_type: str = "application/json"


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
    """This reply in the place of the answer, without an effect."""

    reply: Reply

    async def play(self, exchange: Exchange) -> Reply | None:
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
