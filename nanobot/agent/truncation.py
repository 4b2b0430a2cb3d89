"""Truncation: a prompt that has grown too long is shortened, for the model and not in storage.

Between turns consolidation makes the prompt fit. A turn that calls many tools can outgrow the
window by itself; then tool results are shortened in the prompt, oldest first and in steps, then
the conversation, then the oldest messages are left out. If that is not enough, the person's newest
message loses its middle. The model is told where something is missing. The system prompt stays.
"""

from __future__ import annotations

from itertools import product

from msgspec.structs import replace

from nanobot.providers.port import (
    Prompt,
    PromptMessage,
    assistant_message,
    tool_message,
    user_message,
)

_SHARE_OF_WINDOW = 0.8
"""The rest is for the answer."""
_LARGEST_STEP = 0.9
_LEVELS = (4_000, 1_000, 200, 0)
"""Characters that remain of a message, one level after the other."""
LEFT_OUT = "[nanobot: {} earlier messages are left out here to fit]"


def truncated_prompt(prompt: Prompt, target: int) -> Prompt:
    """The prompt with about `target` estimated tokens, or as near as can be."""
    messages = list(prompt.messages)
    excess = prompt.tokens - target
    question = max((at for at, m in enumerate(messages) if m.role == "user"), default=-1)
    tools = [at for at, message in enumerate(messages) if message.role == "tool"]
    spoken = [at for at in range(1, len(messages)) if at not in {question, *tools}]
    for places, limit in product((tools, spoken), _LEVELS):
        for at in places if excess > 0 else ():
            excess -= messages[at].tokens
            messages[at] = _cut(messages[at], limit)
            excess += messages[at].tokens
            if excess <= 0:
                break
    if excess > 0:
        messages = _without_oldest(messages, question, excess)
        messages = _with_short_question(messages, prompt.tools.tokens, target)
    return replace(prompt, messages=tuple(messages), tokens=0)


def _cut(message: PromptMessage, limit: int) -> PromptMessage:
    """The message with at most about `limit` characters, and without images; calls stay."""
    text = truncated(message.text, limit)
    text = text if len(text) < len(message.text) else message.text
    if message.role == "tool":
        return tool_message(message.tool_call_id, text)
    if message.role == "user":
        return user_message(text, () if limit < _LEVELS[0] else message.images)
    return assistant_message(text, message.tool_calls, message.provider_data)


def truncated(text: str, limit: int) -> str:
    """`text`, or its head and tail with a note between them where it is longer than `limit`."""
    if len(text) <= limit:
        return text
    left_out = len(text) - limit
    head = limit * 3 // 4
    note = f"\n[… {left_out} characters left out here to fit …]\n"
    return text[:head] + note + text[head + left_out :]


_LEAST_OF_QUESTION = 200


def _with_short_question(
    messages: list[PromptMessage], fixed: int, target: int
) -> list[PromptMessage]:
    """The messages, with the newest of the person's cut if they still exceed the target."""
    excess = fixed + sum(message.tokens for message in messages) - target
    question = max((at for at, m in enumerate(messages) if m.role == "user"), default=-1)
    if excess <= 0 or question < 0:
        return messages
    asked = messages[question]
    share = max(0.0, 1 - excess / asked.tokens)
    limit = max(_LEAST_OF_QUESTION, int(len(asked.text) * share) - _LEAST_OF_QUESTION // 2)
    cut = user_message(truncated(asked.text, limit), asked.images)
    kept = cut if cut.tokens < asked.tokens else asked
    return [*messages[:question], kept, *messages[question + 1 :]]


def tokens_to_try(estimated: int, counted: int, window: int) -> int:
    """How many estimated tokens the next try may have, after a server refused a prompt of
    `estimated` tokens. It counted `counted` and takes `window`; 0 if it did not say."""
    if counted and window:
        return int(estimated * min(_SHARE_OF_WINDOW * window / counted, _LARGEST_STEP))
    return estimated // 2


def _without_oldest(
    messages: list[PromptMessage], question: int, excess: int
) -> list[PromptMessage]:
    """The messages without the oldest ones, calls and their results going together."""
    start, left_out = 1, 0  # the system prompt stays
    asked: list[PromptMessage] = []
    for message in messages[1:]:
        if excess <= 0 and message.role != "tool":
            break
        if start == question:
            asked.append(message)
        else:
            excess -= message.tokens
            left_out += 1
        start += 1
    note = user_message(LEFT_OUT.format(left_out))
    return [messages[0], note, *asked, *messages[start:]]
