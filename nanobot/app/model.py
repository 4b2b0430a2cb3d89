"""The configured language model: providers, token counter, name and prices."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from random import Random
from typing import TYPE_CHECKING

from loguru import logger

import nanobot
from nanobot.agent.commands import ServedModels
from nanobot.clock import Clock
from nanobot.config.model import ModelSettings, TranscriptionSettings
from nanobot.config.settings import Settings
from nanobot.config.values import secrets_in
from nanobot.errors import NanobotError, ProviderError
from nanobot.gateway.status import About
from nanobot.providers.counter import Prices, Tiktoken, TokenCounter
from nanobot.providers.port import Provider
from nanobot.security.paths import Place, Root
from nanobot.tasks import Background

if TYPE_CHECKING:
    from pathlib import Path

    from pydantic import SecretStr

    from nanobot.providers.embeddings import OpenAIEmbedder
    from nanobot.providers.transcription import Transcriber


_RATIOS = 64_000
_LIST_SECONDS = 5.0


def build_provider(model: ModelSettings, clock: Clock, rng: Random) -> Provider:
    """The configured model with retries, and its fallbacks behind a circuit breaker."""
    if model.provider == "offline":
        from nanobot.providers.offline.model import OfflineModel

        return OfflineModel()
    from nanobot.providers.openai import OpenAIProvider
    from nanobot.providers.retry import (
        FallbackProvider,
        NamedProvider,
        RetryingProvider,
        RetryPolicy,
    )

    def adapter(name: str, base_url: str, api_key: SecretStr) -> NamedProvider:
        provider = OpenAIProvider(
            model=name,
            base_url=base_url,
            api_key=api_key.get_secret_value(),
            max_tokens=model.max_completion_tokens,
            stall_seconds=model.timeout_seconds,
            clock=clock,
        )
        return NamedProvider(name, provider)

    chain = [adapter(model.name, model.base_url, model.api_key)]
    chain += [adapter(other.name, other.base_url, other.api_key) for other in model.fallbacks]
    asked = FallbackProvider(chain, clock) if len(chain) > 1 else chain[0].provider
    return RetryingProvider(asked, RetryPolicy(deadline=model.retry_seconds), clock, rng)


def served_by(model: ModelSettings, clock: Clock, *, asks: bool) -> ServedModels | None:
    """Names the models of the configured server, or none where another provider stands in for it
    (`asks` False) or it does not tell; None for the offline model, which is the only one."""

    async def names() -> Sequence[str]:
        from nanobot.providers.discovery import served_models

        if not asks:
            return ()
        key = model.api_key.get_secret_value()
        try:
            return await served_models(model.base_url, key, clock, seconds=_LIST_SECONDS)
        except ProviderError as error:
            logger.info("the model server gave no list of its models: {}", error)
            return ()

    return None if asks and model.provider == "offline" else names


def build_embedder(settings: Settings, clock: Clock) -> OpenAIEmbedder | None:
    """The model that search by meaning uses, None while there is none."""
    chosen = settings.memory.embeddings.completed(settings.model.base_url, settings.model.api_key)
    if not chosen.model:
        return None
    from nanobot.providers.embeddings import OpenAIEmbedder

    key = chosen.api_key.get_secret_value()
    return OpenAIEmbedder(base_url=chosen.base_url, api_key=key, model=chosen.model, clock=clock)


def build_counter(model: ModelSettings, state: Path, background: Background) -> TokenCounter:
    """The token counter, which goes on from what was learned about the model before."""
    place = Root(state, name="state folder").place("usage.json")
    ratio = _ratios(place).get(model_name(model), 1.0)

    def write(learned: float) -> None:
        ratios = _ratios(place) | {model_name(model): round(learned, 4)}
        try:
            place.write_bytes(json.dumps({"version": 1, "token_ratios": ratios}).encode())
        except NanobotError as error:
            logger.warning("what was learned about token counts is not kept: {}", error)

    def keep(learned: float) -> None:
        background.start(asyncio.to_thread(write, learned), name="keep the token ratio")

    exact = None if model.provider == "offline" else Tiktoken(model.name)
    return TokenCounter(ratio, keep, exact)


def build_transcriber(
    wanted: TranscriptionSettings, clock: Clock, rng: Random
) -> Transcriber | None:
    """What listens to voice messages, if a model for that is set."""
    if not wanted.model:
        return None
    from nanobot.providers.transcription import Transcriber

    return Transcriber(
        base_url=wanted.base_url,
        api_key=wanted.api_key.get_secret_value(),
        model=wanted.model,
        language=wanted.language,
        timeout_seconds=wanted.timeout_seconds,
        max_bytes=wanted.max_megabytes * 1024 * 1024,
        clock=clock,
        random=rng,
    )


def model_name(model: ModelSettings) -> str:
    """The main model's name for people."""
    return model.name or model.provider


def secrets(settings: Settings) -> Iterator[str]:
    """Every secret value in the settings, those of channels included, for redaction."""
    for _, secret in secrets_in(settings):
        yield secret.get_secret_value()


def _ratios(place: Place) -> dict[str, float]:
    """The stored ratios by model; none where the file is missing or makes no sense."""
    try:
        stored = json.loads(place.read_bytes(_RATIOS) or b"{}")
    except (NanobotError, ValueError):
        return {}
    ratios = stored.get("token_ratios") if isinstance(stored, dict) else None
    pairs = ratios.items() if isinstance(ratios, dict) else ()
    return {name: float(ratio) for name, ratio in pairs if isinstance(ratio, int | float)}


def about(settings: Settings) -> About:
    """What does not change while this nanobot runs."""
    model = settings.model
    return About(nanobot.__version__, str(settings.home), model.provider, model_name(model))


def prices(settings: Settings) -> Prices:
    """What the model costs."""
    set_ = settings.model.prices
    return Prices(set_.input, set_.cached_input, set_.output)
