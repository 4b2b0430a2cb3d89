"""A helper's report begins a turn in its conversation, but not a person's turn."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from nanobot.bus.events import ToolStarted
from nanobot.errors import ProviderRejected, ProviderUnavailable
from nanobot.providers.port import Prompt
from nanobot.testing import FakeClock, ScriptedModel, calls, fails, says
from nanobot.testing.channel import FakeChannel
from nanobot.testing.model import Line
from tests.support import Gate, running, window

TASK = "Count the stars."


class Talk:
    """A person asks, a helper counts, and its report arrives after the person's answer."""

    def __init__(self, acts: Line) -> None:
        self.acts = acts
        self.counting, self.reporting = Gate(), Gate()
        self.model = ScriptedModel(author=self._says, hold=self._hold)
        self.channel = FakeChannel()

    async def begin(self) -> None:
        await self.channel.ask("how many stars are there?")
        self.counting.opened.set()
        await self.reporting.reached.wait()

    async def _hold(self) -> None:
        last = self._last(self.model.prompts[-1])
        if last == TASK:
            await self.counting()
        elif "has finished" in last:
            await self.reporting()

    def _says(self, prompt: Prompt) -> Line:
        last = self._last(prompt)
        if last == TASK:
            return says("42")
        if last.endswith("are there?"):
            return calls("spawn", task=TASK)
        if last.startswith("Helper "):
            return says("I will count.")
        if "has finished" in last:
            return self.acts
        return says("Hello." if last.endswith("hello") else "There are 42.")

    @staticmethod
    def _last(prompt: Prompt) -> str:
        return prompt.messages[-1].text


async def test_it_goes_on_with_the_conversation_where_the_person_can_watch(tmp_path: Path) -> None:
    talk = Talk(calls("list_dir", path="."))
    async with running(tmp_path, talk.model, talk.channel):
        await talk.begin()
        talk.reporting.opened.set()
        assert await talk.channel.receive(2) == ["I will count.", "There are 42."]
    texts = [message.text for message in talk.model.prompts[-1].messages]
    assert any(text.endswith("how many stars are there?") for text in texts)
    hints = [event.hint for event in talk.channel.shown if isinstance(event, ToolStarted)]
    assert hints == [f"spawn {TASK}", "list_dir ."]


async def test_it_gets_no_helpers_of_its_own(tmp_path: Path) -> None:
    talk = Talk(calls("spawn", task=TASK))
    async with running(tmp_path, talk.model, talk.channel):
        await talk.begin()
        talk.reporting.opened.set()
        await talk.channel.receive(2)
    results = [m.text for m in talk.model.prompts[-1].messages if m.role == "tool"]
    assert "only a conversation with a person" in results[-1]


@pytest.mark.parametrize("acts", [says("It may rain."), fails(ProviderRejected("no", status=401))])
async def test_retry_has_the_same_report_read_again(tmp_path: Path, acts: Line) -> None:
    talk = Talk(acts)
    async with running(tmp_path, talk.model, talk.channel), asyncio.timeout(10):
        await talk.begin()
        talk.reporting.opened.set()
        await talk.channel.receive(2)
        report = talk.model.prompts[-1].messages[-1].text
        talk.acts = calls("spawn", task=TASK)
        assert await talk.channel.ask("/retry") == "There are 42."
    spawning, answering = talk.model.prompts[-2:]
    assert spawning.messages[-1].text == report
    assert "only a conversation with a person" in answering.messages[-1].text
    assert [text for _, text in await window(tmp_path)].count(report) == 1


async def test_it_waits_without_a_word_for_a_model_that_is_out(tmp_path: Path) -> None:
    talk, clock = Talk(fails(ProviderUnavailable("no route"))), FakeClock()
    async with running(tmp_path, talk.model, talk.channel, clock=clock), asyncio.timeout(10):
        await talk.begin()
        talk.reporting.opened.set()
        await clock.until_sleeping()
        talk.acts = says("There are 42.")
        await clock.advance(15)
        assert await talk.channel.receive(2) == ["I will count.", "There are 42."]


async def test_what_a_person_says_meanwhile_gets_a_turn_of_theirs(tmp_path: Path) -> None:
    talk = Talk(calls("list_dir", path="."))
    async with running(tmp_path, talk.model, talk.channel), asyncio.timeout(10):
        await talk.begin()
        await talk.channel.say("hello")
        talk.reporting.opened.set()
        assert await talk.channel.receive(3) == ["I will count.", "There are 42.", "Hello."]
