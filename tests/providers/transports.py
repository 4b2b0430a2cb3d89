"""The two ways to a model server, for tests that hold for both."""

from __future__ import annotations

from typing import Any

from nanobot.providers.openai import OpenAIProvider, Transport


class Chosen:
    """The way that a test goes; `each_transport` sets it."""

    transport: Transport = "http"


def provider(base_url: str, **settings: Any) -> OpenAIProvider:
    """A provider that goes the chosen way."""
    wanted: dict[str, Any] = {"model": "m-1", "api_key": "", "max_tokens": 0} | settings
    return OpenAIProvider(base_url=base_url, transport=Chosen.transport, **wanted)
