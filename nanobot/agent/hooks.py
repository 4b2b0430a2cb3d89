"""What others may watch of a turn: hooks, progress in the chat, and a line in the log.

A hook is called with each event as it happens, in order, so it has to be quick. One that fails is
logged and never breaks the turn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from loguru import logger

from nanobot.bus.events import InboundMessage, Progress, TurnEnded, TurnStarted
from nanobot.tooling import TurnContext


@dataclass(frozen=True, slots=True)
class ToolFinished:
    """A tool that was started has run. There is neither event for a call that does not run."""

    name: str
    seconds: float


TurnEvent = InboundMessage | Progress | ToolFinished
"""An `InboundMessage` is stored and about to be routed."""


class AgentHook(Protocol):
    """`caller` is whom the turn is for: None for a message, and where a turn or a command ended."""

    def __call__(self, event: TurnEvent, caller: TurnContext | None = None) -> None: ...


class Screen(Protocol):
    """Where progress can be shown."""

    def show(self, event: Progress) -> None:
        """Best effort, in order."""
        ...


class Hooks:
    """Shows on `screen` what happens in conversations with a person, and calls all `others`."""

    def __init__(self, screen: Screen | None = None, others: Sequence[AgentHook] = ()) -> None:
        self._screen, self._others = screen, others

    def __call__(self, event: TurnEvent, caller: TurnContext | None = None) -> None:
        """Tell all of them, and keep each one's failure to itself."""
        if self._screen is not None and not isinstance(event, InboundMessage | ToolFinished):
            begun = event if isinstance(event, TurnEnded) else caller
            if begun is not None and begun.begun_by in {"person", "report"}:
                self._screen.show(event)
        for hook in self._others:
            try:
                hook(event, caller)
            except Exception as error:  # noqa: BLE001 - the boundary: hooks never break a turn
                logger.opt(exception=error).warning("hook {} failed", type(hook).__name__)


class Chronicle:
    """A line in the log for each turn, and for those who want to see more each tool; and counts
    since the start: `turns` by how they ended, and the tokens of those that ended."""

    def __init__(self) -> None:
        self.turns: Counter[str] = Counter()
        self.prompt_tokens = 0
        self.completion_tokens = 0

    def __call__(self, event: TurnEvent, caller: TurnContext | None = None) -> None:
        """Note an event."""
        if isinstance(event, TurnStarted) and caller is not None:
            logger.debug("{}: a turn begins", caller.session_key)
        elif isinstance(event, ToolFinished):
            logger.debug("{} took {:.1f} s", event.name, event.seconds)
        elif isinstance(event, TurnEnded):
            self.turns[event.outcome] += 1
            self.prompt_tokens += event.prompt_tokens
            self.completion_tokens += event.completion_tokens
            tokens = event.prompt_tokens + event.completion_tokens
            if event.outcome == "done" and not tokens and not event.milliseconds:
                return  # a command was answered
            used = (f"{event.milliseconds / 1000:.1f} s", f"{tokens:,} tokens", *event.tools)
            where = f"{event.channel}:{event.chat_id}"
            logger.info("{}: {} ({})", where, event.outcome, ", ".join(dict.fromkeys(used)))
