"""A real HTTP server on a loopback port that speaks the Messages API.

It rejects the same requests as the real one (`rules`), counts tokens and caches as documented
(`caching`), signs thinking and verifies its own signatures, and answers from a script.

Source of the events: https://platform.claude.com/docs/en/build-with-claude/streaming"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType

from aiohttp import web

from nanobot.providers.fields import mapping, parse_json
from tests.doubles.anthropic.caching import Counted, PromptCache
from tests.doubles.anthropic.rules import SONNET, ApiError, ModelRules, context, first_error, sign
from tests.doubles.openai.answers import JSON_TYPE, STREAM_TYPE, ChatRequest, Exchange, Raw, Step
from tests.doubles.server import Served

Json = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call of the model. `input` is the text of an object."""

    name: str
    input: str = "{}"


@dataclass(frozen=True, slots=True)
class Redacted:
    """Thinking that only the server can read."""

    data: str = "secret"


@dataclass(frozen=True, slots=True)
class Thinking:
    """A thought of the model."""

    text: str


Part = str | Call | Thinking | Redacted


@dataclass(frozen=True, slots=True)
class Says:
    """A message of the model, part by part. An empty `stop` is the usual stop reason. `extra` are
    events before each block."""

    parts: tuple[Part, ...]
    stop: str = ""
    extra: tuple[Json, ...] = ({"type": "ping"},)

    @property
    def stop_reason(self) -> str:
        """The stop reason."""
        calls = any(isinstance(part, Call) for part in self.parts)
        return self.stop or ("tool_use" if calls else "end_turn")


Scripted = Says | Step | str
Author = Callable[[ChatRequest], Scripted]


def refusal(error: ApiError) -> Raw:
    """Return the error as an answer."""
    return Raw(error.body(), error.status)


