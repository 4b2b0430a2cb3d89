"""The provider as such: honest, deterministic, quick, bounded, streaming."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nanobot.messages import TURN_STOPPED
from nanobot.providers.offline import OfflineModel
from nanobot.providers.port import (
    CallOptions,
    Prompt,
    PromptMessage,
    Provider,
    Toolset,
    ToolSpec,
    system_message,
    user_message,
)
from tests.growth import assert_linear
from tests.providers.offline.bench import ALL_TOOLS, Bench

HEADER = "[today, Sat 2026-11-21 14:03 +01:00, cli:direct]\n"
TOOLS = Toolset.of(ToolSpec(name, "", {"type": "object"}) for name in ALL_TOOLS)


def prompt(*messages: PromptMessage) -> Prompt:
    return Prompt((system_message("# nanobot"), *messages), TOOLS)


async def test_what_a_stopped_turn_asked_for_is_not_carried_out_later() -> None:
    stopped = (user_message(HEADER + "write hello to a.txt"), user_message(TURN_STOPPED))
    asked = prompt(*stopped, user_message(HEADER + "thanks"))
    reply = await OfflineModel().complete(asked, CallOptions())
    assert reply.tool_calls == ()
    pending = prompt(stopped[0], user_message(HEADER + "thanks"))
    assert (await OfflineModel().complete(pending, CallOptions())).tool_calls


def test_it_is_a_provider() -> None:
    model: Provider = OfflineModel()
    assert model is not None


@pytest.mark.parametrize(
    "said", ["help", "who are you?", "What can you do?", "你能做什么？", "你是谁"]
)
async def test_it_says_what_it_is_and_how_to_connect_a_real_model(bench: Bench, said: str) -> None:
    reply = await bench.say(said)
    assert "offline model" in reply or "离线模型" in reply
    for key in ("model.provider: openai", "model.name", "model.base_url", "model.api_key"):
        assert key in reply
    assert "~/.nanobot/config.yaml" in reply
    assert "NANOBOT_MODEL__API_KEY" in reply


@pytest.mark.parametrize(
    ("said", "answered"),
    [("hello", "Hello"), ("good morning!", "Hello"), ("thanks a lot", "welcome"),
     ("bye", "Goodbye"),
     ("你好", "你好"), ("谢谢", "不客气")],
)  # fmt: skip
async def test_courtesy_is_answered_in_kind(bench: Bench, said: str, answered: str) -> None:
    assert answered in await bench.say(said)


@pytest.mark.parametrize("said", ["what time is it?", "What's the date today?", "which day is it"])
async def test_the_time_is_the_newest_messages(bench: Bench, said: str) -> None:
    await bench.say("hello")
    bench.header = "[today, Sun 2026-11-22 09:41 +01:00, cli:direct]\n"
    reply = await bench.say(said)
    assert "09:41" in reply
    assert "Sunday, 22 November 2026" in reply


async def test_an_absolute_header_tells_the_time_too(bench: Bench) -> None:
    bench.header = "[Sat 2026-11-21 14:03 +01:00, cli:direct]\n"
    assert "14:03" in await bench.say("现在几点了？")


async def test_without_headers_the_time_is_not_known(bench: Bench) -> None:
    bench.header = ""
    assert "cannot know the time" in await bench.say("what time is it?")


async def test_what_it_does_not_understand_is_answered_briefly_and_not_always_alike(
    bench: Bench,
) -> None:
    replies = {await bench.say(f"sing me a song {n}") for n in range(3)}
    assert len(replies) == 3
    assert all(len(reply) < 300 for reply in replies)


async def test_the_same_prompt_gets_the_same_reply(bench: Bench) -> None:
    asked = prompt(user_message(HEADER + "remember that I like jam"))
    one = await OfflineModel().complete(asked, CallOptions())
    other = await OfflineModel().complete(asked, CallOptions())
    assert one == other
    assert one.tool_calls


async def test_call_ids_differ_within_a_turn(bench: Bench) -> None:
    await bench.say("read a.txt and a.txt", "note: x", "note: x y")
    ids = [call.id for message in bench.messages for call in message.tool_calls]
    assert len(set(ids)) == len(ids) >= 3


async def test_no_tool_is_called_when_calls_are_forbidden() -> None:
    asked = prompt(user_message(HEADER + "list files"), user_message("[nanobot: no more steps.]"))
    reply = await OfflineModel().complete(asked, CallOptions(tool_choice="none"))
    assert reply.tool_calls == ()
    assert "not available" in reply.text


async def test_text_streams_word_by_word_and_adds_up() -> None:
    pieces: list[tuple[str, bool]] = []
    model = OfflineModel()
    reply = await model.complete(
        prompt(user_message("help")), CallOptions(), lambda *piece: pieces.append(piece)
    )
    assert "".join(text for text, _ in pieces) == reply.text
    assert len(pieces) > 50
    assert not any(restart for _, restart in pieces)
    await model.close()


async def test_usage_is_counted() -> None:
    reply = await OfflineModel().complete(prompt(user_message("hello " * 400)), CallOptions())
    assert 400 < reply.usage.prompt < 2_000
    assert reply.usage.completion > 5


HOSTILE = [
    "a", "foo bar ", "remember that ", "my dog is x and ", "to to ", "replace a with b to c in ",
    "我喜欢", "写入", ".", "? ", '"', "my x is y\n", ", then read a.txt", "[", "please ", " ",
    "create a file a.txt with ", "so please and ", "(", "- ", "'s ", "1. ", "\\", "\ud800",
]  # fmt: skip


@pytest.mark.parametrize("unit", HOSTILE)
@pytest.mark.parametrize("before", ["", "write ", "把 ", "what "])
def test_a_huge_message_is_answered_in_time_linear_in_its_length(unit: str, before: str) -> None:
    def answer(length: int) -> None:
        asked = prompt(user_message(HEADER + before + unit * (length // len(unit))))
        reply = asyncio.run(OfflineModel().complete(asked, CallOptions()))
        assert reply.text or reply.tool_calls

    assert_linear(answer, 2_000)


@given(st.lists(st.text(max_size=300), min_size=1, max_size=3))
async def test_any_text_gets_a_reply(texts: list[str]) -> None:
    reply = await OfflineModel().complete(prompt(*map(user_message, texts)), CallOptions())
    assert reply.text.strip() or reply.tool_calls


async def test_an_empty_prompt_gets_a_reply() -> None:
    reply = await OfflineModel().complete(Prompt((), Toolset((), b"")), CallOptions())
    assert reply.text
