"""Settings of the language model and its helpers: fallbacks, named models, and the models for
speech and for embeddings."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from msgspec import Meta, field
from msgspec.structs import asdict, replace

from nanobot.config.values import (
    OFFICIAL_API,
    AbsolutePath,
    ApiKey,
    Count,
    Duration,
    Headers,
    Name,
    Seconds,
    Url,
    find_exposed_paths,
    is_official,
    missing_key,
    needs_key,
    plain_or_secret,
)
from nanobot.validation import Check, Checked, Fault, InvalidValue, SecretStr


class SideModel(Checked, frozen=True):
    """An optional model next to the main one, off without a name."""

    base_url: Url = ""
    """The server's URL, including `/v1`. Empty: the main model's."""
    api_key: ApiKey = SecretStr("")
    """The server's key. Empty: the main model's, if the server is the same."""
    model: str = ""
    """Model name on that server."""

    @property
    def lacks_key(self) -> bool:
        """True if a required key is missing. For completed settings."""
        return bool(self.model) and needs_key(self.base_url, self.api_key)


Price = Annotated[float, Meta(ge=0)]

SAFETY_TOKENS = 1_024
"""Reserved in the context window, because token counts are estimates."""
SMALL_WINDOW = 8_192
"""Smaller windows get fewer tools, to leave room for conversation."""
LEAST_PROMPT_TOKENS = 2_000
"""Minimum for a prompt: 1,000 for instructions and tools, 1,000 for the conversation."""


class EmbeddingSettings(SideModel, frozen=True):
    """Model that turns texts into vectors: one on a server, or the local one."""

    model: str = ""
    """The model's name on the server. Empty: no semantic search, unless `local` is set."""
    local: bool = False
    """Whether to use the local model from the `embeddings` extra. No text leaves your machine."""

    @property
    def is_on(self) -> bool:
        """True if search by meaning is on."""
        return self.local or bool(self.model)

    def faults(self, home: Path) -> Iterator[Fault]:
        if self.local and self.model:
            yield Fault(("local",), "cannot be combined with `model`", "Remove one of them.")


class VoiceProgram(SideModel, frozen=True):
    """Speech by a program on this machine, or by a server with `model`. Off without either."""

    model: str = ""
    """The model's name on the server, such as `whisper-1` or `tts-1`."""
    command: tuple[Name, ...] = ()
    """A program and its arguments, to use instead of a server. docs/voice.md lists placeholders
    such as `{input}`."""
    read: tuple[AbsolutePath, ...] = ()
    """Absolute paths that the program can also read."""
    sandbox: bool = True
    """Whether the program runs in the sandbox. `false` gives it all your permissions."""

    @property
    def is_on(self) -> bool:
        """True if a model or a program is set."""
        return bool(self.command or self.model)

    @property
    def paths(self) -> tuple[str, ...]:
        """Paths that the program needs, as far as the settings name them."""
        named = (argument for argument in self.command if argument.startswith("/"))
        return (*self.read, *named) if self.command else ()

    def faults(self, home: Path) -> Iterator[Fault]:
        if self.command and self.model:
            yield Fault(("command",), "cannot be combined with `model`", "Remove one of them.")
        yield from find_exposed_paths("read", self.read, home)
        if self.sandbox:
            yield from find_exposed_paths("command", self.command, home)
        if self.command and not self.sandbox:
            hint = "Instead, list only the files and folders that it needs in `read`."
            yield Fault(("sandbox",), "gives this program all your permissions", hint, True)


class TranscriptionSettings(VoiceProgram, frozen=True):
    """Speech to text: a model on a server, or a program."""

    language: str = ""
    """The language, such as `de`. Empty: detected. For a program, add an argument to `command`
    instead."""

    def faults(self, home: Path) -> Iterator[Fault]:
        yield from VoiceProgram.faults(self, home)
        named = "".join(self.command)
        if self.command and "{wav}" not in named and "{input}" not in named:
            hint = "Add `{wav}`, or `{input}` for a program that reads OGG/Opus."
            yield Fault(("command",), "has no placeholder for the recording", hint)


