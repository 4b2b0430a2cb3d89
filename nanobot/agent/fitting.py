"""Making a prompt fit in the middle of a turn: pure.

Between turns consolidation sees to it that the prompt fits. A turn that calls many tools can
outgrow the window by itself; then what its tools returned is shortened in the prompt, oldest first,
in steps, then what was said, and at last the oldest messages are left out. What is stored is not
touched, and the model is told where something is missing. The system prompt and the person's newest
message always stay.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from itertools import product

from nanobot.messages import ToolCall
from nanobot.providers.port import (
    Prompt,
    PromptMessage,
    assistant_message,
    tool_message,
    user_message,
)

Count = Callable[[Callable[[], str], int, int, str], Awaitable[int]]
"""Tokens of a prompt, from its text, its estimate, the budget and what tells conversations apart:
`TokenCounter.count`."""

_LEVELS = (4_000, 1_000, 200, 0)
"""Characters that remain of a message, one level after the other."""
_TARGET = 0.75
"""Down to this share of the budget, so that not every step has to shorten again."""
LEFT_OUT = "[nanobot: {} earlier messages are left out here to fit; they are stored]"


class PromptRoom:
    """Keeps prompts within `budget` tokens."""

    def __init__(self, budget: int, count: Count) -> None:
        self._budget, self._count = budget, count

    async def fit(self, prompt: Prompt) -> Prompt:
        """The prompt itself where it fits, else one that does."""
        kind = prompt.messages[1].text[:200] if len(prompt.messages) > 1 else ""
        tokens = await self._count(lambda: prompt_text(prompt), prompt.tokens, self._budget, kind)
        if tokens <= self._budget:
            return prompt
        return shortened(prompt, round(self._budget * _TARGET * prompt.tokens / max(1, tokens)))


def shortened(prompt: Prompt, target: int) -> Prompt:
    """The prompt with about `target` estimated tokens, or as near as can be."""
    messages = list(prompt.messages)
    excess = prompt.tokens - target
    question = _question(messages)
    tools = [
        at for at, message in enumerate(messages) if message.role == "tool" or message.tool_calls
    ]
    spoken = [at for at in range(len(messages)) if at not in {0, question, *tools}]
    for places, limit in product((tools, spoken), _LEVELS):
        for at in places:
            if excess <= 0:
                return replace(prompt, messages=tuple(messages), tokens=0)
            excess -= messages[at].tokens
            messages[at] = _cut(messages[at], limit)
            excess += messages[at].tokens
    if excess > 0:
        messages = _without_oldest(messages, question, excess)
    return replace(prompt, messages=tuple(messages), tokens=0)


def prompt_text(prompt: Prompt) -> str:
    """All text of a prompt, for counting."""
    texts = [message.text for message in prompt.messages]
    texts += [call.name + call.arguments for m in prompt.messages for call in m.tool_calls]
    return "\n\n".join([*texts, prompt.tools.wire.decode()])


def shorten(text: str, limit: int) -> str:
    """`text`, or its head and tail with a note between them where it is longer than `limit`."""
    if len(text) <= limit:
        return text
    left_out = len(text) - limit
    head = limit * 3 // 4
    note = f"\n[… {left_out} characters left out here to fit; the whole text is stored …]\n"
    return text[:head] + note + text[head + left_out :]


def _question(messages: Sequence[PromptMessage]) -> int:
    """Where the person's newest message stands."""
    users = [at for at, message in enumerate(messages) if message.role == "user"]
    return users[-1] if users else -1


def _cut(message: PromptMessage, limit: int) -> PromptMessage:
    text = shorten(message.text, limit)
    if len(text) >= len(message.text):
        text = message.text
    if message.role == "tool":
        return tool_message(message.tool_call_id, text)
    if message.role == "user":
        return user_message(text, () if limit < _LEVELS[0] else message.images)
    return assistant_message(text, tuple(_cut_call(call, limit) for call in message.tool_calls))


def _cut_call(call: ToolCall, limit: int) -> ToolCall:
    """A call whose arguments, still a JSON object, are no longer than about `limit`."""
    if len(call.arguments) <= max(limit, 100):
        return call
    arguments = json.dumps({"shortened to fit": shorten(call.arguments, limit)})
    return replace(call, arguments=arguments) if len(arguments) < len(call.arguments) else call


def _without_oldest(
    messages: list[PromptMessage], question: int, excess: int
) -> list[PromptMessage]:
    """The messages without the oldest ones, calls and their results going together."""
    kept = [at for at, message in enumerate(messages) if message.role == "system" or at == question]
    start = gone = 0
    for at, message in enumerate(messages):
        if excess <= 0 and message.role != "tool":
            break
        start = at + 1
        if at not in kept:
            excess -= message.tokens
            gone += 1
    note = user_message(LEFT_OUT.format(gone))
    head = [messages[at] for at in kept if at < start]
    system = [message for message in head if message.role == "system"]
    asked = [message for message in head if message.role != "system"]
    return [*system, note, *asked, *messages[start:]]
