"""A conversation far longer than the model's window, over a real HTTP server.

The server counts tokens and rejects requests beyond its window, so a request that is too long would
end the test. Each message has a label. The scripted memory agent puts the labels that it reads into
its history entry, so that each prompt can be compared with the history."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from nanobot.messages import ToolCall
from nanobot.testing.channel import FakeChannel
from nanobot.tooling import ToolResult
from tests.doubles.openai.answers import Answer, ChatRequest
from tests.doubles.openai.server import FakeOpenAI
from tests.support import Probe, read_stored, running

WINDOW = 20_000
PADDING = "We spoke of the garden, of the weather and of what to cook this evening. " * 6
LABEL = re.compile(r"#\d+[qa]")


def labels(text: str) -> set[str]:
    return set(LABEL.findall(text))


class Model:
    """Answers turns, consolidates memory, and checks every prompt."""

    def __init__(self, home: Path) -> None:
        self.history = home / "workspace" / "memory" / "history.jsonl"
        self.said: set[str] = set()
        self.remembered: set[str] = set()
        self.read = 0
        self.missing: list[set[str]] = []
        self.cut_at: list[str] = []
        self.chunks = 0

    def __call__(self, request: ChatRequest) -> Answer:
        if b'"save_memory"' in request.raw:
            return self._remember(request)
        self._look(request)
        asked = request.last_user_text
        called = [m for m in request.messages if m.get("role") == "tool"]
        if "search widely" in asked and len(called) < 40:
            calls = [
                ToolCall(f"c{len(called) + n}", "probe", json.dumps({"text": "w" * 200}))
                for n in range(5)
            ]
            return Answer("", tuple(calls))
        number = max(labels(asked), default="#0q", key=lambda label: int(label[1:-1]))
        answer = f"{number[:-1]}a Yes. {PADDING}"
        self.said |= labels(answer)
        return Answer(answer)

    def _remember(self, request: ChatRequest) -> Answer:
        self.chunks += 1
        conversation = request.last_user_text.partition("## Conversation to Process")[2]
        first = next(line for line in conversation.splitlines() if line.strip())
        self.cut_at.append(first)
        entry = "[2026-03-02 09:00] They spoke: " + " ".join(sorted(labels(conversation)))
        arguments = {"history_entry": entry, "memory_update": ""}
        return Answer("", (ToolCall("s", "save_memory", json.dumps(arguments)),))

    def _look(self, request: ChatRequest) -> None:
        """Check that every message so far is in the prompt or in the history."""
        if missing := self.said - labels(request.raw.decode()) - self._recall():
            self.missing.append(missing)
        self.said |= labels(request.last_user_text)

    def _recall(self) -> set[str]:
        """Return the labels in the history. Only new lines are read, as labels never leave it."""
        if self.history.exists():
            lines = self.history.read_bytes()
            self.remembered |= labels(lines[self.read :].decode())
            self.read = len(lines)
        return self.remembered


async def talk(channel: FakeChannel, numbers: Iterable[int]) -> None:
    for number in numbers:
        answer = await channel.ask(f"#{number}q and now? {PADDING}")
        assert answer.startswith(f"#{number}a"), answer


async def test_100_turns_in_a_window_of_20000_tokens(tmp_path: Path) -> None:
    model, channel = Model(tmp_path), FakeChannel()
    probe = Probe(act=lambda _: ToolResult("found words " * 900))
    async with (
        FakeOpenAI(model, context_tokens=WINDOW - 2_000, characters=200) as server,
        running(
            tmp_path,
            None,
            channel,
            tools=(probe,),
            configured_learner=True,
            NANOBOT_MODEL__BASE_URL=server.base_url,
            NANOBOT_MODEL__NAME="m",
            NANOBOT_MODEL__CONTEXT_WINDOW=str(WINDOW),
            NANOBOT_MODEL__MAX_COMPLETION_TOKENS="2000",
            NANOBOT_MODEL__RETRY_SECONDS="0",
        ),
    ):
        await talk(channel, range(1, 50))
        long = await channel.ask("#50q " + "a very long story, told at length; " * 3_500)
        assert long.startswith("#50a")
        await talk(channel, range(51, 55))
        wide = await channel.ask("#55q search widely, please")
        assert wide.startswith("#55a"), wide
        await talk(channel, range(56, 101))
    assert model.missing == []
    assert len(probe.called) == 40
    assert model.chunks >= 3
    users = [first for first in model.cut_at if "USER: " in first]
    assert len(users) >= len(model.cut_at) - 3, "only the wide turn is cut inside"
    kept = read_stored(tmp_path)
    begun = Counter(m.content[:6].partition(" ")[0] for m in kept)
    for number in range(1, 101):
        assert begun[f"#{number}q"] == 1
        assert begun[f"#{number}a"] == 1
    assert [m.seq for m in kept] == sorted(m.seq for m in kept)
    assert len(next(m for m in kept if m.content.startswith("#50q")).content) > 100_000
    assert sum(len(m.content) > 10_000 for m in kept if m.role == "tool") == 40
