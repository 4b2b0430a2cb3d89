"""The official SDK as an oracle: both clients make the same request for the same content, and read
the same answer alike."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pytest

from nanobot.messages import ProviderData, ToolCall
from nanobot.providers.anthropic import AnthropicProvider
from nanobot.providers.port import (
    CallOptions,
    Image,
    Prompt,
    Reply,
    Toolset,
    ToolSpec,
    assistant_message,
    system_message,
    tool_message,
    user_message,
)
from tests.doubles.anthropic.rules import HAIKU_4_5, SONNET, ModelRules, sign
from tests.doubles.anthropic.server import (
    Call,
    FakeAnthropic,
    Redacted,
    Says,
    Scripted,
    Thinking,
)

if TYPE_CHECKING:
    import anthropic

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
CACHED: Any = {"cache_control": {"type": "ephemeral"}}
THOUGHT: Mapping[str, Any] = {
    "type": "thinking",
    "thinking": "Läßt sich lesen.",
    "signature": sign(SONNET.name, "Läßt sich lesen."),
}
SOURCE = "{} " + SONNET.name

PROMPT = Prompt(
    (
        system_message("You help."),
        user_message("What is in the file, and in the picture?", (Image("aGk=", "image/png"),)),
        assistant_message(
            "I look. \n",
            (ToolCall("aaaaaaaa1", "read", '{"path": "grüße"}'), ToolCall("b2", "read", "{}")),
        ),
        tool_message("b2", ""),
        tool_message("aaaaaaaa1", "text \U0001f600"),
        user_message("And this?", (Image("aGk=", "image/jpeg"),)),
    ),
    Toolset.of([ToolSpec("read", "Read a file.", SCHEMA)]),
)
MESSAGES: Any = [
    {
        "role": "user",
        "content": [
            {"type": "text", "text": "What is in the file, and in the picture?"},
            {
                "type": "image",
                "source": {"type": "base64", "media_type": "image/png", "data": "aGk="},
                **CACHED,
            },
        ],
    },
    {
        "role": "assistant",
        "content": [
            {"type": "text", "text": "I look."},
            {"type": "tool_use", "id": "aaaaaaaa1", "name": "read", "input": {"path": "grüße"}},
            {"type": "tool_use", "id": "b2", "name": "read", "input": {}},
        ],
    },
    {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "aaaaaaaa1", "content": "text \U0001f600"},
            {"type": "tool_result", "tool_use_id": "b2", "content": ""},
            {"type": "text", "text": "And this?"},
            {
                "type": "image",
                "source": {"type": "base64", "media_type": "image/jpeg", "data": "aGk="},
                **CACHED,
            },
        ],
    },
]
SAME: Any = {
    "model": SONNET.name,
    "max_tokens": 5_000,
    "system": [{"type": "text", "text": "You help.", **CACHED}],
    "tools": [{"name": "read", "description": "Read a file.", "input_schema": SCHEMA}],
    "messages": MESSAGES,
    "stream": True,
}


def prompt_with_thinking(source: str) -> Prompt:
    """Return the prompt with thinking from `source`."""
    content = {"content": [THOUGHT, {"type": "text", "text": PROMPT.messages[2].text}]}
    called = assistant_message(
        PROMPT.messages[2].text, PROMPT.messages[2].tool_calls, ProviderData(source, fields=content)
    )
    return Prompt((*PROMPT.messages[:2], called, *PROMPT.messages[3:]), PROMPT.tools)


def with_thinking() -> Any:
    called = {**MESSAGES[1], "content": [THOUGHT, *MESSAGES[1]["content"]]}
    return [MESSAGES[0], called, MESSAGES[2]]


async def both_ways(
    server: FakeAnthropic, asked: Prompt, options: CallOptions, same: Mapping[str, Any]
) -> None:
    """Ask by our adapter, then by the SDK."""
    import anthropic

    claude = AnthropicProvider(
        model=SONNET.name, base_url=server.base_url, api_key="key", max_tokens=5_000
    )
    await claude.complete(asked, options)
    await claude.close()
    async with anthropic.AsyncAnthropic(
        api_key="key", base_url=server.base_url, max_retries=0
    ) as sdk:
        async for _ in await sdk.messages.create(**same):
            pass


@pytest.mark.parametrize(
    ("options", "same"),
    [
        (CallOptions(), {}),
        (
            CallOptions(effort="medium"),
            {"thinking": {"type": "adaptive"}, "output_config": {"effort": "medium"}},
        ),
        (CallOptions(effort="none"), {"thinking": {"type": "disabled"}}),
        (
            CallOptions(tool_choice="read"),
            {
                "thinking": {"type": "disabled"},
                "tool_choice": {"type": "tool", "name": "read"},
            },
        ),
        (CallOptions(tool_choice="none"), {"tool_choice": {"type": "none"}}),
        (CallOptions(max_tokens=7), {"max_tokens": 7, "thinking": {"type": "disabled"}}),
    ],
)
async def test_a_request_is_the_one_that_the_sdk_makes(
    options: CallOptions, same: Mapping[str, Any]
) -> None:
    async with FakeAnthropic(["Hello.", "Hello."]) as server:
        await both_ways(server, PROMPT, options, {**SAME, **same})
        ours, theirs = server.requests
    assert ours.body == theirs.body
    assert ours.path == theirs.path
    for name in ("anthropic-version", "content-type"):
        assert ours.headers[name] == theirs.headers[name]


async def test_a_request_with_thinking_is_the_one_that_the_sdk_makes() -> None:
    async with FakeAnthropic(["Hello.", "Hello."]) as server:
        asked = prompt_with_thinking(SOURCE.format(f"{server.base_url}/v1"))
        same = {**SAME, "messages": with_thinking(), "thinking": {"type": "adaptive"}}
        options = CallOptions(effort="high")
        await both_ways(server, asked, options, {**same, "output_config": {"effort": "high"}})
        ours, theirs = server.requests
    assert ours.body == theirs.body


def as_the_sdk_has_it(reply: Reply) -> Mapping[str, Any]:
    """Return a reply as both readers see it, without ids, which we make ourselves."""
    given = reply.provider_data.fields["content"] if reply.provider_data else []
    return {
        "text": reply.text,
        "calls": [(call.name, json.loads(call.arguments)) for call in reply.tool_calls],
        "model": reply.model,
        "thinking": [block for block in given if block["type"] != "text"],
        "tokens": (
            reply.usage.prompt - reply.usage.cached - reply.usage.cache_writes,
            reply.usage.cached,
            reply.usage.cache_writes,
            reply.usage.completion,
        ),
    }


def as_we_have_it(message: anthropic.types.Message) -> Mapping[str, Any]:
    """Return the same of the SDK's message."""
    blocks = [block.model_dump(exclude_none=True) for block in message.content]
    usage = message.usage
    return {
        "text": "".join(block["text"] for block in blocks if block["type"] == "text"),
        "calls": [(one["name"], one["input"]) for one in blocks if one["type"] == "tool_use"],
        "model": message.model,
        "thinking": [one for one in blocks if one["type"] in ("thinking", "redacted_thinking")],
        "tokens": (
            usage.input_tokens,
            usage.cache_read_input_tokens,
            usage.cache_creation_input_tokens,
            usage.output_tokens,
        ),
    }


