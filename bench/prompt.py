"""Measure the prompt tokens of a conversation, the share that a provider's cache can serve, and the
cost of a new chat with a large memory.

Thirty turns run within an epoch, a third of them with tool calls, and one changes memory. Every
request must extend the previous one byte for byte, tools first. Anything after the common prefix is
uncached. Then new chats begin alternately in an empty home and in one with 5,000 history entries, a
year of notes and 375 facts, each with one message. Another home has more facts than a prompt
holds."""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import count as numbers
from itertools import pairwise
from pathlib import Path

import tiktoken

from bench.common import Instant, gateway, median
from bench.reporting import report
from nanobot.memory.history import HistoryEntry, encode
from nanobot.providers.port import CallOptions, Prompt, Reply, TextSink
from nanobot.testing.channel import FakeChannel
from nanobot.testing.model import calls

TURNS = 30
CHATS, ROUNDS = 30, 7
FACTS = 2_000


class Recorder:
    """Answers, with a tool call in every third turn, and keeps the sent requests."""

    def __init__(self) -> None:
        self.requests: list[bytes] = []

    async def complete(
        self, prompt: Prompt, options: CallOptions, on_text: TextSink | None = None
    ) -> Reply:
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
        """Do nothing."""


async def converse(home: Path) -> list[bytes]:
    """Return the requests of a conversation, tools and messages, in order."""
    model, channel = Recorder(), FakeChannel()
    async with gateway(home, model, channel):
        for number in range(TURNS):
            await channel.ask(f"Question {number}: what about the garden, the house and the car?")
    return model.requests


def remember(home: Path, facts: int) -> None:
    """Write a year's memory with this number of facts."""
    memory, now = home / "workspace" / "memory", datetime.now().astimezone()
    memory.mkdir(parents=True)
    with (memory / "history.jsonl").open("wb") as history:
        for number in range(1, 5_001):
            when = now - timedelta(hours=5_001 - number)
            text = f"Talked about matter {number}. " + "Some words on what came of it. " * 10
            history.write(encode(HistoryEntry(number, when, "raw", "fake:0", 0, 0, text)))
    for ago in range(365):
        day = (now - timedelta(days=ago)).date()
        lines = (f"- 12:{n:02} something that happened, number {n}\n" for n in range(20))
        (memory / f"{day}.md").write_text(f"# {day}\n\n" + "".join(lines))
    for path, count in ((memory / "MEMORY.md", facts), (home / "workspace" / "USER.md", 75)):
        lines = (f"- Likes thing number {n} better, since 3 May 2025\n" for n in range(count))
        path.write_text("# Facts\n\n" + "".join(lines))


async def first_turns(empty: Path, full: Path, facts: int = 300) -> float:
    """Return the CPU of a chat's first turn in the full home, relative to the empty one."""
    remember(full, facts)
    here, there = FakeChannel(), FakeChannel()
    async with gateway(empty, Instant(), here), gateway(full, Instant(), there):
        chats = numbers()

        async def begin(channel: FakeChannel) -> float:
            before = time.process_time()
            for _ in range(CHATS):
                await channel.ask("Hello there.", chat_id=f"new-{next(chats)}")
            return time.process_time() - before

        for channel in (here, there):
            await begin(channel)
        await asyncio.sleep(5)  # until memory is indexed
        rounds = [(await begin(here), await begin(there)) for _ in range(ROUNDS)]
    return median([full / empty for empty, full in rounds])


def counter() -> tuple[Callable[[bytes], int], str]:
    """Return a token counter and its name. It is exact if the table is available (its download
    needs a network)."""
    try:
        encoding = tiktoken.get_encoding("o200k_base")
    except OSError as error:
        return (lambda text: len(text) // 4), f"bytes / 4 ({type(error).__name__})"
    return (lambda text: len(encoding.encode(text.decode()))), "o200k_base"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        requests = asyncio.run(converse(Path(folder) / "talk"))
        ratio = asyncio.run(first_turns(Path(folder) / "empty", Path(folder) / "full"))
        large = asyncio.run(first_turns(Path(folder) / "bare", Path(folder) / "large", FACTS))
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
            f"prompt tokens in all [{counted_by}] (target <= 120,000)": total,
            "of which uncached (target <= 6,000)": uncached,
            "share uncached": uncached / total,
            "first request: system prompt and tools [tokens]": count(requests[0]),
            "a chat's first turn, a year remembered, against none (target <= 1.3)": ratio,
            f"the same with {FACTS:,} facts, of which most have no room": large,
        },
    )


if __name__ == "__main__":
    main()
