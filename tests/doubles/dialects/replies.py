"""The answers of scripted models, in the form of each kind of server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from aiohttp import web

from tests.doubles.dialects.hosted import signature
from tests.doubles.dialects.requests import calls_of, messages_of
from tests.doubles.openai.answers import JSON_TYPE, STREAM_TYPE, Exchange, Raw

Thinking = Literal["reasoning_content", "reasoning_details", "extra_content", "reasoning"]
"""The field with the thinking, which the server requires back."""


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call. `arguments` is sent unchanged, a text or another value. An `id` of None is left
    out, and an empty one is replaced by the server's own."""

    name: str
    arguments: object = "{}"
    id: str | None = ""


@dataclass(frozen=True, slots=True)
class Says:
    """An answer of the model. An empty `finish` is the usual one."""

    text: str = ""
    calls: tuple[Call, ...] = ()
    thinking: str = ""
    finish: str = ""


@dataclass(frozen=True, slots=True)
class Manner:
    """The form of a server's answers: the ids of calls (from `{name}`, and `{n}`, which counts
    through the conversation), the field of the thinking, and llama.cpp's progress."""

    ids: str = "call_{hash}"
    thinking: Thinking = "reasoning_content"
    progress: bool = False

    def play(self, says: Says, exchange: Exchange) -> Raw:
        """Return the whole answer: a stream of events or one object, as requested."""
        message = self._message(says, exchange)
        if not exchange.request.streams:
            choice = {"index": 0, "message": message, "finish_reason": _finish(says)}
            fields = {**_envelope(exchange, "chat.completion", [choice]), "usage": _usage(exchange)}
            return Raw(json.dumps(fields).encode())
        return Raw(b"".join(self._events(says, message, exchange)), content_type=STREAM_TYPE)

    def _events(
        self, says: Says, message: Mapping[str, object], exchange: Exchange
    ) -> Sequence[bytes]:
        chunks = [*self._reading(exchange), *deltas(message, _finish(says))]
        events = [_envelope(exchange, "chat.completion.chunk", [chunk]) for chunk in chunks[:-1]]
        events = [{**event, **_beside(chunk)} for event, chunk in zip(events, chunks, strict=False)]
        events.append(_envelope(exchange, "chat.completion.chunk", [chunks[-1]]))
        if exchange.request.body.get("stream_options"):
            last = _envelope(exchange, "chat.completion.chunk", [])
            events.append({**last, "usage": _usage(exchange)})
        if self.progress:
            events[-1] = {**events[-1], "timings": {"prompt_n": 9, "predicted_n": 3}}
        return [event_of(event) for event in events] + [b"data: [DONE]\n\n"]

    def _reading(self, exchange: Exchange) -> Sequence[Mapping[str, object]]:
        """Return the progress of llama.cpp's `return_progress`: tools/server/README.md, and
        `result_prompt_progress` of tools/server/server-task.cpp."""
        if not self.progress or exchange.request.body.get("return_progress") is not True:
            return []
        total = max(4, len(exchange.request.raw) // 4)
        return [
            {
                "index": 0,
                "delta": {"role": "assistant", "content": None},
                "finish_reason": None,
                "prompt_progress": {"total": total, "cache": 0, "processed": n, "time_ms": n},
            }
            for n in (total // 2, total)
        ]

    def _message(self, says: Says, exchange: Exchange) -> Mapping[str, object]:
        before = sum(len(calls_of(one)) for one in messages_of(exchange.request.body))
        calls = [
            self._call(call, before + at, exchange.number) for at, call in enumerate(says.calls)
        ]
        message: dict[str, object] = {"role": "assistant", "content": says.text or None}
        if calls:
            message["tool_calls"] = calls
        if says.thinking and self.thinking in ("reasoning_content", "reasoning"):
            message[self.thinking] = says.thinking
        if self.thinking == "reasoning_details" and (says.thinking or calls):
            message["reasoning_details"] = _details(says, calls, exchange.number)
            message["reasoning"] = says.thinking
        if self.thinking == "extra_content" and calls:
            signed = {"google": {"thought_signature": signature(_seed(says, exchange.number))}}
            calls[0]["extra_content"] = signed
        return message

    def _call(self, call: Call, count: int, number: int) -> dict[str, object]:
        function = {"name": call.name, "arguments": call.arguments}
        fields: dict[str, object] = {"type": "function", "function": function}
        if call.id is not None:
            digits = f"{number:04d}{count:04d}"
            own = self.ids.format(
                name=call.name, n=count, hash=f"{digits:0>24}", short=f"D{digits}"
            )
            fields = {"id": call.id or own, **fields}
        return fields


def _seed(says: Says, number: int) -> str:
    return f"{number}:{says.thinking}"


def _details(
    says: Says, calls: Sequence[Mapping[str, object]], number: int
) -> list[dict[str, object]]:
    """Return a sequence of details in Gemini's form through OpenRouter."""
    form = {"format": "google-gemini-v1"}
    details: list[dict[str, object]] = []
    if says.thinking:
        details.append({"type": "reasoning.text", "text": says.thinking, **form, "index": 0})
    if calls:
        sealed = signature(_seed(says, number))
        own = {"type": "reasoning.encrypted", "data": sealed, "id": calls[0]["id"]}
        details.append({**own, **form, "index": len(details)})
    return details


def deltas(message: Mapping[str, object], finish: str) -> list[dict[str, object]]:
    """Return the choices of a stream with `message` in pieces."""
    found: list[Mapping[str, object]] = [{"role": "assistant", "content": ""}]
    for name in ("reasoning_content", "reasoning"):
        found += [{name: piece} for piece in _pieces(message.get(name))]
    details = message.get("reasoning_details")
    if isinstance(details, list):
        found += [{"reasoning_details": [one]} for one in details]
    found += [{"content": piece} for piece in _pieces(message.get("content"))]
    calls = message.get("tool_calls")
    for index, call in enumerate(calls if isinstance(calls, list) else ()):
        found += _call_deltas(index, call)
    choices: list[dict[str, object]] = [
        {"index": 0, "delta": delta, "finish_reason": None} for delta in found
    ]
    return [*choices, {"index": 0, "delta": {}, "finish_reason": finish}]


def _call_deltas(index: int, call: Mapping[str, object]) -> list[Mapping[str, object]]:
    function = call["function"]
    assert isinstance(function, dict)
    arguments = function["arguments"]
    if not isinstance(arguments, str):
        return [{"tool_calls": [{**call, "index": index}]}]
    first = {**call, "index": index, "function": {**function, "arguments": ""}}
    rest = [{"index": index, "function": {"arguments": one}} for one in _pieces(arguments)]
    return [{"tool_calls": [first]}, *({"tool_calls": [one]} for one in rest)]


def _pieces(text: object, size: int = 7) -> list[str]:
    if not isinstance(text, str):
        return []
    return [text[start : start + size] for start in range(0, len(text), size)]


def _finish(says: Says) -> str:
    return says.finish or ("tool_calls" if says.calls else "stop")


def _envelope(exchange: Exchange, kind: str, choices: Sequence[object]) -> dict[str, object]:
    model = exchange.request.model
    own = [
        {name: value for name, value in choice.items() if name != "prompt_progress"}
        for choice in choices
        if isinstance(choice, dict)
    ]
    return {"id": "chatcmpl-1", "object": kind, "created": 1, "model": model, "choices": own}


def _beside(choice: Mapping[str, object]) -> dict[str, object]:
    progress = choice.get("prompt_progress")
    return {"prompt_progress": progress} if progress else {}


def _usage(exchange: Exchange) -> dict[str, int]:
    return {"prompt_tokens": len(exchange.request.raw) // 4, "completion_tokens": 3}


def event_of(fields: object) -> bytes:
    """Return one event of a stream."""
    return b"data: " + json.dumps(fields, separators=(",", ":")).encode() + b"\n\n"


@dataclass(frozen=True, slots=True)
class Stream:
    """A stream of exactly these choices, for irregular servers. `pauses` are seconds before the
    choice with that number. `done`: `[DONE]` follows."""

    choices: tuple[Mapping[str, object], ...]
    done: bool = True
    pauses: Mapping[int, float] = field(default_factory=dict)

    async def play(self, exchange: Exchange) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": STREAM_TYPE})
        await response.prepare(exchange.http)
        for number, choice in enumerate(self.choices):
            if pause := self.pauses.get(number, 0.0):
                await asyncio.sleep(pause)
            await response.write(event_of(_envelope(exchange, "chat.completion.chunk", [choice])))
        if self.done:
            await response.write(b"data: [DONE]\n\n")
        await response.write_eof()
        return response


@dataclass(frozen=True, slots=True)
class Slow:
    """A server that takes this long to read the prompt. It sends its progress on request."""

    seconds: float
    says: Says
    manner: Manner = Manner()

    async def play(self, exchange: Exchange) -> web.StreamResponse:
        tells = self.manner.progress and exchange.request.body.get("return_progress") is True
        if not tells:
            await asyncio.sleep(self.seconds)
            return await self.manner.play(self.says, exchange).play(exchange)
        body = self.manner.play(self.says, exchange).body
        events = [event + b"\n\n" for event in body.split(b"\n\n") if event]
        response = web.StreamResponse(headers={"Content-Type": STREAM_TYPE})
        await response.prepare(exchange.http)
        for number, event in enumerate(events):
            await response.write(event)
            if number < 2:
                await asyncio.sleep(self.seconds / 2)
        await response.write_eof()
        return response


@dataclass(frozen=True, slots=True)
class Reset:
    """The connection is reset before any answer."""

    async def play(self, exchange: Exchange) -> web.StreamResponse:
        transport = exchange.http.transport
        if transport is not None:
            transport.abort()
        return web.Response(status=503)


def json_answer(fields: object, status: int = 200) -> Raw:
    """Return any JSON value as an answer."""
    return Raw(json.dumps(fields).encode(), status, JSON_TYPE)
