"""How many tokens a prompt has, and how many of them a day may use.

The estimate by class of character (`port.estimate_tokens`) is good to about a tenth. A running
ratio between the provider's counts and the estimates corrects it for the chosen model. A prompt
that is too long all the same is refused by the server, and shortened to the server's numbers.
Counting moves thresholds, never the bytes of a prompt.

No model call begins whose prompt would exceed the day's limit, from any caller: turns, jobs,
helpers and memory pass the same `DayBudget`, and one for their use. The limit of one turn is the
runner's.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine, Mapping
from datetime import date
from types import MappingProxyType
from typing import Any

from msgspec import Struct

from nanobot.bus.journal import Journal, UsageTotals
from nanobot.clock import Clock
from nanobot.errors import BudgetSpent
from nanobot.providers.port import (
    CallOptions,
    Prompt,
    Provider,
    Reply,
    TextSink,
    Usage,
    estimate_tokens,
)
from nanobot.tasks import Background

LEAST_RATIO, MOST_RATIO = 0.5, 3.0
_WEIGHT = 0.2
"""How much the newest report counts in the running ratio."""
_LEAST_ESTIMATE = 500
"""Prompts below this say little: providers add fixed parts of their own."""
_LEAST_WINDOW = 512
"""A number below is none of a window."""
_SHARE_OF_WINDOW = 0.75
"""The rest of a window that was learned is for the answer."""


class TokenCounter:
    """Corrects estimates for one model by the counts that its server reports."""

    def __init__(self) -> None:
        self._ratio = 1.0
        self._windows: dict[str, int] = {}

    @property
    def ratio(self) -> float:
        """Tokens per estimated token, from `LEAST_RATIO` to `MOST_RATIO`."""
        return self._ratio

    def tokens(self, estimated: int) -> int:
        """Return about how many tokens an estimate stands for."""
        return round(estimated * self._ratio)

    def calibrate(self, estimated: int, reported: int) -> None:
        """Learn from the provider's count of a prompt of text only."""
        if estimated < _LEAST_ESTIMATE or reported <= 0:
            return
        ratio = min(MOST_RATIO, max(LEAST_RATIO, reported / estimated))
        self._ratio += _WEIGHT * (ratio - self._ratio)

    def limit(self, window: int, model: str = "") -> None:
        """Remember how many tokens `model` takes, as its server said when it refused a prompt. An
        empty name is the chosen model's. Kept until nanobot ends."""
        if window >= _LEAST_WINDOW:
            self._windows[model] = min(window, self._windows.get(model, window))

    def within(self, budget: int, model: str = "") -> int:
        """Return a budget for prompts, lowered if the model takes less than was configured."""
        window = self._windows.get(model, 0)
        return round(window * _SHARE_OF_WINDOW) if 0 < window <= budget else budget


_WARNING = (
    "{used:,} of the {limit:,} tokens for today (limits.tokens_per_day) are used. When they all"
    " are, I answer nothing more until tomorrow."
)
_WARNING_OF_USE = (
    "{used:,} of the {limit:,} tokens for {use} today (limits.uses.{use}) are used. When they all"
    " are, this stops until tomorrow, and nothing else does."
)


class DayLimit(Struct, frozen=True):
    """`tokens` that a day may use for one `use`, or for all if that is empty; 0 for no limit. The
    owner is warned at a part of them."""

    tokens: int = 0
    warn_at: float = 0.8
    use: str = ""


class DayBudget:
    """Counts what today's calls use. `warn` tells the owner; it may raise anything. What was used
    is read anew after `known_seconds`, where other workers use it as well."""

    def __init__(
        self,
        limit: DayLimit,
        journal: Journal,
        clock: Clock,
        background: Background,
        warn: Callable[[str], Coroutine[Any, Any, object]],
        known_seconds: float = math.inf,
    ) -> None:
        self._limit, self._journal, self._clock = limit, journal, clock
        self._known_seconds, self._read_at = known_seconds, 0.0
        self.is_limited = limit.tokens > 0
        self._background, self._warn = background, warn
        self._loading = asyncio.Lock()
        self._day: date | None = None
        self._used, self._warned, self._reserved = 0, False, 0

    async def reserve(self, prompt: int) -> None:
        """Set aside the tokens of a prompt. Raises `BudgetSpent`, or `StorageError` where what was
        used before cannot be read."""
        today = self._clock.now().date()
        async with self._loading:
            now = self._clock.monotonic()
            if self._day != today or now - self._read_at > self._known_seconds:
                known = await self._journal.day_tokens(today, self._limit.use)
                self._day, self._used, self._warned = today, known.tokens, known.warned
                self._read_at = now
        if self._used + self._reserved + prompt > self._limit.tokens:
            raise BudgetSpent(self._limit.tokens, self._limit.use)
        self._reserved += prompt

    def settle(self, prompt: int, used: int) -> None:
        """The call is over; it used so many tokens in all, 0 where it failed."""
        self._reserved -= prompt
        if used:
            self._used += used
            near = self._used >= self._limit.warn_at * self._limit.tokens and not self._warned
            self._warned = self._warned or near
            day, use = self._day or self._clock.now().date(), self._limit.use
            self._journal.add_day_tokens(day, used, use, warned=near)
            if near:
                text = _WARNING_OF_USE if use else _WARNING
                text = text.format(used=self._used, limit=self._limit.tokens, use=use)
                self._background.start(self._warn(text), name="warn of the budget")

    def add_learning(self, usage: Usage) -> None:
        """Add a call of memory's to what is reported of the day."""
        used = UsageTotals(1, usage.prompt, usage.cached, usage.completion, usage.cost)
        self._journal.add_learning_usage(self._clock.now().date(), used)


class BudgetedProvider:
    """Passes calls on to `provider` as long as the day's budget lasts, and the one for their use.
    Those for memory, which `learns`, are reported apart."""

    def __init__(
        self,
        provider: Provider,
        budget: DayBudget,
        by_use: Mapping[str, DayBudget] = MappingProxyType({}),
        *,
        learns: bool = False,
    ) -> None:
        self._provider, self._budget, self._learns = provider, budget, learns
        self._by_use = by_use

    async def complete(
        self, prompt: Prompt, options: CallOptions, on_text: TextSink | None = None
    ) -> Reply:
        """See `Provider`. Raises `BudgetSpent` as well."""
        own = self._by_use.get(options.use)
        budgets = [one for one in (self._budget, own) if one is not None and one.is_limited]
        reserved: list[DayBudget] = []
        used = 0
        try:
            for budget in budgets:
                await budget.reserve(prompt.tokens)
                reserved.append(budget)
            reply = await self._provider.complete(prompt, options, on_text)
            counted = reply.usage.prompt + reply.usage.completion  # where the provider does that
            calls = sum(estimate_tokens(call.arguments) for call in reply.tool_calls)
            used = counted or prompt.tokens + estimate_tokens(reply.text) + calls
        finally:
            for budget in reserved:
                budget.settle(prompt.tokens, used)
        if self._learns:
            self._budget.add_learning(reply.usage)
        return reply

    async def close(self) -> None:
        """See `Provider`."""
        await self._provider.close()
