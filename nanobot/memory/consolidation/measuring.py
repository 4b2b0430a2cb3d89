"""How large a prompt is, how large it may be, and how much of a conversation therefore has to go.

Estimates come from the builder of prompts and are corrected by the counter; every threshold is in
real tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from nanobot.memory.consolidation.planning import pick_consolidation_boundary, pick_window_boundary
from nanobot.messages import Message
from nanobot.session.session import Session


class PromptSize(Protocol):
    """How large a session's prompt is. All numbers are estimates in tokens, before correction."""

    def tokens(self, session: Session, coming: Sequence[Message] = ()) -> int:
        """Of the whole prompt, with the `coming` messages after it."""
        ...

    def fixed_tokens(self, session: Session) -> int:
        """Of the system prompt and the tools."""
        ...

    def cost(self, session: Session, message: Message) -> int:
        """Of one message."""
        ...

    def text(self, session: Session, coming: Sequence[Message] = ()) -> str:
        """The prompt's text, for an exact count."""
        ...


class Counter(Protocol):
    """Corrects estimates; `nanobot.providers.counter.TokenCounter` does."""

    @property
    def ratio(self) -> float:
        """Real tokens for each estimated one."""
        ...

    async def count(
        self, text: Callable[[], str], estimated: int, budget: int, kind: str = ""
    ) -> int:
        """The tokens of a text: corrected, or counted where they come close to `budget`. Texts of
        one `kind` are alike."""
        ...


@dataclass(frozen=True, slots=True)
class Limits:
    """When consolidation sets in.

    `budget` is how many tokens a prompt may have, `window` how many messages may wait before the
    oldest `chunk` go (0: any number), `idle_minutes` after how long a resting session is put away
    (0: never). `model` overrides the configured model.
    """

    budget: int
    window: int = 100
    chunk: int = 50
    idle_minutes: int = 0
    model: str = ""


class Gauge:
    """Measures sessions against the limits."""

    def __init__(self, prompt: PromptSize, counter: Counter, limits: Limits) -> None:
        self._prompt, self._counter, self._limits = prompt, counter, limits

    async def excess(self, session: Session, coming: Sequence[Message], over: int) -> int:
        """By how many tokens the prompt, with the `coming` messages, exceeds `over`; may be less
        than 0."""
        text = partial(self._prompt.text, session, coming)
        estimated = self._prompt.tokens(session, coming)
        return await self._counter.count(text, estimated, self._limits.budget, session.key) - over

    def target(self, session: Session) -> int:
        """What a prompt is brought down to: half of the room for history, above what is fixed."""
        fixed = round(self._prompt.fixed_tokens(session) * self._counter.ratio)
        return fixed + max(0, self._limits.budget - fixed) // 2

    def boundary(self, session: Session, wanted: int) -> int:
        """How many messages go so that `wanted` tokens leave; a tenth of the budget at least."""
        return self._pick(session, wanted, self._limits.budget // 10)

    def half(self, session: Session) -> int:
        """How many messages are the older half of the conversation; 0 where there are none."""
        history = self._prompt.tokens(session) - self._prompt.fixed_tokens(session)
        return self._pick(session, round(history * self._counter.ratio / 2), 1)

    def window_boundary(self, session: Session) -> int:
        """How many messages go because there are too many; mostly 0."""
        limits = self._limits
        return pick_window_boundary(session.messages, limits.window, limits.chunk)

    def _pick(self, session: Session, wanted: int, least: int) -> int:
        messages, ratio = session.messages, self._counter.ratio
        costs = [round(self._prompt.cost(session, message) * ratio) for message in messages]
        return pick_consolidation_boundary(messages, costs, wanted, least)
