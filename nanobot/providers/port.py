"""The port for language models: prompts, options, replies, and the `Provider` protocol.

A `PromptMessage` also carries its JSON bytes for Chat Completions. They are made once and joined
into each request, so a prompt of a thousand messages costs a join and not a thousand encodings. The
same message is the same bytes in every request, because provider prompt caches match on exactly
that.

Tokens are estimated by class of character: a tokenizer's tables take 79 MiB, and the estimate is
free and accurate to about a tenth for prose. The weights are characters per token of o200k_base: a
run of ASCII letters averages 4.6, a run of digits 2.4, other ASCII symbols 1.6; other scripts about
2.6; a CJK character is 0.75 tokens, one outside the basic plane (emoji) 2."""

from __future__ import annotations

import json
import re
import string
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, Protocol

from msgspec import Struct, field
from msgspec.structs import force_setattr, replace

from nanobot.messages import ProviderData, ToolCall
from nanobot.providers.arguments import fitting_name, read_arguments, sendable_arguments
from nanobot.text import valid_unicode

MESSAGE_OVERHEAD = 4
"""Tokens of a chat message in addition to its text (role and separators)."""

CALL_OVERHEAD = 8
"""Tokens of a tool call in addition to its arguments."""

IMAGE_TOKENS = 1_105
"""Tokens of an image of ordinary size: 85 + 170 per 512-pixel tile at 1024 x 1536 pixels."""


_LETTERS = (string.ascii_letters + " ").encode()  # spaces belong to words
_DIGITS = string.digits.encode()
_CJK = r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef]+"


def estimate_tokens(text: str) -> int:
    """Return the approximate tokens of `text`. Linear, and never 0 for a non-empty text."""
    if not text:
        return 0
    plain = text.encode("ascii", "ignore")
    letters = len(plain) - len(plain.translate(None, _LETTERS))
    digits = len(plain) - len(plain.translate(None, _DIGITS))
    symbols = len(plain) - letters - digits
    cjk = other = astral = 0
    if len(plain) < len(text):  # compiled at the first use, because large ranges take milliseconds
        cjk = sum(map(len, re.findall(_CJK, text)))
        astral = len(re.findall(r"[\U00010000-\U0010ffff]", text))
        other = len(text) - len(plain) - cjk - astral
    total = letters / 4.6 + digits / 2.4 + symbols / 1.6 + cjk * 0.75 + other / 2.6 + astral * 2
    return max(1, round(total))


TextSink = Callable[[str, bool], None]
"""Called with each streamed piece of reply text, and whether the text before it is void, because
the request was repeated."""


ReadingSink = Callable[[int, int], None]
"""Called with the tokens of a prompt that a slow server has read, and their total."""

OutageSink = Callable[[str, int, float], None]
"""Called each second while a failed call waits for its next try: with the reason in a few words,
the number of tries so far, and the seconds left (0.0: it begins)."""


class Image(Struct, frozen=True):
    """An image for the model: `data` is base64 text, `mime` such as `image/png`."""

    data: str
    mime: str


class PromptMessage(Struct, frozen=True):
    """A message in the form in which it is sent. Always make it with the functions below.

    `tokens` is approximate and includes images and calls."""

    role: Literal["system", "user", "assistant", "tool"]
    text: str
    wire: bytes
    tokens: int
    images: tuple[Image, ...] = ()
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str = ""
    provider_data: ProviderData | None = None
    forms: dict[object, bytes] = field(default_factory=dict)
    """Forms of `wire` for other dialects, cached for later requests."""


_ENCODER = json.JSONEncoder(separators=(",", ":"))


def _encode(fields: object) -> bytes:
    return _ENCODER.encode(fields).encode()


def _make_message(
    role: Literal["system", "user", "assistant", "tool"],
    text: str,
    fields: Mapping[str, Any],
    tokens: int = 0,
) -> PromptMessage:
    """Return a message whose `fields` take `tokens` in addition to the text."""
    wire = _encode({"role": role, **fields})
    return PromptMessage(role, text, wire, MESSAGE_OVERHEAD + estimate_tokens(text) + tokens)


def system_message(text: str) -> PromptMessage:
    text = valid_unicode(text)  # strict servers would refuse half a character forever
    return _make_message("system", text, {"content": text})


def user_message(text: str, images: tuple[Image, ...] = ()) -> PromptMessage:
    """Return the person's text, followed by the images."""
    text = valid_unicode(text)
    if not images:
        return _make_message("user", text, {"content": text})
    parts: list[dict[str, Any]] = [{"type": "text", "text": text}]
    parts += [
        {"type": "image_url", "image_url": {"url": f"data:{image.mime};base64,{image.data}"}}
        for image in images
    ]
    message = _make_message("user", text, {"content": parts}, IMAGE_TOKENS * len(images))
    return replace(message, images=images)


def assistant_message(
    text: str,
    tool_calls: tuple[ToolCall, ...] = (),
    provider_data: ProviderData | None = None,
) -> PromptMessage:
    """Return the model's message. `content` is null if it only called tools. `provider_data` is not
    in `wire`, because it only returns to the server that gave it."""
    text = valid_unicode(text)
    tool_calls = tuple(map(sanitize_call, tool_calls))
    fields: dict[str, Any] = {"content": text or (None if tool_calls else "")}
    if tool_calls:
        fields["tool_calls"] = [call.as_api() for call in tool_calls]
    tokens = sum(estimate_tokens(call.arguments) + CALL_OVERHEAD for call in tool_calls)
    message = _make_message("assistant", text, fields, tokens)
    return replace(message, tool_calls=tool_calls, provider_data=provider_data)


