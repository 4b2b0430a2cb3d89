"""Structured answers: a JSON object that matches a schema, from any model.

A model answers in its own way first, after its tools. If the answer does not match, the model is
asked once more, to give it as the arguments of a call. The provider chooses its server's way to a
structured answer. The result is checked here, because no way is reliable."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from msgspec.structs import replace

from nanobot.errors import ProviderGarbage
from nanobot.memory.answers import json_object
from nanobot.providers.port import (
    CallOptions,
    Prompt,
    Reply,
    Toolset,
    ToolSpec,
    assistant_message,
    user_message,
)
from nanobot.providers.schemas import misfit

AskModel = Callable[[Prompt, CallOptions], Awaitable[Reply]]
"""One model call. Raises `ProviderError`."""

_NAME = "answer"
_TRIES = 2
_ASK = f"[nanobot: give this answer by calling {_NAME}, with the same content.]"
_AGAIN = "[nanobot: that does not fit: {}. Call {} again.]"


async def in_form(
    ask: AskModel, prompt: Prompt, reply: Reply, schema: str, options: CallOptions
) -> Reply:
    """Return the answer in the form that a JSON `schema` describes. Raises `ProviderGarbage` if the
    model can't give it."""
    form = ToolSpec(_NAME, "Gives the final answer.", json.loads(schema))
    text, problem = await asyncio.to_thread(_fitting, reply.text, form)
    messages, options = prompt.messages, replace(options, tool_choice=_NAME, on_reading=None)
    request = _ASK
    for _ in range(_TRIES):
        if not problem:
            break
        messages = (*messages, assistant_message(_words_of(reply)), user_message(request))
        reply = await ask(Prompt(messages, Toolset.of([form])), options)
        text, problem = await asyncio.to_thread(_fitting, _words_of(reply), form, strict=False)
        request = _AGAIN.format(problem, _NAME)
    if problem:
        raise ProviderGarbage(f"the model's answer does not match the schema: {problem}")
    return replace(reply, text=text, tool_calls=())


def _words_of(reply: Reply) -> str:
    """Return the arguments of the answering call, or else the text."""
    given = (call.malformed or call.arguments for call in reply.tool_calls if call.name == _NAME)
    return next(given, reply.text) or "(empty)"


def _fitting(text: str, form: ToolSpec, *, strict: bool = True) -> tuple[str, str]:
    """Return the object in a text as JSON, and the reason why it does not match, or "". With
    `strict` the text must be only the object, because an object in prose may be an example."""
    value = _whole_object(text) if strict else json_object(text)
    if value is None:
        return "", "it is not a JSON object"
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False), misfit(
            value, form.parameters
        )
    except ValueError:
        return "", "it contains numbers that JSON doesn't allow"


def _whole_object(text: str) -> Mapping[str, Any] | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