@pytest.mark.parametrize("model", [SONNET, HAIKU_4_5])
@pytest.mark.parametrize(
    "says",
    [
        Says(("Hello, Grüße, \U0001f600 and more.",)),
        Says((Thinking("Let me see. " * 5), "I look.", Call("read", '{"path": "a\\u00fc"}'))),
        Says((Thinking(""), Redacted(), "One. ", "Two.", Call("read"), Call("read", '{"n": 1}'))),
    ],
)
async def test_both_read_the_same_answer_alike(says: Says, model: ModelRules) -> None:
    import anthropic

    script: list[Scripted] = [says, says]
    async with FakeAnthropic(script, model=model, characters=3) as server:
        claude = AnthropicProvider(
            model=model.name, base_url=server.base_url, api_key="key", max_tokens=5_000
        )
        ours = await claude.complete(PROMPT, CallOptions())
        await claude.close()
        async with (
            anthropic.AsyncAnthropic(api_key="key", base_url=server.base_url) as sdk,
            sdk.messages.stream(
                model=model.name, max_tokens=5_000, messages=MESSAGES, tools=SAME["tools"]
            ) as stream,
        ):
            theirs = await stream.get_final_message()
    mine, expected = dict(as_the_sdk_has_it(ours)), dict(as_we_have_it(theirs))
    assert sum(mine.pop("tokens")) > 0
    expected.pop("tokens")  # the second request is another one
    assert mine == expected


async def test_both_count_the_same_tokens() -> None:
    import anthropic

    async with FakeAnthropic(["Hello.", "Hello.", "Hello."]) as server:
        claude = AnthropicProvider(
            model=SONNET.name, base_url=server.base_url, api_key="key", max_tokens=5_000
        )
        await claude.complete(PROMPT, CallOptions())
        ours = await claude.complete(PROMPT, CallOptions())
        await claude.close()
        fields = {name: value for name, value in SAME.items() if name != "stream"}
        async with (
            anthropic.AsyncAnthropic(api_key="key", base_url=server.base_url) as sdk,
            sdk.messages.stream(**fields) as stream,
        ):
            theirs = await stream.get_final_message()
    assert as_the_sdk_has_it(ours)["tokens"] == as_we_have_it(theirs)["tokens"]
