"""Asking the model within a budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nanobot.errors import NanobotError
from nanobot.providers.port import CallOptions, Prompt, PromptMessage, Provider, Toolset
from nanobot.tokens import estimate_tokens


class BudgetSpent(NanobotError):
    """A run has asked as much as it may; what is left waits for the next."""


@dataclass(frozen=True, slots=True)
class DreamLimits:
    """What one run may use. `batch` is entries a question; `max_tokens` counts questions and
    answers; `model` overrides the configured one."""

    batch: int = 20
    max_calls: int = 20
    max_tokens: int = 200_000
    model: str = ""


class Questions:
    """The questions of one run. The first may be asked whatever it costs: a run gets somewhere."""

    def __init__(self, provider: Provider, limits: DreamLimits) -> None:
        self._provider = provider
        self._limits = limits
        self._calls = 0
        self._tokens = 0

    async def ask(self, messages: Sequence[PromptMessage]) -> str:
        """The model's answer. Raises `BudgetSpent`, or a `ProviderError`."""
        asked = sum(estimate_tokens(message.text) for message in messages)
        self._check(asked)
        self._calls += 1
        prompt = Prompt(tuple(messages), Toolset.of(()))
        reply = await self._provider.complete(prompt, CallOptions(model=self._limits.model))
        told = reply.usage.prompt + reply.usage.completion
        self._tokens += told or asked + estimate_tokens(reply.text)
        return reply.text

    def _check(self, coming: int) -> None:
        if not self._calls:
            return
        if self._calls >= self._limits.max_calls:
            raise BudgetSpent(f"the {self._limits.max_calls} model calls of a run are used up")
        if self._tokens + coming > self._limits.max_tokens:
            raise BudgetSpent(f"the {self._limits.max_tokens:,} tokens of a run are used up")
