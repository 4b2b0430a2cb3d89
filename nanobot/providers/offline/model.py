"""`OfflineModel`: the provider that is there when nothing else is.

It makes nanobot work on a fresh machine with no key and no network. It is a function of the prompt:
the same prompt gets the same reply, and nothing is kept between two requests. It knows its limits
and says so; it calls only tools that are on offer.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re

from nanobot.clock import Clock, SystemClock
from nanobot.messages import ToolCall
from nanobot.providers.offline.dream import dream, dream_phase
from nanobot.providers.offline.prompt import View
from nanobot.providers.offline.steps import Call
from nanobot.providers.offline.summarise import SAVE_MEMORY, consolidate
from nanobot.providers.offline.turn import next_step
from nanobot.providers.port import CallOptions, Prompt, Reply, TextSink, Usage
from nanobot.tokens import estimate_tokens

NAME = "offline"

_WORDS = re.compile(r"[\u3040-\u9fff]|[^\s\u3040-\u9fff]+\s*|\s+")
_AT_ONCE = 32
"""Words streamed before others get their turn on the event loop."""


class OfflineModel:
    """Answers by rules. `clock` dates a consolidation whose messages carry no time."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()

    async def complete(
        self, prompt: Prompt, options: CallOptions, on_text: TextSink | None = None
    ) -> Reply:
        """See `Provider`. Never raises."""
        step = self._step(prompt, options)
        if isinstance(step, Call):
            return _reply(prompt, "", step)
        if on_text is not None:
            await _stream(step, on_text)
        return _reply(prompt, step, None)

    async def close(self) -> None:
        """Nothing is open."""

    def _step(self, prompt: Prompt, options: CallOptions) -> Call | str:
        offered = {spec.name for spec in prompt.tools.specs}
        if options.tool_choice == SAVE_MEMORY or offered == {SAVE_MEMORY}:
            return Call(SAVE_MEMORY, consolidate(_request(prompt), self._clock.now()))
        if phase := _phase(prompt):
            return dream(phase, _request(prompt))
        return next_step(View(prompt, may_call=options.tool_choice != "none"))


def _request(prompt: Prompt) -> str:
    return next((m.text for m in reversed(prompt.messages) if m.role == "user"), "")


def _phase(prompt: Prompt) -> int:
    """Which phase of a Dream this is; a conversation offers tools or has other instructions."""
    first = prompt.messages[0] if prompt.messages else None
    return dream_phase(first.text) if first is not None and first.role == "system" else 0


async def _stream(text: str, on_text: TextSink) -> None:
    for number, word in enumerate(_WORDS.findall(text), 1):
        on_text(word, False)
        if number % _AT_ONCE == 0:
            await asyncio.sleep(0)


def _reply(prompt: Prompt, text: str, call: Call | None) -> Reply:
    arguments = json.dumps(call.arguments, ensure_ascii=False) if call else ""
    size = sum(len(message.wire) for message in prompt.messages) + len(prompt.tools.wire)
    usage = Usage(size // 4, estimate_tokens(text) + len(arguments) // 4)
    if call is None:
        return Reply(text, usage=usage, model=NAME)
    calls = (ToolCall(_call_id(prompt, call.name, arguments), call.name, arguments),)
    return Reply("", calls, usage, finish="tool_calls", model=NAME)


def _call_id(prompt: Prompt, name: str, arguments: str) -> str:
    """An id that differs between the calls of a conversation without being random."""
    digest = hashlib.sha256(
        f"{len(prompt.messages)} {name} {arguments[:4_000]}".encode("utf-8", "replace")
    )
    digest.update(prompt.messages[-1].wire[-4_000:] if prompt.messages else b"")
    return f"call_{digest.hexdigest()[:16]}"
