"""Anthropic's Messages API: Claude with its prompt cache and its thinking.

Anthropic's layer for OpenAI's clients has neither. `anthropic_request` makes the request and
`anthropic_stream` reads the answer. Connection and errors are the same as for other model servers.

Models differ in how they take thinking. The newest form is tried first. If a model refuses a field,
the refusal is remembered while the process runs, and the field is not sent again.

Sources: https://platform.claude.com/docs/en/api/messages/create,
https://platform.claude.com/docs/en/build-with-claude/thinking,
https://platform.claude.com/docs/en/build-with-claude/effort
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from nanobot.errors import ProviderRejected
from nanobot.providers.anthropic_request import conversation_of, encoded, signatures, tools_of
from nanobot.providers.anthropic_stream import IncomingMessage
from nanobot.providers.endpoint import Endpoint
from nanobot.providers.http import HttpConnection
from nanobot.providers.incoming import Waits, receive
from nanobot.providers.port import CallOptions, Prompt, Reply, RequestSettings, TextSink

API_VERSION = "2026-10-21"
_SAMPLING_VERSION = "2023-06-01"
"""The last version that takes a temperature, on models that do."""

_DEFAULT_LIMIT = 16_384
"""Tokens of an answer, thinking included, if the owner set no limit: the API requires one."""
_BUDGETS = {"low": 2_048, "medium": 8_192, "high": 16_384}
_SMALLEST_BUDGET = 1_024
_MOST_STALE = 10_000


class _Taste(Struct, frozen=True):
    """The fields that one model takes: `adaptive` thinking (else a budget of tokens), an `effort`,
    a `forced` tool, a `temperature`. `off` is its word for no thinking, if it has one."""

    adaptive: bool = True
    effort: bool = True
    off: str = "disabled"
    forced: bool = True
    temperature: bool = True


_ADAPTIVE = {"type": "adaptive"}
_OFF = {"type": "disabled"}
_NO_SETTINGS = RequestSettings()


class AnthropicProvider:
    """One model on a server that speaks the Messages API; implements `Provider`.

    `base_url` may end in `/v1` or not. `max_tokens` bounds each reply (0: 16,384). `stall_seconds`
    without a byte is an outage; before the first byte it is `first_token_seconds`, if that is more.
    So are `patience_seconds` without anything but pings or bytes that trickle.
    """

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
        self._tastes: dict[str, _Taste] = {}
        self._stale: set[str] = set()

    def __repr__(self) -> str:
        return f"AnthropicProvider({self._endpoint.model!r} at {self._endpoint.place!r})"

    async def complete(
        self, prompt: Prompt, options: CallOptions, on_text: TextSink | None = None
    ) -> Reply:
        """Answer `prompt`. Raises `ProviderError`s. Nothing is tried twice, except that a model
        which refuses a field that is not essential is asked again without it."""
        model = options.model or self._endpoint.model
        while True:
            taste = self._tastes.get(model, _Taste())
            fields = self._fields(prompt, options, taste)
            try:
                return await self._ask(prompt, model, fields, on_text)
            except ProviderRejected as error:
                if error.status not in (400, 422):
                    raise
                refusal = error.detail.lower()
                learned = _suiting(taste, fields, refusal)
                self._tastes[model] = learned
                if learned == taste and not self._forgets_thinking(prompt, model, refusal):
                    raise

    async def close(self) -> None:
        await self._connection.close()

    def body(self, prompt: Prompt, options: CallOptions) -> bytes:
        model = options.model or self._endpoint.model
        fields = self._fields(prompt, options, self._tastes.get(model, _Taste()))
        return self._joined(prompt, model, fields)

    def _forgets_thinking(self, prompt: Prompt, model: str, refusal: str) -> bool:
        """Return whether a refusal is about earlier thinking, and mark that as stale. Newer models
        take thinking back only if nothing before it has changed."""
        given = set(signatures(prompt.messages, self._endpoint.source(model))) - self._stale
        if not given or not ("thinking" in refusal or "signature" in refusal):
            return False
        if len(self._stale) > _MOST_STALE:
            self._stale.clear()
        self._stale |= given
        return True

    def _fields(self, prompt: Prompt, options: CallOptions, taste: _Taste) -> dict[str, Any]:
        limit = options.max_tokens or self._max_tokens or _DEFAULT_LIMIT
        effort = options.effort or self._settings.effort
        choice = _tool_choice(prompt, options, taste)
        fields: dict[str, Any] = {"max_tokens": limit}
        if choice is not None:
            fields["tool_choice"] = choice
        # Thinking would take all of a short answer.
        is_off = effort == "none" or limit < 2 * _SMALLEST_BUDGET or _forces(fields)
        if not (is_off or taste.adaptive or not effort):
            is_off = not self._may_begin_to_think(prompt, options)
        fields |= _thinking(taste, "none" if is_off else effort, limit)
        temperature = self._settings.temperature
        if temperature is not None and taste.temperature and fields.get("thinking", _OFF) == _OFF:
            fields["temperature"] = temperature
        return fields

    def _may_begin_to_think(self, prompt: Prompt, options: CallOptions) -> bool:
        """Whether a model that thinks with a budget of tokens may do so: it refuses to begin in the
        middle of a turn."""
        source = self._endpoint.source(options.model or self._endpoint.model)
        return conversation_of(prompt.messages, source, self._stale).begins_with_thinking

    def _joined(self, prompt: Prompt, model: str, fields: Mapping[str, Any]) -> bytes:
        """Return the body: first the parts that the cache matches. The owner's fields win."""
        source = "" if fields.get("thinking") == _OFF else self._endpoint.source(model)
        conversation = conversation_of(prompt.messages, source, self._stale)
        more = {**fields, "stream": True, **self._settings.extra_body}
        parts = {
            "model": encoded(model),
            "tools": tools_of(prompt),
            "system": conversation.wire_system(),
            "messages": conversation.wire_messages(),
            **{name: b"" if one is None else encoded(one) for name, one in more.items()},
        }
        joined = [encoded(name) + b":" + value for name, value in parts.items() if value]
        return b"{" + b",".join(joined) + b"}"

    async def _ask(
        self, prompt: Prompt, model: str, fields: Mapping[str, Any], on_text: TextSink | None
    ) -> Reply:
        incoming = IncomingMessage(self._endpoint, self._endpoint.source(model), prompt, on_text)
        body = self._joined(prompt, model, fields)
        await receive(self._connection, "/messages", body, incoming, self._waits)
        reply = incoming.finish()
        return reply if reply.model else replace(reply, model=model)