class FakeAnthropic:
    """An async context manager. `base_url` is its address, and `requests` has the received
    requests.

    `script` is played in order, or is a function of the request. `counted` has the tokens of each
    answered request."""

    def __init__(
        self,
        script: Sequence[Scripted] | Author,
        *,
        model: ModelRules = SONNET,
        api_key: str = "key",
        characters: int = 12,
        wire_bytes: int = 0,
        clock: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._author = script if callable(script) else None
        self._script = deque(() if callable(script) else script)
        self._model, self._api_key = model, api_key
        self._characters, self._wire_bytes = characters, wire_bytes
        self._cache = PromptCache(model.minimum, clock)
        self._closing = asyncio.Event()
        self._served: Served | None = None
        self.requests: list[ChatRequest] = []
        self.refused: list[ApiError] = []
        self.counted: list[Counted] = []

    @property
    def base_url(self) -> str:
        """The address for clients."""
        assert self._served is not None
        return f"http://127.0.0.1:{self._served.port}"

    async def __aenter__(self) -> FakeAnthropic:
        app = web.Application(client_max_size=256 * 1024 * 1024)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._served = await Served.start(app)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._closing.set()
        assert self._served is not None
        await self._served.stop()

    async def _handle(self, http: web.Request) -> web.StreamResponse:
        raw = await http.read()
        headers = {name.lower(): value for name, value in http.headers.items()}
        try:
            body = mapping(parse_json(raw))
        except ValueError:
            body = {}
        request = ChatRequest(http.path, headers, raw, body)
        self.requests.append(request)
        number = len(self.requests)
        exchange = Exchange(
            request, http, number, 0, self._closing, self._characters, self._wire_bytes, 0.0
        )
        if wrong := self._wrong(http, request):
            self.refused.append(wrong)
            return await refusal(wrong).play(exchange)
        counted = self._cache.count(body)
        if counted.total > self._model.window:
            said = f"prompt is too long: {counted.total} tokens > {self._model.window} maximum"
            self.refused.append(ApiError(400, said))
            return await refusal(self.refused[-1]).play(exchange)
        self.counted.append(counted)
        scripted = self._next(request)
        says = Says((scripted,)) if isinstance(scripted, str) else scripted
        if not isinstance(says, Says):
            return await says.play(exchange)
        return await self._say(exchange, says, counted)

    def _wrong(self, http: web.Request, request: ChatRequest) -> ApiError | None:
        if http.method != "POST" or request.path != "/v1/messages":
            return ApiError(404, "Not Found", "not_found_error")
        bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
        if (request.headers.get("x-api-key") or bearer) != self._api_key:
            return ApiError(401, "invalid x-api-key", "authentication_error")
        version = request.headers.get("anthropic-version", "")
        if not version:
            return ApiError(400, "anthropic-version: header is required")
        return first_error(request.raw, version, self._model)

    def _next(self, request: ChatRequest) -> Scripted:
        if self._author is not None:
            return self._author(request)
        if self._script:
            return self._script.popleft()
        return refusal(ApiError(400, "The script of this server is at its end."))

    async def _say(self, exchange: Exchange, says: Says, counted: Counted) -> web.StreamResponse:
        streams = exchange.request.body.get("stream") is True
        if not streams:
            whole = json.dumps(self._message(exchange, says, counted))
            return web.Response(body=whole.encode(), content_type=JSON_TYPE)
        response = web.StreamResponse(headers={"Content-Type": STREAM_TYPE})
        await response.prepare(exchange.http)
        frames = b"".join(_frame(event) for event in self._events(exchange, says, counted))
        size = self._wire_bytes or len(frames)
        for start in range(0, len(frames), size):
            await response.write(frames[start : start + size])
        await response.write_eof()
        return response

    def _before(self, exchange: Exchange) -> str:
        """Return the context that thinking in the answer is bound to."""
        return context(exchange.request.body, len(exchange.request.messages), self._model)

    def _message(self, exchange: Exchange, says: Says, counted: Counted) -> dict[str, object]:
        number, before = exchange.number, self._before(exchange)
        content = [
            self._block(number, index, part, before) for index, part in enumerate(says.parts)
        ]
        return {
            "id": f"msg_{number}",
            "type": "message",
            "role": "assistant",
            "model": self._model.name,
            "content": content,
            "stop_reason": says.stop_reason,
            "stop_sequence": None,
            "usage": counted.usage(len(json.dumps(content)) // 4),
        }

    def _block(self, number: int, index: int, part: Part, before: str) -> dict[str, object]:
        match part:
            case str():
                return {"type": "text", "text": part}
            case Thinking(text):
                signature = sign(self._model.name, text, before)
                return {"type": "thinking", "thinking": text, "signature": signature}
            case Redacted(data):
                return {"type": "redacted_thinking", "data": f"{self._model.name}:{data}"}
            case Call(name, given):
                id = f"toolu_{number:02}{index:02}"
                return {"type": "tool_use", "id": id, "name": name, "input": json.loads(given)}

    def _events(self, exchange: Exchange, says: Says, counted: Counted) -> Iterator[Json]:
        number, before = exchange.number, self._before(exchange)
        empty = self._message(exchange, Says((), "end_turn"), counted)
        begun = empty | {"stop_reason": None, "usage": counted.usage(1)}
        yield {"type": "message_start", "message": begun}
        for index, part in enumerate(says.parts):
            yield from says.extra
            yield from self._block_events(number, index, part, before)
        delta = {"stop_reason": says.stop_reason, "stop_sequence": None}
        yield {"type": "message_delta", "delta": delta, "usage": {"output_tokens": 25}}
        yield {"type": "message_stop"}

    def _block_events(self, number: int, index: int, part: Part, before: str) -> Iterator[Json]:
        if isinstance(part, Call):
            start = self._block(number, index, Call(part.name), before)
            deltas = [("input_json_delta", "partial_json", part.input)]
        else:
            start = self._block(number, index, part, before)
            fields = ("text", "thinking", "signature")
            deltas = [(f"{name}_delta", name, str(start[name])) for name in fields if name in start]
            start |= {name: "" for _, name, _ in deltas}
        yield {"type": "content_block_start", "index": index, "content_block": start}
        for kind, name, text in deltas:
            size = self._characters if name != "signature" else len(text)  # it comes whole
            for begin in range(0, len(text), size):
                piece = {"type": kind, name: text[begin : begin + size]}
                yield {"type": "content_block_delta", "index": index, "delta": piece}
        yield {"type": "content_block_stop", "index": index}


def _frame(event: Json) -> bytes:
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()
