"""Truncation of prompts that are too long, for the model and not in storage.

Between turns, consolidation makes the prompt fit. A turn with many tool calls can outgrow the
window by itself. Then the tool results are shortened, oldest first and in steps, then the
conversation, then the oldest messages are left out. If that is not enough, the middle of the
person's newest message is cut. Each cut is marked for the model. The system prompt stays."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import product
from types import MappingProxyType

from loguru import logger
from msgspec.structs import replace

from nanobot.errors import ContextTooLong
from nanobot.parsing import off_loop
from nanobot.providers.counter import TokenCounter
from nanobot.providers.port import (
    CallOptions,
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
"""Characters that remain of a message at each level."""
LEFT_OUT = "[nanobot: {} earlier messages are left out here to fit]"


def truncate_prompt(prompt: Prompt, target: int) -> Prompt:
    """Return the prompt shortened to about `target` estimated tokens, or as near as possible."""
    messages = list(prompt.messages)
    excess = prompt.tokens - target
    question = max((at for at, m in enumerate(messages) if m.role == "user"), default=-1)
    tools = [at for at, message in enumerate(messages) if message.role == "tool"]
    spoken = [at for at in range(1, len(messages)) if at not in {question, *tools}]
    for limit, at in (*product(_LEVELS, tools), *product(_LEVELS, spoken)):
        if excess <= 0:
            break
        excess -= messages[at].tokens
        messages[at] = _cut(messages[at], limit)
        excess += messages[at].tokens
    if excess > 0:
        messages = _without_oldest(messages, question, excess)
        messages = _with_short_question(messages, prompt.tools.tokens, target)
    return replace(prompt, messages=tuple(messages), tokens=0)


def _cut(message: PromptMessage, limit: int) -> PromptMessage:
    """Return the message with about `limit` characters and without images. Calls stay."""
    text = truncate(message.text, limit)
    text = text if len(text) < len(message.text) else message.text
    if message.role == "tool":
        return tool_message(message.tool_call_id, text)
    if message.role == "user":
        return user_message(text, () if limit < _LEVELS[0] else message.images)
    return assistant_message(text, message.tool_calls, message.provider_data)


def truncate(text: str, limit: int) -> str:
    """Return `text`, or its head and tail with a note between them if it is longer than `limit`."""
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
    """Return the messages, with the person's newest one cut if they still exceed the target."""
    excess = fixed + sum(message.tokens for message in messages) - target
    question = max((at for at, m in enumerate(messages) if m.role == "user"), default=-1)
    if excess <= 0 or question < 0:
        return messages
    newest = messages[question]
    share = max(0.0, 1 - excess / newest.tokens)
    limit = max(_LEAST_OF_QUESTION, int(len(newest.text) * share) - _LEAST_OF_QUESTION // 2)
    cut = user_message(truncate(newest.text, limit), newest.images)
    kept = cut if cut.tokens < newest.tokens else newest
    return [*messages[:question], kept, *messages[question + 1 :]]


def tokens_to_try(estimated: int, counted: int, window: int) -> int:
    """Return the estimated tokens for the next try after a server rejected `estimated` tokens. It
    counted `counted` and accepts `window`, each 0 if not reported."""
    if counted and window:
        return int(estimated * min(_SHARE_OF_WINDOW * window / counted, _LARGEST_STEP))
    return estimated // 2


def _without_oldest(
    messages: list[PromptMessage], question: int, excess: int
) -> list[PromptMessage]:
    """Return the messages without the oldest ones. Calls go together with their results."""
    start, left_out = 1, 0  # the system prompt stays
    kept: list[PromptMessage] = []
    for message in messages[1:]:
        if excess <= 0 and message.role != "tool":
            break
        if start == question:
            kept.append(message)
        else:
            excess -= message.tokens
            left_out += 1
        start += 1
    note = user_message(LEFT_OUT.format(left_out))
    return [messages[0], note, *kept, *messages[start:]]


_WORTH_A_TRY = 0.98
_TARGET = 0.75
"""Share of the budget after shortening, so that not every step has to shorten again."""


class PromptRoom:
    """Limit of prompts to `budget` tokens, or to a model's smaller budget in `budgets`."""

    def __init__(
        self, budget: int, counter: TokenCounter, budgets: Mapping[str, int] = MappingProxyType({})
    ) -> None:
        self._budget, self._counter, self._budgets = budget, counter, budgets

    async def fit(
        self, prompt: Prompt, model: str = "", refused: ContextTooLong | None = None
    ) -> Prompt:
        """Return the prompt, shortened if it exceeds the window of `model`. `refused` is the error
        of a server for a longer prompt. It is raised if this prompt can't be made shorter."""
        if refused is not None:
            target = tokens_to_try(refused.estimated, refused.tokens, refused.window)
            shorter = prompt if prompt.tokens <= target else await _truncate(prompt, target)
            if shorter.tokens > refused.estimated * _WORTH_A_TRY:
                raise refused
            return shorter
        budget = min(self._budget, self._budgets.get(model, self._budget))
        budget = self._counter.within(budget, model)
        if self._counter.fits(prompt.tokens, budget):
            return prompt
        kind = prompt.messages[1].text[:200] if len(prompt.messages) > 1 else ""
        text = partial(prompt_text, prompt)
        tokens = await self._counter.count(text, prompt.tokens, budget, kind)
        if tokens <= budget:
            return prompt
        target = round(budget * _TARGET * prompt.tokens / max(1, tokens))
        return await _truncate(prompt, target)

    def learn(self, prompt: Prompt, error: ContextTooLong, options: CallOptions) -> None:
        """Correct the token counts by the counts of a server that rejected `prompt`."""
        error.estimated = prompt.tokens
        if error.of_fallback or options.use != "chat":
            return  # the counts and the window are another model's
        if 0 < error.window <= self._budget:
            logger.warning(
                "{} accepts {:,} tokens, fewer than model.context_window. Prompts are "
                "shortened until that setting is corrected",
                options.model or "the model",
                error.window,
            )
        self._counter.limit(error.window, options.model)
        has_images = any(message.images for message in prompt.messages)
        if error.tokens and not has_images and not options.model:
            self._counter.calibrate(prompt.tokens, error.tokens)


async def _truncate(prompt: Prompt, target: int) -> Prompt:
    """Run `truncate_prompt` off the loop. A token has about four bytes."""
    return await off_loop(4 * prompt.tokens, truncate_prompt, prompt, target)


def prompt_text(prompt: Prompt) -> str:
    texts = [message.text for message in prompt.messages]
    texts += [call.name + call.arguments for m in prompt.messages for call in m.tool_calls]
    return "\n\n".join([*texts, prompt.tools.wire.decode()])