class SpeechSettings(VoiceProgram, frozen=True):
    """Text to speech: a model on a server, or a program."""

    when: Literal["off", "spoken", "always"] = "spoken"
    """Which replies are spoken: those to voice messages (`spoken`), all (`always`), or only if you
    ask (`off`). `/voice` changes this for one conversation."""
    voice: str = ""
    """The server's voice, such as `alloy`. For a program, add an argument to `command` instead."""


class PriceSettings(Checked, frozen=True):
    """Prices of a model, to show the cost. 0: unknown."""

    input: Price = 0.0
    """The price per million prompt tokens, in your currency."""
    cached_input: Price = 0.0
    """The price of cached prompt tokens. 0: same as `input`."""
    cache_write: Price = 0.0
    """The price of tokens written to the cache (Anthropic). 0: same as `input`."""
    output: Price = 0.0
    """The price of tokens in answers."""


Effort = Literal["", "none", "low", "medium", "high"]
_WRITTEN_BY_US = ("model", "messages", "system", "tools", "stream")
_FRAMING = frozenset({"connection", "content-length", "content-type", "transfer-encoding"})


def check_body_fields(given: Mapping[str, Any]) -> Mapping[str, Any]:
    if taken := next((key for key in _WRITTEN_BY_US if key in given), ""):
        raise InvalidValue(f"must not set `{taken}`, which nanobot sets", "Remove it.")
    return {key: read_scalars(value) for key, value in given.items()}


def read_scalars(given: object) -> object:
    """Read numbers, true and false as JSON does, because scalars of a configuration are text."""
    if isinstance(given, Mapping):
        return {key: read_scalars(value) for key, value in given.items()}
    if isinstance(given, list | tuple):
        return [read_scalars(item) for item in given]
    if isinstance(given, str):
        with suppress(ValueError):
            return json.loads(given, parse_constant=int)  # rejects NaN
    return given


def check_own_headers(given: Mapping[str, SecretStr]) -> Mapping[str, SecretStr]:
    if taken := next((name for name in given if name.lower() in _FRAMING), ""):
        raise InvalidValue(f"must not set `{taken}`, which nanobot sets", "Remove it.")
    return {name: plain_or_secret(name, value) for name, value in given.items()}


class AnyModel(Checked, frozen=True):
    """A model on a server, and how to ask it."""

    name: str = ""
    """The model's name on the server. Empty: same as `model`."""
    base_url: Url = ""
    """The server's URL. Empty: same as `model`."""
    api_key: ApiKey = SecretStr("")
    """The server's key. Empty: same as `model`, if the server is the same."""
    api: Literal["", "chat", "messages"] = ""
    """`chat` or `messages`. Empty: same as `model` if the server is the same, otherwise `chat`."""
    context_window: Annotated[int, Meta(ge=0)] = 0
    """The context window in tokens. 0: same as `model`."""
    max_completion_tokens: Annotated[int, Meta(ge=0)] = 0
    """Maximum tokens per answer. 0: same as `model`."""
    reasoning_effort: Effort = ""
    """How much the model thinks. Empty: same as `model`."""
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    """The sampling temperature. Empty: same as `model`."""
    extra_body: Annotated[Mapping[str, Any], Check(check_body_fields)] = field(default_factory=dict)
    """Additional fields for each request. Empty: same as `model`, if the server is the same."""
    headers: Annotated[Headers, Check(check_own_headers)] = field(default_factory=dict)
    """HTTP headers for each request. Empty: same as `model`, if the server is the same."""
    prices: PriceSettings = PriceSettings()
    """Its prices. Empty: as in `model`, if the model is the same."""


