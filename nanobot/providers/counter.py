"""Token counts of prompts, the cost of tokens, and daily budgets.

A prompt is counted only as exactly as a decision needs, in three steps. The estimate by class of
character (`port`) is free and accurate to about a tenth. A running ratio of the provider's counts
to the estimates corrects it per model. If the result is within a tenth of a threshold, tiktoken
counts exactly in a separate process, which then ends, because its tables take 79 MiB. If its
encoding is not available (no network), the estimate decides with a margin.

Counting moves thresholds, never the bytes of a prompt.

No model call begins if its prompt would exceed the day's limit. Turns, jobs, subagents and memory
all pass the same `DayBudget`, and one for their use. The runner enforces the limit of one turn."""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from datetime import date
from pathlib import Path
from types import MappingProxyType
from typing import Any

from loguru import logger
from msgspec import Struct

from nanobot import programs
from nanobot.bus.journal import UsageTotals
from nanobot.bus.sql_journal import Journal
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

ExactCount = Callable[[str], Awaitable[int | None]]
"""Counts the tokens of a text. None if that is not possible."""

LEAST_RATIO, MOST_RATIO = 0.5, 3.0
_WEIGHT = 0.2  # weight of the newest report in the running ratio
_LEAST_ESTIMATE = 500  # smaller prompts are ignored, because providers add fixed parts
_LEAST_WINDOW = 512  # a smaller number cannot be a window
_SHARE_OF_WINDOW = 0.75  # the rest of a learned window is for the answer
_NEAR = 0.1  # share of a threshold within which an exact count is made
_MARGIN = 1.05  # for an estimate near a threshold
_CHANGED = 0.02  # share by which prompts of a kind may differ
_KINDS = 256  # with a cached count
_WORKER_SECONDS = 10.0


class TokenCounter:
    """Token counts for one model. `exact` counts exactly."""

    def __init__(self, exact: ExactCount | None = None) -> None:
        self._ratio, self._exact = 1.0, exact
        self._counted: OrderedDict[str, tuple[int, int]] = OrderedDict()
        self._windows: dict[str, int] = {}

    @property
    def ratio(self) -> float:
        """Tokens per estimated token, from `LEAST_RATIO` to `MOST_RATIO`."""
        return self._ratio

    def calibrate(self, estimated: int, reported: int) -> None:
        """Learn from a prompt of text only: our estimate and the provider's count."""
        if estimated < _LEAST_ESTIMATE or reported <= 0:
            return
        ratio = min(MOST_RATIO, max(LEAST_RATIO, reported / estimated))
        self._ratio += _WEIGHT * (ratio - self._ratio)

    def limit(self, window: int, model: str = "") -> None:
        """Remember the window of `model`, which its server reported when it refused a prompt. An
        empty name is the chosen model. Kept until nanobot ends."""
        if window >= _LEAST_WINDOW:
            self._windows[model] = min(window, self._windows.get(model, window))

    def within(self, budget: int, model: str = "") -> int:
        """Return a budget for prompts, lowered if the model's window is smaller than configured."""
        window = self._windows.get(model, 0)
        return round(window * _SHARE_OF_WINDOW) if 0 < window <= budget else budget

    def fits(self, estimated: int, budget: int) -> bool:
        """Return True if an estimate is so far below a budget that no count is needed."""
        return estimated * self._ratio < (1 - _NEAR) * budget

    async def count(
        self, text: Callable[[], str], estimated: int, budget: int, kind: str = ""
    ) -> int:
        """Return the approximate tokens of a prompt. `text` is only called for an exact count.

        `estimated` is of the same prompt, and `budget` is the relevant threshold. Prompts of one
        `kind` (a conversation's) are alike: the count of one is used for the next, until the size
        changes."""
        tokens = round(estimated * self._ratio)
        if self._exact is None or abs(tokens - budget) > _NEAR * budget:
            return tokens
        known = self._counted.get(kind)
        if known is None or abs(estimated - known[0]) > _CHANGED * known[0]:
            counted = await self._exact(text())
            if counted is None:
                return round(tokens * _MARGIN)
            known = self._counted[kind] = (estimated, counted)
            if len(self._counted) > _KINDS:
                self._counted.popitem(last=False)  # the oldest kind
        return round(estimated * known[1] / known[0])


