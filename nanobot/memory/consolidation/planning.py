"""The messages that leave the prompt when room must be made, and the size of the prompt.

A conversation is a row of messages, each with a cost in tokens. Its oldest part leaves, so a plan
is one number of messages. The row is parted at turns, or if it must be at a joint inside one. There
is always progress, so a caller that plans again after each step ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Protocol

from msgspec import Struct, field

from nanobot.messages import Message
from nanobot.providers.counter import TokenCounter
from nanobot.session.session import Session

_REQUEST_SHARE = 0.9
"""Share of the budget for a consolidation's own request."""


def pick_consolidation_boundary(
    messages: Sequence[Message], costs: Sequence[int], wanted: int, least: int = 1
) -> int:
    """Return how many of the oldest messages must go to free `wanted` tokens, and at least `least`,
    because each consolidation costs a call and a new prompt prefix.

    The first sufficient turn is the boundary. If none begins late enough, the newest turn is too
    large: the messages before it go if they free `least`, else it is parted at a joint, else all of
    it goes. `costs` are the messages' tokens. The result is only 0 without messages. Pure."""
    if not messages:
        return 0
    needed = max(wanted, least, 1)
    gone = [0, *accumulate(costs)]
    joints = joints_of(messages)
    turns = _turns_of(messages)
    for index in turns:
        if gone[index] >= needed:
            return index
    if turns and gone[turns[-1]] >= max(least, 1):
        return turns[-1]
    return next((index for index in joints if gone[index] >= needed), len(messages))


def pick_window_boundary(messages: Sequence[Message], window: int, chunk: int) -> int:
    """Return how many of the oldest messages go once there are `window`: about `chunk`. So a large
    context window does not mean "never".

    The number is rounded down to a turn, or up if none begins that early. It is 0 for fewer than
    `window` messages, for `window` 0 (no limit), and for a single turn. Pure."""
    if window <= 0 or len(messages) < window:
        return 0
    turns = _turns_of(messages)
    early = [index for index in turns if index <= chunk]
    return early[-1] if early else next(iter(turns), 0)


def newest_turn(messages: Sequence[Message]) -> int:
    """Return the index of the newest turn, or 0 if there is only one."""
    return next(reversed(_turns_of(messages)), 0)


def _turns_of(messages: Sequence[Message]) -> list[int]:
    """Return the joints at which turns begin, in order, without the first."""
    return [index for index in joints_of(messages) if begins_turn(messages, index)]


def joints_of(messages: Sequence[Message]) -> list[int]:
    """Return the indexes inside the row at which it may be parted, in order. No call before a joint
    has its result after it, which a model's API would reject."""
    called = dict[str, int]()
    open_until = list(range(len(messages)))
    for index, message in enumerate(messages):
        if message.role == "tool" and (at := called.get(message.tool_call_id)) is not None:
            open_until[at] = index
        for call in message.tool_calls:
            called[call.id] = index
    joints = list[int]()
    reach = 0
    for index in range(1, len(messages)):
        reach = max(reach, open_until[index - 1])
        if reach < index:
            joints.append(index)
    return joints


def begins_turn(messages: Sequence[Message], index: int) -> bool:
    """Return True if the message at `index` (not the first) begins a turn. A message that a person
    sent into a running turn does not."""
    message, before = messages[index], messages[index - 1]
    if message.role != "user":
        return False
    if message.turn_id:
        return message.turn_id != before.turn_id
    return message.origin != "nanobot"


class PromptSize(Protocol):
    """The size of a session's prompt, in estimated tokens before correction."""

    def tokens(self, session: Session, coming: Sequence[Message] = ()) -> int:
        """Return the tokens of the whole prompt, with the `coming` messages at the end."""
        ...

    def count_fixed_tokens(self, session: Session) -> int:
        """Return the tokens of the system prompt and the tools."""
        ...

    def cost(self, session: Session, message: Message) -> int:
        """Return the tokens of one message."""
        ...

    def text(self, session: Session, coming: Sequence[Message] = ()) -> str:
        """Return the prompt's text, for an exact count."""
        ...


class ConsolidationLimits(Struct, frozen=True):
    """Limits that trigger consolidation.

    `budget` limits a prompt's tokens, `window` the messages before the oldest `chunk` go (0: any
    number). A session is consolidated after `idle_minutes` without messages (0: never). `budgets`
    has smaller budgets by model. `request_budget` is for requests to the consolidating model (0: as
    `budget`)."""

    budget: int
    window: int = 100
    chunk: int = 50
    idle_minutes: int = 0
    request_budget: int = 0
    budgets: Mapping[str, int] = field(default_factory=dict)


class PromptGauge:
    """Measures sessions against the limits. Estimates come from the prompt builder and are
    corrected by the token counter. Every threshold is in real tokens."""

    def __init__(
        self, prompt: PromptSize, counter: TokenCounter, limits: ConsolidationLimits
    ) -> None:
        self.prompt, self.counter, self.limits = prompt, counter, limits

    def budget_of(self, session: Session) -> int:
        """Return a conversation's prompt budget in tokens, within its server's limit."""
        model, limits = str(session.metadata.get("model", "")), self.limits
        own = min(limits.budget, limits.budgets.get(model, limits.budget))
        return self.counter.within(own, model)

    def boundary(self, session: Session, excess: int) -> int:
        """Return how many messages must go to halve the room for history, above the fixed part.
        They free at least a tenth of the budget."""
        budget, fixed = self.budget_of(session), self.prompt.count_fixed_tokens(session)
        half = max(0, budget - round(fixed * self.counter.ratio)) // 2
        return self._pick(session, excess + half, budget // 10)

    def half(self, session: Session) -> int:
        """Return the number of messages in the older half of the conversation."""
        history = self.prompt.tokens(session) - self.prompt.count_fixed_tokens(session)
        return self._pick(session, round(history * self.counter.ratio / 2), 1)

    def window_boundary(self, session: Session) -> int:
        """Return how many messages go because there are too many, mostly 0."""
        return pick_window_boundary(session.messages, self.limits.window, self.limits.chunk)

    def request_tokens(self) -> int:
        """Return the maximum of estimated tokens in a request to the consolidating model."""
        budget = self.limits.request_budget or self.counter.within(self.limits.budget)
        return int(budget * _REQUEST_SHARE / self.counter.ratio)

    def _pick(self, session: Session, wanted: int, least: int) -> int:
        messages, ratio = session.messages, self.counter.ratio
        costs = [round(self.prompt.cost(session, message) * ratio) for message in messages]
        return pick_consolidation_boundary(messages, costs, wanted, least)
