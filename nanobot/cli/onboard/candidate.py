"""A model that the owner wants: does it answer, and the changes that set it up."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from nanobot.cli.onboard.files import ConfigPart
from nanobot.config.changing import ExistingFiles
from nanobot.config.model import LEAST_PROMPT_TOKENS, SAFETY_TOKENS, ModelSettings
from nanobot.config.values import OFFICIAL_API, is_official
from nanobot.config.yamltext import ConfigChange, Setting, value_at
from nanobot.providers.catalogue import KnownProvider, provider_at
from nanobot.validation import SecretStr

if TYPE_CHECKING:
    from nanobot.clock import Clock
    from nanobot.providers.discovery import ListedModel
    from nanobot.providers.port import ReadingSink

_ANSWER_TOKENS = 1_000
_SHARE = 4
"""An answer may take this part of a context window at most, where the window is small."""


class ModelCandidate(Struct, frozen=True):
    """A model that the owner wants. `key_name` is the variable that the key came from, `window` the
    tokens that the model takes (0: unknown); `offline` is the built-in model. `unchecked`: its
    server could not be reached, so nobody knows yet if it answers. `api`: how it is asked; empty:
    as the catalogue of providers has it."""

    name: str = ""
    base_url: str = OFFICIAL_API
    key: str = ""
    key_name: str = ""
    window: int = 0
    offline: bool = False
    unchecked: bool = False
    api: Literal["chat", "messages", ""] = ""

    @property
    def asked_by(self) -> Literal["chat", "messages"]:
        """The API that its server has."""
        known = provider_at(self.base_url)
        return self.api or (known.api if known else "chat")

    def settings(self, present: ModelSettings) -> ModelSettings:
        """The settings to ask it with. Those of `present` hold for the same server only."""
        is_same = self.base_url == present.base_url
        return replace(
            present if is_same else ModelSettings(),
            provider="openai",
            name=self.name,
            base_url=self.base_url,
            api_key=SecretStr(self.key),
            api=self.asked_by,
        )

    @property
    def shown(self) -> str:
        """What it is, for people."""
        if self.offline:
            return "the built-in one, offline"
        known = provider_at(self.base_url)
        where = known.name if known and not known.is_local else self.base_url
        return f"{self.name or 'the first one'} at {where}"


async def list_served(
    base_url: str, key: str, provider: KnownProvider | None, seconds: float, *, every: bool = False
) -> tuple[str, Sequence[ListedModel]]:
    """Return the address at which a server lists its models, and the list: an address without a
    path may lack /v1. Raises `ProviderError`."""
    from nanobot.providers.discovery import listed_models

    list_at = partial(listed_models, api_key=key, seconds=seconds, provider=provider, every=every)
    models = await list_at(base_url)
    if not models and lacks_path(base_url):
        longer = f"{base_url.rstrip('/')}/v1"
        if found := await list_at(longer):
            return longer, found
    return base_url, models


def lacks_path(base_url: str) -> bool:
    """Whether an address ends with its host."""
    return urlsplit(base_url).path in ("", "/")


async def try_out(model: ModelSettings, clock: Clock, on_reading: ReadingSink | None = None) -> str:
    """Have the model answer, with a tool on offer, and return how that went, for people. Raises
    `ProviderError`."""
    from nanobot.app.base import build_adapter
    from nanobot.providers.port import CallOptions, Prompt, Toolset, ToolSpec, user_message

    tool = ToolSpec("rest", "Does nothing.", {"type": "object", "properties": {}})
    prompt = Prompt((user_message("Answer with the one word: ready"),), Toolset.of([tool]))
    provider = build_adapter(model)
    options = CallOptions(max_tokens=_ANSWER_TOKENS, on_reading=on_reading)
    began = clock.monotonic()
    try:
        reply = await provider.complete(prompt, options)
    finally:
        await provider.close()
    return f"{reply.model or model.name} answered in {clock.monotonic() - began:.1f} s"


def model_changes(
    wanted: ModelCandidate, present: ModelSettings, before: ExistingFiles
) -> ConfigPart:
    """What is to be written."""
    doubt = ", not checked" if wanted.unchecked else ""
    summary = (("model", wanted.shown + doubt),)
    if wanted.offline:
        return ConfigPart((_change("provider", "offline"),), summary=summary)
    changes = [_change("name", wanted.name)] if wanted.name or present.name else []
    if value_at(before.config, ("model", "provider")) is not None:
        changes.append(_change("provider", "openai"))
    moves = wanted.base_url != present.base_url
    if moves or not is_official(wanted.base_url):
        changes.append(_change("base_url", wanted.base_url))
    if moves and wanted.asked_by != present.api:
        changes.append(_change("api", wanted.asked_by))
    changes += _window_changes(wanted.window, present)
    key, secrets = _key_changes(wanted, present, before)
    unchecked = ("model",) if wanted.unchecked else ()
    return ConfigPart((*changes, *key), secrets, summary, unchecked=unchecked)


def _window_changes(window: int, present: ModelSettings) -> list[ConfigChange]:
    """The window, and answers that leave room for the prompt in it."""
    if window in (0, present.context_window):
        return []
    changes = [_change("context_window", window)]
    if present.max_completion_tokens * _SHARE > window:
        room = window - LEAST_PROMPT_TOKENS - min(SAFETY_TOKENS, window // 8)
        changes.append(_change("max_completion_tokens", max(min(window // _SHARE, room), 1)))
    return changes


def _key_changes(
    wanted: ModelCandidate, present: ModelSettings, before: ExistingFiles
) -> tuple[list[ConfigChange], dict[str, str]]:
    """The variable of the key, and its value for secrets.env. A key is for the server that it was
    given for."""
    known, moves = present.api_key.get_secret_value(), wanted.base_url != present.base_url
    if not wanted.key:
        return ([_change("api_key", "")] if known and moves else []), {}
    if wanted.key == known:
        return [], {}
    named = provider_at(wanted.base_url)
    usual = (named and named.key_variable) or "MODEL_API_KEY"
    # The files are not written in one step: the old server must not get the new one's key.
    fresh = bool(known) and moves
    name = before.variable(("model", "api_key"), wanted.key_name or usual, wanted.key, fresh=fresh)
    return [_change("api_key", f"${{{name}}}")], {name: wanted.key}


def _change(key: str, value: Setting) -> ConfigChange:
    return ConfigChange(("model", key), value)
