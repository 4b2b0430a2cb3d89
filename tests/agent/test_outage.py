"""An unavailable model: pending messages, ended turns, and the notices to people."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from nanobot.agent.loop import LONGEST_PAUSE
from nanobot.agent.notifier import BEHIND_ANOTHER
from nanobot.bus.events import NANOBOT
from nanobot.cli.offline import operate_with as operate
from nanobot.config.load import load_settings
from nanobot.errors import (
    ContextTooLong,
    ProviderBusy,
    ProviderError,
    ProviderGarbage,
    ProviderRejected,
    ProviderUnavailable,
)
from nanobot.testing import FakeClock, ScriptedModel, calls, fails, says
from nanobot.testing.channel import FakeChannel
from tests.support import Gate, Probe, read_stored, running, window

OUT = ProviderUnavailable("the model server cannot be reached")
NOTICE = (
    "The model cannot be reached right now (the model server cannot be reached). Your message"
    " will be answered if the model is back within 24 hours. To drop it, send /stop."
)


async def test_a_message_waits_for_the_model_with_one_notice(tmp_path: Path) -> None:
    clock = FakeClock()
    channel = FakeChannel(clock=clock)
    model = ScriptedModel(fails(OUT), fails(OUT), fails(OUT), says("here I am"))
    async with running(tmp_path, model, channel, clock=clock):
        await channel.say("hello")
        assert await channel.receive(1) == [NOTICE]
        for pause in (15, 30, 60):
            await clock.until_sleeping()
            assert clock.slept[-1] == pause
            await clock.advance(pause)
        assert await channel.receive(2) == [NOTICE, "here I am"]
    assert await window(tmp_path) == [("user", "hello"), ("assistant", "here I am")]


async def test_the_wait_is_as_long_as_the_server_asks(tmp_path: Path) -> None:
    clock = FakeClock()
    channel = FakeChannel(clock=clock)
    model = ScriptedModel(fails(ProviderBusy("too many requests", retry_after=900)), says("hi"))
    async with running(tmp_path, model, channel, clock=clock):
        await channel.say("hello")
        await clock.until_sleeping()
        assert clock.slept == [900]
        await clock.advance(900)
        assert (await channel.receive(2))[1] == "hi"


async def test_each_outage_is_told_once(tmp_path: Path) -> None:
    clock = FakeClock()
    channel = FakeChannel(clock=clock)
    model = ScriptedModel(fails(OUT), says("one"), fails(OUT), says("two"))
    async with running(tmp_path, model, channel, clock=clock):
        for _ in range(2):
            await channel.say("hello")
            await clock.until_sleeping()
            await clock.advance(15)
        texts = await channel.receive(4)
    assert texts == [NOTICE, "one", NOTICE, "two"]


async def test_what_a_turn_did_before_the_outage_is_not_done_again(tmp_path: Path) -> None:
    clock = FakeClock()
    channel = FakeChannel(clock=clock)
    tool = Probe(effects=True)
    model = ScriptedModel(calls("probe", text="once"), fails(OUT), says("done"))
    async with running(tmp_path, model, channel, clock=clock, tools=(tool,)):
        await channel.say("do it")
        await clock.until_sleeping()
        await clock.advance(15)
        await channel.receive(2)
    assert tool.called == ["once"]
    assert [m.role for m in read_stored(tmp_path)] == ["user", "assistant", "tool", "assistant"]


async def test_an_outage_outlives_a_restart(tmp_path: Path) -> None:
    clock = FakeClock()
    channel = FakeChannel(clock=clock)
    async with running(tmp_path, ScriptedModel(fails(OUT)), channel, clock=clock):
        await channel.say("hello")
        await clock.until_sleeping()
        await channel.receive(1)
    clock = FakeClock(clock.now())
    async with running(tmp_path, ScriptedModel(says("back")), channel, clock=clock):
        await clock.until_sleeping()
        assert clock.slept == [15]
        await clock.advance(15)
        assert await channel.receive(2) == [NOTICE, "back"]


async def test_a_clock_that_was_set_back_meanwhile_keeps_nobody_waiting(tmp_path: Path) -> None:
    clock = FakeClock()
    clock.jump(4 * 365 * 24 * 3600)
    channel = FakeChannel(clock=clock)
    async with running(tmp_path, ScriptedModel(fails(OUT)), channel, clock=clock):
        await channel.say("hello")
        await clock.until_sleeping()
        await channel.receive(1)
    clock = FakeClock()
    async with running(tmp_path, ScriptedModel(says("back")), channel, clock=clock):
        await clock.until_sleeping()
        assert clock.slept == [LONGEST_PAUSE]
        await clock.advance(LONGEST_PAUSE)
        assert await channel.receive(2) == [NOTICE, "back"]


async def test_a_message_that_came_late_waits_for_the_model_as_well(tmp_path: Path) -> None:
    clock = FakeClock()
    channel = FakeChannel(clock=FakeClock(clock.now() - timedelta(hours=30)))
    model = ScriptedModel(fails(OUT), says("here I am"))
    async with running(tmp_path, model, channel, clock=clock):
        await channel.say("hello")
        await clock.until_sleeping()
        await clock.advance(15)
        assert await channel.receive(2) == [NOTICE, "here I am"]


async def test_a_message_behind_one_that_waits_is_told_so_and_answered_after_it(
    tmp_path: Path,
) -> None:
    clock = FakeClock()
    channel = FakeChannel(clock=clock)
    model = ScriptedModel(fails(OUT), says("one"), says("two"))
    async with running(tmp_path, model, channel, clock=clock):
        await channel.say("first")
        await clock.until_sleeping()
        await channel.say("second")
        assert await channel.receive(2) == [NOTICE, BEHIND_ANOTHER]
        await clock.advance(15)
        assert (await channel.receive(4))[2:] == ["one", "two"]


async def test_that_another_one_waits_is_told_once_until_it_is_answered(tmp_path: Path) -> None:
    clock = FakeClock()
    channel = FakeChannel(clock=clock)
    async with running(tmp_path, ScriptedModel(fails(OUT)), channel, clock=clock):
        await channel.say("first")
        await clock.until_sleeping()
        await channel.say("second")
        await channel.say("third")
        assert await channel.receive(2) == [NOTICE, BEHIND_ANOTHER]
    clock = FakeClock(clock.now())
    model = ScriptedModel(says("one"), says("two"), says("three"), fails(OUT))
    async with running(tmp_path, model, channel, clock=clock, NANOBOT_AGENT__ON_BUSY="queue"):
        await clock.until_sleeping()
        await channel.say("fourth")
        await clock.advance(15)
        assert (await channel.receive(6))[2:] == ["one", "two", "three", NOTICE]
        await channel.say("fifth")
        assert (await channel.receive(7))[6] == BEHIND_ANOTHER


async def test_a_start_that_takes_up_messages_tells_nobody_that_they_wait(tmp_path: Path) -> None:
    gate, channel = Gate(), FakeChannel()
    model = ScriptedModel(says("one"), says("two"), hold=gate)
    async with running(tmp_path, model, channel):
        await channel.say("first")
        await gate.reached.wait()
    gate = Gate()
    model = ScriptedModel(says("one"), says("two"), hold=gate)
    async with running(tmp_path, model, channel, NANOBOT_AGENT__ON_BUSY="queue"):
        await channel.say("second")
        await gate.reached.wait()
        gate.opened.set()
        assert await channel.receive(2) == ["one", "two"]


async def test_what_nanobot_itself_says_waits_without_a_word(tmp_path: Path) -> None:
    clock = FakeClock()
    channel = FakeChannel(clock=clock)
    model = ScriptedModel(fails(OUT), says("one"), fails(OUT), says("two"))
    async with running(tmp_path, model, channel, clock=clock):
        await channel.say("first")
        await clock.until_sleeping()
        await channel.say("[nanobot: the helper has finished]", sender_id=NANOBOT)
        await clock.advance(15)
        assert await channel.receive(2) == [NOTICE, "one"]
        await clock.until_sleeping()
        await clock.advance(15)
        assert await channel.receive(3) == [NOTICE, "one", "two"]


async def test_commands_get_past_a_message_that_waits(tmp_path: Path) -> None:
    clock = FakeClock()
    channel = FakeChannel(clock=clock)
    model = ScriptedModel(fails(OUT), says("from another model"))
    async with running(tmp_path, model, channel, clock=clock):
        await channel.say("hello")
        await clock.until_sleeping()
        assert "now uses other" in await channel.ask("/model other")
        await clock.advance(15)
        assert (await channel.receive(3))[2] == "from another model"
    assert model.options[-1].model == "other"


async def test_new_does_not_overtake_a_message_that_waits(tmp_path: Path) -> None:
    clock = FakeClock()
    channel = FakeChannel(clock=clock)
    async with running(tmp_path, ScriptedModel(says("noted"), fails(OUT)), channel, clock=clock):
        assert await channel.ask("my cat is called Tom") == "noted"
        await channel.say("what is she called?")
        await clock.until_sleeping()
        await channel.say("/new")
        told = (await channel.receive(3))[2]
        assert told == BEHIND_ANOTHER
    clock = FakeClock(clock.now())
    model = ScriptedModel(says("Tom"), says("fresh"))
    async with running(tmp_path, model, channel, clock=clock, NANOBOT_AGENT__ON_BUSY="queue"):
        await clock.until_sleeping()
        await channel.say("hello")
        await clock.advance(15)
        texts = (await channel.receive(6))[3:]
    assert texts == ["Tom", "New conversation started.", "fresh"]
    assert "my cat" in model.prompts[0].messages[1].text
    assert len(model.prompts[1].messages) == 2
    assert await window(tmp_path) == [("user", "hello"), ("assistant", "fresh")]


async def test_stop_drops_what_waits_and_the_command_behind_it_runs(tmp_path: Path) -> None:
    clock = FakeClock()
    channel = FakeChannel(clock=clock)
    async with running(tmp_path, ScriptedModel(fails(OUT)), channel, clock=clock):
        await channel.say("hello")
        await clock.until_sleeping()
        await channel.say("/new")
        await channel.receive(2)
        assert await channel.ask("/stop") == "Stopped. 1 pending message dropped."
        assert "New conversation started." in await channel.receive(4)
    assert await window(tmp_path) == []


async def test_a_forwarded_text_that_looks_like_a_command_waits_as_well(tmp_path: Path) -> None:
    clock = FakeClock()
    channel = FakeChannel(clock=clock)
    model = ScriptedModel(fails(OUT), says("one"), says("two"))
    async with running(tmp_path, model, channel, clock=clock):
        await channel.say("first")
        await clock.until_sleeping()
        await channel.say("/help is a nice command", forwarded_from="Bob")
        assert await channel.receive(2) == [NOTICE, BEHIND_ANOTHER]
        await clock.advance(15)
        assert (await channel.receive(4))[2:] == ["one", "two"]
    assert "nice command" not in model.prompts[1].messages[-1].text


async def test_stop_drops_a_message_that_waits(tmp_path: Path) -> None:
    clock = FakeClock()
    channel = FakeChannel(clock=clock)
    model = ScriptedModel(fails(OUT), fails(OUT), says("hi"))
    async with running(tmp_path, model, channel, clock=clock):
        await channel.say("hello")
        await clock.until_sleeping()
        assert await channel.ask("/stop") == "Stopped. 1 pending message dropped."
        await channel.say("again")
        assert (await channel.receive(3))[2] == NOTICE, "a new outage for a new message"
        await clock.until_sleeping(2)
        await clock.advance(15)
        assert (await channel.receive(4))[3] == "hi"
    assert [text for _, text in await window(tmp_path)] == ["hello", "again", "hi"]


async def test_a_message_that_waited_too_long_ends_with_a_clear_text(tmp_path: Path) -> None:
    clock = FakeClock(auto=True)
    channel = FakeChannel(clock=clock)
    model = ScriptedModel(author=lambda _: fails(OUT))
    async with running(tmp_path, model, channel, clock=clock):
        await channel.say("hello")
        texts = await channel.receive(2)
    assert texts[1] == (
        "The model gave no answer: the model server cannot be reached. To try again, send /retry."
    )
    assert await window(tmp_path) == [("user", "hello")]


async def test_a_restart_gives_nobody_more_patience(tmp_path: Path) -> None:
    clock = FakeClock()
    channel = FakeChannel(clock=clock)
    async with running(tmp_path, ScriptedModel(fails(OUT)), channel, clock=clock):
        await channel.say("hello")
        await clock.until_sleeping()
    clock = FakeClock(clock.now() + timedelta(hours=25))
    async with running(tmp_path, ScriptedModel(fails(OUT)), channel, clock=clock):
        assert "gave no answer" in (await channel.receive(2))[1]


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (
            ProviderRejected("the key is wrong", status=401, hint="Check model.api_key."),
            "The model gave no answer: the key is wrong. Check model.api_key. To try again, send"
            " /retry.",
        ),
        (
            ProviderGarbage("HTML instead of an answer"),
            "The model gave no answer: HTML instead of an answer. To try again, send /retry.",
        ),
        (
            ContextTooLong("too long", status=400),
            "Even when shortened, this conversation doesn't fit in the model's context window. To"
            " start a new one, send /new. If the model's window is smaller than"
            " model.context_window, lower that setting. (too long)",
        ),
    ],
)
async def test_a_permanent_error_is_one_clear_text_that_the_model_never_said(
    tmp_path: Path, error: ProviderError, text: str
) -> None:
    channel = FakeChannel()
    model = ScriptedModel(fails(error), says("fine now"))
    async with running(tmp_path, model, channel):
        assert await channel.ask("hello") == text
        assert await channel.ask("and now?") == "fine now"
    assert len(channel.sent) == 2
    assert [text for _, text in await window(tmp_path)] == ["hello", "and now?", "fine now"]
    assert not any("refused" in m.text for m in model.prompts[1].messages[1:])


async def test_retry_after_a_failure_keeps_one_copy_of_the_message(tmp_path: Path) -> None:
    channel = FakeChannel()
    model = ScriptedModel(fails(ProviderRejected("no", status=401)), says("yes"))
    async with running(tmp_path, model, channel):
        await channel.ask("hello")
        assert await channel.ask("/retry") == "yes"
    assert await window(tmp_path) == [("user", "hello"), ("assistant", "yes")]


async def test_queue_retry_runs_a_failed_message_again_with_one_copy_of_it(tmp_path: Path) -> None:
    channel = FakeChannel()
    refused = ProviderRejected("no", status=401)
    model = ScriptedModel(fails(refused), says("something else"), fails(refused))
    async with running(tmp_path, model, channel):
        event = await channel.say("hello")
        await channel.answer_to(event)
        await channel.ask("meanwhile")
    for again in (ScriptedModel(fails(refused)), ScriptedModel(says("at last"))):
        await asyncio.to_thread(operate, load_settings(tmp_path, {}), "queue.retry", {"id": "in-1"})
        before = len(channel.sent)
        async with running(tmp_path, again, channel):
            await channel.receive(before + 1)
        said = [m.text.splitlines()[-1] for m in again.prompts[0].messages[1:]]
        assert said == ["meanwhile", "something else", "hello"]
    assert channel.sent[-1].content == "at last"
    assert channel.sent[-1].event_ids == (event,)
    assert [text for _, text in await window(tmp_path)] == [
        "meanwhile",
        "something else",
        "hello",
        "at last",
    ]


async def test_a_prompt_that_is_too_long_is_shortened_and_asked_again(tmp_path: Path) -> None:
    channel = FakeChannel()
    model = ScriptedModel(*[says(f"answer {n}") for n in range(4)])
    model.then(fails(ContextTooLong("too long", status=400)), says("that fits"))
    async with running(tmp_path, model, channel):
        for n in range(4):
            await channel.ask(f"message {n}")
        assert await channel.ask("one more") == "that fits"
    assert len(model.prompts[-1].messages) < len(model.prompts[-2].messages)
    assert model.prompts[-1].messages[-1] == model.prompts[-2].messages[-1]
    assert len(read_stored(tmp_path)) == 10
