"""Budgets: how many tokens a day may use, and how many messages a minute each person may send.

Invariants:

- No model call begins whose prompt would take the day over its limit, whoever makes it: turns,
  jobs, helpers and memory pass the same `DayBudget`.
- A message too many costs no model call; its sender is told once a minute, with a fixed text.

The limit of one turn is the runner's (`AgentRunner`): it ends in an answer rather than an error.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import date
from typing import Any, Literal

from nanobot.bus.events import InboundMessage
from nanobot.bus.journal import JournalReports
from nanobot.clock import Clock
from nanobot.errors import BudgetSpent
from nanobot.providers.port import CallOptions, Prompt, Provider, Reply, TextSink
from nanobot.tasks import Background
from nanobot.tokens import estimate_tokens

TOO_MANY = (
    "That was more than {} messages within a minute; I did not read the last ones. Wait a minute,"
    " then send them again."
)
_WARNING = (
    "{used:,} of the {limit:,} tokens for today (limits.tokens_per_day) are used. When they all"
    " are, I answer nothing more until tomorrow."
)

_MINUTE = 60.0
_SENDERS = 10_000
"""People kept in mind; whoever was silent longest is forgotten first."""


@dataclass(frozen=True, slots=True)
class DayLimit:
    """`tokens` that a day may use, 0 for any number; the owner is warned at a part of them."""

    tokens: int = 0
    warn_at: float = 0.8


class DayBudget:
    """Counts what today's calls use. `warn` tells the owner; it may raise anything."""

    def __init__(
        self,
        limit: DayLimit,
        reports: JournalReports,
        clock: Clock,
        background: Background,
        warn: Callable[[str], Coroutine[Any, Any, object]],
    ) -> None:
        self._limit, self._reports, self._clock = limit, reports, clock
        self._background, self._warn = background, warn
        self._loading = asyncio.Lock()
        self._day: date | None = None
        self._used, self._warned, self._reserved = 0, False, 0

    async def begin(self, prompt: int) -> None:
        """Set aside the tokens of a prompt. Raises `BudgetSpent`, or `StorageError` where what was
        used before cannot be read."""
        if self._limit.tokens:
            today = self._clock.now().date()
            async with self._loading:
                if self._day != today:
                    known = await self._reports.spent(today)
                    self._day, self._used, self._warned = today, known.tokens, known.warned
            if self._used + self._reserved + prompt > self._limit.tokens:
                raise BudgetSpent(self._limit.tokens)
        self._reserved += prompt

    def end(self, prompt: int, used: int) -> None:
        """The call is over; it used so many tokens in all, 0 where it failed."""
        self._reserved -= prompt
        if used and self._limit.tokens:
            self._used += used
            near = self._used >= self._limit.warn_at * self._limit.tokens and not self._warned
            self._warned = self._warned or near
            self._reports.add_spent(self._day or self._clock.now().date(), used, warned=near)
            if near:
                text = _WARNING.format(used=self._used, limit=self._limit.tokens)
                self._background.start(self._warn(text), name="warn of the budget")


class BudgetedProvider:
    """Passes calls on to `provider` as long as the day's budget lasts."""

    def __init__(self, provider: Provider, budget: DayBudget) -> None:
        self._provider, self._budget = provider, budget

    async def complete(
        self, prompt: Prompt, options: CallOptions, on_text: TextSink | None = None
    ) -> Reply:
        """See `Provider`. Raises `BudgetSpent` as well."""
        await self._budget.begin(prompt.tokens)
        used = 0
        try:
            reply = await self._provider.complete(prompt, options, on_text)
            counted = reply.usage.prompt + reply.usage.completion  # where the provider does that
            calls = sum(estimate_tokens(call.arguments) for call in reply.tool_calls)
            used = counted or prompt.tokens + estimate_tokens(reply.text) + calls
        finally:
            self._budget.end(prompt.tokens, used)
        return reply

    async def close(self) -> None:
        """See `Provider`."""
        await self._provider.close()


class SenderRate:
    """How many messages a minute each person may send, by when they were sent; the owner any
    number, and 0 means any."""

    def __init__(
        self, per_minute: int, clock: Clock, is_owner: Callable[[InboundMessage], bool]
    ) -> None:
        self._per_minute, self._clock, self._is_owner = per_minute, clock, is_owner
        self._senders: OrderedDict[tuple[str, str], _Recent] = OrderedDict()

    @property
    def words(self) -> str:
        """What those are told who are turned away."""
        return TOO_MANY.format(self._per_minute)

    def verdict(self, inbound: InboundMessage) -> Literal["take", "tell", "drop"]:
        """What is to become of a message: it is taken, or turned away, and its sender told
        (`TOO_MANY`) or not, since they were told within the minute."""
        if not self._per_minute or inbound.begun_by != "person" or self._is_owner(inbound):
            return "take"
        key = (inbound.channel, inbound.sender_id)
        recent = self._senders.pop(key, None) or _Recent(deque(maxlen=self._per_minute))
        self._senders[key] = recent
        if len(self._senders) > _SENDERS:
            self._senders.popitem(last=False)
        late = (self._clock.now() - inbound.timestamp).total_seconds()
        event = (inbound.chat_id, inbound.event_id)
        return recent.verdict(event, self._clock.monotonic(), max(0.0, late))


@dataclass(slots=True)
class _Recent:
    """One person's newest messages that were taken, each with when it had been sent, and when they
    were last told."""

    taken: deque[tuple[tuple[str, str], float]]
    told: float | None = None

    def verdict(
        self, event: tuple[str, str], now: float, late: float
    ) -> Literal["take", "tell", "drop"]:
        """`event` names the message, `late`: so many seconds ago it was sent. What was written over
        hours, and comes at once after an outage, is not too much; what is delivered again, since it
        could not be stored, counts once."""
        if any(event == known for known, _ in self.taken):
            return "take"
        sent = max([now - late, *(sent for _, sent in list(self.taken)[-1:])])
        while self.taken and sent - self.taken[0][1] >= _MINUTE:
            self.taken.popleft()
        if len(self.taken) != self.taken.maxlen:
            self.taken.append((event, sent))
            return "take"
        if self.told is not None and now - self.told < _MINUTE:
            return "drop"
        self.told = now
        return "tell"
