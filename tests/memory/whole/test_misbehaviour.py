"""For any behaviour of the model in consolidation and Dream, over real HTTP, everyone is answered
and nothing is lost."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from itertools import cycle, pairwise
from pathlib import Path
from typing import Any

import pytest

from nanobot.testing import FakeClock
from nanobot.testing.channel import FakeChannel
from tests.doubles.openai.answers import Answer, ChatRequest, Step
from tests.doubles.openai.faults import Cut, busy, server_error, wants
from tests.doubles.openai.server import FakeOpenAI
from tests.support import read_stored, running

FACTS = [f"- fact {name} of the person" for name in ("one", "two", "three", "four", "five", "six")]
MEMORY = "\n".join(["# Memory", "", *FACTS]) + "\n"
TURNS = 8
PADDING = "We spoke of the garden and of what to cook this evening. " * 80


def saving(**fields: object) -> Step:
    return wants("save_memory", json.dumps(fields))


GOOD = {"history_entry": "They spoke of tea.", "memory_update": MEMORY + "- Likes tea\n"}
HALF = {**GOOD, "memory_update": "\n".join(["# Memory", "", *FACTS[:2]])}

SCRIPTS: dict[str, Sequence[Callable[[], Step]]] = {
    "raw, by answers": (
        lambda: Answer(""),
        lambda: Answer("It is done."),
        lambda: saving(key_facts=["tea"]),
    ),
    "raw, HTTP 500": (server_error,),
    "raw, HTTP 429": (lambda: busy(1),),
    "raw, cut off": (Cut,),
    "learned": (
        lambda: wants("save_memory", json.dumps(json.dumps(GOOD))),  # a JSON string
        lambda: wants("save_memory", json.dumps([GOOD])),  # a list
    ),
    "entry": (
        lambda: saving(history_entry="They spoke.", memory_update=""),
        lambda: saving(**HALF),  # half of the facts are dropped
    ),
}
"""Equivalent answers, which are given in turn."""


class Server:
    """Answers turns, and follows a script in consolidation and Dream."""

    def __init__(self, steps: Iterator[Step]) -> None:
        self.steps, self.asked = steps, 0

    def __call__(self, request: ChatRequest) -> Step:
        if b'"save_memory"' in request.raw:
            self.asked += 1
            return next(self.steps)
        return Answer(f"answer to {request.last_user_text.splitlines()[-1][:6]} {PADDING}")


async def talk(channel: FakeChannel, first: int = 1, last: int = TURNS) -> None:
    for number in range(first, last + 1):
        asked = f"#{number:04} and now? I like tea. {PADDING}"
        assert (await channel.ask(asked)).startswith(f"answer to {asked[:6].strip()}")


def settings(server: FakeOpenAI) -> dict[str, Any]:
    return {
        "NANOBOT_MODEL__BASE_URL": server.base_url,
        "NANOBOT_MODEL__NAME": "m",
        "NANOBOT_MODEL__CONTEXT_WINDOW": "16000",
        "NANOBOT_MODEL__MAX_COMPLETION_TOKENS": "2000",
        "NANOBOT_MODEL__RETRY_SECONDS": "0",
    }


@pytest.mark.parametrize("name", SCRIPTS)
async def test_every_turn_is_answered_and_every_message_is_kept(tmp_path: Path, name: str) -> None:
    outcome = name.partition(",")[0]
    folder = tmp_path / "workspace" / "memory"
    folder.mkdir(parents=True)
    (folder / "MEMORY.md").write_text(MEMORY)
    clock = FakeClock()
    channel, model = FakeChannel(clock=clock), Server(made() for made in cycle(SCRIPTS[name]))
    async with (
        FakeOpenAI(model, context_tokens=14_000, characters=500) as server,
        running(tmp_path, None, channel, clock=clock, configured_learner=True, **settings(server)),
    ):
        await talk(channel)
    assert model.asked >= len(SCRIPTS[name])
    kept = [m.content for m in read_stored(tmp_path) if m.role == "user"]
    assert [text[:5] for text in kept] == [f"#{number:04}" for number in range(1, TURNS + 1)]
    lines = (folder / "history.jsonl").read_text().splitlines()
    entries = [json.loads(line) for line in lines]
    ranges = [entry["range"] for entry in entries]
    assert ranges[0][0] == 1
    assert all(one[1] + 1 == other[0] for one, other in pairwise(ranges))
    assert {entry["type"] for entry in entries} == {"raw" if outcome == "raw" else "consolidation"}
    text = (folder / "MEMORY.md").read_text()
    assert [fact for fact in FACTS if text.count(fact) != 1] == []
    assert text.count("Likes tea") == (outcome == "learned")


async def test_a_model_that_fails_is_left_alone_for_five_minutes_and_asked_again(
    tmp_path: Path,
) -> None:
    good = [saving(**{**GOOD, "memory_update": ""})] * 9
    clock = FakeClock()
    channel = FakeChannel(clock=clock)
    steps: list[Step] = [server_error(status=400)] * 30
    model = Server(iter(steps))
    async with (
        FakeOpenAI(model, characters=500) as server,
        running(tmp_path, None, channel, clock=clock, configured_learner=True, **settings(server)),
    ):
        await talk(channel, 1, 11)
        failed = model.asked
        assert 0 < failed <= 6, "three failures of two attempts"
        model.steps = iter(good)
        await clock.advance(301)
        await talk(channel, 12, 17)
        assert model.asked > failed
    lines = (tmp_path / "workspace/memory/history.jsonl").read_text().splitlines()
    types = [json.loads(line)["type"] for line in lines]
    assert types[0] == "raw"
    assert types[-1] == "consolidation"
