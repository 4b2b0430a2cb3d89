"""The settings: every key, its type, default, limits and meaning. Frozen once loaded.

These classes own that knowledge; the table in docs/configuration.md, the JSON Schema and the checks
are made from them. Rules between keys are in `faults` of their section. What concerns memory is in
`nanobot.config.memory`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import (
    BaseModel,
    Field,
    SecretStr,
    SerializeAsAny,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic.fields import FieldInfo

from nanobot.config.base import Fault, Strict
from nanobot.config.findings import nearest
from nanobot.config.memory import DreamSettings, MemorySettings
from nanobot.config.values import (
    OFFICIAL_API,
    ApiKey,
    Count,
    Duration,
    Name,
    Unfit,
    Url,
    is_official,
    needs_key,
    no_key,
)

SAFETY_TOKENS = 1_024
"""Kept free in the context window, because token counts are estimates."""
LEAST_PROMPT_TOKENS = 2_000
"""The least a prompt must have: 1,000 for instructions and tools, 1,000 for the conversation."""


class FallbackModel(Strict):
    """A model that is asked when those before it cannot answer."""

    name: Name = Field(description="The model's name, as its server knows it.")
    base_url: Url = Field(default="", description="Its API; left out, that of the main model.")
    api_key: ApiKey = Field(
        default=SecretStr(""),
        description="Its key; left out, that of the main model if the server is the same.",
    )

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, data: object) -> object:
        return {"name": data} if isinstance(data, str) else data

    def completed(self, base_url: str, api_key: SecretStr) -> FallbackModel:
        """This model with what it lacks taken from the main one.

        A key goes only to the server that it was given for.
        """
        url = self.base_url or base_url
        key = self.api_key
        if not key.get_secret_value() and url == base_url:
            key = api_key
        return FallbackModel.model_construct(name=self.name, base_url=url, api_key=key)


class ModelSettings(Strict):
    """The language model."""

    provider: Literal["openai", "offline"] = Field(
        default="offline",
        description="`openai` speaks to any server with an OpenAI-compatible API, `offline` is a "
        "small built-in model for trying nanobot out. Left out, it is `openai` as soon as a name, "
        "a key, another address or fallbacks are given.",
    )
    name: str = Field(
        default="",
        description="The model, as the server knows it. Required by the official API; left "
        "out, another server is asked what it serves, and the first one is taken.",
    )
    base_url: Url = Field(
        default=OFFICIAL_API, description="Where the API is, up to and including `/v1`."
    )
    api_key: ApiKey = Field(
        default=SecretStr(""),
        description="The key for that server, best written as `${OPENAI_API_KEY}`; servers other "
        "than the official one may need none.",
    )
    context_window: Count = Field(
        default=128_000, description="Tokens that the model takes in all, its answer included."
    )
    max_completion_tokens: Count = Field(
        default=8_192, description="Tokens that one answer may have."
    )
    timeout_seconds: Annotated[float, Field(gt=0)] = Field(
        default=120.0, description="Seconds of silence from the server that end a call."
    )
    retry_seconds: Duration = Field(
        default=60.0,
        description="Seconds for which one call is tried again within a turn; 0 for never.",
    )
    fallbacks: tuple[FallbackModel, ...] = Field(
        default=(),
        description="Models to ask, in this order, when the main one cannot answer; each is a name "
        "or a mapping with `name`, `base_url` and `api_key`.",
    )

    @model_validator(mode="before")
    @classmethod
    def _provider_from_the_rest(cls, data: object) -> object:
        if not isinstance(data, dict) or "provider" in data:
            return data
        configured = any(data.get(key) for key in ("name", "api_key", "fallbacks"))
        elsewhere = data.get("base_url", OFFICIAL_API) != OFFICIAL_API
        return {**data, "provider": "openai"} if configured or elsewhere else data

    @field_validator("fallbacks")
    @classmethod
    def _complete(
        cls, fallbacks: tuple[FallbackModel, ...], info: ValidationInfo
    ) -> tuple[FallbackModel, ...]:
        # Absent where they are wrong themselves, which is reported anyway.
        url = info.data.get("base_url", "")
        key = info.data.get("api_key", SecretStr(""))
        return tuple(fallback.completed(url, key) for fallback in fallbacks)

    @property
    def prompt_tokens(self) -> int:
        """Tokens that a prompt may have: instructions, tools and conversation together."""
        return self.context_window - self.max_completion_tokens - SAFETY_TOKENS

    def faults(self) -> Iterator[Fault]:
        """What is wrong between the keys, each right in itself."""
        if self.prompt_tokens < LEAST_PROMPT_TOKENS:
            yield self._no_room()
        if self.provider == "offline":
            return
        if not self.name and is_official(self.base_url):
            yield Fault(
                ("name",),
                "is required by the official OpenAI API",
                "Write the model's name, or `provider: offline` to try nanobot without a model.",
            )
        if needs_key(self.base_url, self.api_key):
            yield no_key("api_key")
        for index, fallback in enumerate(self.fallbacks):
            if fallback.base_url != self.base_url and needs_key(
                fallback.base_url, fallback.api_key
            ):
                yield no_key("fallbacks", index, "api_key")

    def _no_room(self) -> Fault:
        reserved = self.context_window - self.prompt_tokens
        most = self.context_window - SAFETY_TOKENS - LEAST_PROMPT_TOKENS
        lower = f", or `max_completion_tokens` to {most:,} or less" if most > 0 else ""
        return Fault(
            ("context_window",),
            f"leaves {max(0, self.prompt_tokens):,} tokens for the prompt; "
            f"it needs {LEAST_PROMPT_TOKENS:,}",
            f"Set it to {reserved + LEAST_PROMPT_TOKENS:,} or more{lower}.",
        )


class AgentSettings(Strict):
    """How the agent works."""

    max_iterations: Count = Field(
        default=50, description="Steps (model calls) that one turn may take before it must answer."
    )
    max_concurrent_turns: Count = Field(
        default=64, description="Turns that run at the same time, over all sessions."
    )
    on_busy: Literal["steer", "queue", "interrupt"] = Field(
        default="steer",
        description="What a message does that arrives during a turn: `steer` gives it to the model "
        "at its next step, `queue` lets it wait, `interrupt` stops the turn for it.",
    )
    timezone: str = Field(
        default="",
        description="The person's time zone, such as `Europe/Berlin`; empty for the system's.",
    )
    timestamps: Literal["relative", "absolute", "off"] = Field(
        default="relative",
        description="How the model sees when a message was sent: `relative` says today or "
        "yesterday as well, `absolute` just the date and time, `off` nothing.",
    )
    wait_for_model_hours: Duration = Field(
        default=24.0,
        description="Hours for which a message waits for a model that is out of reach.",
    )
    shutdown_grace_seconds: Duration = Field(
        default=20.0, description="Seconds that running turns get to finish when nanobot stops."
    )

    @field_validator("timezone")
    @classmethod
    def _known_zone(cls, name: str) -> str:
        name = name.strip()
        if not name:
            return ""
        from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

        try:
            ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            near = nearest(name, sorted(available_timezones()))
            hint = f"Did you mean '{near}'?" if near else "Write it like Europe/Berlin."
            raise Unfit("is not the name of a time zone", hint) from None
        return name


class LogSettings(Strict):
    """The log."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="The least important lines that are written."
    )


