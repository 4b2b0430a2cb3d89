"""The ReAct loop: prompts, tool calls and results."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from nanobot.agent.hooks import AgentHook, Hooks, TurnEvent
from nanobot.agent.media import MediaStore
from nanobot.agent.runner import AT_ONCE, INTERRUPTED, AgentRunner, EarlierWork, TurnLog
from nanobot.bus.events import PromptReading, TextDelta
from nanobot.clock import Clock
from nanobot.errors import ProviderGarbage, ToolError
from nanobot.messages import Message, ToolCall
from nanobot.providers.port import (
    CallOptions,
    Prompt,
    Reply,
    TextSink,
    Toolset,
    system_message,
    user_message,
)
from nanobot.testing import FakeClock, ScriptedModel, calls, says, together
from nanobot.tooling import ToolResult, TurnContext
from nanobot.tooling.registry import ToolRegistry
from tests.support import Gate, Probe

CALLER = TurnContext("test", "1", "test:1", "t-1")


def prompt(tools: ToolRegistry, text: str = "hi") -> Prompt:
    messages = (system_message("You help."), user_message(text))
    return Prompt(messages, Toolset.of(tools.specs()))


class Ran(NamedTuple):
    """The result of a run: all messages of the turn, with the final text as the last."""

    new_messages: tuple[Message, ...]
    text: str
    steps: int


async def run(
    model: ScriptedModel,
    *tools: Probe,
    most: int = 10,
    resumed: EarlierWork = EarlierWork(),  # noqa: B008 - it is frozen
    hook: AgentHook = Hooks(),  # noqa: B008 - it has no state
    log: TurnLog | None = None,
    clock: Clock | None = None,
) -> Ran:
    registry = ToolRegistry()
    registry.register_all(tools)
    clock = clock or FakeClock()
    runner = AgentRunner(model, registry, clock, max_iterations=most, media=NamedMedia(Path()))
    log = log or TurnLog()
    turn = await runner.run(prompt(registry), CALLER, resumed=resumed, hook=hook, log=log)
    new = (*resumed.messages, *log.messages, Message("assistant", turn.text))
    return Ran(new, turn.text, turn.steps)


class NamedMedia(MediaStore):
    """Stores nothing and returns the name."""

    def put_base64(self, data: str, mime: str) -> str:
        return f"{data}.{mime.partition('/')[2]}"


def texts(messages: Sequence[Message]) -> list[tuple[str, str]]:
    return [(message.role, message.content) for message in messages]


async def test_a_text_is_the_answer() -> None:
    turn = await run(ScriptedModel(says("hello")))
    assert turn.text == "hello"
    assert texts(turn.new_messages) == [("assistant", "hello")]


async def test_a_turn_holds_exactly_the_new_messages_in_order() -> None:
    model = ScriptedModel(calls("probe", text="a"), calls("probe", text="b"), says("both done"))
    turn = await run(model, Probe())
    assert texts(turn.new_messages) == [
        ("assistant", ""),
        ("tool", "a"),
        ("assistant", ""),
        ("tool", "b"),
        ("assistant", "both done"),
    ]
    assert turn.steps == 3


async def test_each_request_extends_the_one_before() -> None:
    model = ScriptedModel(calls("probe", text="a"), calls("probe", text="b"), says("done"))
    await run(model, Probe())
    wires = [asked.wire_messages()[:-1] for asked in model.prompts]
    assert wires[1].startswith(wires[0])
    assert wires[2].startswith(wires[1])
    assert len({asked.tools.wire for asked in model.prompts}) == 1


async def test_parallel_tools_run_side_by_side() -> None:
    first, second = asyncio.Event(), asyncio.Event()

    class Meeting(Gate):
        """Each call waits for the other one."""

        async def __call__(self) -> None:
            (second if first.is_set() else first).set()
            await first.wait()
            await second.wait()

    tool = Probe(gate=Meeting())
    model = ScriptedModel(
        together(calls("probe", text="a"), calls("probe", text="b")), says("they met")
    )
    async with asyncio.timeout(5):
        turn = await run(model, tool)
    assert [m.content for m in turn.new_messages if m.role == "tool"] == ["a", "b"]


async def test_only_so_many_run_at_once() -> None:
    gate = Gate()
    tool = Probe(gate=gate)
    many = together(*(calls("probe", text=str(n)) for n in range(AT_ONCE + 1)))
    async with asyncio.timeout(5), asyncio.TaskGroup() as tasks:
        tasks.create_task(run(ScriptedModel(many, says("done")), tool))
        await gate.reached.wait()
        assert len(tool.called) <= AT_ONCE
        gate.opened.set()
    assert len(tool.called) == AT_ONCE + 1


async def test_other_tools_run_one_after_the_other() -> None:
    gate = Gate()
    tool = Probe(gate=gate, effects=True)
    model = ScriptedModel(
        together(calls("probe", text="a"), calls("probe", text="b")), says("done")
    )
    async with asyncio.timeout(5), asyncio.TaskGroup() as tasks:
        tasks.create_task(run(model, tool))
        await gate.reached.wait()
        assert tool.called == ["a"]
        gate.opened.set()
    assert tool.called == ["a", "b"]


async def test_results_stand_in_the_order_of_the_calls_whichever_ends_first() -> None:
    slow = Gate()

    def quick(text: str) -> ToolResult:
        slow.opened.set()
        return ToolResult(text)

    tools = (
        Probe("slow", gate=slow),
        Probe("quick", act=quick),
    )
    model = ScriptedModel(
        together(calls("slow", text="slow"), calls("quick", text="quick")), says("done")
    )
    async with asyncio.timeout(5):
        turn = await run(model, *tools)
    assert [m.content for m in turn.new_messages if m.role == "tool"] == ["slow", "quick"]


async def test_unknown_tool_is_reported_to_the_model_not_raised() -> None:
    model = ScriptedModel(calls("nope"), says("sorry"))
    turn = await run(model, Probe())
    assert "no tool named 'nope'" in turn.new_messages[1].content
    assert "probe" in turn.new_messages[1].content
    assert turn.text == "sorry"


async def test_a_failing_tool_is_reported_to_the_model_not_raised() -> None:
    def fail(_: str) -> ToolResult:
        raise ToolError("the file is gone")

    turn = await run(ScriptedModel(calls("probe"), says("sorry")), Probe(act=fail))
    assert turn.new_messages[1].content == "Error: the file is gone"


async def test_at_the_limit_the_model_answers_once_more_without_tools() -> None:
    model = ScriptedModel(calls("probe"), calls("probe"), says("that is what I have"))
    turn = await run(model, Probe(), most=2)
    assert turn.text == "that is what I have"
    assert model.options[-1].tool_choice == "none"
    assert model.prompts[-1].tools == model.prompts[0].tools
    assert "limit of 2 steps" in model.prompts[-1].messages[-1].text


def unreadable() -> Reply:
    return Reply("", (ToolCall("", "probe", "{}", '{"text": "cut'),), finish="tool_calls")


async def test_a_call_that_cannot_be_read_is_not_run_and_goes_back_to_the_model() -> None:
    tool = Probe()
    turn = await run(ScriptedModel(unreadable(), calls("probe", text="a"), says("done")), tool)
    assert turn.text == "done"
    assert tool.called == ["a"]
    assert "is invalid and was not run" in turn.new_messages[1].content
    assert '{"text": "cut' in turn.new_messages[1].content


async def test_a_model_that_writes_only_unreadable_calls_is_made_to_answer_in_text() -> None:
    model = ScriptedModel(unreadable(), unreadable(), unreadable(), says("I can't."))
    turn = await run(model, Probe())
    assert turn.text == "I can't."
    assert model.options[-1].tool_choice == "none"


async def test_calls_in_the_last_answer_are_not_run() -> None:
    tool = Probe()
    last = together(says("enough"), calls("probe", text="too late"))
    turn = await run(ScriptedModel(calls("probe", text="a"), last), tool, most=1)
    assert turn.text == "enough"
    assert tool.called == ["a"]
    assert turn.new_messages[-1].tool_calls == ()


async def test_a_last_answer_of_calls_alone_is_asked_for_again_and_never_sent_empty() -> None:
    stubborn = ScriptedModel(*[calls("probe") for _ in range(3)])
    with pytest.raises(ProviderGarbage):
        await run(stubborn, Probe(), most=1)


async def test_an_empty_answer_is_asked_for_once_more() -> None:
    turn = await run(ScriptedModel(says("  "), says("here I am")))
    assert turn.text == "here I am"
    assert texts(turn.new_messages) == [("assistant", "here I am")]


async def test_two_empty_answers_are_an_error() -> None:
    with pytest.raises(ProviderGarbage, match="empty"):
        await run(ScriptedModel(says(""), says("")))


async def test_images_from_tools_follow_all_results_as_a_user_message() -> None:
    picture = Probe(act=lambda _: ToolResult("a picture", images=(("abc", "image/png"),)))
    model = ScriptedModel(
        together(calls("probe", text="1"), calls("probe", text="2")), says("I see")
    )
    turn = await run(model, picture)
    roles = [message.role for message in turn.new_messages]
    assert roles == ["assistant", "tool", "tool", "user", "user", "assistant"]
    image = turn.new_messages[3]
    assert [one.file for one in image.media] == ["abc.png"]
    assert image.origin == "tool:probe"
    assert not image.from_person


async def test_hooks_that_raise_never_break_a_turn_nor_each_other() -> None:
    heard: list[str] = []

    def fail(event: TurnEvent, caller: TurnContext | None = None) -> None:
        raise RuntimeError(type(event).__name__)

    def listen(event: TurnEvent, caller: TurnContext | None = None) -> None:
        if isinstance(event, TextDelta):
            heard.append(event.text)

    model = ScriptedModel(calls("probe"), says("fine all the same"))
    turn = await run(model, Probe(), hook=Hooks(others=(fail, listen)))
    assert turn.text == "fine all the same"
    assert "".join(heard) == "fine all the same"


class Reader(ScriptedModel):
    """Reports its progress in a prompt of 1,000 tokens, a given number of times a second."""

    def __init__(self, clock: FakeClock, reports: range, seconds: float) -> None:
        super().__init__(says("read"))
        self._clock, self._reports, self._seconds = clock, reports, seconds

    async def complete(
        self, prompt: Prompt, options: CallOptions, on_text: TextSink | None = None
    ) -> Reply:
        assert options.on_reading is not None
        for read in self._reports:
            options.on_reading(read, 1_000)
            await self._clock.advance(self._seconds)
        return await super().complete(prompt, options, on_text)


async def readings(reports: range, seconds: float) -> list[tuple[int, float]]:
    """Return the reports that reach a hook, with their times."""
    clock, heard = FakeClock(), list[tuple[int, float]]()

    def listen(event: TurnEvent, caller: TurnContext | None = None) -> None:
        if isinstance(event, PromptReading):
            heard.append((event.read, clock.monotonic()))

    await run(Reader(clock, reports, seconds), hook=listen, clock=clock)
    return heard


async def test_reading_a_prompt_is_reported_at_once_then_each_second_and_at_its_end() -> None:
    heard = await readings(range(0, 1_001, 50), 0.25)
    assert heard == [(0, 0), (200, 1), (400, 2), (600, 3), (800, 4), (1_000, 5)]


async def test_a_prompt_that_was_read_at_once_is_not_reported() -> None:
    assert await readings(range(1_000, 1_001), 0.25) == []


CALLS = Message(
    "assistant",
    "",
    tool_calls=(
        ToolCall("c1", "look", "{}"),
        ToolCall("c2", "change", '{"text":"x"}'),
        ToolCall("c3", "change", '{"text":"y"}'),
    ),
)
DONE = Message("tool", "seen", tool_call_id="c1", name="look")


async def test_a_call_with_effects_that_had_started_is_not_run_again() -> None:
    tool = Probe("change", effects=True)
    resumed = EarlierWork((CALLS, DONE), frozenset({"c2"}))
    model = ScriptedModel(says("I will check"))
    turn = await run(model, Probe("look"), tool, resumed=resumed)
    assert tool.called == ["y"]
    assert texts(turn.new_messages)[2:] == [
        ("tool", INTERRUPTED),
        ("tool", "y"),
        ("assistant", "I will check"),
    ]
    assert model.prompts[0].messages[-2].text == INTERRUPTED
    assert turn.new_messages[2].origin == "", "nanobot's own words make nothing doubtful"


async def test_reading_calls_without_a_result_run_again() -> None:
    look = Probe("look")
    resumed = EarlierWork((CALLS,), frozenset({"c2", "c3"}))
    await run(ScriptedModel(says("ok")), look, Probe("change", effects=True), resumed=resumed)
    assert look.called == [""]


async def test_ids_that_repeat_from_step_to_step_are_told_apart_by_place() -> None:
    call = ToolCall("call_0", "look", "{}")
    step = Message("assistant", "", tool_calls=(call,))
    result = Message("tool", "first", tool_call_id="call_0", name="look")
    look = Probe("look")
    turn = await run(ScriptedModel(says("ok")), look, resumed=EarlierWork((step, result, step)))
    assert [m.role for m in turn.new_messages] == [
        "assistant", "tool", "assistant", "tool", "assistant",
    ]  # fmt: skip
    assert look.called == [""]


async def test_steps_of_an_earlier_process_count_towards_the_limit() -> None:
    step = Message("assistant", "", tool_calls=(ToolCall("c1", "look", "{}"),))
    model = ScriptedModel(says("enough"))
    turn = await run(model, Probe("look"), resumed=EarlierWork((step, DONE)), most=1)
    assert turn.text == "enough"
    assert model.options[-1].tool_choice == "none"


async def test_what_is_steered_in_stands_behind_the_results() -> None:
    class Steering(TurnLog):
        async def take_new_messages(self) -> Sequence[Message]:
            joined = [Message("user", "and this too")] if len(model.prompts) == 1 else []
            self.messages += joined
            return joined

    model = ScriptedModel(calls("probe", text="a"), says("both"))
    turn = await run(model, Probe(), log=Steering())
    assert texts(turn.new_messages) == [
        ("assistant", ""),
        ("tool", "a"),
        ("user", "and this too"),
        ("assistant", "both"),
    ]
