"""What a conversation costs in prompt tokens, and how much of it a provider's cache can serve.

Thirty turns within an epoch, a third of them with tool calls, one that changes memory. Every
request must extend the one before byte for byte, tools first; what is not a common prefix is
uncached.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import tiktoken

from bench.common import gateway
from bench.reporting import report
from nanobot.providers.port import CallOptions, Prompt, Reply, TextSink
from nanobot.testing.channel import FakeChannel
from nanobot.testing.model import calls

TURNS = 30


class Recorder:
    """Answers, with a tool call in every third turn, and keeps the requests as they are sent."""

    def __init__(self) -> None:
        self.requests: list[bytes] = []

    async def complete(
        self, prompt: Prompt, options: CallOptions, on_text: TextSink | None = None
    ) -> Reply:
        """See the class."""
        self.requests.append(prompt.tools.wire + prompt.wire_messages()[:-1])
        number = sum(m.role == "user" for m in prompt.messages)
        if prompt.messages[-1].role == "user" and number % 3 == 0:
            if number == 15:
                text = json.dumps({"text": f"turn {number} was about the garden"})
                reply = calls("note", text=text)
            else:
                reply = calls("list_dir", path=".")
            call = reply.tool_calls[0]
            return Reply("", (type(call)(f"call_{number}", call.name, call.arguments),))
        return Reply(f"Answer {number}: " + "a sentence of ordinary length about the matter. " * 3)

    async def close(self) -> None:
        """Nothing to release."""


async def converse(home: Path) -> list[bytes]:
    """The requests of a conversation, tools and messages, in order."""
    model, channel = Recorder(), FakeChannel()
    async with gateway(home, model, channel):
        for number in range(TURNS):
            await channel.ask(f"Question {number}: what about the garden, the house and the car?")
    return model.requests


def counter() -> tuple[Callable[[bytes], int], str]:
    """Counts tokens, exactly where the table can be had (its download needs a network)."""
    try:
        encoding = tiktoken.get_encoding("o200k_base")
    except OSError as error:
        return (lambda text: len(text) // 4), f"bytes / 4 ({type(error).__name__})"
    return (lambda text: len(encoding.encode(text.decode()))), "o200k_base"


def main() -> None:
    """Run and print."""
    with tempfile.TemporaryDirectory() as folder:
        requests = asyncio.run(converse(Path(folder)))
    count, counted_by = counter()
    pairs = list(pairwise(requests))
    broken = sum(not after.startswith(before) for before, after in pairs)
    total = sum(map(count, requests))
    uncached = count(requests[0]) + sum(
        count(after[len(before) :]) if after.startswith(before) else count(after)
        for before, after in pairs
    )
    report(
        "prompt",
        {
            "requests": len(requests),
            "requests that do not extend the one before (target 0)": broken,
            f"prompt tokens in all [{counted_by}] (target <= 140,000)": total,
            "of which uncached (target <= 6,500)": uncached,
            "share uncached": uncached / total,
            "first request: system prompt and tools [tokens]": count(requests[0]),
        },
    )


if __name__ == "__main__":
    main()
