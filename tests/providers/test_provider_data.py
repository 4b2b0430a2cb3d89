"""Data that Gemini, DeepSeek and Mistral require in a conversation with tools, with their
refusals."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from nanobot.errors import ProviderRejected
from nanobot.messages import ToolCall
from nanobot.providers.openai import OpenAIProvider
from nanobot.providers.port import (
    CallOptions,
    Prompt,
    Toolset,
    ToolSpec,
    assistant_message,
    tool_message,
    user_message,
)
from tests.doubles.server import Served

TOOLS = Toolset.of([ToolSpec("look", "Looks.", {"type": "object", "properties": {}})])
SIGNED = {"google": {"thought_signature": "c2lnbmVk"}}
Rule = Callable[[list[dict[str, Any]]], str]
"""Returns the fault in the messages of a request, or an empty text."""


def calls_in(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [call for message in messages for call in message.get("tool_calls", [])]


def gemini(messages: list[dict[str, Any]]) -> str:
    signed = all(call.get("extra_content") for call in calls_in(messages))
    return "" if signed else "Function call is missing a thought_signature in functionCall parts."


def deepseek(messages: list[dict[str, Any]]) -> str:
    given = all("reasoning_content" in one for one in messages if one.get("tool_calls"))
    return "" if given else "The `reasoning_content` in the thinking mode must be passed back."


def mistral(messages: list[dict[str, Any]]) -> str:
    ids = [call["id"] for call in calls_in(messages)]
    ids += [one["tool_call_id"] for one in messages if one["role"] == "tool"]
    wrong = [id for id in ids if len(id) != 9 or not id.isalnum()]
    rule = "but must be a-z, A-Z, 0-9, with a length of 9."
    return f"Tool call id was {wrong[0]} {rule}" if wrong else ""


class StrictServer:
    """A server that calls a tool once a turn, and refuses messages that break its rule. In the id
    of its calls `#` is their number. `bodies` are the accepted requests, `refused` the number of
    the others."""

    def __init__(self, rule: Rule, call: Mapping[str, object], thinking: str = "") -> None:
        self._rule, self._call, self.thinking = rule, call, thinking
        self.bodies: list[list[dict[str, Any]]] = []
        self.refused = 0

    async def answer(self, request: web.Request) -> web.Response:
        messages = (await request.json())["messages"]
        if wrong := self._rule(messages):
            self.refused += 1
            body = [{"error": {"code": 400, "message": wrong}}]
            return web.json_response(body, status=400)
        self.bodies.append(messages)
        if messages[-1]["role"] == "tool":
            message: dict[str, object] = {"role": "assistant", "content": "done"}
        else:
            function = {"name": "look", "arguments": "{}"}
            call = {"type": "function", "function": function, "index": 0, **self._call}
            call["id"] = str(call["id"]).replace("#", str(len(self.bodies)))
            message = {"role": "assistant", "content": None, "tool_calls": [call]}
        thinking = {"reasoning_content": self.thinking} if self.thinking else {}
        event = {"choices": [{"index": 0, "delta": message | thinking, "finish_reason": "stop"}]}
        text = f"data: {json.dumps(event)}\n\ndata: [DONE]\n\n"
        return web.Response(text=text, content_type="text/event-stream")


@asynccontextmanager
async def talking_to(server: StrictServer) -> AsyncIterator[OpenAIProvider]:
    app = web.Application()
    app.router.add_post("/v1/chat/completions", server.answer)
    served = await Served.start(app)
    url = f"http://127.0.0.1:{served.port}/v1"
    provider = OpenAIProvider(model="m", base_url=url, api_key="k", max_tokens=0)
    try:
        yield provider
    finally:
        await provider.close()
        await served.stop()


async def turn(provider: OpenAIProvider, before: Prompt) -> Prompt:
    """Run a turn with one tool call and an answer, and return the conversation after it."""
    prompt = before.plus([user_message("look")])
    reply = await provider.complete(prompt, CallOptions())
    (call,) = reply.tool_calls
    asked = assistant_message("", (call,), reply.provider_data)
    prompt = prompt.plus([asked, tool_message(call.id, "seen")])
    reply = await provider.complete(prompt, CallOptions())
    assert reply.text == "done"
    return prompt.plus([assistant_message(reply.text)])


NOTHING = Prompt((), TOOLS)


async def test_a_signature_comes_back_with_its_call_from_the_first_time_on() -> None:
    server = StrictServer(gemini, {"id": "function-call-#", "extra_content": SIGNED})
    async with talking_to(server) as provider:
        await turn(provider, await turn(provider, NOTHING))
    assert server.refused == 0
    assert [call["extra_content"] for call in calls_in(server.bodies[-1])] == [SIGNED, SIGNED]


async def test_a_call_of_another_model_gets_what_stands_for_a_signature() -> None:
    server = StrictServer(gemini, {"id": "function-call-#", "extra_content": SIGNED})
    other = ToolCall("call_of_another", "look", "{}")
    before = NOTHING.plus(
        [user_message("look"), assistant_message("", (other,)), tool_message(other.id, "seen")]
    )
    async with talking_to(server) as provider:
        await turn(provider, before)
        await turn(provider, before)
    assert server.refused == 1, "what a server insists on is learned once"
    first, second = calls_in(server.bodies[-1])
    assert first["extra_content"]["google"]["thought_signature"].startswith("skip_")
    assert second["extra_content"] == SIGNED


async def test_thinking_goes_back_to_a_server_that_reads_it() -> None:
    server = StrictServer(deepseek, {"id": "call_00_abcdefgh#"}, "Let me look.")
    async with talking_to(server) as provider:
        await turn(provider, await turn(provider, NOTHING))
    assert server.refused == 0
    thoughts = [one["reasoning_content"] for one in server.bodies[-1] if one.get("tool_calls")]
    assert thoughts == ["Let me look.", "Let me look."]
    assert not any("reasoning_content" in one for one in server.bodies[-1] if "content" not in one)


async def test_ids_that_a_server_does_not_take_are_made_short_alike_everywhere() -> None:
    server = StrictServer(mistral, {"id": "D681PevK#"})
    other = ToolCall("call_of_another", "look", "{}")
    before = NOTHING.plus(
        [user_message("look"), assistant_message("", (other,)), tool_message(other.id, "seen")]
    )
    async with talking_to(server) as provider:
        await turn(provider, before)
    assert server.refused == 1
    messages = server.bodies[-1]
    ids = [call["id"] for call in calls_in(messages)]
    assert ids == [one["tool_call_id"] for one in messages if one["role"] == "tool"]
    assert ids[1] == "D681PevK1", "its own stay"


@pytest.mark.parametrize("id", ["", "call_0"])
async def test_thoughts_never_get_into_another_conversation(id: str) -> None:
    server = StrictServer(deepseek, {"id": id}, "Ada's secret.")
    async with talking_to(server) as provider:
        ada = NOTHING.plus([user_message("I am Ada")])
        reply = await provider.complete(ada, CallOptions())
        server.thinking, server.bodies = "Bob's secret.", []
        await turn(provider, await turn(provider, NOTHING))
        assert "Ada" not in json.dumps(server.bodies)
        (call,) = reply.tool_calls
        asked = assistant_message("", (call,), reply.provider_data)
        server.bodies = []
        await turn(provider, ada.plus([asked, tool_message(call.id, "seen")]))
    assert "Ada's secret." in json.dumps(server.bodies[0])
    assert "Bob" not in json.dumps(server.bodies[0])


async def test_a_server_that_is_never_content_is_not_asked_for_ever() -> None:
    server = StrictServer(lambda _: "reasoning_content is wrong, whatever it is", {"id": "x"})
    async with talking_to(server) as provider:
        with pytest.raises(ProviderRejected, match="400"):
            await provider.complete(NOTHING.plus([user_message("look")]), CallOptions())
    assert server.refused == 1


def test_valid_messages_are_the_same_bytes_at_openai() -> None:
    call = ToolCall("abc123def", "look", "{ }")
    steered = (user_message("look"), assistant_message("", (call,)), tool_message(call.id, ""))
    prompt = NOTHING.plus([*steered, user_message("and?"), user_message("")])
    provider = OpenAIProvider(
        model="gpt-5-mini", base_url="https://api.openai.com/v1", api_key="k", max_tokens=0
    )
    assert prompt.wire_messages() in provider.body(prompt, CallOptions())
