"""`/stop`: the work that it ends, and the work and messages that it must keep."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from nanobot.agent.runner import STOPPED
from nanobot.bus.events import Media, TurnEnded
from nanobot.bus.journal import Committed, Completion
from nanobot.bus.queue import MessageBus
from nanobot.messages import TURN_STOPPED
from nanobot.testing import ScriptedModel, calls, says
from nanobot.testing.channel import FakeChannel
from tests.support import Gate, Probe, read_stored, running, window


async def test_stop_kills_the_tool_keeps_the_message_and_sends_no_reply(tmp_path: Path) -> None:
    channel, gate = FakeChannel(), Gate()
    tool = Probe(gate=gate, effects=True)
    model = ScriptedModel(calls("probe", text="slow"), says("next"))
    async with running(tmp_path, model, channel, tools=(tool,)):
        stopped = await channel.say("do it")
        await gate.reached.wait()
        assert await channel.ask("/stop") == "Stopped."
        assert tool.killed == ["slow"]
        assert await channel.ask("something else") == "next"
    assert [stopped not in part.event_ids for part in channel.sent] == [True, True]
    outcomes = {
        e.outcome for e in channel.shown if isinstance(e, TurnEnded) and stopped in e.event_ids
    }
    assert outcomes == {"stopped"}
    assert await window(tmp_path) == [
        ("user", "do it"),
        ("assistant", ""),
        ("tool", STOPPED),
        ("user", "something else"),
        ("assistant", "next"),
    ]


async def test_the_next_prompt_says_that_the_turn_was_stopped(tmp_path: Path) -> None:
    channel, gate = FakeChannel(), Gate()
    model = ScriptedModel(says("never"), says("next"), hold=gate)
    async with running(tmp_path, model, channel):
        await channel.say("do it")
        await gate.reached.wait()
        await channel.ask("/stop")
        gate.opened.set()
        await channel.ask("something else")
    said = [message.text for message in model.prompts[-1].messages[1:]]
    assert said[1] == TURN_STOPPED
    assert said[0].endswith("do it")
    assert said[2].endswith("something else")


async def test_a_stopped_turn_is_not_replayed_after_a_restart(tmp_path: Path) -> None:
    channel, gate = FakeChannel(), Gate()
    async with running(tmp_path, ScriptedModel(says("never"), hold=gate), channel):
        await channel.say("do it")
        await gate.reached.wait()
        await channel.ask("/stop")
    model = ScriptedModel(says("hello"))
    async with running(tmp_path, model, channel):
        assert await channel.ask("hi") == "hello"
    assert len(model.prompts) == 1


async def test_stop_sets_waiting_messages_aside_and_keeps_them(tmp_path: Path) -> None:
    channel, gate = FakeChannel(), Gate()
    model = ScriptedModel(says("never"), says("next"), hold=gate)
    async with running(tmp_path, model, channel, NANOBOT_AGENT__ON_BUSY="queue"):
        await channel.say("one")
        await gate.reached.wait()
        await channel.say("two")
        await channel.say("three")
        assert await channel.ask("/stop") == "Stopped. 2 pending messages dropped."
        gate.opened.set()
        assert await channel.ask("four") == "next"
    assert [text for _, text in await window(tmp_path)] == ["one", "two", "three", "four", "next"]


async def test_stop_when_nothing_runs_says_so(tmp_path: Path) -> None:
    channel = FakeChannel()
    async with running(tmp_path, ScriptedModel(), channel):
        assert await channel.ask("/stop") == "Nothing is running."


async def test_stop_leaves_other_sessions_alone(tmp_path: Path) -> None:
    channel, gate = FakeChannel(), Gate()
    async with running(tmp_path, ScriptedModel(says("mine"), hold=gate), channel):
        mine = await channel.say("hello", "1")
        await gate.reached.wait()
        assert await channel.ask("/stop", "2") == "Nothing is running."
        gate.opened.set()
        assert await channel.answer_to(mine, "1") == "mine"


async def test_a_message_whose_file_is_still_being_fetched_can_be_stopped(tmp_path: Path) -> None:
    class Slow(FakeChannel):
        gate = Gate()

        async def fetch(self, media: Media, limit: int) -> bytes:
            await self.gate()
            return b"late"

    channel, model = Slow(), ScriptedModel(says("next"))
    async with running(tmp_path, model, channel):
        await channel.say("look at this", media=(Media("ref", "image", "image/png", "a.png"),))
        await channel.gate.reached.wait()
        assert await channel.ask("/stop") == "Stopped."
        channel.gate.opened.set()
        assert await channel.ask("hello") == "next"
    assert read_stored(tmp_path)[0].text == "look at this\n[image a.png: not fetched]"
    assert len(model.prompts) == 1


async def test_a_steered_message_is_stopped_with_its_turn(tmp_path: Path) -> None:
    channel, tool_gate, model_gate = FakeChannel(), Gate(), Gate()
    waits = iter((None, model_gate))

    async def hold() -> None:
        gate = next(waits)
        if gate is not None:
            await gate()

    model = ScriptedModel(calls("probe"), says("never"), hold=hold)
    async with running(tmp_path, model, channel, tools=(Probe(gate=tool_gate),)):
        await channel.say("one")
        await tool_gate.reached.wait()
        await channel.say("two")
        tool_gate.opened.set()
        await model_gate.reached.wait()
        assert await channel.ask("/stop") == "Stopped."
    assert [m.content for m in read_stored(tmp_path) if m.role == "user"] == ["one", "two"]
    assert len(channel.sent) == 1


async def test_restart_asks_for_a_new_process_once(tmp_path: Path) -> None:
    channel = FakeChannel()
    async with running(tmp_path, ScriptedModel(), channel) as gateway:
        await channel.say("/restart")
    assert gateway.restart_requested
    async with running(tmp_path, ScriptedModel(says("hello")), channel) as again:
        assert await channel.ask("hi") == "hello"
    assert not again.restart_requested
    assert [part.content.split(".")[0] for part in channel.sent] == ["Restarting", "hello"]


@pytest.mark.parametrize("moment", range(0, 40, 2))
async def test_whenever_stop_comes_every_message_stands_in_the_session_exactly_once(
    tmp_path: Path, moment: int
) -> None:
    """The tool ends `moment` rounds of the event loop after the `/stop` was stored."""
    channel, gate = FakeChannel(), Gate()
    tool = Probe(gate=gate, effects=True)
    model = ScriptedModel(calls("probe", text="x"), author=lambda _: says("fine"))
    async with running(tmp_path, model, channel, tools=(tool,)):
        await channel.say("one")
        await gate.reached.wait()
        stop = await channel.say("/stop")
        for _ in range(moment):
            await asyncio.sleep(0)
        gate.opened.set()
        after = await channel.say("two")
        await channel.answer_to(stop)
        assert await channel.answer_to(after) == "fine"
    messages = read_stored(tmp_path)
    assert [m.seq for m in messages] == sorted({m.seq for m in messages})
    assert [m.content for m in messages if m.role == "user"] == ["one", "two"]
    called = [call.id for m in messages for call in m.tool_calls]
    assert called == [m.tool_call_id for m in messages if m.role == "tool"]


async def test_an_end_of_nanobot_while_a_stop_is_stored_begins_nothing_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel, asked, storing, commit = FakeChannel(), Gate(), Gate(), MessageBus.commit

    async def slowly(self: MessageBus, completion: Completion) -> Committed:
        if completion.state == "stopped":
            await storing()
        return await commit(self, completion)

    monkeypatch.setattr(MessageBus, "commit", slowly)
    model = ScriptedModel(says("never"), says("never either"), hold=asked)
    async with running(tmp_path, model, channel):
        await channel.say("one")
        await asked.reached.wait()
        await channel.say("/stop")
        await storing.reached.wait()
        await channel.say("two")
        asyncio.get_running_loop().call_later(0.2, storing.opened.set)
    assert len(model.prompts) == 1


async def test_a_turn_that_waits_for_room_frees_its_lane_at_once(tmp_path: Path) -> None:
    channel, gate = FakeChannel(), Gate()
    model = ScriptedModel(author=lambda _: says("fine"))
    stalls = ScriptedModel(author=lambda _: calls("save_memory", history_entry="h"), hold=gate)
    long = "We spoke of the garden and of what to cook this evening. " * 80
    async with running(
        tmp_path,
        model,
        channel,
        learner=stalls,
        NANOBOT_MODEL__CONTEXT_WINDOW="16000",
        NANOBOT_MODEL__MAX_COMPLETION_TOKENS="2000",
    ):
        waiting = False
        while not waiting:
            held = gate.reached.is_set()
            answer = asyncio.ensure_future(channel.ask(long))
            stuck = asyncio.ensure_future(gate.opened.wait() if held else gate.reached.wait())
            await asyncio.wait({answer, stuck}, return_when="FIRST_COMPLETED", timeout=0.5)
            waiting = not answer.done()
            answer.cancel()
            stuck.cancel()
        asked = len(model.prompts)
        assert await channel.ask("/stop") == "Stopped."
        assert "fine" in await channel.ask("/history")
        assert not gate.opened.is_set()
        gate.opened.set()
    assert len(model.prompts) == asked