def _tool_choice(prompt: Prompt, options: CallOptions, taste: _Taste) -> Mapping[str, str] | None:
    """The `tool_choice` field. Without a toolset nothing can be called."""
    if not prompt.tools.specs:
        return {"type": "none"} if any(one.tool_calls for one in prompt.messages) else None
    if options.tool_choice == "none":
        return {"type": "none"}
    if options.tool_choice and taste.forced:
        return {"type": "tool", "name": options.tool_choice}
    return None


def _forces(fields: Mapping[str, Any]) -> bool:
    return bool(fields.get("tool_choice", {}).get("type") == "tool")


def _thinking(taste: _Taste, effort: str, limit: int) -> dict[str, Any]:
    """Return the fields that ask for an effort, in the form that the model takes."""
    if effort == "none" and taste.off:
        return {"thinking": {"type": taste.off}}
    if effort == "none":  # it always thinks
        return {"output_config": {"effort": "low"}} if taste.effort else {}
    if effort and taste.adaptive:
        wanted = {"output_config": {"effort": effort}} if taste.effort else {}
        return {"thinking": _ADAPTIVE, **wanted}
    if effort:
        budget = min(_BUDGETS.get(effort, _BUDGETS["high"]), limit // 2)
        return {"thinking": {"type": "enabled", "budget_tokens": budget}}
    return {}


def _suiting(taste: _Taste, fields: Mapping[str, Any], refusal: str) -> _Taste:
    """Return the taste without the field that was refused, or unchanged if it is another one."""
    kind = fields.get("thinking", {}).get("type", "")
    other = kind == "disabled" and "between_tools" in refusal  # Claude Sonnet 5.5 has that
    changes: Sequence[tuple[bool, str, dict[str, Any]]] = (
        ("temperature" in fields, "temperature", {"temperature": False}),
        (_forces(fields), "tool_choice|tool use", {"forced": False}),
        (kind == taste.off, "thinking", {"off": "between_tools" if other else ""}),
        (kind == "adaptive", r"adaptive|thinking\.type", {"adaptive": False}),
        ("output_config" in fields, "effort|output_config", {"effort": False}),
    )
    for is_sent, names, change in changes:
        if is_sent and re.search(names, refusal):
            return replace(taste, **change)
    return taste
