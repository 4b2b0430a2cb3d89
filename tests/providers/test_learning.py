"""Learned facts about a server are used, and wrong ones do not last."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from nanobot.bus.journal_file import SqliteState
from nanobot.clock import SystemClock
from nanobot.errors import ProviderRejected
from nanobot.messages import ToolCall
from nanobot.providers.dialect import Dialect, Dialects
from nanobot.providers.openai import OpenAIProvider
from nanobot.providers.port import (
    CallOptions,
    Prompt,
    RequestSettings,
    Toolset,
    ToolSpec,
    user_message,
)
from tests.doubles.openai.answers import Answer, ChatRequest, Raw, Step
from tests.doubles.openai.server import FakeOpenAI

ASK = CallOptions()
LOOK = ToolSpec("look", "Looks.", {"type": "object", "properties": {}})
HELLO = Prompt((user_message("Hello"),), Toolset.of([LOOK]))
KNOWN = Dialect()


def refusing(message: str) -> Raw:
    return Raw(json.dumps({"error": {"message": message}}).encode(), status=400)


def provider_at(
    server: FakeOpenAI,
    dialects: Dialects,
    *,
    stream: bool = True,
    settings: RequestSettings | None = None,
) -> OpenAIProvider:
    return OpenAIProvider(
        model="m",
        base_url=server.base_url,
        api_key="",
        max_tokens=100,
        stream=stream,
        settings=settings,
        dialects=dialects,
    )


async def test_the_owner_decides_about_streaming_whatever_was_learned_before() -> None:
    dialects = Dialects()
    async with FakeOpenAI([Answer("", (ToolCall("a", "look", "{}"),)), "one", "two"]) as server:
        for stream in (True, False, True):
            provider = provider_at(server, dialects, stream=stream)
            await provider.complete(HELLO, ASK)
            await provider.close()
            assert ("stream" in server.requests[-1].body) is stream


async def test_a_setting_whose_value_is_refused_is_sent_with_another_value() -> None:
    def answer(request: ChatRequest) -> Step | str:
        none = request.body.get("reasoning_effort") == "none"
        return refusing("'reasoning_effort' does not support 'none'") if none else "fine"

    async with FakeOpenAI(answer) as server:
        provider = provider_at(server, Dialects())
        for effort, sent in (("none", ["none", None]), ("none", [None]), ("high", ["high"])):
            before = len(server.requests)
            assert (await provider.complete(HELLO, CallOptions(effort=effort))).text == "fine"
            asked = server.requests[before:]
            assert [one.body.get("reasoning_effort") for one in asked] == sent
        await provider.close()


async def test_what_a_server_no_longer_wants_is_forgotten() -> None:
    names = {"max_tokens", "max_completion_tokens"}
    wanted = {"max_completion_tokens"}

    def answer(request: ChatRequest) -> Step | str:
        wrong = (names - wanted) & request.body.keys()
        return refusing(f"{wrong} is unknown, use {wanted}") if wrong else "fine"

    async with FakeOpenAI(answer) as server:
        provider = provider_at(server, Dialects())

        async def tries() -> int:
            before = len(server.requests)
            assert (await provider.complete(HELLO, ASK)).text == "fine"
            return len(server.requests) - before

        assert [await tries(), await tries()] == [2, 1]
        wanted = {"max_tokens"}
        assert [await tries(), await tries()] == [2, 1]
        await provider.close()


@pytest.mark.parametrize("words", ["The upstream provider does not support images", "Not allowed"])
async def test_a_refusal_of_something_else_changes_nothing(words: str) -> None:
    async with FakeOpenAI(lambda _: refusing(words)) as server:
        provider = provider_at(server, Dialects())
        with pytest.raises(ProviderRejected):
            await provider.complete(HELLO, ASK)
        await provider.close()
        assert len(server.requests) == 1


async def test_a_refusal_without_a_reason_is_not_taken_for_the_servers_way() -> None:
    saved = Answer("", (ToolCall("a", "look", "{}"),))
    dialects = Dialects()
    async with FakeOpenAI([refusing("Bad Request"), "{}", saved]) as server:
        provider = provider_at(server, dialects)
        for _ in range(2):
            reply = await provider.complete(HELLO, CallOptions(tool_choice="look"))
            assert [call.name for call in reply.tool_calls] == ["look"]
        await provider.close()
        assert "tool_choice" in server.requests[-1].body
    assert all(one.dialect.rung == "name" for one in dialects.snapshot().values())


async def test_requests_side_by_side_lose_nothing_that_another_has_learned() -> None:
    dialects = Dialects()
    await dialects.learn("here m", KNOWN, replace(KNOWN, new_limit=True))
    await dialects.learn("here m", KNOWN, replace(KNOWN, native_calls=True))
    assert dialects.of("here m", KNOWN) == replace(KNOWN, new_limit=True, native_calls=True)


async def test_processes_side_by_side_keep_what_the_other_has_learned(tmp_path: Path) -> None:
    with closing(SqliteState(tmp_path)) as one, closing(SqliteState(tmp_path)) as other:
        first, second = Dialects(SystemClock(), one), Dialects(SystemClock(), other)
        await first.learn("a", KNOWN, replace(KNOWN, new_limit=True))
        await second.learn("b", KNOWN, replace(KNOWN, native_calls=True))
        first.load()
        assert first.snapshot().keys() == {"a", "b"}
        await first.replace({"a": None})
        second.load()
        assert second.snapshot().keys() == {"b"}
