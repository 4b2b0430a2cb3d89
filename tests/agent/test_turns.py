"""Turns through a whole gateway: saved messages, joined messages, pending messages."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from nanobot.agent.hooks import TurnEvent
from nanobot.bus.events import NANOBOT, Media, TurnEnded
from nanobot.channel import Limits
from nanobot.providers.port import Prompt, Reply, Usage
from nanobot.testing import FakeClock, ScriptedModel, calls, says
from nanobot.testing.channel import FakeChannel
from nanobot.tooling import ToolResult, TurnContext
from tests.support import Gate, Probe, read_stored, running, window


def last(prompt: Prompt) -> str:
    """Return the last line of the newest message."""
    return prompt.messages[-1].text.splitlines()[-1]


def echo(prompt: Prompt) -> Reply:
    return says(f"you said {last(prompt)}")


async def test_a_turn_saves_exactly_its_own_messages(tmp_path: Path) -> None:
    channel = FakeChannel()
    model = ScriptedModel(says("hi"), calls("probe", text="seen"), says("done"))
    async with running(tmp_path, model, channel, tools=(Probe(),)):
        assert await channel.ask("hello") == "hi"
        assert await channel.ask("look") == "done"
    messages = read_stored(tmp_path)
    assert [(m.seq, m.role, m.content) for m in messages] == [
        (1, "user", "hello"),
        (2, "assistant", "hi"),
        (3, "user", "look"),
        (4, "assistant", ""),
        (5, "tool", "seen"),
        (6, "assistant", "done"),
    ]
    assert len({m.turn_id for m in messages[:2]}) == len({m.turn_id for m in messages[2:]}) == 1
    assert messages[5].tools_used == ("probe",)


@pytest.mark.parametrize(
    ("finish", "words"),
    [
        ("length", "cut off at the model's limit"),
        ("content_filter", "content filter ended this answer here"),
        ("recitation", "ended this answer early (recitation)"),
    ],
)
async def test_an_answer_that_is_not_whole_says_so(tmp_path: Path, finish: str, words: str) -> None:
    channel = FakeChannel()
    async with running(tmp_path, ScriptedModel(says("The first half", finish=finish)), channel):
        answer = await channel.ask("tell me")
    assert answer.startswith("The first half\n\n[")
    assert words in answer
    assert await window(tmp_path) == [("user", "tell me"), ("assistant", "The first half")]


@pytest.mark.parametrize("length", [4_000_000, 11_000])
async def test_an_answer_of_too_many_parts_is_a_beginning_and_a_file(
    tmp_path: Path, length: int
) -> None:
    text = ("word " * length)[:length]
    channel = FakeChannel(limits=Limits(text=1000, caption=500, parts=10))
    async with running(tmp_path, ScriptedModel(says(text)), channel):
        await channel.answer_to(await channel.say("tell me all"))
    beginning, last = channel.sent
    assert text.startswith(beginning.content.partition("\n\n[")[0])
    assert f"The full text ({length:,} characters) is in the file below" in beginning.content
    assert len(beginning.content) <= 1000
    (file,) = last.media
    assert (tmp_path / file.ref).read_text() == text
    assert (file.name, last.content, last.last) == ("answer.md", "", True)


async def test_an_answer_whose_markup_makes_too_many_parts_is_a_file_as_well(
    tmp_path: Path,
) -> None:
    text = "# a\n" * 1_000
    few = Limits(text=1000, parts=10, fits=lambda part, _: part.count("#") <= 20)
    channel = FakeChannel(limits=few)
    async with running(tmp_path, ScriptedModel(says(text)), channel):
        await channel.answer_to(await channel.say("tell me all"))
    beginning, last = channel.sent
    assert beginning.content.startswith("# a\n")
    (file,) = last.media
    assert (tmp_path / file.ref).read_text() == text


async def test_an_answer_of_many_parts_goes_out_in_them(tmp_path: Path) -> None:
    channel = FakeChannel(limits=Limits(text=1000, parts=10))
    async with running(tmp_path, ScriptedModel(says("word " * 1900)), channel):
        await channel.answer_to(await channel.say("tell me all"))
    assert len(channel.sent) == 10
    assert not any(part.media for part in channel.sent)


async def test_the_end_of_a_turn_says_what_it_took(tmp_path: Path) -> None:
    channel = FakeChannel()
    model = ScriptedModel(calls("probe"), says("done", usage=Usage(10, 5, 2)))
    async with running(tmp_path, model, channel, tools=(Probe(),)):
        event = await channel.say("look")
        await channel.answer_to(event)
    ended = next(shown for shown in channel.shown if isinstance(shown, TurnEnded))
    assert (ended.event_ids, ended.outcome, ended.tools) == ((event,), "done", ("probe",))
    assert (ended.prompt_tokens, ended.completion_tokens) == (10, 5)


async def test_a_message_during_a_turn_is_given_to_the_model_at_its_next_step(
    tmp_path: Path,
) -> None:
    channel, gate = FakeChannel(), Gate()
    model = ScriptedModel(calls("probe", text="seen"), says("both done"))
    async with running(tmp_path, model, channel, tools=(Probe(gate=gate),)):
        first = await channel.say("do this")
        await gate.reached.wait()
        second = await channel.say("and that")
        gate.opened.set()
        assert await channel.answer_to(first) == await channel.answer_to(second) == "both done"
    assert [m.role for m in model.prompts[1].messages[-2:]] == ["tool", "user"]
    assert last(model.prompts[1]) == "and that"
    assert len(channel.sent) == 1, "one reply closes both"
    assert [m.content for m in read_stored(tmp_path) if m.role == "user"] == ["do this", "and that"]
    async with running(tmp_path, ScriptedModel(says("next")), channel):
        assert await channel.ask("next") == "next"


async def test_a_message_that_comes_too_late_starts_the_next_turn(tmp_path: Path) -> None:
    channel, gate = FakeChannel(), Gate()
    model = ScriptedModel(author=echo, hold=gate)
    async with running(tmp_path, model, channel):
        first = await channel.say("one")
        await gate.reached.wait()
        second = await channel.say("two")
        gate.opened.set()
        assert await channel.answer_to(first) == "you said one"
        assert await channel.answer_to(second) == "you said two"


async def test_a_command_is_not_steered_and_nothing_overtakes_it(tmp_path: Path) -> None:
    channel, gate = FakeChannel(), Gate()
    model = ScriptedModel(calls("probe"), says("done"), says("fresh"))
    async with running(tmp_path, model, channel, tools=(Probe(gate=gate),)):
        first = await channel.say("one")
        await gate.reached.wait()
        new = await channel.say("/new")
        after = await channel.say("two")
        gate.opened.set()
        assert await channel.answer_to(first) == "done"
        assert await channel.answer_to(new) == "New conversation started."
        assert await channel.answer_to(after) == "fresh"
    assert await window(tmp_path) == [("user", "two"), ("assistant", "fresh")]


async def test_a_path_is_no_command_and_is_steered(tmp_path: Path) -> None:
    channel, gate = FakeChannel(), Gate()
    model = ScriptedModel(calls("probe"), says("done"))
    async with running(tmp_path, model, channel, tools=(Probe(gate=gate),)):
        await channel.say("one")
        await gate.reached.wait()
        path = await channel.say("/etc/hosts is what I mean")
        gate.opened.set()
        assert await channel.answer_to(path) == "done"


async def test_in_queue_mode_a_message_waits_for_its_own_turn(tmp_path: Path) -> None:
    channel, gate = FakeChannel(), Gate()
    model = ScriptedModel(calls("probe"), says("one done"), says("two done"))
    async with running(
        tmp_path, model, channel, tools=(Probe(gate=gate),), NANOBOT_AGENT__ON_BUSY="queue"
    ):
        first = await channel.say("one")
        await gate.reached.wait()
        second = await channel.say("two")
        gate.opened.set()
        assert await channel.answer_to(first) == "one done"
        assert await channel.answer_to(second) == "two done"
    assert model.prompts[1].messages[-1].role == "tool"


async def test_in_interrupt_mode_a_message_stops_the_turn_and_is_answered(tmp_path: Path) -> None:
    channel, gate = FakeChannel(), Gate()
    tool = Probe(gate=gate)
    model = ScriptedModel(calls("probe", text="slow"), says("two done"))
    async with running(tmp_path, model, channel, tools=(tool,), NANOBOT_AGENT__ON_BUSY="interrupt"):
        await channel.say("one")
        await gate.reached.wait()
        assert await channel.ask("two") == "two done"
    assert tool.killed == ["slow"]
    assert [m.role for m in read_stored(tmp_path)] == [
        "user",
        "assistant",
        "tool",
        "user",
        "assistant",
    ]
    assert len(channel.sent) == 1


async def test_in_interrupt_mode_what_nanobot_itself_says_waits_for_its_own_turn(
    tmp_path: Path,
) -> None:
    channel, gate = FakeChannel(), Gate()
    model = ScriptedModel(calls("probe"), says("one done"), says("report read"))
    tool = Probe(gate=gate)
    async with running(tmp_path, model, channel, tools=(tool,), NANOBOT_AGENT__ON_BUSY="interrupt"):
        await channel.say("one")
        await gate.reached.wait()
        await channel.say("[nanobot: the helper has finished]", sender_id=NANOBOT)
        gate.opened.set()
        assert await channel.receive(2) == ["one done", "report read"]
    assert tool.killed == []


async def test_messages_that_queued_up_are_answered_one_after_the_other(tmp_path: Path) -> None:
    channel, gate = FakeChannel(), Gate()
    model = ScriptedModel(author=echo, hold=gate)
    async with running(tmp_path, model, channel, NANOBOT_AGENT__ON_BUSY="queue"):
        events = [await channel.say(f"number {n}") for n in range(5)]
        gate.opened.set()
        answers = [await channel.answer_to(event) for event in events]
    assert answers == [f"you said number {n}" for n in range(5)]


async def test_at_most_so_many_turns_run_at_once(tmp_path: Path) -> None:
    channel, gate, both = FakeChannel(), Gate(), asyncio.Event()

    async def hold() -> None:
        if len(model.prompts) == 2:
            both.set()
        await gate()

    model = ScriptedModel(author=echo, hold=hold)
    async with running(tmp_path, model, channel, NANOBOT_AGENT__MAX_CONCURRENT_TURNS="2"):
        events = [(await channel.say("hello", str(n)), str(n)) for n in range(4)]
        await both.wait()
        await channel.ask("/status", "watcher")
        assert len(model.prompts) == 2
        gate.opened.set()
        answers = await asyncio.gather(*(channel.answer_to(*event) for event in events))
    assert set(answers) == {"you said hello"}


async def test_sessions_never_mix(tmp_path: Path) -> None:
    channel = FakeChannel()
    model = ScriptedModel(author=echo)
    async with running(tmp_path, model, channel):
        await asyncio.gather(*(channel.ask(f"I am {n}", str(n)) for n in range(10)))
    for n in range(10):
        texts = [text for _, text in await window(tmp_path, f"fake:{n}")]
        assert texts == [f"I am {n}", f"you said I am {n}"]


async def test_files_that_came_along_are_kept_and_named(tmp_path: Path) -> None:
    channel = FakeChannel()
    channel.files["ref-1"] = b"%PDF"
    model = ScriptedModel(says("got it"))
    files = (Media("ref-1", "document", "application/pdf", "a.pdf"), Media("ref-2", "image"))
    async with running(tmp_path, model, channel):
        assert await channel.answer_to(await channel.say("look", media=files)) == "got it"
    said = read_stored(tmp_path)[0]
    assert (tmp_path / "media" / said.media[0].file).read_bytes() == b"%PDF"
    assert said.text == (
        f"look\n[document a.pdf, kept as media/{said.media[0].file}]\n"
        "[image: could not be fetched: no such file: ref-2]"
    )
    assert (said.content, said.media[0].name, said.media[0].size) == ("look", "a.pdf", 4)


async def test_a_broken_turn_becomes_one_clear_message_and_the_next_works(tmp_path: Path) -> None:
    def explode(_: Prompt) -> Reply:
        raise ZeroDivisionError

    channel = FakeChannel()
    async with running(tmp_path, ScriptedModel(explode, says("fine")), channel):
        answer = await channel.ask("hello")
        assert answer == (
            "nanobot had an internal error (ZeroDivisionError). See the log for details. To"
            " try again, send /retry."
        )
        assert await channel.ask("and now?") == "fine"
    assert [text for _, text in await window(tmp_path)] == ["hello", "and now?", "fine"]


async def test_a_tool_that_cancels_itself_breaks_its_turn_and_nothing_else(tmp_path: Path) -> None:
    def leak(_: str) -> ToolResult:
        raise asyncio.CancelledError("a scope inside the tool")

    channel = FakeChannel()
    model = ScriptedModel(calls("probe"), says("fine"))
    async with running(tmp_path, model, channel, tools=(Probe(act=leak),)):
        assert (await channel.ask("hello")).startswith("nanobot had an internal error")
        assert await channel.ask("and now?") == "fine"


async def test_hooks_that_fail_at_everything_are_not_noticed_in_the_chat(tmp_path: Path) -> None:
    def fail(event: TurnEvent, caller: TurnContext | None = None) -> None:
        raise RuntimeError(type(event).__name__)

    channel = FakeChannel()
    async with running(tmp_path, ScriptedModel(says("hi")), channel, hooks=(fail,)):
        assert await channel.ask("hello") == "hi"
    assert len(read_stored(tmp_path)) == 2


async def test_thirty_turns_of_a_day_extend_each_request_byte_for_byte(tmp_path: Path) -> None:
    channel = FakeChannel(clock=FakeClock())
    model = ScriptedModel()
    for n in range(30):
        if n % 5 == 2:
            model.then(calls("note", text=f"note {n}"))
        if n % 5 == 4:
            path = "memory/MEMORY.md"
            model.then(calls("read_file", path=path), calls("list_dir"))
        model.then(says(f"answer {n}"))
    async with running(tmp_path, model, channel, clock=FakeClock()):
        for n in range(30):
            assert await channel.ask(f"message {n}") == f"answer {n}"
    for before, after in zip(model.prompts, model.prompts[1:], strict=False):
        assert after.tools.wire == before.tools.wire
        assert after.wire_messages().startswith(before.wire_messages()[:-1])
    told = [m.text for m in model.prompts[-1].messages if "[memory changed: added" in m.text]
    assert len(told) == 6, "each note is told once, in the header of the next message"


async def test_a_channel_that_cannot_judge_a_text_gets_it_all_the_same(tmp_path: Path) -> None:
    def fits(*_: object) -> bool:
        raise RecursionError

    channel = FakeChannel(limits=Limits(text=4_096, fits=fits))
    async with running(tmp_path, ScriptedModel(says("hello")), channel):
        assert await channel.ask("hi") == "hello"
