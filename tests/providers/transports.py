"""A provider with the settings of most tests."""

from __future__ import annotations

from typing import Any

from nanobot.providers.openai import OpenAIProvider


def provider(base_url: str, **settings: Any) -> OpenAIProvider:
    """Return a provider of the model `m-1`."""
    wanted: dict[str, Any] = {"model": "m-1", "api_key": "", "max_tokens": 0} | settings
    return OpenAIProvider(base_url=base_url, **wanted)
