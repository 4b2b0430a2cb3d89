"""The scripted model."""

from __future__ import annotations

import asyncio
import json

import pytest

from nanobot.errors import ProviderBusy
from nanobot.providers.port import CallOptions, Prompt, Toolset, user_message
from nanobot.testing import ScriptedModel, calls, fails, says, together
from nanobot.testing.model import ScriptExhausted


def prompt(text: str) -> Prompt:
    return Prompt((user_message(text),), Toolset.of([]))


async def test_lines_are_played_in_order_and_prompts_recorded() -> None:
    model = ScriptedModel(says("one"), lambda asked: says(asked.messages[-1].text.upper()))
    assert (await model.complete(prompt("a"), CallOptions())).text == "one"
    assert (await model.complete(prompt("b"), CallOptions(model="m"))).text == "B"
    assert [one.messages[0].text for one in model.prompts] == ["a", "b"]
    assert model.options == [CallOptions(), CallOptions(model="m")]
    assert model.remaining == 0


async def test_calls_have_ids_that_differ_and_do_not_vary() -> None:
    model = ScriptedModel(calls("read_file", path="a"), together(calls("f"), calls("f")))
    first = await model.complete(prompt("a"), CallOptions())
    second = await model.complete(prompt("b"), CallOptions())
    assert [call.id for call in first.tool_calls + second.tool_calls] == [
        "call_1",
        "call_2",
        "call_3",
    ]
    assert first.tool_calls[0].name == "read_file"
    assert json.loads(first.tool_calls[0].arguments) == {"path": "a"}
    assert first.finish == second.finish == "tool_calls"


async def test_text_is_streamed_in_pieces_also_before_a_failure() -> None:
    seen: list[str] = []
    model = ScriptedModel(
        fails(ProviderBusy("busy"), after="Once upon"), says("a sentence of some length")
    )
    with pytest.raises(ProviderBusy):
        await model.complete(prompt("a"), CallOptions(), lambda text, _: seen.append(text))
    await model.complete(prompt("b"), CallOptions(), lambda text, _: seen.append(text))
    assert seen[0] == "Once upon"
    assert len(seen) > 2
    assert "".join(seen[1:]) == "a sentence of some length"


async def test_a_script_at_its_end_says_what_was_asked() -> None:
    model = ScriptedModel(says("one"))
    await model.complete(prompt("a"), CallOptions())
    with pytest.raises(ScriptExhausted, match=r"call 2 .* user: 'and now'"):
        await model.complete(prompt("and now"), CallOptions())
    model.then(says("two"))
    assert (await model.complete(prompt("c"), CallOptions())).text == "two"


async def test_a_held_reply_waits_for_the_test() -> None:
    gate = asyncio.Event()
    model = ScriptedModel(author=lambda _: says("done"), hold=gate.wait)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(model.complete(prompt("a"), CallOptions()))
        await asyncio.sleep(0)
        assert len(model.prompts) == 1
        assert not task.done()
        gate.set()
    assert task.result().text == "done"
