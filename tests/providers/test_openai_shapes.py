"""The protocol in the shapes of other servers."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from nanobot.errors import ProviderBusy, ProviderError, ProviderGarbage, ProviderUnavailable
from nanobot.providers.openai import OpenAIProvider
from nanobot.providers.port import (
    CallOptions,
    Prompt,
    Reply,
    Toolset,
    ToolSpec,
    Usage,
    assistant_message,
    tool_message,
    user_message,
)
from tests.doubles.openai.answers import Raw
from tests.doubles.openai.server import FakeOpenAI

HELLO = Prompt((user_message("Hello"),), Toolset.of([]))


async def reply_to(body: bytes, prompt: Prompt = HELLO, kind: str = "text/event-stream") -> Reply:
    server = FakeOpenAI([Raw(body, content_type=kind)], validate=False)
    async with server:
        provider = OpenAIProvider(model="m", base_url=server.base_url, api_key="", max_tokens=0)
        try:
            return await provider.complete(prompt, CallOptions())
        finally:
            await provider.close()


def choice(delta: object, finish: str | None = None, **more: object) -> bytes:
    fields = {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **more}
    return json.dumps(fields).encode()


def stream(*deltas: object, finish: str = "stop") -> bytes:
    events = [choice(delta) for delta in deltas] + [choice({}, finish)]
    return b"".join(b"data: " + event + b"\n\n" for event in events) + b"data: [DONE]\n\n"


async def test_a_server_that_ignores_streaming_is_understood() -> None:
    message = {"role": "assistant", "content": "Hi"}
    body = json.dumps({"choices": [{"message": message, "finish_reason": "stop"}]}).encode()
    for kind in ("application/json", "text/event-stream", "text/plain"):
        assert (await reply_to(b"\n \n" + body, kind=kind)).text == "Hi"
    assert (await reply_to(b"data:" + body + b"\n\n")).text == "Hi"


@pytest.mark.parametrize(
    "body",
    [
        stream({"content": "Hi"}).replace(b"\n", b"\r\n"),
        stream({"content": "Hi"}).replace(b"\n", b"\r"),
        stream({"content": "Hi"}).replace(b"data: ", b"data:"),
        stream({"content": "Hi"}).replace(b"data: [DONE]\n\n", b""),
        stream({"content": "Hi"}).rstrip(),
        stream({"content": "Hi"}).replace(b"data: {", b": ping\n\nevent: x\nid: 1\ndata: {"),
        b"\xef\xbb\xbf" + stream({"content": "Hi"}),
        b"data: " + choice({"content": "Hi"}) + b"\n\ndata: [DONE]\n\n",
        stream({"content": [{"type": "thinking", "thinking": []}, {"type": "text", "text": "Hi"}]}),
        stream({"role": "assistant"}, None, {"content": None}, {"content": "Hi"}),
        stream({"refusal": "H"}, {"refusal": "i"}),
        stream({"reasoning": "hm"}, {"reasoning_content": "hm"}, {"content": "Hi"}),
        b'data: {"choices":[{"index":1,"delta":{"content":"no"}}]}\n\n' + stream({"content": "Hi"}),
        b"data: \n\ndata:\n\n" + stream({"content": "Hi"}),
        stream({"content": [{"type": "output_text", "text": "Hi"}]}),
        stream({"content": {"type": "text", "text": "Hi"}}),
        b'data: {"choices":[{"index":0,"text":"Hi","finish_reason":"stop"}]}\n\n',
    ],
)
async def test_liberties_of_streams_are_taken_in_good_part(body: bytes) -> None:
    reply = await reply_to(body)
    assert (reply.text, reply.finish) == ("Hi", "stop")


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"prompt_tokens": 9, "completion_tokens": 2}, Usage(9, 2, 0)),
        ({"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 8}}, Usage(9, 0, 8)),
        ({"prompt_tokens": 9, "prompt_cache_hit_tokens": 7}, Usage(9, 0, 7)),
        ({"prompt_tokens": 9, "prompt_tokens_details": None, "cached_tokens": 6}, Usage(9, 0, 6)),
        ({"prompt_tokens": "many", "completion_tokens": -1, "cached_tokens": True}, Usage()),
        (None, Usage()),
    ],
)
async def test_usage_is_found_wherever_servers_put_it(usage: object, expected: Usage) -> None:
    body = b"data: " + choice({"content": "x"}, "stop", usage=usage) + b"\n\n"
    assert (await reply_to(body)).usage == expected


@pytest.mark.parametrize(
    ("body", "kind", "text"),
    [
        (b'{"error":{"message":"slow down","code":429}}', ProviderBusy, "slow down"),
        (b'data: {"error":{"message":"lost it","code":502}}\n\n', ProviderUnavailable, "lost it"),
        (b'data: {"error":"boom"}\n\n', ProviderGarbage, "boom"),
        (stream({"content": "x"}, finish="error"), ProviderUnavailable, "stopped in the middle"),
        (b"data: {oops}\n\n", ProviderGarbage, "not JSON"),
        (b"data: [DONE]\n\n", ProviderGarbage, "no choices"),
        (b"OK", ProviderGarbage, "not a completion"),
        (b'{"choices":[{"mess', ProviderGarbage, "not JSON"),
        (b"[" * 100_000, ProviderGarbage, "not JSON"),
        (b'{"a":' * 100_000, ProviderGarbage, "not JSON"),
        (b'{"choices":"none"}', ProviderGarbage, "no choices"),
        (b"", ProviderUnavailable, "stopped in the middle"),
    ],
)
async def test_answers_that_are_none_are_errors(
    body: bytes, kind: type[ProviderError], text: str
) -> None:
    with pytest.raises(ProviderError) as caught:
        await reply_to(body)
    assert type(caught.value) is kind
    assert text in str(caught.value)


def call(name: str = "", arguments: object = None, **fields: object) -> dict[str, object]:
    return {"tool_calls": [{**fields, "function": {"name": name, "arguments": arguments}}]}


@pytest.mark.parametrize(
    "deltas",
    [
        (call("f", '{"a"', index=0, id="x"), call("", ":1}", index=0), call("g", index=1, id="y")),
        (call("f", '{"a":1}', id="x"), call("g", "{}", id="y")),
        (call("f", '{"a":1}', index=0, id="x"), call("g", "", index=0, id="y")),
        (call("f", '{"a"', index=0, id="x"), call("f", ":1}", index=0, id="x"), call("g", id="y")),
        (call("f", {"a": 1}, index=0, id="x"), call("g", None, index=1, id="y")),
    ],
)
async def test_calls_are_put_together_however_they_are_numbered(deltas: Sequence[object]) -> None:
    reply = await reply_to(stream(*deltas, finish="tool_calls"))
    assert [one.name for one in reply.tool_calls] == ["f", "g"]
    assert reply.provider_data is not None
    assert reply.provider_data.call_ids == ("x", "y")
    assert [json.loads(one.arguments) for one in reply.tool_calls] == [{"a": 1}, {}]


async def test_calls_without_ids_get_ones_that_every_server_takes_and_that_do_not_vary() -> None:
    body = stream(call("f", "{}"), call("f", "{}"))
    first, again = await reply_to(body), await reply_to(body)
    ids = [one.id for one in first.tool_calls]
    assert len(set(ids)) == 2
    assert all(len(one) == 9 and one.isalnum() for one in ids)
    assert first.tool_calls == again.tool_calls


async def test_an_id_that_a_server_gives_again_and_again_is_ours_each_time_another() -> None:
    body = stream(call("f", "{}", index=0, id="call_0"))
    first = await reply_to(body)
    asked = assistant_message("", first.tool_calls)
    result = tool_message(first.tool_calls[0].id, "done")
    again = await reply_to(body, HELLO.plus([asked, result]))
    assert again.tool_calls[0].id != first.tool_calls[0].id


@pytest.mark.parametrize(
    ("name", "sendable"),
    [("a.b c", "a_b_c"), ("", "unnamed"), ("x" * 80, "x" * 64), ("日", "_")],
)
async def test_names_that_could_not_be_sent_back_are_changed(name: str, sendable: str) -> None:
    reply = await reply_to(stream(call(name, "{}", index=0, id="x")))
    assert reply.tool_calls[0].name == sendable


@pytest.mark.parametrize(
    "finish", ["STOP", "COMPLETE", "end_turn", "eos_token", "stop_sequence", "FINISH_REASON_STOP"]
)
async def test_other_words_for_the_end_are_the_end(finish: str) -> None:
    assert (await reply_to(stream({"content": "Hi"}, finish=finish))).finish == "stop"


@pytest.mark.parametrize(
    "name",
    [
        # Kimi, Gemini, gpt-oss (vllm-project/vllm, public reports), and models that call in Python
        *("functions.look", "functions.look:0", "default_api.look", "default_api:look"),
        *("look<|channel|>commentary", "look<|channel|>json", " look ", "look()"),
    ],
)
async def test_a_tool_is_found_whatever_a_model_puts_around_its_name(name: str) -> None:
    call = {"index": 0, "id": "c1", "function": {"name": name, "arguments": "{}"}}
    tools = Toolset.of([ToolSpec("look", "Look.", {"type": "object"})])
    prompt = Prompt((user_message("Hello"),), tools)
    reply = await reply_to(stream({"tool_calls": [call]}, finish="tool_calls"), prompt)
    assert [one.name for one in reply.tool_calls] == ["look"]


async def test_a_surrogate_pair_split_over_events_is_joined_and_a_stray_half_replaced() -> None:
    reply = await reply_to(stream({"content": "a\ud83d"}, {"content": "\ude00b\ud83d"}))
    assert reply.text == "a\U0001f600b\ufffd"


async def test_a_reply_that_grows_beyond_the_limit_is_given_up() -> None:
    piece = b"data: " + choice({"content": "x" * 1_000_000}) + b"\n\n"
    with pytest.raises(ProviderGarbage, match="more than"):
        await reply_to(piece * 10)