_WORKER = Path(__file__).with_name("tiktoken_worker.py")
_FOR_ENCODINGS = (
    r"TIKTOKEN_CACHE_DIR|DATA_GYM_CACHE_DIR|(?i:https?_proxy|all_proxy|no_proxy)"
    r"|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE"
)
"""Variables that tiktoken needs to find or fetch the encoding."""


class Tiktoken:
    """Exact counts in a worker process, one at a time. After one failure it is not tried again."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._works = True
        self._one_at_a_time = asyncio.Lock()

    async def __call__(self, text: str) -> int | None:
        async with self._one_at_a_time:
            if not self._works:
                return None
            try:
                return await self._count(text)
            except (OSError, TimeoutError, ValueError) as error:
                logger.info("tokens are estimated, not counted ({})", error or type(error).__name__)
                self._works = False
                return None

    async def _count(self, text: str) -> int:
        launch = programs.own_script(_WORKER, self._model, **programs.environment(_FOR_ENCODINGS))
        pipe = asyncio.subprocess.PIPE
        worker = await launch.spawn(stdin=pipe, stdout=pipe, stderr=asyncio.subprocess.DEVNULL)
        try:
            async with asyncio.timeout(_WORKER_SECONDS):
                answer, _ = await worker.communicate(text.encode("utf-8", "replace"))
        finally:
            if worker.returncode is None:
                worker.kill()
                await worker.wait()
        return int(answer)  # ValueError if empty: the encoding is unavailable


_WARNING = (
    "{used:,} of today's {limit:,} tokens (limits.tokens_per_day) have been used. At the "
    "limit, I'll stop answering until tomorrow."
)
_WARNING_OF_USE = (
    "{used:,} of today's {limit:,} tokens for {use} (limits.uses.{use}) have been used. At the "
    "limit, only {use} will stop until tomorrow."
)


class DayLimit(Struct, frozen=True):
    """Tokens per day for one `use`, or for all if that is empty. 0 tokens: no limit. The owner is
    warned at the share `warn_at`."""

    tokens: int = 0
    warn_at: float = 0.8
    use: str = ""


class DayBudget:
    """Tokens used today. `warn` notifies the owner and may raise anything. The stored usage is
    reread after `known_seconds`, if other workers add to it."""

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
        """Set aside the tokens of a prompt. Raise `BudgetSpent`, or `StorageError` if the earlier
        usage cannot be read."""
        today = self._clock.now().date()
        async with self._loading:
            now = self._clock.monotonic()
            if self._day != today or now - self._read_at > self._known_seconds:
                known = await self._journal.day_tokens(today, self._limit.use)
                self._day, self._used, self._warned = today, known.tokens, known.warned
                self._read_at = now
        if self._used + self._reserved + prompt > self._limit.tokens:
            raise BudgetSpent(self._limit.tokens, self._limit.use)
        self._reserved += prompt  # until the call is settled

    def settle(self, prompt: int, used: int) -> None:
        """End a call. `used` is its total of tokens, 0 if it failed."""
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
        """Add a call for memory to the day's report."""
        used = UsageTotals(1, usage.prompt, usage.cached, usage.completion, usage.cost)
        self._journal.add_learning_usage(self._clock.now().date(), used)


class BudgetedProvider:
    """Provider that enforces the day's budget and the budget for a call's use. Calls for memory,
    which `learns`, are reported separately."""

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
        """See `Provider`. Also raise `BudgetSpent`."""
        own = self._by_use.get(options.use)
        budgets = [one for one in (self._budget, own) if one is not None and one.is_limited]
        reserved: list[DayBudget] = []
        used = 0
        try:
            for budget in budgets:
                await budget.reserve(prompt.tokens)
                reserved.append(budget)
            reply = await self._provider.complete(prompt, options, on_text)
            counted = reply.usage.prompt + reply.usage.completion  # 0 if not reported
            calls = sum(estimate_tokens(call.arguments) for call in reply.tool_calls)
            used = counted or prompt.tokens + estimate_tokens(reply.text) + calls
        finally:
            for budget in reserved:
                budget.settle(prompt.tokens, used)
        if self._learns:
            self._budget.add_learning(reply.usage)
        return reply

    async def close(self) -> None:
        await self._provider.close()
