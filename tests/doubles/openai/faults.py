"""Every way in which `FakeOpenAI` can misbehave.

`FAULTS` has one step for each required fault of a model server, by name, so that a test can go
through them all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

from aiohttp import web

from nanobot.messages import ToolCall
from tests.doubles.openai.answers import Answer, Exchange, Raw, Step
from tests.doubles.openai.rules import ApiError

_UNFINISHED = Answer("This sentence will not come to its end, however long anybody waits for it.")


@dataclass(frozen=True, slots=True)
class Stall:
    """Sends nothing more: not even headers (`frames` None), or only this many frames of
    `answer`."""

    frames: int | None = None
    answer: Answer = _UNFINISHED

    async def play(self, exchange: Exchange) -> web.StreamResponse:
        response: web.StreamResponse = web.Response(status=503)
        if self.frames is not None:
            response = await exchange.send(self.answer.frames(exchange)[: self.frames])
        await exchange.closing.wait()
        return response


@dataclass(frozen=True, slots=True)
class Cut:
    """Ends the connection after this many frames. `clean`: as if the answer were complete."""

    frames: int = 3
    clean: bool = False
    answer: Answer = _UNFINISHED

    async def play(self, exchange: Exchange) -> web.StreamResponse:
        response = await exchange.send(self.answer.frames(exchange)[: self.frames])
        if self.clean:
            await response.write_eof()
        elif exchange.http.transport is not None:
            exchange.http.transport.close()
        return response


@dataclass(slots=True)
class Huge:
    """A body of `size` bytes, made while it is sent. `sent` is the number of sent bytes."""

    size: int = 50_000_000
    status: int = 200
    start: bytes = b'{"choices":"'
    sent: int = 0

    async def play(self, exchange: Exchange) -> web.StreamResponse:
        response = web.StreamResponse(
            status=self.status, headers={"Content-Type": "application/json"}
        )
        await response.prepare(exchange.http)
        block = self.start
        try:
            while self.sent < self.size:
                await response.write(block)
                self.sent += len(block)
                block = b"x" * 65_536
        except ConnectionError:
            return response  # the client has had enough
        await response.write_eof()
        return response


@dataclass(frozen=True, slots=True)
class Late:
    """`step` after this many real seconds."""

    seconds: float
    step: Step

    async def play(self, exchange: Exchange) -> web.StreamResponse:
        await asyncio.sleep(self.seconds)
        return await self.step.play(exchange)


@dataclass(frozen=True, slots=True)
class HeldStep:
    """`step` once `gate` is set, for tests that check something while the model is busy."""

    gate: asyncio.Event
    step: Step

    async def play(self, exchange: Exchange) -> web.StreamResponse:
        await self.gate.wait()
        return await self.step.play(exchange)


@dataclass(frozen=True, slots=True)
class Paused:
    """The first `frames` of `answer`, and the rest once `gate` is set."""

    gate: asyncio.Event
    answer: Answer
    frames: int = 12

    async def play(self, exchange: Exchange) -> web.StreamResponse:
        frames = self.answer.frames(exchange)
        response = await exchange.send(frames[: self.frames])
        await self.gate.wait()
        for frame in frames[self.frames :]:
            await response.write(frame)
        await response.write_eof()
        return response


def refusal(error: ApiError, headers: Mapping[str, str] | None = None) -> Raw:
    """Return an error answer."""
    return Raw(error.body(), error.status, headers=headers or {})


def busy(seconds: float | None = None, *, as_date: bool = False) -> Raw:
    """Return 429, with `Retry-After` in seconds or as a date."""
    headers = {}
    if seconds is not None:
        due = datetime.now(UTC) + timedelta(seconds=seconds)
        headers["Retry-After"] = format_datetime(due, usegmt=True) if as_date else f"{seconds:g}"
    error = ApiError(429, "Rate limit reached.", "rate_limit_exceeded", "requests")
    return refusal(error, headers)


def server_error(status: int = 500, retry_after: float | None = None) -> Raw:
    """Return a 5xx."""
    headers = {} if retry_after is None else {"Retry-After": f"{retry_after:g}"}
    return refusal(ApiError(status, "The server had an error.", None, "server_error"), headers)


def context_length_exceeded(limit: int = 8192) -> Raw:
    """Return the error for a prompt that does not fit."""
    message = f"This model's maximum context length is {limit} tokens. Please reduce the length."
    return refusal(ApiError(400, message, "context_length_exceeded", param="messages"))


def wrong_key(key: str = "sk-…") -> Raw:
    """Return the error for a wrong key, which it contains like the real one."""
    return refusal(ApiError(401, f"Incorrect API key provided: {key}.", "invalid_api_key"))


def wants(name: str, arguments: str, call_id: str = "call_1") -> Answer:
    """Return a tool call with exactly these characters as arguments."""
    return Answer(None, (ToolCall(call_id, name, arguments),))


def _duplicate_ids() -> Answer:
    call = ToolCall("call_1", "list_dir", '{"path":"."}')
    return Answer(None, (call, call))


def _empty_choices() -> Raw:
    return Raw(b'{"id":"x","object":"chat.completion","model":"fake","choices":[]}')


def _html() -> Raw:
    page = b"<!doctype html><html><title>Sign in</title><body>Please sign in.</body></html>"
    return Raw(page, content_type="text/html")


FAULTS: Mapping[str, Callable[[], Step]] = {
    "429 with seconds": lambda: busy(2),
    "429 with a date": lambda: busy(2, as_date=True),
    "500": lambda: server_error(500),
    "503": lambda: server_error(503),
    "stall before headers": Stall,
    "stall in mid-stream": lambda: Stall(3),
    "cut in mid-stream": Cut,
    "HTML with status 200": _html,
    "50 MB body": Huge,
    "arguments that are not JSON": lambda: wants("read_file", '{"path": oops'),
    "arguments that are not an object": lambda: wants("read_file", '["a.txt"]'),
    "arguments with NaN": lambda: wants("read_file", '{"path":"a.txt","start_line":NaN}'),
    "arguments nested deeply": lambda: wants("read_file", '{"path":' + "[" * 5000),
    "unknown tool": lambda: wants("no_such_tool", "{}"),
    "duplicate call ids": _duplicate_ids,
    "empty choices": _empty_choices,
    "null content": lambda: Answer(None),
    "finish by length": lambda: Answer("This sentence is cut by the", finish="length"),
    "context length exceeded": context_length_exceeded,
    "401": wrong_key,
}
"""Each fault by name. The values make a new step."""
