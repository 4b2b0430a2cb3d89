"""A structured answer comes in the way that a server supports, and the way is only searched
once."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from nanobot.errors import ProviderRejected
from nanobot.messages import ToolCall
from nanobot.providers.openai import OpenAIProvider
from nanobot.providers.port import CallOptions, Prompt, Reply, Toolset, ToolSpec, user_message
from tests.doubles.openai.answers import Answer, ChatRequest, Raw, Step
from tests.doubles.openai.server import FakeOpenAI

SCHEMA = {"type": "object", "properties": {"entry": {"type": "string"}}, "required": ["entry"]}
SAVE = ToolSpec("save", "Saves.", SCHEMA)
PROMPT = Prompt((user_message("Save this."),), Toolset.of([SAVE]))
SAVED = '{"entry":"tea"}'
CALLED = Answer("", (ToolCall("call_1", "save", SAVED),))
PROSE = Answer("I would save that you like tea.")

Way = Callable[[ChatRequest], Step | str]


def refusing(message: str) -> Raw:
    body = json.dumps({"error": {"message": message, "type": "invalid_request_error"}})
    return Raw(body.encode(), status=400)


def by_name(request: ChatRequest) -> Step | str:
    return CALLED if isinstance(request.body.get("tool_choice"), dict) else PROSE


def only_required(request: ChatRequest) -> Step | str:
    """Treat the object form as "auto", as llama.cpp does (its issue 26535)."""
    return CALLED if request.body.get("tool_choice") == "required" else PROSE


def no_forcing(request: ChatRequest) -> Step | str:
    if "tool_choice" in request.body:
        return refusing("Thinking mode does not support this tool_choice")
    return SAVED if "response_format" in request.body else PROSE


def prose_or_json(request: ChatRequest) -> Step | str:
    """Ignore tools and formats, but follow instructions in the text."""
    if "response_format" in request.body:
        return refusing("response_format is not supported")
    asked = "JSON Schema" in request.last_user_text
    return f"```json\n{SAVED}\n```" if asked else PROSE


def prose_always(request: ChatRequest) -> Step | str:
    return PROSE


@asynccontextmanager
async def asking(way: Way) -> AsyncIterator[tuple[OpenAIProvider, FakeOpenAI]]:
    async with FakeOpenAI(way) as server:
        provider = OpenAIProvider(model="m", base_url=server.base_url, api_key="", max_tokens=0)
        yield provider, server
        await provider.close()


async def save(provider: OpenAIProvider) -> Reply:
    return await provider.complete(PROMPT, CallOptions(tool_choice="save"))


@pytest.mark.parametrize(
    ("way", "tries"),
    [(by_name, 1), (only_required, 2), (no_forcing, 3), (prose_or_json, 4)],
)
async def test_each_way_gives_the_call_and_is_learned(way: Way, tries: int) -> None:
    async with asking(way) as (provider, server):
        for asked in (tries, tries + 1):
            reply = await save(provider)
            (call,) = reply.tool_calls
            assert (call.name, json.loads(call.arguments)) == ("save", json.loads(SAVED))
            assert reply.text == ""
            assert len(server.requests) == asked


async def test_a_model_that_never_gives_one_answers_in_its_own_words() -> None:
    async with asking(prose_always) as (provider, _):
        assert (await save(provider)).text == PROSE.text


async def test_what_the_server_says_of_a_key_is_no_reason_to_ask_in_another_way() -> None:
    def author(_: ChatRequest) -> Step | str:
        return Raw(b'{"error":{"message":"Incorrect API key provided"}}', status=401)

    async with asking(author) as (provider, server):
        with pytest.raises(ProviderRejected, match="401"):
            await save(provider)
        assert len(server.requests) == 1


async def test_an_answer_cut_at_its_limit_is_not_asked_for_in_another_way() -> None:
    cut = Answer("", (ToolCall("call_1", "save", '{"entry":"te'),), finish="length")
    async with asking(lambda _: cut) as (provider, server):
        (call,) = (await save(provider)).tool_calls
        assert (call.arguments, len(server.requests)) == ("{}", 1)
        assert call.malformed.startswith('{"entry":"te')
