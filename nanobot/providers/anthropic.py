"""Adapter for Anthropic's Messages API: Claude with its prompt cache and its thinking.

Anthropic's layer for OpenAI's clients has neither. `anthropic_request` builds the messages of a
request. Connection and errors are the same as for other model servers. Events and blocks of unknown
kinds are skipped, because the API may add some within a version.

Models differ in the form of thinking that they accept. The newest form is tried first. If a model
refuses a field, the refusal is remembered while the process runs, and the field is not sent again.

Sources: https://platform.claude.com/docs/en/api/messages/create,
https://platform.claude.com/docs/en/build-with-claude/thinking,
https://platform.claude.com/docs/en/build-with-claude/effort,
https://platform.claude.com/docs/en/build-with-claude/streaming"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from nanobot.errors import ContextTooLong, ProviderRejected
from nanobot.messages import ProviderData, ToolCall
from nanobot.providers.anthropic_request import (
    THINKING_TYPES,
    conversation_of,
    encode_json,
    signatures,
    tools_of,
)
from nanobot.providers.calls import make_calls
from nanobot.providers.endpoint import Endpoint
from nanobot.providers.fields import count, items, mapping, string
from nanobot.providers.http import HttpConnection
from nanobot.providers.port import CallOptions, Prompt, Reply, RequestSettings, TextSink, Usage
from nanobot.providers.refusals import error_in
from nanobot.providers.response_body import IncomingAnswer, Waits, receive
from nanobot.text import valid_unicode

API_VERSION = "2026-10-21"
_SAMPLING_VERSION = "2023-06-01"  # the last version that accepts a temperature, on models that do

_DEFAULT_LIMIT = 16_384
"""Tokens of an answer, including thinking, if the owner set no limit. The API requires one."""
_BUDGETS = {"low": 2_048, "medium": 8_192, "high": 16_384}  # tokens of thinking
_SMALLEST_BUDGET = 1_024  # the API's minimum
_MOST_STALE = 10_000  # signatures


class _Support(Struct, frozen=True):
    """Fields that a model accepts: `adaptive` thinking (else a token budget), an `effort`, a
    `forced` tool, a `temperature`. `off` is its word for no thinking, empty if it always thinks."""

    adaptive: bool = True
    effort: bool = True
    off: str = "disabled"
    forced: bool = True
    temperature: bool = True


_ADAPTIVE = {"type": "adaptive"}
_OFF = {"type": "disabled"}
_NO_SETTINGS = RequestSettings()


class AnthropicProvider:
    """One model on a server with the Messages API. Implements `Provider`.

    `base_url` may end in `/v1` or not. `max_tokens` bounds each reply (0: 16,384). `stall_seconds`
    without a byte is an outage. Before the first byte the limit is `first_token_seconds`, if that
    is longer. `patience_seconds` with only pings or trickling bytes is an outage too."""

    def __init__(
        self,
        *,
        model: str,
        base_url: str,
        api_key: str,
        max_tokens: int,
        stall_seconds: float = 120.0,
        first_token_seconds: float = 0.0,
        patience_seconds: float = 600.0,
        settings: RequestSettings = _NO_SETTINGS,
    ) -> None:
        key = api_key.strip()
        version = API_VERSION if settings.temperature is None else _SAMPLING_VERSION
        headers = {"anthropic-version": version, **({"x-api-key": key} if key else {})}
        place = base_url.rstrip("/").removesuffix("/v1").rstrip("/") + "/v1"
        self._endpoint = Endpoint(place, model, key, headers=headers, own_headers=settings.headers)
        self._max_tokens, self._settings = max_tokens, settings
        first = max(stall_seconds, first_token_seconds)
        self._waits = Waits(first, stall_seconds, max(patience_seconds, first))
        self._connection = HttpConnection(self._endpoint, stall=first)
        self._supports: dict[str, _Support] = {}
        self._stale: set[str] = set()

    def __repr__(self) -> str:
        return f"AnthropicProvider({self._endpoint.model!r} at {self._endpoint.place!r})"

    async def complete(
        self, prompt: Prompt, options: CallOptions, on_text: TextSink | None = None
    ) -> Reply:
        """Answer `prompt`. Raise `ProviderError`s. A request is only repeated if the model refuses
        an optional field, without that field."""
        model = options.model or self._endpoint.model
        while True:
            support = self._supports.get(model, _Support())
            fields = self._make_fields(prompt, options, support)
            source = self._endpoint.source(model)
            incoming = IncomingMessage(self._endpoint, source, prompt, on_text, options.on_thinking)
            body = self._join_body(prompt, model, fields)
            try:
                await receive(self._connection, "/messages", body, incoming, self._waits)
                reply = incoming.finish()
                return reply if reply.model else replace(reply, model=model)
            except ProviderRejected as error:
                if error.status not in (400, 422):
                    raise
                refusal = error.detail.lower()
                learned = drop_refused_field(support, fields, refusal)
                self._supports[model] = learned
                if learned == support and not self._mark_stale_thinking(prompt, model, refusal):
                    raise

    async def close(self) -> None:
        await self._connection.close()

    def body(self, prompt: Prompt, options: CallOptions) -> bytes:
        model = options.model or self._endpoint.model
        fields = self._make_fields(prompt, options, self._supports.get(model, _Support()))
        return self._join_body(prompt, model, fields)

    def _mark_stale_thinking(self, prompt: Prompt, model: str, refusal: str) -> bool:
        """Return True if a refusal is about earlier thinking, and mark that thinking as stale.
        Newer models accept thinking only if nothing before it has changed."""
        given = set(signatures(prompt.messages, self._endpoint.source(model))) - self._stale
        if not given or not ("thinking" in refusal or "signature" in refusal):
            return False
        if len(self._stale) > _MOST_STALE:
            self._stale.clear()  # bounds memory; a second refusal costs one request
        self._stale |= given
        return True

    def _make_fields(
        self, prompt: Prompt, options: CallOptions, support: _Support
    ) -> dict[str, Any]:
        limit = options.max_tokens or self._max_tokens or _DEFAULT_LIMIT
        effort = options.effort or self._settings.effort
        fields = {"max_tokens": limit, **make_tool_choice(prompt, options, support)}
        # Thinking would use up a short answer.
        if limit < 2 * _SMALLEST_BUDGET or forces_tool(fields):
            effort = "none"
        if effort and not support.adaptive and not self._may_begin_to_think(prompt, options):
            effort = "none"
        fields |= make_thinking_fields(support, effort, limit)
        temperature = self._settings.temperature if support.temperature else None
        if temperature is not None and fields.get("thinking", _OFF) == _OFF:
            fields["temperature"] = temperature
        return fields

    def _may_begin_to_think(self, prompt: Prompt, options: CallOptions) -> bool:
        """Return True unless this is the middle of a turn. There a model with a token budget for
        thinking refuses to begin."""
        source = self._endpoint.source(options.model or self._endpoint.model)
        return conversation_of(prompt.messages, source, self._stale).begins_with_thinking

    def _join_body(self, prompt: Prompt, model: str, fields: Mapping[str, Any]) -> bytes:
        """Return the body, beginning with the parts that the cache matches. The owner's fields
        win."""
        source = "" if fields.get("thinking") == _OFF else self._endpoint.source(model)
        conversation = conversation_of(prompt.messages, source, self._stale)
        more = {**fields, "stream": True, **self._settings.extra_body}
        parts = {
            "model": encode_json(model),
            "tools": tools_of(prompt),
            "system": conversation.wire_system(),
            "messages": conversation.wire_messages(),
            **{name: b"" if one is None else encode_json(one) for name, one in more.items()},
        }
        joined = [encode_json(name) + b":" + value for name, value in parts.items() if value]
        return b"{" + b",".join(joined) + b"}"


def make_tool_choice(prompt: Prompt, options: CallOptions, support: _Support) -> dict[str, Any]:
    """Return the field `tool_choice`, if any. Without a toolset no tool can be called."""
    choice = options.tool_choice
    if not prompt.tools.specs:
        choice = "none" if any(one.tool_calls for one in prompt.messages) else ""
    if choice == "none":
        return {"tool_choice": {"type": "none"}}
    return {"tool_choice": {"type": "tool", "name": choice}} if choice and support.forced else {}


def forces_tool(fields: Mapping[str, Any]) -> bool:
    return bool(fields.get("tool_choice", {}).get("type") == "tool")


def make_thinking_fields(support: _Support, effort: str, limit: int) -> dict[str, Any]:
    """Return the fields that request an effort, in the form that the model accepts."""
    if effort == "none" and support.off:
        return {"thinking": {"type": support.off}}
    if effort == "none":  # this model always thinks
        return {"output_config": {"effort": "low"}} if support.effort else {}
    if effort and support.adaptive:
        wanted = {"output_config": {"effort": effort}} if support.effort else {}
        return {"thinking": _ADAPTIVE, **wanted}
    if effort:
        budget = min(_BUDGETS.get(effort, _BUDGETS["high"]), limit // 2)
        return {"thinking": {"type": "enabled", "budget_tokens": budget}}
    return {}


def drop_refused_field(support: _Support, fields: Mapping[str, Any], refusal: str) -> _Support:
    """Return `support` without the refused field, or unchanged if the refusal is about another
    one."""
    kind = fields.get("thinking", {}).get("type", "")
    other = kind == "disabled" and "between_tools" in refusal  # Claude Sonnet 5.5
    changes: Sequence[tuple[bool, str, dict[str, Any]]] = (
        ("temperature" in fields, "temperature", {"temperature": False}),
        (forces_tool(fields), "tool_choice|tool use", {"forced": False}),
        (kind == support.off, "thinking", {"off": "between_tools" if other else ""}),
        (kind == "adaptive", r"adaptive|thinking\.type", {"adaptive": False}),
        ("output_config" in fields, "effort|output_config", {"effort": False}),
    )
    for is_sent, names, change in changes:
        if is_sent and re.search(names, refusal):
            return replace(support, **change)
    return support


_FINISH = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "refusal": "content_filter",
    "model_context_window_exceeded": "length",
}
_TAIL_SECONDS = 2.0  # for the rest of an answer that seems complete
_WINDOW_EXCEEDED = "model_context_window_exceeded"


class _Block(Struct):
    """A content block: its initial fields, and the text of each kind of delta."""

    kind: str
    fields: dict[str, object]
    pieces: dict[str, list[str]] = field(default_factory=dict)

    def join(self, name: str) -> str:
        return string(self.fields.get(name)) + "".join(self.pieces.get(name, ()))

    @property
    def text(self) -> str:
        """The visible text."""
        return self.join("text") if self.kind == "text" else ""

    @property
    def input(self) -> str:
        """The input of a tool, as the model wrote it."""
        text = "".join(self.pieces.get("partial_json", ()))
        given = self.fields.get("input")
        return text.strip() or (json.dumps(given) if given else "{}")


class IncomingMessage(IncomingAnswer):
    """Incoming answer to `prompt` from `source`."""

    kind = "message"

    def __init__(
        self,
        endpoint: Endpoint,
        source: str,
        prompt: Prompt,
        on_text: TextSink | None,
        on_thinking: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(endpoint)
        self._source, self._prompt, self._on_text = source, prompt, on_text
        self._on_thinking = on_thinking or (lambda: None)
        self._blocks: dict[int, _Block] = {}
        self._stop = self._model = ""
        self._usage: dict[str, int] = {}

    @property
    def complete(self) -> bool:
        return self._is_terminated or bool(self._stop)

    @property
    def ending(self) -> float | None:
        return _TAIL_SECONDS if self.complete else None

    def add_event(self, event: object) -> bool:
        fields = mapping(event)
        kind = string(fields.get("type"))
        is_error = self.is_json or kind == "error" or "error" in fields
        if said := error_in(fields) if is_error else None:
            raise self._endpoint.body_error(said)
        match kind:
            case "message" | "message_start":
                self._start_message(mapping(fields.get("message", fields)))
            case "content_block_start":
                self._start_block(count(fields.get("index")), mapping(fields.get("content_block")))
            case "content_block_delta":
                block = self._blocks.get(count(fields.get("index")))
                if block and block.kind in THINKING_TYPES:
                    self._on_thinking()
                self._add_delta(block, fields.get("delta"))
            case "message_delta":
                self._stop = string(mapping(fields.get("delta")).get("stop_reason")) or self._stop
                self._count(fields.get("usage"))
            case "message_stop":
                self._is_terminated = True
        return kind != "ping"

    def _start_message(self, message: Mapping[str, object]) -> None:
        """Process the beginning of a message, or a whole message."""
        self.events += 1
        self.has_begun = True
        self._model = string(message.get("model"))
        self._count(message.get("usage"))
        for position, content in enumerate(items(message.get("content"))):
            self._start_block(position, mapping(content))
        self._stop = string(message.get("stop_reason"))

    def _start_block(self, index: int, fields: Mapping[str, object]) -> None:
        block = self._blocks[index] = _Block(string(fields.get("type")), dict(fields))
        self.held += sum(len(value) for value in fields.values() if isinstance(value, str))
        if block.text:
            block.fields["text"] = valid_unicode(block.text)
            self._say(block.text)

    def _add_delta(self, block: _Block | None, delta: object) -> None:
        for name, value in mapping(delta).items() if block else ():
            if block and name != "type" and isinstance(value, str):
                if name == "signature":  # arrives whole, as in the official SDK
                    block.pieces.pop(name, None)
                block.pieces.setdefault(name, []).append(valid_unicode(value))
                self.held += len(value)
                if name == "text" and block.kind == "text":
                    self._say(valid_unicode(value))

    def _say(self, text: str) -> None:
        if text and self._on_text is not None:
            self._on_text(text, False)

    def _count(self, usage: object) -> None:
        """Update the counts, which are cumulative. Later events may leave some out."""
        for name, value in mapping(usage).items():
            self._usage[name] = max(self._usage.get(name, 0), count(value))

    def reply(self) -> Reply:
        self._refuse_other_kind()
        blocks = [self._blocks[index] for index in sorted(self._blocks)]
        text = "".join(block.text for block in blocks)
        calls = self._read_calls(blocks)
        if self._stop == _WINDOW_EXCEEDED and not (text or calls):
            detail = "the model's context window has no room for the answer"
            raise ContextTooLong(
                f"the prompt is too long for {self._endpoint.model}", status=400, detail=detail
            )
        finish = _FINISH.get(self._stop, self._stop) or ("tool_calls" if calls else "stop")
        thought = any(block.kind in THINKING_TYPES for block in blocks)
        data = self._make_provider_data(blocks) if thought else None
        return Reply(text, calls, self._total_usage(), finish, self._model, thought, data)

    def _read_calls(self, blocks: Sequence[_Block]) -> tuple[ToolCall, ...]:
        made = (block for block in blocks if block.kind == "tool_use")
        given = [(block.join("name"), block.input) for block in made]
        return make_calls(given, self._prompt, cut=self._stop == "max_tokens")

    def _make_provider_data(self, blocks: Sequence[_Block]) -> ProviderData:
        """Return thinking and text in order and unchanged, as the server needs them back."""
        kept = [block for block in blocks if block.kind in ("text", *THINKING_TYPES)]
        content = [one.fields | {name: one.join(name) for name in one.pieces} for one in kept]
        return ProviderData(self._source, fields={"content": content})

    def _total_usage(self) -> Usage:
        """Return the counts. The API's `input_tokens` excludes cache reads and writes."""
        of = self._usage.get
        cached, writes = of("cache_read_input_tokens", 0), of("cache_creation_input_tokens", 0)
        prompt = of("input_tokens", 0) + cached + writes
        return Usage(prompt, of("output_tokens", 0), cached, writes)