class NamedModel(AnyModel, frozen=True):
    """A model with a name of the owner's choice."""

    @classmethod
    def prepare(cls, given: object) -> object:
        """Allow the model's name in place of a mapping."""
        return {"name": given} if isinstance(given, str) else given

    def fill_from(self, main: ModelSettings) -> ModelSettings:
        """Return all settings of this model: its own, and the rest from `main`. Key, headers and
        fields of requests are only sent to the server that they were set for."""
        left_out = asdict(NamedModel())
        own = {name: value for name, value in asdict(self).items() if value != left_out[name]}
        is_same = own.get("base_url", main.base_url) == main.base_url
        base = main if is_same else ModelSettings()
        inherited = {name: getattr(base, name) for name in _OF_A_SERVER}
        if not is_same or own.get("name", main.name) != main.name:
            inherited["prices"] = PriceSettings()
        return replace(main, **{"provider": "openai", "fallbacks": (), **inherited, **own})


_OF_A_SERVER = ("api_key", "api", "extra_body", "headers")


class FallbackModel(NamedModel, frozen=True):
    """A model that is asked if the models before it cannot answer."""

    name: Name
    """Name of the model on its server."""


S = TypeVar("S", EmbeddingSettings, TranscriptionSettings, SpeechSettings)


def fill_side_model(side: S, base_url: str, api_key: SecretStr) -> S:
    """Return a model's settings with missing ones taken from the main model, or unchanged if it is
    off.

    A key is only sent to the server that it was set for."""
    if not side.model:
        return side
    url, key = side.base_url or base_url, side.api_key
    if not key.get_secret_value() and url == base_url:
        key = api_key
    return replace(side, base_url=url, api_key=key)


