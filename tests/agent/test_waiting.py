"""What a turn waits for is an event that every channel can show."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from nanobot.bus.events import ModelUnreachable, Thinking, TurnEnded, Waiting
from nanobot.bus.split import Limits
from nanobot.errors import ProviderUnavailable
from nanobot.providers.port import CallOptions, Prompt, Provider, Reply, TextSink
from nanobot.providers.retry import Model, RetryingProvider, RetryPolicy
from nanobot.testing import FakeClock, ScriptedModel, fails, says
from nanobot.testing.channel import FakeChannel
from tests.support import Gate, read_stored, running

OUT = ProviderUnavailable(
    "cannot reach the model server at http://10.0.0.1: connection refused",
    reason="connection refused",
)


def retrying(model: Provider, clock: FakeClock) -> Provider:
    policy = RetryPolicy(deadline=10.0, first_wait=4.0, longest_wait=4.0)
    return RetryingProvider([Model("m", model)], policy, clock, Random(7))


def lines(channel: FakeChannel) -> list[str]:
    """Return the lines that a person reads about waits."""
    return [str(event) for event in channel.shown if isinstance(event, Waiting)]


@pytest.mark.parametrize(
    ("owner", "reason"), [("person-1", ": connection refused"), ("another", "")]
)
async def test_the_seconds_to_the_next_try_are_counted_and_only_the_owner_reads_the_reason(
    tmp_path: Path, owner: str, reason: str
) -> None:
    clock = FakeClock()
    channel = FakeChannel(clock=clock)
    model = retrying(ScriptedModel(fails(OUT), says("here I am")), clock)

    async with running(tmp_path, model, channel, clock=clock, NANOBOT_OWNER__FAKE=f'["{owner}"]'):
        await channel.say("hello")
        while not channel.sent:
            await clock.advance(1.0)
    start = f"model unreachable{reason}, trying again"
    assert lines(channel) == [f"{start} in 2 s (1)", f"{start} in 1 s (1)", f"{start} (1)"]
    assert channel.sent[0].content == "here I am"


async def test_a_postponed_turn_says_after_its_end_when_it_is_tried_again(tmp_path: Path) -> None:
    clock = FakeClock()
    channel = FakeChannel(clock=clock)
    model = ScriptedModel(fails(OUT), fails(OUT), says("here I am"))
    async with running(tmp_path, model, channel, clock=clock, NANOBOT_OWNER__FAKE='["person-1"]'):
        await channel.say("hello")
        for pause in (15, 30):
            await clock.until_sleeping()
            await clock.advance(pause)
        await channel.receive(2)
    start = "model unreachable: connection refused, trying again"
    assert lines(channel) == [f"{start} at 09:00:15 (1)", f"{start} at 09:00:45 (2)"]
    kinds = [type(event) for event in channel.shown]
    assert kinds[kinds.index(ModelUnreachable) - 1] is TurnEnded


class Thinker(ScriptedModel):
    """Thinks 10 pieces of 0.25 seconds before each answer."""

    def __init__(self, clock: FakeClock, *texts: str) -> None:
        super().__init__(*map(says, texts))
        self._clock = clock

    async def complete(
        self, prompt: Prompt, options: CallOptions, on_text: TextSink | None = None
    ) -> Reply:
        assert options.on_thinking is not None
        for _ in range(10):
            options.on_thinking()
            await self._clock.advance(0.25)
        return await super().complete(prompt, options, on_text)


async def test_thinking_is_reported_once_a_second_and_counted_anew_for_each_answer(
    tmp_path: Path,
) -> None:
    clock = FakeClock()
    channel = FakeChannel(clock=clock)
    async with running(tmp_path, Thinker(clock, "one", "two"), channel, clock=clock):
        for _ in range(2):
            await channel.ask("hello")
    seconds = [event.seconds for event in channel.shown if isinstance(event, Thinking)]
    assert seconds == [1, 2, 1, 2]
    assert lines(channel)[:2] == ["thinking 1 s", "thinking 2 s"]


class Writing(ScriptedModel):
    """Writes a text, and then hangs."""

    def __init__(self, text: str, *script: Reply) -> None:
        super().__init__(*script)
        self.text, self.gate = text, Gate()

    async def complete(
        self, prompt: Prompt, options: CallOptions, on_text: TextSink | None = None
    ) -> Reply:
        if self.text and on_text is not None:
            on_text(self.text, False)
            self.text = ""
            await self.gate()
        return await super().complete(prompt, options, on_text)


@pytest.fixture
def draft_channel() -> FakeChannel:
    return FakeChannel(limits=Limits(drafts=True))


@pytest.mark.parametrize(
    ("text", "sent"),
    [
        ("Once upon a time ", "Once upon a time\n\n[stopped]"),
        ("See:\n```python\nprint(", "See:\n```python\nprint(\n```\n\n[stopped]"),
    ],
)
async def test_the_draft_of_a_stopped_turn_stays_as_a_message(
    tmp_path: Path, draft_channel: FakeChannel, text: str, sent: str
) -> None:
    channel, model = draft_channel, Writing(text, says("and then"))
    async with running(tmp_path, model, channel):
        await channel.say("Tell me a story")
        await model.gate.reached.wait()
        assert await channel.ask("/stop") == "Stopped."
        assert await channel.ask("go on") == "and then"
    assert [part.content for part in channel.sent] == [sent, "Stopped.", "and then"]
    stored = [message.content for message in read_stored(tmp_path)]
    assert stored == ["Tell me a story", text.rstrip(), "go on", "and then"]


async def test_in_a_group_without_a_text_or_elsewhere_a_stop_sends_nothing_of_the_answer(
    tmp_path: Path, draft_channel: FakeChannel
) -> None:
    async def stop(channel: FakeChannel, home: str, text: str, **place: Any) -> list[str]:
        model = Writing(text or " ")
        async with running(tmp_path / home, model, channel):
            await channel.say("Tell me a story", **place)
            await model.gate.reached.wait()
            event = await channel.say("/stop", **place)
            await channel.answer_to(event)
        return [part.content for part in channel.sent]

    assert await stop(FakeChannel(), "a", "Once") == ["Stopped."]
    assert await stop(draft_channel, "b", "") == ["Stopped."]
    draft_channel.sent.clear()
    assert await stop(draft_channel, "c", "Once", is_group=True) == ["Stopped."]