def sanitize_call(call: ToolCall) -> ToolCall:
    """Return the call with a name and arguments that every server accepts. Other programs stored
    others."""
    name = fitting_name(call.name)
    arguments = sendable_arguments(read_arguments(call.arguments) or "{}")
    same = name == call.name and arguments == call.arguments
    return call if same else replace(call, name=name, arguments=arguments)


def tool_message(call_id: str, text: str) -> PromptMessage:
    text = valid_unicode(text)
    message = _make_message("tool", text, {"tool_call_id": call_id, "content": text})
    return replace(message, tool_call_id=call_id)


class ToolSpec(Struct, frozen=True):
    """A tool as the model sees it. `parameters` is a JSON Schema of an object."""

    name: str
    description: str
    parameters: Mapping[str, Any]


_SCHEMA = 0.72
"""Tokens of a schema per estimated token, because quotes, braces and colons merge (measured with
o200k_base on nanobot's own tools)."""


class Toolset(Struct, frozen=True):
    """The offered tools, the bytes of the `tools` array (empty without tools), and their
    approximate tokens."""

    specs: tuple[ToolSpec, ...]
    wire: bytes
    tokens: int = 0

    @classmethod
    def of(cls, specs: Iterable[ToolSpec]) -> Toolset:
        """Encode `specs` once."""
        specs = tuple(specs)
        functions = [
            {
                "type": "function",
                "function": {
                    "name": spec.name,
                    "description": spec.description,
                    "parameters": dict(spec.parameters),
                },
            }
            for spec in specs
        ]
        wire = _encode(functions) if functions else b""
        return cls(specs, wire, round(_SCHEMA * estimate_tokens(wire.decode())))


class Prompt(Struct, frozen=True):
    """Everything the model reads: the system message first, then the conversation.

    `tokens` is approximate, and computed if left out."""

    messages: tuple[PromptMessage, ...]
    tools: Toolset
    tokens: int = 0

    def __post_init__(self) -> None:
        if not self.tokens:
            total = self.tools.tokens + sum(message.tokens for message in self.messages)
            force_setattr(self, "tokens", total)

    def plus(self, new: Iterable[PromptMessage]) -> Prompt:
        """Return this prompt with messages appended."""
        new = tuple(new)
        tokens = self.tokens + sum(message.tokens for message in new)
        return Prompt((*self.messages, *new), self.tools, tokens)

    def wire_messages(self) -> bytes:
        return b"[" + b",".join([message.wire for message in self.messages]) + b"]"


Effort = Literal["none", "low", "medium", "high"]
"""Reasoning effort before an answer."""
ModelUse = Literal["chat", "jobs", "heartbeat", "helpers", "memory", "pictures", "titles"]


class CallOptions(Struct, frozen=True):
    """Options of a call. `model` overrides the configured one. `max_tokens` 0 is the configured
    limit.

    `tool_choice` names the one tool that must be called. Empty leaves the choice to the model, and
    `none` requests only text but keeps the tools in the prompt (dropping them would miss the
    cache). `effort` overrides the configured reasoning effort. `schema` is the form of an answer
    that is a JSON object, which servers for small models enforce. `use` is the purpose of the call,
    which selects one of the configured models. `on_reading` is called with a slow server's progress
    on the prompt, `on_thinking` with each piece of thinking, `on_outage` before a repetition."""

    model: str = ""
    max_tokens: int = 0
    tool_choice: str = ""
    effort: str = ""
    schema: ToolSpec | None = None
    use: ModelUse = "chat"
    on_reading: ReadingSink | None = None
    on_thinking: Callable[[], None] | None = None
    on_outage: OutageSink | None = None


class RequestSettings(Struct, frozen=True):
    """The owner's settings for a model's requests: `effort` (empty: the server's default), and
    fields and headers, which override ours."""

    effort: str = ""
    temperature: float | None = None
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)


def add_costs(one: int | None, other: int | None) -> int | None:
    """Return the sum of the known costs, or None if neither is known."""
    known = [cost for cost in (one, other) if cost is not None]
    return sum(known) if known else None


class Usage(Struct, frozen=True):
    """Tokens as the provider counted them. `cached` of `prompt` came from its cache, and
    `cache_writes` of `prompt` were written to it at a separate price (Anthropic). `cost` is in
    millionths of the owner's currency, None if no price is known."""

    prompt: int = 0
    completion: int = 0
    cached: int = 0
    cache_writes: int = 0
    cost: int | None = None

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.prompt + other.prompt,
            self.completion + other.completion,
            self.cached + other.cached,
            self.cache_writes + other.cache_writes,
            add_costs(self.cost, other.cost),
        )


class Reply(Struct, frozen=True):
    """The model's answer. `finish` is the API's finish reason (`stop`, `length`, …), `thought` is
    True if it included thinking, and `provider_data` must be sent back to the server. `instead_of`
    is the model that this one replaced as a fallback."""

    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    usage: Usage = Usage()
    finish: str = "stop"
    model: str = ""
    thought: bool = False
    provider_data: ProviderData | None = None
    instead_of: str = ""


class Provider(Protocol):
    async def complete(
        self, prompt: Prompt, options: CallOptions, on_text: TextSink | None = None
    ) -> Reply:
        """Answer `prompt`, and stream the text to `on_text` if given.

        Raise a `ProviderError`. An adapter raises nothing else."""
        ...

    async def close(self) -> None: ...
