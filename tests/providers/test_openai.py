"""Requests of the adapter, and its replies for answers of a well-behaved server."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from nanobot.messages import ToolCall
from nanobot.providers.openai import OpenAIProvider
from nanobot.providers.port import (
    CallOptions,
    Image,
    Prompt,
    Toolset,
    ToolSpec,
    assistant_message,
    system_message,
    tool_message,
    user_message,
)
from tests.doubles.openai.answers import Answer, ChatRequest, Raw, Step
from tests.doubles.openai.server import FakeOpenAI
from tests.providers.transports import provider as provider_at

NOTE = ToolSpec("note", "Write a note.", {"type": "object", "properties": {}})
TOOLS = Toolset.of(
    [ToolSpec("read_file", "Read a file.", {"type": "object", "properties": {}}), NOTE]
)
NO_TOOLS = Toolset.of([])
HELLO = Prompt((system_message("Be kind."), user_message("Hello")), NO_TOOLS)


@asynccontextmanager
async def asking(server: FakeOpenAI, **settings: Any) -> AsyncIterator[OpenAIProvider]:
    settings = {"model": "m-1", "api_key": "sk-test", "max_tokens": 500, **settings}
    async with server:
        provider = provider_at(server.base_url, **settings)
        yield provider
        await provider.close()


async def test_without_a_name_the_model_that_the_server_lists_first_is_asked() -> None:
    server = FakeOpenAI(["one", "two"])
    async with asking(server, model="") as provider:
        reply = await provider.complete(HELLO, CallOptions())
        await provider.complete(HELLO, CallOptions())
    assert reply.model == "fake-model"
    assert [request.path for request in server.requests] == [
        "/v1/models",
        "/v1/chat/completions",
        "/v1/chat/completions",
    ]
    assert server.requests[-1].body["model"] == "fake-model"


async def test_streamed_pieces_join_to_the_reply() -> None:
    pieces: list[str] = []
    async with asking(FakeOpenAI(["Good morning to you and yours."])) as provider:
        reply = await provider.complete(HELLO, CallOptions(), lambda text, _: pieces.append(text))
    assert reply.text == "Good morning to you and yours."
    assert len(pieces) > 1
    assert "".join(pieces) == reply.text
    assert (reply.finish, reply.model, reply.tool_calls) == ("stop", "m-1", ())


async def test_without_streaming_the_reply_is_the_same_and_comes_in_one_piece() -> None:
    pieces: list[str] = []
    server = FakeOpenAI(["Good morning to you and yours."])
    async with asking(server, stream=False) as provider:
        reply = await provider.complete(HELLO, CallOptions(), lambda text, _: pieces.append(text))
    assert pieces == [reply.text] == ["Good morning to you and yours."]
    assert "stream" not in server.requests[0].body


async def test_the_body_says_what_was_asked_with_what_repeats_first() -> None:
    server = FakeOpenAI([Answer("", (ToolCall("c", "note", "{}"),))])
    prompt = Prompt(HELLO.messages, Toolset.of([NOTE]))
    async with asking(server) as provider:
        await provider.complete(prompt, CallOptions(tool_choice="note"))
    (request,) = server.requests
    assert list(request.body) == [
        "model",
        "tools",
        "messages",
        "tool_choice",
        "max_tokens",
        "stream",
        "stream_options",
        "return_progress",
    ]
    assert prompt.tools.wire in request.raw
    assert prompt.wire_messages() in request.raw
    assert request.body["tool_choice"] == {"type": "function", "function": {"name": "note"}}
    assert request.body["max_tokens"] == 500
    assert request.path == "/v1/chat/completions"
    assert request.headers["authorization"] == "Bearer sk-test"
    assert request.headers["content-type"] == "application/json"


async def test_options_override_model_and_length() -> None:
    server = FakeOpenAI(["x"])
    async with asking(server) as provider:
        reply = await provider.complete(HELLO, CallOptions(model="m-2", max_tokens=7))
    assert server.requests[0].model == reply.model == "m-2"
    assert server.requests[0].body["max_tokens"] == 7


@pytest.mark.parametrize(
    ("base_url", "field"),
    [
        ("https://api.openai.com/v1", "max_completion_tokens"),
        ("https://eu.api.openai.com/v1", "max_completion_tokens"),
        ("https://api.openai.com.example.org/v1", "max_tokens"),
        ("http://localhost:11434/v1", "max_tokens"),
    ],
)
def test_only_openai_itself_gets_max_completion_tokens(base_url: str, field: str) -> None:
    provider = OpenAIProvider(model="m", base_url=base_url, api_key="", max_tokens=9)
    limits = {"max_tokens", "max_completion_tokens"}
    assert limits & set(json.loads(provider.body(HELLO, CallOptions()))) == {field}


async def test_a_whole_conversation_with_tools_and_images_is_accepted() -> None:
    call = ToolCall("call_1", "read_file", '{"path": "a.txt"}')
    prompt = Prompt(
        (
            *HELLO.messages,
            assistant_message("", (call,)),
            tool_message("call_1", "contents"),
            assistant_message("Here."),
            user_message("And this?", (Image("aGk=", "image/png"),)),
        ),
        TOOLS,
    )
    server = FakeOpenAI(["A picture."])
    async with asking(server) as provider:
        reply = await provider.complete(prompt, CallOptions())
    assert reply.text == "A picture."
    assert server.requests[0].messages[-1]["content"] == [
        {"type": "text", "text": "And this?"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}},
    ]


@pytest.mark.parametrize("stream", [True, False])
async def test_tool_calls_keep_the_text_of_their_arguments(stream: bool) -> None:
    wanted = (
        ToolCall("call_a", "read_file", '{ "path":\t"a long enough name.txt" }'),
        ToolCall("call_b", "note", '{"text":"\\u00e9\\ud83d\\ude00"}'),
    )
    server = FakeOpenAI([Answer("Let me look.", wanted)])
    async with asking(server, stream=stream) as provider:
        reply = await provider.complete(Prompt(HELLO.messages, TOOLS), CallOptions())
    given = [(call.name, call.arguments) for call in reply.tool_calls]
    assert given == [(call.name, call.arguments) for call in wanted]
    assert (reply.text, reply.finish) == ("Let me look.", "tool_calls")


@pytest.mark.parametrize("stream", [True, False])
async def test_usage_counts_cached_tokens_of_a_repeated_prompt(stream: bool) -> None:
    long = Prompt((system_message("word " * 1000), user_message("Hello")), NO_TOOLS)
    async with asking(FakeOpenAI(["one", "two"]), stream=stream) as provider:
        first = await provider.complete(long, CallOptions())
        second = await provider.complete(long, CallOptions())
    assert first.usage.prompt > 1000
    assert first.usage.completion > 0
    assert first.usage.cached == 0
    assert second.usage.prompt - 128 <= second.usage.cached <= second.usage.prompt


@pytest.mark.parametrize("stream", [True, False])
async def test_reasoning_stays_out_of_reply_and_stream(stream: bool) -> None:
    pieces: list[str] = []
    answers = [
        Answer("Forty-two.", reasoning="Six times seven, carry nothing."),
        Answer("<think>\nSix times seven.\n</think>\n\nForty-two."),
    ]
    async with asking(FakeOpenAI(answers, characters=3), stream=stream) as provider:
        for _ in answers:
            reply = await provider.complete(HELLO, CallOptions(), lambda t, _: pieces.append(t))
            assert reply.text == "Forty-two."
    assert "".join(pieces) == "Forty-two." * 2


async def test_half_a_character_in_a_prompt_is_replaced_as_strict_servers_refuse_it() -> None:
    server = FakeOpenAI(["fine"])
    prompt = Prompt((user_message("broken \ud83d emoji"),), NO_TOOLS)
    async with asking(server) as provider:
        assert (await provider.complete(prompt, CallOptions())).text == "fine"
    assert server.requests[0].last_user_text == "broken \ufffd emoji"


async def test_many_calls_run_at_once_over_kept_connections() -> None:
    async with asking(FakeOpenAI()) as provider:
        prompts = [Prompt((user_message(f"number {n}"),), NO_TOOLS) for n in range(20)]
        replies = await asyncio.gather(*(provider.complete(p, CallOptions()) for p in prompts))
    assert [reply.text for reply in replies] == [f"number {n}" for n in range(20)]


@pytest.mark.parametrize(
    ("body", "status", "gone", "there"),
    [
        (
            b'{"error":{"message":"Unsupported parameter: max_tokens. Use max_completion_tokens"}}',
            400,
            "max_tokens",
            "max_completion_tokens",
        ),
        (
            b'{"detail":[{"loc":["body","stream_options"],"msg":"Extra inputs not permitted"}]}',
            422,
            "stream_options",
            "stream",
        ),
        (b'{"error":"streaming is not supported by this model"}', 400, "stream", "max_tokens"),
    ],
)
async def test_a_field_that_a_server_refuses_is_left_out_from_then_on(
    body: bytes, status: int, gone: str, there: str
) -> None:
    server = FakeOpenAI([Raw(body, status=status), "one", "two"], validate=False)
    async with asking(server) as provider:
        assert (await provider.complete(HELLO, CallOptions())).text == "one"
        assert (await provider.complete(HELLO, CallOptions())).text == "two"
    assert [gone in request.body for request in server.requests] == [True, False, False]
    assert there in server.requests[-1].body


async def test_a_server_that_refuses_stream_options_is_asked_without_from_then_on() -> None:
    refusal = Raw(b'{"error":{"message":"Unrecognized field: stream_options"}}', status=400)
    server = FakeOpenAI([refusal, "one", "two"])
    async with asking(server) as provider:
        assert (await provider.complete(HELLO, CallOptions())).text == "one"
        assert (await provider.complete(HELLO, CallOptions())).text == "two"
    assert ["stream_options" in request.body for request in server.requests] == [True, False, False]


async def test_calls_that_meet_that_refusal_at_once_are_all_asked_again() -> None:
    def author(request: ChatRequest) -> Step | str:
        refused = b'{"error":{"message":"Unrecognized field: stream_options"}}'
        return Raw(refused, status=400) if "stream_options" in request.body else "fine"

    async with asking(FakeOpenAI(author)) as provider:
        replies = await asyncio.gather(*(provider.complete(HELLO, CallOptions()) for _ in range(4)))
    assert [reply.text for reply in replies] == ["fine"] * 4


async def test_a_provider_can_be_used_again_after_close() -> None:
    async with asking(FakeOpenAI(["one", "two"])) as provider:
        await provider.complete(HELLO, CallOptions())
        await provider.close()
        assert (await provider.complete(HELLO, CallOptions())).text == "two"


async def test_environment_variables_of_the_package_send_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_ORG_ID", "org-secret")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "proj-secret")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-other")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    server = FakeOpenAI(["x"])
    async with asking(server, api_key="") as provider:
        await provider.complete(HELLO, CallOptions())
    assert not {"org-secret", "proj-secret", "Bearer sk-other"} & set(
        server.requests[0].headers.values()
    )


def test_the_key_is_in_no_repr() -> None:
    provider = OpenAIProvider(
        model="m", base_url="http://me:sk-secret@h/v1", api_key="sk-secret", max_tokens=1
    )
    assert "sk-secret" not in repr(provider)


async def test_a_call_does_not_load_the_sdk() -> None:
    code = (
        "import asyncio, sys\n"
        "from nanobot.providers.openai import OpenAIProvider\n"
        "from nanobot.providers.port import CallOptions, Prompt, Toolset, user_message\n"
        "async def ask():\n"
        "    model = OpenAIProvider(model='m', base_url=sys.argv[1], api_key='', max_tokens=9)\n"
        "    hello = Prompt((user_message('Hello'),), Toolset.of([]))\n"
        "    print((await model.complete(hello, CallOptions())).text)\n"
        "    await model.close()\n"
        "asyncio.run(ask())\n"
        "print({'openai', 'httpx2', 'httpx'} & set(sys.modules))\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    async with FakeOpenAI(["fine"]) as server:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", code, server.base_url, stdout=subprocess.PIPE, env=environment
        )
        output, _ = await process.communicate()
    assert output == b"fine\nset()\n"
