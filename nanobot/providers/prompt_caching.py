"""Where Claude's prompt cache gets its breakpoints.

Anthropic caches a prompt up to each block marked with `cache_control`, at most four of them. A
later request reads an entry if it has a mark on the same block, or less than 20 blocks after it.

Each request ends right before the newest assistant message of the next request. So the marks are
on the system prompt (the tools come before it), on the newest message, for the next request, and on
the ends of the last two requests, for this one. They hit exactly, however many blocks a step adds.

Source: https://platform.claude.com/docs/en/build-with-claude/prompt-caching
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from nanobot.providers.port import PromptMessage

_IN_MESSAGES = 3
_CACHED = {"type": "ephemeral"}


def anthropic_cache_breakpoints(messages: Sequence[PromptMessage]) -> tuple[int, ...]:
    """Return the positions of the messages whose last part gets a breakpoint: at most four, in
    order, and never an assistant message."""
    system = (0,) if messages and messages[0].role == "system" else ()
    ends: list[int] = []
    for end in _ends_of_requests(messages):
        if len(ends) == _IN_MESSAGES:
            break
        ends.append(end)
    return system + tuple(reversed(ends))


def cached_wire(wire: bytes) -> bytes:
    """Return a message of Chat Completions with a breakpoint on its last part.

    OpenRouter passes it on to Claude. An assistant message has no place for one and stays as it is.

    Source: https://openrouter.ai/docs/features/prompt-caching
    """
    body = json.loads(wire)
    content = body.get("content")
    if body["role"] == "assistant" or not content:
        return wire
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    parts = [*parts[:-1], parts[-1] | {"cache_control": _CACHED}]
    return json.dumps(body | {"content": parts}, separators=(",", ":")).encode()


def _ends_of_requests(messages: Sequence[PromptMessage]) -> Iterator[int]:
    """The newest message and the last messages of earlier requests, latest first."""
    is_end = True
    for position in range(len(messages) - 1, -1, -1):
        role = messages[position].role
        if role == "assistant":
            is_end = True
        elif is_end and role != "system":
            is_end = False
            yield position