class ModelSettings(AnyModel, frozen=True):
    """The language model."""

    name: str = ""
    """The model's name on the server. Required for OpenAI. Default for other servers: the first
    model that the server lists."""
    base_url: Url = OFFICIAL_API
    """The server's URL, including `/v1`."""
    api_key: ApiKey = SecretStr("")
    """The server's key, such as `${OPENAI_API_KEY}`. Many local servers don't need one."""
    api: Literal["chat", "messages"] = "chat"
    """`chat` for OpenAI-compatible APIs, `messages` for Anthropic's API."""
    context_window: Count = 128_000
    """The model's context window in tokens, including its answer."""
    max_completion_tokens: Count = 8_192
    """Maximum tokens per answer."""
    reasoning_effort: Effort = ""
    """How much the model thinks: `none`, `low`, `medium`, or `high`. Empty: the server's default.
    `/think` changes this for one conversation."""
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    """The sampling temperature. Empty: the server's default."""
    extra_body: Annotated[Mapping[str, Any], Check(check_body_fields)] = field(default_factory=dict)
    """Additional fields for each request, such as `{top_p: 0.9}`. Numbers, `true`, and `false` keep
    their types."""
    headers: Annotated[Headers, Check(check_own_headers)] = field(default_factory=dict)
    """HTTP headers for each request. Logs redact their values, except plain words."""
    prices: PriceSettings = PriceSettings()
    """The model's prices, to show the cost."""
    provider: Literal["openai", "offline"] = "offline"
    """`openai` (a server with the given `api`) or `offline` (a small built-in model). Default:
    `openai` if a name, key, address, or fallback is set."""
    timeout_seconds: Seconds = 120.0
    """Read timeout in seconds. Servers with local or private addresses get five times as long to
    send the first byte."""
    retry_seconds: Duration = 60.0
    """Seconds for which a turn retries a failed call. 0: never."""
    fallbacks: tuple[FallbackModel, ...] = ()
    """Models to try in order if the main model can't answer: names, or mappings with the keys of
    `models`."""

    transcription: TranscriptionSettings = TranscriptionSettings()
    """Speech to text."""
    speech: SpeechSettings = SpeechSettings()
    """Text to speech."""

    @classmethod
    def prepare(cls, given: object) -> object:
        """Derive the provider from the other keys."""
        if not isinstance(given, dict) or "provider" in given:
            return given
        configured = any(given.get(key) for key in ("name", "api_key", "fallbacks"))
        elsewhere = given.get("base_url", OFFICIAL_API) != OFFICIAL_API
        return {**given, "provider": "openai"} if configured or elsewhere else given

    @property
    def chain(self) -> tuple[ModelSettings, ...]:
        """This model and its fallbacks, in the order in which they are asked."""
        return (self, *(one.fill_from(self) for one in self.fallbacks))

    @property
    def prompt_tokens(self) -> int:
        """Token limit of a prompt: instructions, tools and conversation together."""
        # An eighth of a small window, because estimates there are small as well.
        reserve = min(SAFETY_TOKENS, self.context_window // 8)
        return self.context_window - self.max_completion_tokens - reserve

    @property
    def is_small(self) -> bool:
        """True if the window has no room for all tools and a conversation."""
        return self.context_window < SMALL_WINDOW

    def faults(self, home: Path) -> Iterator[Fault]:
        if fill_side_model(self.transcription, self.base_url, self.api_key).lacks_key:
            yield missing_key("transcription", "api_key")
        if fill_side_model(self.speech, self.base_url, self.api_key).lacks_key:
            yield missing_key("speech", "api_key")
        if self.provider == "offline":
            yield from self._room_faults()
            return
        yield from self.own_faults()
        for index, fallback in enumerate(self.fallbacks):
            for fault in fallback.fill_from(self).own_faults():
                # A key that the main model lacks as well was reported there.
                if fault.key[0] != "api_key" or fallback.base_url not in ("", self.base_url):
                    yield replace(fault, key=("fallbacks", index, *fault.key))

    def own_faults(self) -> Iterator[Fault]:
        """Yield the faults of this model, without its fallbacks and the models for speech."""
        yield from self._room_faults()
        if not self.name and is_official(self.base_url):
            hint = "Write the model's name, or `provider: offline` to try nanobot without a model."
            yield Fault(("name",), "is required by the official OpenAI API", hint)
        if needs_key(self.base_url, self.api_key):
            yield missing_key("api_key")

    def _room_faults(self) -> Iterator[Fault]:
        if self.prompt_tokens < LEAST_PROMPT_TOKENS:
            least = self.context_window - self.prompt_tokens + LEAST_PROMPT_TOKENS
            left = max(0, self.prompt_tokens)
            text = f"leaves {left:,} tokens for the prompt, which needs {LEAST_PROMPT_TOKENS:,}"
            hint = f"Set it to at least {least:,}, or reduce `max_completion_tokens`."
            yield Fault(("context_window",), text, hint)


def check_model_name(text: str) -> str:
    if text == "default" or not re.fullmatch(_MODEL_NAME, text):
        hint = "Use letters, digits, '.', '_', and '-', as in `fast`."
        raise InvalidValue("must be a short name without spaces, other than `default`", hint)
    return text


_MODEL_NAME = r"(?a)[A-Za-z0-9][A-Za-z0-9._-]{0,40}"


class NamedModels(Checked, frozen=True):
    """Additional models by name."""

    models: Mapping[Annotated[str, Check(check_model_name)], NamedModel] = field(
        default_factory=dict
    )
    """Additional models, under names of your choice, for `use`, `/model` and jobs."""


class UseSettings(Checked, frozen=True):
    """The model in `models` for each use. Empty: the main one."""

    chat: str = ""
    """The model for conversations, unless you choose another with `/model`."""
    jobs: str = ""
    """The model for scheduled jobs that don't set one."""
    heartbeat: str = ""
    """The model for the heartbeat."""
    helpers: str = ""
    """The model for subagents."""
    memory: str = ""
    """The model for consolidation and Dream."""
    pictures: str = ""
    """The model for messages with pictures."""
    titles: str = ""
    """The model that writes titles of conversations. Empty: the first words are the title."""
