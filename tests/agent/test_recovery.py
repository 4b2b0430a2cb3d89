"""Turns that continue after a crash. The journal is written as a crashed process left it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Collection, Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from nanobot.agent.hooks import TurnEvent
from nanobot.agent.runner import INTERRUPTED
from nanobot.bus.events import InboundMessage, TurnStarted
from nanobot.bus.journal import Step
from nanobot.bus.sqlite_journal import SqliteJournal
from nanobot.messages import Message, ToolCall
from nanobot.providers.port import Prompt, Reply
from nanobot.session.jsonl_store import JsonlStore
from nanobot.session.records import encode
from nanobot.testing import FakeClock, ScriptedModel, says
from nanobot.testing.channel import FakeChannel
from nanobot.tooling import TurnContext
from tests.support import Gate, Probe, copy_running, read_stored, running, window

CLOCK = FakeClock()
CALL = Message("assistant", "", CLOCK.now(), tool_calls=(ToolCall("c1", "probe", '{"text":"x"}'),))
RESULT = Message("tool", "x", CLOCK.now(), tool_call_id="c1", name="probe")
STARTED = Step("start", '"c1"')


def inbound(text: str, event_id: str) -> InboundMessage:
    return InboundMessage("fake", "1", "person-1", text, event_id, CLOCK.now())


async def crash(
    home: Path,
    messages: Sequence[InboundMessage],
    steps: Sequence[Step] = (),
    *,
    claimed: int = 0,
    joined: int = 0,
) -> None:
    """Leave a journal with the first message claimed `claimed` times, `steps` made, and the next
    `joined` messages steered in."""
    (home / "state").mkdir(parents=True)
    for attempt in range(max(1, claimed)):
        journal = SqliteJournal(home / "state" / "journal.db", CLOCK)
        await journal.open()
        if attempt == 0:
            entries = await journal.receive("fake", messages)
        else:
            await journal.leftovers()
        if claimed:
            journal.claim("t-1", "fake:1", [entries[0].id], at_once=False)
        if steps:
            ids = [entry.id for entry in entries[1 : 1 + joined]]
            await journal.add_steps("t-1", 0, steps, ids)
        await journal.close()


async def crash_together(
    home: Path,
    messages: Sequence[InboundMessage],
    times: int,
    asked: Collection[str] = (),
    waiting: Collection[str] = (),
) -> None:
    """Leave the journal of `times` processes that died after beginning a turn for each message. The
    turns of the events in `asked` had asked the model, those in `waiting` the owner."""
    (home / "state").mkdir(parents=True, exist_ok=True)
    for _ in range(times):
        journal = SqliteJournal(home / "state" / "journal.db", CLOCK)
        await journal.open()
        await journal.receive("fake", messages)
        for entry in (await journal.leftovers()).entries:
            turn_id = f"t-{entry.message.event_id}"
            journal.claim(turn_id, entry.message.session_key, [entry.id], at_once=True)
            if entry.message.event_id in asked:
                await journal.mark_model_asked(turn_id)
            if entry.message.event_id in waiting:
                await journal.mark_owner_asked(turn_id)
        await journal.close()


def as_steps(*messages: Message) -> list[Step]:
    return [Step("message", encode(message)) for message in messages]


async def test_a_message_that_was_not_begun_is_answered(tmp_path: Path) -> None:
    await crash(tmp_path, [inbound("hello", "e1")])
    channel = FakeChannel()
    async with running(tmp_path, ScriptedModel(says("hi")), channel):
        assert await channel.answer_to("e1") == "hi"


async def test_messages_of_a_session_keep_their_order(tmp_path: Path) -> None:
    await crash(tmp_path, [inbound(f"number {n}", f"e{n}") for n in range(5)])
    channel = FakeChannel()
    model = ScriptedModel(*[says(f"answer {n}") for n in range(5)])
    async with running(tmp_path, model, channel):
        assert await channel.answer_to("e4") == "answer 4"
    assert [m.content for m in read_stored(tmp_path)] == [
        text for n in range(5) for text in (f"number {n}", f"answer {n}")
    ]


async def test_a_turn_goes_on_from_its_steps(tmp_path: Path) -> None:
    await crash(tmp_path, [inbound("do it", "e1")], as_steps(CALL, RESULT), claimed=1)
    channel, tool = FakeChannel(), Probe(effects=True)
    model = ScriptedModel(says("done"))
    async with running(tmp_path, model, channel, tools=(tool,)):
        assert await channel.answer_to("e1") == "done"
    assert tool.called == []
    assert [m.role for m in model.prompts[0].messages] == ["system", "user", "assistant", "tool"]
    assert [m.role for m in read_stored(tmp_path)] == ["user", "assistant", "tool", "assistant"]
    assert {m.turn_id for m in read_stored(tmp_path)} == {"t-1"}


async def test_an_effect_that_had_started_is_not_repeated_and_the_model_is_told(
    tmp_path: Path,
) -> None:
    await crash(tmp_path, [inbound("do it", "e1")], [*as_steps(CALL), STARTED], claimed=1)
    channel, tool = FakeChannel(), Probe(effects=True)
    model = ScriptedModel(says("I will check"))
    async with running(tmp_path, model, channel, tools=(tool,)):
        assert await channel.answer_to("e1") == "I will check"
    assert tool.called == []
    assert model.prompts[0].messages[-1].text == INTERRUPTED


async def test_a_call_that_had_not_started_runs(tmp_path: Path) -> None:
    await crash(tmp_path, [inbound("do it", "e1")], as_steps(CALL), claimed=1)
    channel, tool = FakeChannel(), Probe(effects=True)
    async with running(tmp_path, ScriptedModel(says("done")), channel, tools=(tool,)):
        assert await channel.answer_to("e1") == "done"
    assert tool.called == ["x"]


async def test_a_start_from_an_earlier_step_does_not_count_for_a_later_call_of_the_same_id(
    tmp_path: Path,
) -> None:
    first = [*as_steps(CALL), STARTED, *as_steps(RESULT)]
    await crash(tmp_path, [inbound("do it", "e1")], [*first, *as_steps(CALL)], claimed=1)
    channel, tool = FakeChannel(), Probe(effects=True)
    async with running(tmp_path, ScriptedModel(says("done")), channel, tools=(tool,)):
        assert await channel.answer_to("e1") == "done"
    assert tool.called == ["x"]


async def test_a_result_whose_call_was_lost_is_left_out(tmp_path: Path) -> None:
    await crash(tmp_path, [inbound("do it", "e1")], as_steps(RESULT), claimed=1)
    channel = FakeChannel()
    async with running(tmp_path, ScriptedModel(says("done")), channel, tools=(Probe(),)):
        assert await channel.answer_to("e1") == "done"
    assert await window(tmp_path) == [("user", "do it"), ("assistant", "done")]


async def test_a_steered_message_is_closed_by_the_turn_it_joined(tmp_path: Path) -> None:
    steps = as_steps(CALL, RESULT, Message("user", "and that", CLOCK.now()))
    both = [inbound("do this", "e1"), inbound("and that", "e2")]
    await crash(tmp_path, both, steps, claimed=1, joined=1)
    channel = FakeChannel()
    async with running(tmp_path, ScriptedModel(says("both done")), channel, tools=(Probe(),)):
        assert await channel.answer_to("e2") == "both done"
    assert channel.sent[0].event_ids == ("e1", "e2")
    assert [m.content for m in read_stored(tmp_path) if m.role == "user"] == ["do this", "and that"]


async def test_after_three_crashes_without_progress_the_person_is_told(tmp_path: Path) -> None:
    await crash(tmp_path, [inbound("poison", "e1"), inbound("innocent", "e2")], claimed=3)
    channel = FakeChannel()
    model = ScriptedModel(says("fine"), says("once more"))
    async with running(tmp_path, model, channel):
        assert await channel.answer_to("e1") == (
            "nanobot stopped unexpectedly 3 times while working on this message, so it won't"
            " try again automatically. To try once more, send /retry."
        )
        assert await channel.answer_to("e2") == "fine"
    assert [text for _, text in await window(tmp_path)] == ["poison", "innocent", "fine"]


@pytest.mark.parametrize("times", [2, 3])
async def test_after_crashes_nobody_waits_for_a_chat_whose_model_hangs(
    tmp_path: Path, times: int
) -> None:
    messages = [replace(inbound("hello", f"e{n}"), chat_id=str(n)) for n in range(30)]
    await crash_together(tmp_path, messages, 2)
    await crash_together(tmp_path, messages, times - 2, asked=[m.event_id for m in messages])
    gate, channel = Gate(), FakeChannel()

    async def hang_once() -> None:
        if not gate.reached.is_set():
            await gate()

    model = ScriptedModel(author=lambda _: says("hi"), hold=hang_once)
    async with running(tmp_path, model, channel):
        await gate.reached.wait()
        answered = asyncio.Condition()

        async def answer(n: int) -> None:
            await channel.answer_to(f"e{n}", str(n))
            async with answered:
                done.append(n)
                answered.notify_all()

        done: list[int] = []
        async with asyncio.TaskGroup() as group:
            for n in range(30):
                group.create_task(answer(n))
            async with answered:
                await answered.wait_for(lambda: len(done) == 29)
            gate.opened.set()


async def test_a_crash_is_counted_for_turns_that_had_not_asked_the_model_only(
    tmp_path: Path,
) -> None:
    messages = [inbound("poison", "e1"), replace(inbound("innocent", "e2"), chat_id="2")]
    await crash_together(tmp_path, messages, 3, asked={"e2"})
    channel = FakeChannel()
    async with running(tmp_path, ScriptedModel(says("fine")), channel):
        assert "stopped unexpectedly 3 times" in await channel.answer_to("e1")
        assert await channel.answer_to("e2", "2") == "fine"


async def test_a_turn_that_never_survives_the_model_is_set_aside_in_the_end(
    tmp_path: Path,
) -> None:
    await crash_together(tmp_path, [inbound("poison", "e1")], 10, asked={"e1"})
    channel = FakeChannel()
    async with running(tmp_path, ScriptedModel(), channel):
        assert "won't try again automatically" in await channel.answer_to("e1")


async def test_a_turn_that_waits_for_the_owner_outlives_any_number_of_crashes(
    tmp_path: Path,
) -> None:
    await crash_together(tmp_path, [inbound("send it", "e1")], 10, waiting={"e1"})
    channel = FakeChannel()
    async with running(tmp_path, ScriptedModel(says("sent")), channel):
        assert await channel.answer_to("e1") == "sent"


async def test_suspects_begin_one_after_another(tmp_path: Path) -> None:
    messages = [replace(inbound("hello", f"e{n}"), chat_id=str(n)) for n in range(3)]
    await crash_together(tmp_path, messages, 2)
    at_risk, most = set[str](), list[int]()

    def watch(event: TurnEvent, caller: TurnContext | None = None) -> None:
        if isinstance(event, TurnStarted):
            at_risk.add(event.chat_id)
            most.append(len(at_risk))

    def answer(_: Prompt) -> Reply:
        at_risk.clear()
        return says("hi")

    channel = FakeChannel()
    model = ScriptedModel(author=answer)
    async with running(tmp_path, model, channel, hooks=(watch,)):
        for n in range(3):
            await channel.answer_to(f"e{n}", str(n))
    assert most == [1, 1, 1]


async def test_a_stop_that_was_waiting_is_applied_before_anything_runs(tmp_path: Path) -> None:
    messages = [inbound("do it", "e1"), inbound("/stop", "e2"), inbound("hello", "e3")]
    await crash(tmp_path, messages, as_steps(CALL), claimed=1)
    channel, tool = FakeChannel(), Probe(effects=True)
    model = ScriptedModel(says("hi"))
    async with running(tmp_path, model, channel, tools=(tool,)):
        assert await channel.answer_to("e2") == "Stopped. 1 pending message dropped."
        assert await channel.answer_to("e3") == "hi"
    assert tool.called == []
    assert [m.content for m in read_stored(tmp_path) if m.role == "user"] == ["do it", "hello"]


async def test_a_restart_that_was_waiting_cannot_loop(tmp_path: Path) -> None:
    await crash(tmp_path, [inbound("/restart", "e1")])
    channel = FakeChannel()
    async with running(tmp_path, ScriptedModel(), channel) as gateway:
        await channel.answer_to("e1")
    assert gateway.restart_requested
    async with running(tmp_path, ScriptedModel(says("hi")), channel) as again:
        assert await channel.ask("hello") == "hi"
    assert not again.restart_requested


async def test_a_new_chat_has_its_scope_after_a_crash_at_any_moment(tmp_path: Path) -> None:
    gate, channel = Gate(), FakeChannel()

    def copy(name: str) -> None:
        copy_running(tmp_path / "home", tmp_path / name)

    async with running(tmp_path / "home", ScriptedModel(says("hi"), hold=gate), channel):
        await channel.say("hello")
        await gate.reached.wait()
        copy("begun")
        gate.opened.set()
        await channel.receive(1)
        copy("answered")
    for name in ("begun", "answered"):
        later = FakeChannel()
        async with running(tmp_path / name, ScriptedModel(says("hi")), later):
            await later.receive(1 if name == "begun" else 0)
        sessions = JsonlStore(tmp_path / name / "sessions", CLOCK)
        assert sessions.metadata_of("fake:1")["scope"], name
        assert [m.content for m in sessions.read_messages("fake:1")] == ["hello", "hi"]


@pytest.mark.parametrize("command", ["/status", "/forget --erase marzipan"])
async def test_a_program_that_looks_into_the_journal_costs_no_message(
    tmp_path: Path, command: str
) -> None:
    gate, channel = Gate(), FakeChannel()
    look = (
        "import sqlite3, sys; db = sqlite3.connect(sys.argv[1])\n"
        "db.execute('SELECT * FROM inbox').fetchall(); db.close()\n"
    )
    async with running(tmp_path / "home", ScriptedModel(says("hi"), hold=gate), channel):
        await channel.ask(command)  # /forget --erase searches every file
        journal = tmp_path / "home" / "state" / "journal.db"
        other = await asyncio.create_subprocess_exec(sys.executable, "-c", look, journal)
        assert await other.wait() == 0
        await channel.say("hello")
        await gate.reached.wait()
        copy_running(tmp_path / "home", tmp_path / "killed")
        gate.opened.set()
        await channel.receive(1)
    later = FakeChannel()
    async with running(tmp_path / "killed", ScriptedModel(says("hi")), later):
        assert (await later.receive(1))[-1] == "hi"
