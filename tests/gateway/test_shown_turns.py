"""What channels learn of a running turn, and a terminal of its conversation."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from nanobot.bus.events import ToolFinished, TurnJoined
from nanobot.channel import Operation, Overview
from nanobot.providers.port import Usage
from nanobot.testing import ScriptedModel, calls, says
from nanobot.testing.channel import FakeChannel
from nanobot.tooling import ToolResult
from tests.support import Gate, Probe, running


class Page(FakeChannel):
    """A channel that shows the whole gateway."""

    def oversee(self, overview: Overview) -> Mapping[str, Operation]:
        """Store the overview."""
        self.overview = overview
        return {}

    async def show(self, key: str) -> object:
        """Return what a terminal shows of a conversation."""
        return await self.overview.operations["status.conversation"]({"key": key})


async def test_a_message_that_joins_a_turn_and_the_result_of_a_tool_are_reported(
    tmp_path: Path,
) -> None:
    channel, gate = Page(), Gate()
    tool = Probe(gate=gate, act=lambda _: ToolResult("grün", is_error=True))
    model = ScriptedModel(calls("probe", text="x"), says("done"))
    async with running(tmp_path, model, channel, tools=(tool,)):
        first = await channel.say("begin")
        await gate.reached.wait()
        second = await channel.say("and this")
        gate.opened.set()
        assert await channel.answer_to(second) == "done"
    finished = next(event for event in channel.shown if isinstance(event, ToolFinished))
    assert (finished.hint, finished.size) == ("probe x", len("Grün") + 1)
    assert finished.failed
    joined = next(event for event in channel.shown if isinstance(event, TurnJoined))
    assert joined.event_ids == (first, second)


async def test_the_status_of_a_conversation_is_that_of_its_last_answer(tmp_path: Path) -> None:
    channel = Page()
    model = ScriptedModel(
        calls("probe", text="x"), says("done", usage=Usage(12_500, 300)), says("New.")
    )
    async with running(
        tmp_path, model, channel, tools=(Probe(),), NANOBOT_MODEL__CONTEXT_WINDOW="128000"
    ):
        empty = await channel.show("fake:1")
        await channel.ask("hello")
        after = await channel.show("fake:1")
        await channel.ask("/new")
        fresh = await channel.show("fake:1")
    assert isinstance(empty, dict)
    assert isinstance(after, dict)
    assert isinstance(fresh, dict)
    assert (empty["messages"], empty["context_percent"], empty["last"]) == (0, 0, "")
    assert (after["messages"], after["context_percent"]) == (2, 10)
    assert after["tokens_today"] == 12_800
    assert after["last"]
    assert (fresh["messages"], fresh["context_percent"]) == (0, 0)
