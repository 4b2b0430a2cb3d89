"""A turn that outgrows the window by itself still fits, and stored messages stay whole."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from nanobot.agent.truncation import PromptRoom, truncate, truncate_prompt
from nanobot.messages import ToolCall
from nanobot.providers.counter import TokenCounter
from nanobot.providers.port import (
    Prompt,
    PromptMessage,
    Toolset,
    assistant_message,
    system_message,
    tool_message,
    user_message,
)

NO_TOOLS = Toolset.of(())


def turn(sizes: list[tuple[int, int]], before: int = 0) -> Prompt:
    """Return a question, then calls with arguments and results of the given sizes in characters."""
    messages = [system_message("You help.")]
    for number in range(before):
        messages += [user_message(f"earlier {number} " * 30), assistant_message("yes " * 50)]
    messages.append(user_message("find it"))
    for number, (asked, found) in enumerate(sizes):
        call = ToolCall(f"c{number}", "look", json.dumps({"where": "a" * asked}))
        messages.append(assistant_message("", (call,)))
        messages.append(tool_message(call.id, "words " * (found // 6)))
    return Prompt(tuple(messages), NO_TOOLS)


def are_paired(messages: tuple[PromptMessage, ...]) -> bool:
    called = [call.id for message in messages for call in message.tool_calls]
    return called == [message.tool_call_id for message in messages if message.role == "tool"]


@given(st.text(), st.integers(1, 50))
def test_shortening_keeps_what_fits_and_both_ends_of_the_rest(text: str, limit: int) -> None:
    short = truncate(text, limit)
    if len(text) <= limit:
        assert short == text
    else:
        assert short.startswith(text[: limit * 3 // 4])
        assert short.endswith(text[len(text) - (limit - limit * 3 // 4) :])


async def test_a_prompt_that_fits_is_the_same_prompt() -> None:
    prompt = turn([(10, 100)])
    assert await PromptRoom(2_000, TokenCounter()).fit(prompt) is prompt


SIZES = st.lists(st.tuples(st.integers(0, 3_000), st.integers(0, 16_000)), max_size=60)


@given(SIZES, st.integers(0, 8))
async def test_every_turn_fits_with_its_question_and_every_call_beside_its_result(
    sizes: list[tuple[int, int]], before: int
) -> None:
    prompt = turn(sizes, before)
    fitted = await PromptRoom(2_000, TokenCounter()).fit(prompt)
    assert fitted.tokens <= 2_000
    assert are_paired(fitted.messages)
    texts = [message.text for message in fitted.messages]
    assert "find it" in texts
    assert texts[0] == "You help."
    for message in fitted.messages:
        for call in message.tool_calls:
            assert isinstance(json.loads(call.arguments), dict)


async def test_the_oldest_results_give_way_first() -> None:
    fitted = await PromptRoom(6_000, TokenCounter()).fit(turn([(10, 12_000)] * 3))
    results = [message.text for message in fitted.messages if message.role == "tool"]
    assert "left out here to fit" in results[0]
    assert "left out" not in results[-1]


def test_what_is_left_out_altogether_is_said() -> None:
    fitted = truncate_prompt(turn([(2_000, 2_000)] * 60), 1_000)
    assert any("earlier messages are left out" in message.text for message in fitted.messages)
