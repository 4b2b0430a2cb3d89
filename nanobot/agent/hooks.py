"""The events of turns, for screens, metrics, and pages.

Hooks are called with every event, in order, so they have to be quick. A failing hook is logged and
never breaks the turn."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol

from loguru import logger

from nanobot.agent.session_queue import Screen
from nanobot.bus.events import (
    InboundMessage,
    ModelUnreachable,
    Progress,
    PromptReading,
    Thinking,
    TurnEnded,
)
from nanobot.clock import Clock
from nanobot.text import one_line
from nanobot.tooling import OWNER, TurnContext

TurnEvent = InboundMessage | Progress
"""An `InboundMessage` is stored and about to be routed."""


class AgentHook(Protocol):
    """Receiver of every event. `caller` is the context of the turn, or None for an `InboundMessage`
    and a `TurnEnded`."""

    def __call__(self, event: TurnEvent, caller: TurnContext | None = None) -> None: ...


class Hooks:
    """Distributor of events to all `others`, and to `screen` for conversations with a person."""

    def __init__(self, screen: Screen | None = None, others: Sequence[AgentHook] = ()) -> None:
        self._screen, self._others = screen, others

    def __call__(self, event: TurnEvent, caller: TurnContext | None = None) -> None:
        """Call each hook. Log its failure."""
        if self._screen is not None and not isinstance(event, InboundMessage):
            turn = event if isinstance(event, TurnEnded) else caller
            if turn is not None and turn.initiator in {"person", "report"}:
                self._screen.show_progress(event)
        for hook in self._others:
            try:
                hook(event, caller)
            except Exception as error:  # noqa: BLE001 - the boundary: hooks never break a turn
                logger.opt(exception=error).warning("hook {} failed", type(hook).__name__)


class TurnMetrics:
    """Counts since the start: `turns` by outcome, and the tokens of ended turns. Logs each turn."""

    def __init__(self) -> None:
        self.turns: Counter[str] = Counter()
        self.prompt_tokens = 0
        self.completion_tokens = 0

    def __call__(self, event: TurnEvent, caller: TurnContext | None = None) -> None:
        if not isinstance(event, TurnEnded):
            return
        self.turns[event.outcome] += 1
        self.prompt_tokens += event.prompt_tokens
        self.completion_tokens += event.completion_tokens
        tokens = event.prompt_tokens + event.completion_tokens
        if event.outcome == "done" and not tokens and not event.milliseconds:
            return  # a command was answered
        used = (f"{event.milliseconds / 1000:.1f} s", f"{tokens:,} tokens", *event.tools)
        where = f"{event.channel}:{event.chat_id}"
        logger.info("{}: {} ({})", where, event.outcome, ", ".join(dict.fromkeys(used)))


_PACE = 1.0
"""Seconds between two reports of reading or thinking."""
_REASON = 80
"""Most characters of the reason of an outage."""


class WaitReports:
    """Reports of a turn that waits for the model: the sinks of `CallOptions`."""

    def __init__(self, hook: AgentHook, caller: TurnContext, clock: Clock) -> None:
        self._hook, self._caller, self._clock = hook, caller, clock
        self._place = caller.channel, caller.chat_id, caller.turn_id
        self._reading_due = self._thinking_due = -math.inf
        self._thinking_since = math.inf

    def show_reading(self, read: int, total: int) -> None:
        """Report the reading progress once a second, and its end if any was shown."""
        now = self._clock.monotonic()
        if read >= total:
            is_due, self._reading_due = self._reading_due > -math.inf, -math.inf
        elif is_due := now >= self._reading_due:
            self._reading_due = now + _PACE
        if is_due:
            thread = self._caller.thread_id
            self._hook(PromptReading(*self._place, read, total, thread_id=thread), self._caller)

    def show_thinking(self) -> None:
        """Report once a second that the model thinks. Called with each piece of it."""
        now = self._clock.monotonic()
        if now < self._thinking_due:
            return
        self._thinking_since = min(self._thinking_since, now)
        self._thinking_due = now + _PACE
        if seconds := round(now - self._thinking_since):
            thread = self._caller.thread_id
            self._hook(Thinking(*self._place, seconds, thread_id=thread), self._caller)

    def forget_thinking(self) -> None:
        """Count the seconds of the next thinking from its beginning."""
        self._thinking_since, self._thinking_due = math.inf, -math.inf

    def show_outage(self, reason: str, tries: int, seconds: float, *, later: bool = False) -> None:
        """Report that the model failed, and when it is asked again: in this turn, or `later`."""
        self.forget_thinking()
        why = one_line(reason, _REASON) if self._caller.scope == OWNER else ""
        at = f"{self._clock.now() + timedelta(seconds=seconds):%H:%M:%S}" if later else ""
        left, thread = math.ceil(seconds), self._caller.thread_id
        outage = ModelUnreachable(*self._place, why, left, tries, at, thread_id=thread)
        self._hook(outage, self._caller)
