"""A prompt that is too long by the server's count is shortened before a person notices."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nanobot.agent.truncation import PromptRoom, prompt_text, tokens_to_try
from nanobot.errors import ContextTooLong, ProviderStalled
from nanobot.providers.counter import TokenCounter
from nanobot.providers.endpoint import Endpoint
from nanobot.providers.port import CallOptions, Prompt, Reply, Toolset, system_message, user_message
from nanobot.testing import FakeClock, ScriptedModel, fails, says
from nanobot.testing.channel import FakeChannel
from nanobot.testing.model import Failure
from tests.support import read_stored, running

HERE = Endpoint("http://127.0.0.1:9/v1", "small")
# 2,295 characters: about 1,700 tokens, and 4,600 for a tokenizer that has no words of Chinese.
CHINESE = "今天天气很好我们去公园散步吧，" * 153


def count(prompt: Prompt) -> int:
    """Return the count of such a server."""
    text = prompt_text(prompt)
    chinese = len(re.findall(r"[^\x00-\x7f]", text))
    return round((len(text) - chinese) / 4.4 + 2 * chinese)


def server(window: int, words: str) -> Callable[[Prompt], Reply | Failure]:
    """Return a model that rejects prompts beyond its window with `words`."""

    def answer(prompt: Prompt) -> Reply | Failure:
        tokens = count(prompt)
        if tokens <= window:
            return says("taken")
        message = words.format(tokens=tokens, window=window)
        body = json.dumps({"error": {"message": message}}).encode()
        return fails(HERE.refusal_error(400, {}, body))

    return answer


@pytest.mark.parametrize(
    "words",
    [
        "request ({tokens} tokens) exceeds the available context size ({window} tokens)",
        "Prompt exceeds max length",
    ],
)
async def test_a_first_message_that_is_too_long_is_shortened_at_its_middle_and_answered(
    tmp_path: Path, words: str
) -> None:
    channel = FakeChannel()
    model = ScriptedModel(author=server(4096, words))
    text = f"the beginning {CHINESE} the end"
    async with running(
        tmp_path,
        model,
        channel,
        NANOBOT_MODEL__CONTEXT_WINDOW="4096",
        NANOBOT_MODEL__MAX_COMPLETION_TOKENS="256",
    ):
        assert await channel.ask(text) == "taken"
    assert 2 <= len(model.prompts) <= 4
    sent = model.prompts[-1].messages[-1].text
    assert "the beginning" in sent
    assert sent.endswith("the end")
    assert "characters left out here to fit" in sent
    assert read_stored(tmp_path)[0].content == text


async def test_what_cannot_be_shortened_is_not_asked_again(tmp_path: Path) -> None:
    channel = FakeChannel()
    model = ScriptedModel(fails(ContextTooLong("too long", status=400, tokens=90_000, window=512)))
    async with running(tmp_path, model, channel):
        assert "doesn't fit in the model's context window" in await channel.ask("hi")
    assert len(model.prompts) == 1


def long_prompt(words: int) -> Prompt:
    texts = (f"message {n} " + "word " * 200 for n in range(words // 200))
    return Prompt((system_message("You help."), *map(user_message, texts)), Toolset.of(()))


async def test_the_window_that_a_server_names_counts_from_then_on() -> None:
    room = PromptRoom(20_000, TokenCounter())
    prompt = long_prompt(10_000)
    assert await room.fit(prompt) is prompt
    room.learn(
        prompt, ContextTooLong("too long", status=400, tokens=11_000, window=8_192), CallOptions()
    )
    assert (await room.fit(prompt)).tokens <= 0.75 * 8_192


async def test_a_window_that_is_large_enough_changes_nothing() -> None:
    room = PromptRoom(20_000, TokenCounter())
    prompt = long_prompt(10_000)
    room.learn(prompt, ContextTooLong("too long", status=400, window=32_768), CallOptions())
    assert await room.fit(prompt) is prompt


async def test_a_fallback_with_a_smaller_window_leaves_the_chosen_models_alone() -> None:
    counter = TokenCounter()
    room = PromptRoom(20_000, counter)
    prompt = long_prompt(10_000)
    error = ContextTooLong("too long", status=400, tokens=20_000, window=4_096)
    error.of_fallback = True
    room.learn(prompt, error, CallOptions())
    assert await room.fit(prompt) is prompt
    assert counter.ratio == 1.0


@pytest.mark.parametrize("options", [CallOptions(use="jobs"), CallOptions(model="other")])
async def test_what_another_named_model_takes_counts_for_that_one_only(
    options: CallOptions,
) -> None:
    counter = TokenCounter()
    room = PromptRoom(20_000, counter)
    prompt = long_prompt(10_000)
    error = ContextTooLong("too long", status=400, tokens=20_000, window=4_096)
    room.learn(prompt, error, options)
    assert await room.fit(prompt) is prompt
    assert counter.ratio == 1.0
    if options.model:
        assert (await room.fit(prompt, options.model)).tokens <= 0.75 * 4_096


def test_the_servers_count_corrects_the_estimate() -> None:
    counter = TokenCounter()
    prompt = long_prompt(10_000)
    error = ContextTooLong("too long", status=400, tokens=2 * prompt.tokens, window=60_000)
    PromptRoom(20_000, counter).learn(prompt, error, CallOptions())
    assert counter.ratio > 1.1


@given(st.integers(1, 200_000), st.integers(0, 400_000), st.integers(0, 400_000))
def test_the_next_try_is_always_shorter(estimated: int, tokens: int, window: int) -> None:
    assert tokens_to_try(estimated, tokens, window) < estimated


async def test_two_stalls_at_one_message_end_it_with_the_setting(tmp_path: Path) -> None:
    clock = FakeClock()
    channel = FakeChannel(clock=clock)
    stalled = HERE.stall_error(120)
    assert isinstance(stalled, ProviderStalled)
    model = ScriptedModel(fails(stalled), fails(stalled), says("fine now"))
    async with running(tmp_path, model, channel, clock=clock):
        await channel.say("hello")
        await clock.until_sleeping()
        await clock.advance(15)
        assert (await channel.receive(2))[1] == (
            "The model gave no answer: the model server at http://127.0.0.1:9/v1 sent nothing for"
            " 120 seconds. If it needs longer, raise model.timeout_seconds. To try again, send"
            " /retry."
        )
        assert await channel.ask("and now?") == "fine now"


async def test_an_outage_between_two_stalls_begins_the_count_again(tmp_path: Path) -> None:
    clock = FakeClock()
    channel = FakeChannel(clock=clock)
    out, stalled = HERE.unreachable_error("no route"), HERE.stall_error(120)
    model = ScriptedModel(fails(stalled), fails(out), fails(stalled), says("here I am"))
    async with running(tmp_path, model, channel, clock=clock):
        await channel.say("hello")
        for pause in (15, 30, 60):
            await clock.until_sleeping()
            await clock.advance(pause)
        assert (await channel.receive(2))[1] == "here I am"
