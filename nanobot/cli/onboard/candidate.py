"""A model that somebody wants: trying it out, and writing it down."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nanobot.cli.onboard.parts import Before, Part
from nanobot.cli.onboard.wording import described
from nanobot.config.model import LEAST_PROMPT_TOKENS, SAFETY_TOKENS
from nanobot.config.values import OFFICIAL_API, is_official
from nanobot.config.yamltext import Change, Setting, value_at

if TYPE_CHECKING:
    from nanobot.clock import Clock
    from nanobot.config.model import ModelSettings

_ANSWER_SECONDS = 120.0
_ANSWER_TOKENS = 1_000
_SHARE = 4
"""An answer may take this part of a context window at most, where the window is small."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """`key_name` is the variable that the key came from, `window` 0 where nothing is said of it;
    `offline` is the built-in model."""

    name: str = ""
    base_url: str = OFFICIAL_API
    key: str = ""
    key_name: str = ""
    window: int = 0
    offline: bool = False

    @property
    def shown(self) -> str:
        """What it is, for people."""
        if self.offline:
            return "the built-in one, offline"
        return f"{self.name or 'the first one'} at {self.base_url}"


async def try_out(wanted: Candidate, clock: Clock) -> str:
    """Have the model answer, with a tool on offer as it will have; how that went, for people.
    Raises `ProviderError`."""
    from nanobot.providers.openai import OpenAIProvider
    from nanobot.providers.port import CallOptions, Prompt, Toolset, ToolSpec, user_message

    provider = OpenAIProvider(
        model=wanted.name,
        base_url=wanted.base_url,
        api_key=wanted.key,
        max_tokens=_ANSWER_TOKENS,
        stall_seconds=_ANSWER_SECONDS,
        clock=clock,
    )
    tool = ToolSpec("rest", "Does nothing.", {"type": "object", "properties": {}})
    prompt = Prompt((user_message("Answer with the one word: ready"),), Toolset.of([tool]))
    began = clock.monotonic()
    try:
        reply = await provider.complete(prompt, CallOptions())
    finally:
        await provider.close()
    return f"{reply.model or wanted.name} answered in {clock.monotonic() - began:.1f} s"


def part_of(wanted: Candidate, doubt: str, present: ModelSettings, before: Before) -> Part:
    """What is to be written; `doubt` is what there is to say about whether it works."""
    told = (("model", f"{wanted.shown} ({doubt})" if doubt else wanted.shown),)
    if wanted.offline:
        return Part((_change("provider", "offline"),), told=told)
    changes = [_change("name", wanted.name)] if wanted.name or present.name else []
    if value_at(before.config, ("model", "provider")) is not None:
        changes.append(_change("provider", "openai"))
    if wanted.base_url != present.base_url or not is_official(wanted.base_url):
        changes.append(_change("base_url", wanted.base_url))
    if wanted.window and wanted.window != present.context_window:
        changes += _window(wanted.window, present.max_completion_tokens)
    secrets = _key(wanted, present, before)
    if secrets is None:  # a key is for the server that it was given for
        changes.append(_change("api_key", ""))
    changes += [_change("api_key", f"${{{name}}}") for name in secrets or ()]
    return Part(tuple(changes), secrets or {}, told)


def _window(window: int, answer: int) -> list[Change]:
    changes = [_change("context_window", window)]
    if answer * _SHARE > window:
        room = window - LEAST_PROMPT_TOKENS - min(SAFETY_TOKENS, window // 8)
        changes.append(_change("max_completion_tokens", max(min(window // _SHARE, room), 1)))
    return changes


def _key(wanted: Candidate, present: ModelSettings, before: Before) -> dict[str, str] | None:
    """The variable of the key with its value: none where it stays as it is; None where it goes."""
    known = present.api_key.get_secret_value()
    if not wanted.key:
        return None if known and wanted.base_url != present.base_url else {}
    if wanted.key == known:
        return {}
    usual = "OPENAI_API_KEY" if is_official(wanted.base_url) else "MODEL_API_KEY"
    path = ("model", "api_key")
    # The two files are not written in one step: the old server must not get the new one's key.
    elsewhere = bool(known) and wanted.base_url != present.base_url
    name = before.variable(path, wanted.key_name or usual, wanted.key, anew=elsewhere)
    return {name: wanted.key}


def _change(key: str, value: Setting) -> Change:
    path = ("model", key)
    return Change(path, value, described(path))
