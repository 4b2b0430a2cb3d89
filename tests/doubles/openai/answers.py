"""Requests and possible answers of `FakeOpenAI`: sentences, tool calls, or any bytes.

A `Step` plays one answer. Failures are in `faults`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from aiohttp import web

from nanobot.messages import ToolCall

STREAM_TYPE = "text/event-stream"
JSON_TYPE = "application/json"


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A received request. `headers` have lower-case names, and `raw` is the exact body."""

    path: str
    headers: Mapping[str, str]
    raw: bytes
    body: Mapping[str, object]

    @property
    def messages(self) -> Sequence[Mapping[str, object]]:
        """The conversation."""
        messages = self.body.get("messages")
        return messages if isinstance(messages, list) else []

    @property
    def streams(self) -> bool:
        """True if a stream was requested."""
        return self.body.get("stream") is True

    @property
    def model(self) -> str:
        """The requested model."""
        return str(self.body.get("model", ""))

    @property
    def last_user_text(self) -> str:
        """The text of the last user message."""
        for message in reversed(self.messages):
            if message.get("role") == "user":
                content = message.get("content")
                parts = content if isinstance(content, list) else [{"text": content}]
                return "".join(str(part.get("text", "")) for part in parts)
        return ""


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request that is being answered, and the form of the stream: characters per delta, bytes per
    write (0: one event a write), seconds between writes."""

    request: ChatRequest
    http: web.Request
    number: int
    cached_tokens: int
    closing: asyncio.Event
    characters: int
    wire_bytes: int
    pace: float

    async def send(self, frames: Sequence[bytes]) -> web.StreamResponse:
        """Write `frames`, leaving the answer open."""
        content_type = STREAM_TYPE if self.request.streams else JSON_TYPE
        response = web.StreamResponse(headers={"Content-Type": content_type})
        await response.prepare(self.http)
        for frame in self._cut_up(frames):
            await response.write(frame)
            if self.pace:
                await asyncio.sleep(self.pace)
        return response

    def usage(self, completion: str) -> dict[str, object]:
        """Return token counts, with about four bytes a token."""
        prompt = max(1, len(self.request.raw) // 4)
        written = len(completion) // 4 + 1
        return {
            "prompt_tokens": prompt,
            "completion_tokens": written,
            "total_tokens": prompt + written,
            "prompt_tokens_details": {"cached_tokens": min(prompt, self.cached_tokens)},
        }

    def _cut_up(self, frames: Sequence[bytes]) -> Sequence[bytes]:
        if not self.wire_bytes:
            return frames
        whole = b"".join(frames)
        size = self.wire_bytes
        return [whole[start : start + size] for start in range(0, len(whole), size)]


class Step(Protocol):
    """One answer."""

    async def play(self, exchange: Exchange) -> web.StreamResponse:
        """Answer."""
        ...


@dataclass(frozen=True, slots=True)
class Answer:
    """The model's answer. An empty `finish` means the usual one, and a `text` of None is null
    content."""

    text: str | None = ""
    tool_calls: tuple[ToolCall, ...] = ()
    finish: str = ""
    reasoning: str = ""

    async def play(self, exchange: Exchange) -> web.StreamResponse:
        if not exchange.request.streams:
            return web.Response(body=b"".join(self.frames(exchange)), content_type=JSON_TYPE)
        response = await exchange.send(self.frames(exchange))
        await response.write_eof()
        return response

    def frames(self, exchange: Exchange) -> list[bytes]:
        """Return the body: the events of a stream, or a JSON object in two halves."""
        if exchange.request.streams:
            return self._events(exchange)
        message: dict[str, object] = {"role": "assistant", "content": self.text}
        if self.reasoning:
            message["reasoning_content"] = self.reasoning
        if self.tool_calls:
            message["tool_calls"] = [_call_fields(call) for call in self.tool_calls]
        choice = {"index": 0, "message": message, "finish_reason": self._finish}
        fields = _envelope(exchange, "chat.completion", [choice])
        whole = json.dumps({**fields, "usage": exchange.usage(self._everything)}).encode()
        return [whole[: len(whole) // 2], whole[len(whole) // 2 :]]

    def _events(self, exchange: Exchange) -> list[bytes]:
        deltas: list[dict[str, object]] = [{"role": "assistant", "content": self.text and ""}]
        deltas += [{"reasoning_content": piece} for piece in _pieces(self.reasoning, exchange)]
        deltas += [{"content": piece} for piece in _pieces(self.text or "", exchange)]
        for index, call in enumerate(self.tool_calls):
            first = {**_call_fields(call), "index": index}
            first["function"] = {"name": call.name, "arguments": ""}
            deltas.append({"tool_calls": [first]})
            deltas += [
                {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}
                for piece in _pieces(call.arguments, exchange)
            ]
        choices: list[dict[str, object]] = [
            {"index": 0, "delta": delta, "finish_reason": None} for delta in deltas
        ]
        choices.append({"index": 0, "delta": {}, "finish_reason": self._finish})
        kind = "chat.completion.chunk"
        events = [_event(_envelope(exchange, kind, [choice])) for choice in choices]
        if _wants_usage(exchange.request):
            fields = _envelope(exchange, kind, [])
            events.append(_event({**fields, "usage": exchange.usage(self._everything)}))
        return [*events, b"data: [DONE]\n\n"]

    @property
    def _finish(self) -> str:
        return self.finish or ("tool_calls" if self.tool_calls else "stop")

    @property
    def _everything(self) -> str:
        calls = "".join(call.name + call.arguments for call in self.tool_calls)
        return f"{self.reasoning}{self.text or ''}{calls}"


@dataclass(frozen=True, slots=True)
class Raw:
    """An answer with exactly this body."""

    body: bytes
    status: int = 200
    content_type: str = JSON_TYPE
    headers: Mapping[str, str] = field(default_factory=dict)

    async def play(self, exchange: Exchange) -> web.StreamResponse:
        headers = {**self.headers, "Content-Type": self.content_type}
        response = web.StreamResponse(status=self.status, headers=headers)
        await response.prepare(exchange.http)
        size = exchange.wire_bytes or len(self.body) or 1
        for start in range(0, len(self.body), size):
            await response.write(self.body[start : start + size])
            if exchange.pace:
                await asyncio.sleep(exchange.pace)
        await response.write_eof()
        return response


def _pieces(text: str, exchange: Exchange) -> list[str]:
    size = exchange.characters
    return [text[start : start + size] for start in range(0, len(text), size)]


def _call_fields(call: ToolCall) -> dict[str, object]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}


def _envelope(exchange: Exchange, kind: str, choices: Sequence[object]) -> dict[str, object]:
    return {
        "id": f"chatcmpl-{exchange.number}",
        "object": kind,
        "created": 1_700_000_000,
        "model": exchange.request.model,
        "choices": choices,
    }


def _event(fields: Mapping[str, object]) -> bytes:
    return b"data: " + json.dumps(fields, separators=(",", ":")).encode() + b"\n\n"


def _wants_usage(request: ChatRequest) -> bool:
    options = request.body.get("stream_options")
    return isinstance(options, dict) and options.get("include_usage") is True