class ChannelSettings(Strict):
    """What every channel has; `options` is what its adapter has beyond that."""

    enabled: bool = Field(default=False, description="Whether the channel runs.")
    allow_from: tuple[str, ...] = Field(
        default=(), description="Ids of the people who may talk to the agent; `*` for everyone."
    )
    options: SerializeAsAny[BaseModel] | None = None


class Settings(Strict):
    """All of it, and the home that it was loaded for.

    `owner` are the owner's ids by channel; `warnings` are sentences for the owner about what works
    but should be mended.
    """

    home: Path
    model: ModelSettings = Field(default_factory=ModelSettings)
    agent: AgentSettings = Field(default_factory=AgentSettings)
    memory: MemorySettings = Field(default_factory=MemorySettings)
    dream: DreamSettings = Field(default_factory=DreamSettings)
    log: LogSettings = Field(default_factory=LogSettings)
    owner: Mapping[str, tuple[str, ...]] = Field(default_factory=dict)
    channels: Mapping[str, ChannelSettings] = Field(default_factory=dict)
    warnings: tuple[str, ...] = ()


SECTIONS: Mapping[str, type[BaseModel]] = {
    "model": ModelSettings,
    "agent": AgentSettings,
    "memory": MemorySettings,
    "dream": DreamSettings,
    "log": LogSettings,
}
"""The sections of config.yaml, beside `owner` and `channels`."""

BY_CHANNEL = ("owner", "channels")
"""The sections whose keys are names of channels."""


def keys_of(
    model: type[BaseModel], path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], FieldInfo]]:
    """Every key of a section that takes a value, with the way to it, sections within entered."""
    for name, field in model.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from keys_of(inner, (*path, name))
        else:
            yield (*path, name), field
