"""Measure how much of a conversation Claude's prompt cache serves through Anthropic's own API.

Thirty turns go through a whole nanobot, a third of them with tool calls and thinking. The fake
server (`tests.doubles.anthropic`) counts and caches as documented: at most four breakpoints, a look
back of 20 blocks, and entries only above a minimum of tokens. Each request should write its newest
messages to the cache and read everything else."""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import replace
from pathlib import Path

from bench.common import gateway
from bench.reporting import report
from nanobot.providers.fields import mapping
from nanobot.testing.channel import FakeChannel
from tests.doubles.anthropic.caching import Counted
from tests.doubles.anthropic.rules import SONNET
from tests.doubles.anthropic.server import Call, FakeAnthropic, Says, Scripted, Thinking
from tests.doubles.openai.answers import ChatRequest

TURNS = 30
MINIMA = (1_024, 4_096)
"""The smallest cacheable prompts in tokens, for Claude Sonnet and Claude Haiku 4.5."""


def answer(request: ChatRequest) -> Scripted:
    """Return a tool call after some thinking in every third turn, otherwise some sentences."""
    last = request.messages[-1].get("content")
    continues = isinstance(last, list) and mapping(last[0]).get("type") == "tool_result"
    number = sum(message.get("role") == "assistant" for message in request.messages)
    if request.last_user_text.startswith("Call") and not continues:
        return Says((Thinking("The folder may tell."), Call("list_dir", '{"path": "."}')))
    return f"Answer {number}: " + "a sentence of ordinary length about the matter. " * 3


async def converse(home: Path, minimum: int, turns: int = TURNS) -> tuple[list[Counted], int]:
    """Return the tokens of each request of a conversation, and the number of rejected requests."""
    channel = FakeChannel()
    model = replace(SONNET, minimum=minimum)
    async with FakeAnthropic(answer, model=model) as server:
        environ = {
            "NANOBOT_MODEL__NAME": model.name,
            "NANOBOT_MODEL__API": "messages",
            "NANOBOT_MODEL__BASE_URL": server.base_url,
            "NANOBOT_MODEL__API_KEY": "key",
            "NANOBOT_MODEL__CONTEXT_WINDOW": "200000",
        }
        async with gateway(home, None, channel, **environ):
            for number in range(turns):
                start = "Call: question" if number % 3 == 2 else "Question"
                await channel.ask(f"{start} {number}: what about the garden and the house?")
        return server.counted, len(server.refused)


def figures(counted: list[Counted], refused: int, minimum: int) -> dict[str, object]:
    """Sum up one run."""
    total = sum(one.total for one in counted)
    read = sum(one.read for one in counted)
    written = sum(one.written for one in counted)
    uncached = sum(one.uncached for one in counted)
    target = " (target <= 6,000)" if minimum == MINIMA[0] else ""
    found = {
        "requests": len(counted),
        "refused (target 0)": refused,
        "prompt tokens in all": total,
        "read from the cache": read,
        "written to the cache": written,
        f"uncached input{target}": uncached,
        f"uncached input and writes{target}": uncached + written,
        "price of the prompt, against none cached": (uncached + 1.25 * written + 0.1 * read)
        / total,
    }
    return {f"cached from {minimum:,} tokens: {label}": value for label, value in found.items()}


def main() -> None:
    found: dict[str, object] = {}
    for minimum in MINIMA:
        with tempfile.TemporaryDirectory() as folder:
            counted, refused = asyncio.run(converse(Path(folder), minimum))
        found |= figures(counted, refused, minimum)
    report("anthropic_cache", found)


if __name__ == "__main__":
    main()
