"""The Messages API, against a server as strict as the real one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace as with_rules
from typing import Any

import pytest
from msgspec import convert, to_builtins
from msgspec.structs import replace

from nanobot.errors import (
    ContextTooLong,
    ProviderBusy,
    ProviderGarbage,
    ProviderRejected,
    ProviderUnavailable,
)
from nanobot.messages import ProviderData, ToolCall
from nanobot.providers.anthropic import AnthropicProvider
from nanobot.providers.port import (
    CallOptions,
    Image,
    Prompt,
    PromptMessage,
    Reply,
    RequestSettings,
    Toolset,
    ToolSpec,
    Usage,
    assistant_message,
    system_message,
    tool_message,
    user_message,
)
from tests.doubles.anthropic.rules import (
    HAIKU_4_5,
    OPUS_4_8,
    OPUS_5_5,
    SONNET,
    SONNET_5_5,
    ModelRules,
)
from tests.doubles.anthropic.server import Call, FakeAnthropic, Redacted, Says, Scripted, Thinking
from tests.doubles.openai.answers import Raw

TOOLS = Toolset.of(
    [
        ToolSpec("read", "Read a file.", {"type": "object", "properties": {"path": {}}}),
        ToolSpec("write", "", {"type": "object", "anyOf": [{"required": ["path"]}]}),
    ]
)
ASK = CallOptions()


def prompt(*messages: PromptMessage, tools: Toolset = TOOLS) -> Prompt:
    return Prompt((system_message("You help."), *messages), tools)


def provider(server: FakeAnthropic, model: ModelRules = SONNET, **given: Any) -> AnthropicProvider:
    options: dict[str, Any] = {"model": model.name, "base_url": server.base_url}
    options |= {"api_key": "key", "max_tokens": 0}
    return AnthropicProvider(**(options | given))


async def ask(
    server: FakeAnthropic, asked: Prompt, options: CallOptions = ASK, **given: Any
) -> Reply:
    claude = provider(server, **given)
    try:
        return await claude.complete(asked, options)
    finally:
        await claude.close()


def as_message(reply: Reply) -> PromptMessage:
    return assistant_message(reply.text, reply.tool_calls, reply.provider_data)


def body(server: FakeAnthropic, number: int = -1) -> Mapping[str, Any]:
    return server.requests[number].body


HELLO = prompt(user_message("Hello"))


async def test_text_streams_and_usage_counts_the_cache() -> None:
    pieces: list[str] = []
    async with FakeAnthropic(["Hello there, and welcome."]) as server:
        claude = provider(server)
        reply = await claude.complete(HELLO, ASK, lambda text, _: pieces.append(text))
        await claude.close()
        counted = server.counted[0]
    assert "".join(pieces) == reply.text == "Hello there, and welcome."
    assert len(pieces) > 1
    assert reply.finish == "stop"
    assert reply.model == SONNET.name
    assert reply.usage == Usage(counted.total, 25, counted.read, counted.written)


@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/"])
async def test_an_address_may_end_in_v1_or_not(suffix: str) -> None:
    async with FakeAnthropic(["Hello."]) as server:
        reply = await ask(server, HELLO, base_url=server.base_url + suffix)
    assert reply.text == "Hello."


@pytest.mark.parametrize("wire_bytes", [1, 7, 0])
async def test_calls_get_ids_of_ours_and_their_results_go_back(wire_bytes: int) -> None:
    script: list[Scripted] = [
        Says(("I look. ", Call("read", '{"path": "a"}'), Call("read", '{"path": "b"}'))),
        "Done.",
    ]
    async with FakeAnthropic(script, wire_bytes=wire_bytes) as server:
        first = await ask(server, HELLO)
        one, two = first.tool_calls
        results = (tool_message(two.id, "B"), tool_message(one.id, "A"))
        second = await ask(server, HELLO.plus((as_message(first), *results)))
        sent = body(server)["messages"]
    assert [(call.name, call.arguments) for call in first.tool_calls] == [
        ("read", '{"path": "a"}'),
        ("read", '{"path": "b"}'),
    ]
    assert first.finish == "tool_calls"
    assert second.text == "Done."
    assert [len(call.id) for call in first.tool_calls] == [9, 9]
    assert one.id != two.id
    assert [block["tool_use_id"] for block in sent[2]["content"]] == [one.id, two.id]
    assert [block["content"] for block in sent[2]["content"]] == ["A", "B"]
    assert [block["type"] for block in sent[1]["content"]] == ["text", "tool_use", "tool_use"]


async def test_a_call_without_input_has_an_empty_object() -> None:
    async with FakeAnthropic([Says((Call("read", ""),))]) as server:
        reply = await ask(server, HELLO)
    assert (reply.tool_calls[0].arguments, reply.tool_calls[0].malformed) == ("{}", "")


async def test_input_that_was_cut_is_kept_as_malformed() -> None:
    says = Says((Call("read", '{"path": "a'),), stop="max_tokens")
    async with FakeAnthropic([says]) as server:
        reply = await ask(server, HELLO)
    call = reply.tool_calls[0]
    assert call.arguments == "{}"
    assert call.malformed.startswith('{"path": "a')
    assert reply.finish == "length"


@pytest.mark.parametrize(
    ("stop", "finish"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("pause_turn", "stop"),
        ("max_tokens", "length"),
        ("refusal", "content_filter"),
        ("model_context_window_exceeded", "length"),
    ],
)
async def test_each_stop_reason_is_a_finish_reason(stop: str, finish: str) -> None:
    async with FakeAnthropic([Says(("Some text",), stop=stop)]) as server:
        assert (await ask(server, HELLO)).finish == finish


async def test_a_window_that_leaves_no_room_for_an_answer_means_too_long() -> None:
    async with FakeAnthropic([Says((), stop="model_context_window_exceeded")]) as server:
        with pytest.raises(ContextTooLong):
            await ask(server, HELLO)


async def test_a_prompt_over_the_window_is_too_long() -> None:
    async with FakeAnthropic(["no"], model=with_rules(SONNET, window=50)) as server:
        with pytest.raises(ContextTooLong, match="too long"):
            await ask(server, HELLO)


# thinking


async def test_thinking_goes_back_signed_with_the_calls_it_led_to() -> None:
    script: list[Scripted] = [
        Says((Thinking("Let me see…"), Redacted(), "I look.", Call("read"))),
        Says((Thinking("So that is it."), "Done.")),
    ]
    async with FakeAnthropic(script) as server:
        first = await ask(server, HELLO)
        result = tool_message(first.tool_calls[0].id, "text")
        second = await ask(server, HELLO.plus((as_message(first), result)))
        sent = body(server)["messages"][1]["content"]
    assert first.thought
    assert second.text == "Done."
    assert [block["type"] for block in sent] == [
        "thinking",
        "redacted_thinking",
        "text",
        "tool_use",
    ]
    assert sent[0]["thinking"] == "Let me see…"


async def test_a_turn_that_a_crash_interrupted_goes_on_with_its_thinking() -> None:
    script: list[Scripted] = [Says((Thinking("Hm."), Call("read"))), "Done."]
    model = with_rules(HAIKU_4_5, minimum=1_024)
    high = CallOptions(effort="high")
    async with FakeAnthropic(script, model=model) as server:
        first = await ask(server, HELLO, high, model=model)
        # as the journal of a turn keeps it
        data = convert(json.loads(json.dumps(to_builtins(first.provider_data))), ProviderData)
        result = tool_message(first.tool_calls[0].id, "text")
        resumed = assistant_message(first.text, first.tool_calls, data)
        second = await ask(server, HELLO.plus((resumed, result)), high, model=model)
        sent = body(server)
    assert second.text == "Done."
    assert sent["thinking"]["type"] == "enabled"
    assert sent["messages"][1]["content"][0]["thinking"] == "Hm."


async def test_thinking_of_another_model_stays_here_and_the_turn_goes_on() -> None:
    async with FakeAnthropic([Says((Thinking("Hm."), Call("read")))]) as server:
        first = await ask(server, HELLO)
    going_on = HELLO.plus((as_message(first), tool_message(first.tool_calls[0].id, "text")))
    for model in (HAIKU_4_5, OPUS_4_8, OPUS_5_5, SONNET_5_5):
        async with FakeAnthropic(["Done."], model=model) as other:
            reply = await ask(other, going_on, CallOptions(effort="low"), model=model)
            assert "Hm." not in other.requests[-1].raw.decode()
        assert reply.text == "Done."


@pytest.mark.parametrize("model", [SONNET, OPUS_5_5])
async def test_thinking_that_the_server_no_longer_takes_is_left_out(model: ModelRules) -> None:
    script: list[Scripted] = [Says((Thinking("Hm."), Call("read"))), "Done."]
    async with FakeAnthropic(script, model=model) as server:
        first = await ask(server, HELLO, model=model)
        assert first.provider_data is not None
        stale = replace(
            first.provider_data,
            fields={"content": [{"type": "thinking", "thinking": "Hm.", "signature": "old"}]},
        )
        going_on = HELLO.plus(
            (
                assistant_message("", first.tool_calls, stale),
                tool_message(first.tool_calls[0].id, "text"),
            )
        )
        reply = await ask(server, going_on, model=model)
        assert "signature" in server.refused[0].message
    assert reply.text == "Done."


async def test_a_budget_goes_on_through_a_turn_whose_later_steps_did_not_think() -> None:
    script: list[Scripted] = [
        Says((Thinking("Hm."), Call("read"))),
        Says((Call("read"),)),
        "Done.",
    ]
    async with FakeAnthropic(script, model=HAIKU_4_5) as server:
        asked, reply = HELLO, Reply("")
        for _ in range(3):
            reply = await ask(server, asked, CallOptions(effort="low"), model=HAIKU_4_5)
            results = [tool_message(call.id, "text") for call in reply.tool_calls]
            asked = asked.plus((as_message(reply), *results))
            assert body(server)["thinking"]["type"] == "enabled"
    assert reply.text == "Done."


@pytest.mark.parametrize("model", [OPUS_5_5, SONNET_5_5])
async def test_thinking_bound_to_what_has_changed_is_refused_once_and_then_left_out(
    model: ModelRules,
) -> None:
    script: list[Scripted] = [
        Says((Thinking("Hm."), Call("read"))),
        Says((Thinking("And so."), Call("read"))),
        Says((Thinking("At last."), Call("read"))),
        "Done.",
    ]
    async with FakeAnthropic(script, model=model) as server:
        claude = provider(server, model)

        async def step(asked: Prompt) -> Prompt:
            reply = await claude.complete(asked, ASK)
            results = [tool_message(call.id, "text") for call in reply.tool_calls]
            return asked.plus((as_message(reply), *results))

        asked = await step(await step(HELLO))
        assert not server.refused
        changed = Prompt((system_message("It is Tuesday."), *asked.messages[1:]), TOOLS)
        answered = await step(await step(changed))
        await claude.close()
        assert len(server.refused) == 1
        assert answered.messages[-1].text == "Done."
        sent = server.requests[-1].raw.decode()
    assert "At last." in sent
    assert "Hm." not in sent


@pytest.mark.parametrize("effort", ["low", "medium", "high"])
async def test_effort_is_asked_for_in_the_form_that_the_model_takes(effort: str) -> None:
    asked = CallOptions(effort=effort)
    for model in (SONNET, OPUS_4_8, OPUS_5_5, SONNET_5_5):
        async with FakeAnthropic(["Hello."], model=model) as server:
            await ask(server, HELLO, asked, model=model)
            assert not server.refused
            assert body(server)["thinking"] == {"type": "adaptive"}
            assert body(server)["output_config"] == {"effort": effort}


async def test_a_model_that_takes_a_budget_is_refused_once_and_then_asked_so() -> None:
    async with FakeAnthropic(["Hello.", "Hello."], model=HAIKU_4_5) as server:
        claude = provider(server, HAIKU_4_5, settings=RequestSettings(effort="medium"))
        for _ in range(2):
            await claude.complete(HELLO, ASK)
        await claude.close()
        assert len(server.refused) == 1
        sent = body(server)
    assert sent["thinking"] == {"type": "enabled", "budget_tokens": 8_192}
    assert sent["max_tokens"] > 8_192
    assert "output_config" not in sent


async def test_without_an_effort_nothing_is_said_about_thinking() -> None:
    async with FakeAnthropic(["Hello."]) as server:
        await ask(server, HELLO)
        sent = body(server)
    assert not {"thinking", "output_config", "temperature"} & sent.keys()


async def test_no_effort_switches_thinking_off_and_a_model_that_cannot_is_asked_for_little() -> (
    None
):
    none = CallOptions(effort="none")
    async with FakeAnthropic(["Hello."]) as server:
        await ask(server, HELLO, none)
        assert body(server)["thinking"] == {"type": "disabled"}
    async with FakeAnthropic(["Hello."], model=OPUS_5_5) as server:
        reply = await ask(server, HELLO, none, model=OPUS_5_5)
        assert body(server)["output_config"] == {"effort": "low"}
    assert reply.text == "Hello."
    async with FakeAnthropic(["Hello."], model=SONNET_5_5) as server:
        await ask(server, HELLO, none, model=SONNET_5_5)
        assert body(server)["thinking"] == {"type": "between_tools"}


@pytest.mark.parametrize("effort", ["", "high"])
async def test_a_short_answer_leaves_no_room_for_thinking(effort: str) -> None:
    async with FakeAnthropic(["A title"]) as server:
        await ask(server, HELLO, CallOptions(max_tokens=60, effort=effort))
        assert body(server)["thinking"] == {"type": "disabled"}
        assert body(server)["max_tokens"] == 60


@pytest.mark.parametrize("model", [SONNET, OPUS_4_8, HAIKU_4_5, OPUS_5_5, SONNET_5_5])
async def test_a_tool_is_forced_without_thinking_if_the_model_can_be_forced(
    model: ModelRules,
) -> None:
    async with FakeAnthropic([Says((Call("read"),))], model=model) as server:
        asked = CallOptions(tool_choice="read", effort="high")
        reply = await ask(server, HELLO, asked, model=model)
        sent = body(server)
    assert reply.tool_calls[0].name == "read"
    if model.forced:
        assert sent["tool_choice"] == {"type": "tool", "name": "read"}
        assert sent["thinking"] == {"type": "disabled"}
    else:
        assert "tool_choice" not in sent


async def test_text_only_keeps_the_tools_in_the_prompt() -> None:
    async with FakeAnthropic(["Hello."]) as server:
        await ask(server, HELLO, CallOptions(tool_choice="none"))
        assert body(server)["tool_choice"] == {"type": "none"}
        assert len(body(server)["tools"]) == 2


async def test_thinking_switched_off_in_the_middle_of_a_turn_leaves_earlier_thinking_out() -> None:
    script: list[Scripted] = [Says((Thinking("Hm."), Call("read"))), "Done."]
    async with FakeAnthropic(script) as server:
        first = await ask(server, HELLO)
        result = tool_message(first.tool_calls[0].id, "text")
        asked = HELLO.plus((as_message(first), result))
        reply = await ask(server, asked, CallOptions(effort="none"))
        assert not server.refused
    assert reply.text == "Done."


# the owner's settings


async def test_the_owners_fields_and_headers_win() -> None:
    own = RequestSettings(
        extra_body={"metadata": {"user_id": "u"}, "max_tokens": 99},
        headers={"anthropic-beta": "x", "anthropic-version": "2023-06-01"},
    )
    async with FakeAnthropic(["Hello."]) as server:
        await ask(server, HELLO, settings=own)
        request = server.requests[-1]
    assert request.body["metadata"] == {"user_id": "u"}
    assert request.body["max_tokens"] == 99
    assert request.headers["anthropic-beta"] == "x"
    assert request.headers["anthropic-version"] == "2023-06-01"


async def test_a_temperature_is_sent_by_the_version_that_has_one_and_never_with_thinking() -> None:
    own = RequestSettings(temperature=0.3)
    async with FakeAnthropic(["Hello.", "Hello."], model=OPUS_4_8) as server:
        await ask(server, HELLO, settings=own, model=OPUS_4_8)
        assert body(server)["temperature"] == 0.3
        await ask(server, HELLO, CallOptions(effort="high"), settings=own, model=OPUS_4_8)
        assert "temperature" not in body(server)
        assert not server.refused
    async with FakeAnthropic(["Hello."]) as server:  # it thinks without being asked
        assert (await ask(server, HELLO, settings=own)).text == "Hello."
        assert "temperature" not in body(server)


# pictures


async def test_pictures_follow_the_results_in_the_same_message() -> None:
    picture = Image("aGk=", "image/png")
    asked = HELLO.plus(
        (
            assistant_message("", (ToolCall("abc123def", "read", "{}"),)),
            tool_message("abc123def", "here it is"),
            user_message("The picture:", (picture, Image("aGk=", "image/bmp"))),
        )
    )
    async with FakeAnthropic(["I see."]) as server:
        await ask(server, asked)
        content = body(server)["messages"][-1]["content"]
    assert [block["type"] for block in content] == ["tool_result", "text", "image", "text"]
    assert content[2]["source"] == {"type": "base64", "media_type": "image/png", "data": "aGk="}
    assert "image/bmp" in content[3]["text"]


# the form of a conversation


async def test_odd_conversations_get_the_form_that_the_api_wants() -> None:
    call = ToolCall("abc123def", "read", "{}")
    content = {"content": [{"type": "thinking", "thinking": "Hm.", "signature": "s"}]}
    odd = prompt(
        assistant_message("It is time. "),
        assistant_message("", (call,), ProviderData("elsewhere", fields=content)),
        user_message("Wait"),
        user_message(""),
        tool_message("no-such-call", "nothing"),
        assistant_message("\n"),
        assistant_message("Yes?"),
    )
    async with FakeAnthropic(["Hello."]) as server:
        await ask(server, odd)
        sent = body(server)["messages"]
    assert [(one["role"], [block["type"] for block in one["content"]]) for one in sent] == [
        ("user", ["text"]),
        ("assistant", ["text", "tool_use"]),
        ("user", ["tool_result", "text", "text"]),
        ("assistant", ["text"]),
        ("user", ["text"]),
    ]
    assert sent[1]["content"][0]["text"] == "It is time."
    assert sent[2]["content"][0]["is_error"]
    assert [block["text"] for block in sent[2]["content"][1:]] == ["Wait", "(no text)"]


async def test_what_joins_another_message_of_the_models_goes_without_its_thinking() -> None:
    async with FakeAnthropic([Says((Thinking("Hm."), Call("read"))), "Done."]) as server:
        first = await ask(server, HELLO)
        result = tool_message(first.tool_calls[0].id, "text")
        asked = HELLO.plus((assistant_message("A reminder."), as_message(first), result))
        assert (await ask(server, asked)).text == "Done."
        kinds = [block["type"] for block in body(server)["messages"][1]["content"]]
    assert kinds == ["text", "tool_use"]
    assert not server.refused


async def test_a_history_of_calls_without_tools_names_the_tools() -> None:
    call = ToolCall("abc123def", "read", "{}")
    messages = (assistant_message("", (call,)), tool_message("abc123def", "text"))
    asked = prompt(user_message("Hello"), *messages, tools=Toolset.of([]))
    async with FakeAnthropic(["Hello."]) as server:
        await ask(server, asked)
        assert [tool["name"] for tool in body(server)["tools"]] == ["read"]
        assert body(server)["tool_choice"] == {"type": "none"}


# Failures


def error(kind: str, message: str, status: int, **headers: str) -> Raw:
    fields = {"type": "error", "error": {"type": kind, "message": message}}
    return Raw(json.dumps(fields).encode(), status, headers=headers)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (error("overloaded_error", "Overloaded", 529), ProviderUnavailable),
        (error("api_error", "Internal server error", 500), ProviderUnavailable),
        (error("rate_limit_error", "too many", 429, **{"retry-after": "7"}), ProviderBusy),
        (error("request_too_large", "Request exceeds the maximum size", 413), ContextTooLong),
        (error("permission_error", "not this model", 403), ProviderRejected),
        (error("not_found_error", "model: no-such", 404), ProviderRejected),
        (Raw(b"<html>", 200, "text/html"), ProviderGarbage),
        (Raw(b"", 200), ProviderUnavailable),
        (Raw(b'{"type": "other"}', 200), ProviderGarbage),
    ],
)
async def test_each_error_is_the_decision_it_calls_for(answer: Raw, expected: type) -> None:
    async with FakeAnthropic([answer]) as server:
        with pytest.raises(expected) as caught:
            await ask(server, HELLO)
    assert type(caught.value) is expected
    if isinstance(caught.value, ProviderBusy):
        assert caught.value.retry_after == 7.0


async def test_a_wrong_key_says_where_to_look() -> None:
    async with FakeAnthropic(["no"]) as server:
        with pytest.raises(ProviderRejected) as caught:
            await ask(server, HELLO, api_key="wrong-key-123")
    assert caught.value.status == 401
    assert "api_key" in caught.value.hint
    assert "wrong-key-123" not in str(caught.value)


def stream(*events: Mapping[str, object]) -> Raw:
    frames = (f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in events)
    return Raw("".join(frames).encode(), 200, "text/event-stream")


START = {"type": "message_start", "message": {"model": "m", "usage": {"input_tokens": 3}}}
TEXT = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}


def delta(text: str) -> Mapping[str, object]:
    fields = {"type": "text_delta", "text": text}
    return {"type": "content_block_delta", "index": 0, "delta": fields}


STOP = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {}}


async def test_an_error_inside_the_stream_is_an_outage() -> None:
    failed = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    async with FakeAnthropic([stream(START, TEXT, delta("Hel"), failed)]) as server:
        with pytest.raises(ProviderUnavailable):
            await ask(server, HELLO)


async def test_a_stream_that_ends_early_is_an_outage_and_one_that_lacks_its_last_event_is_not() -> (
    None
):
    async with FakeAnthropic([stream(START, TEXT, delta("Hel")), stream(START, TEXT, STOP)]) as one:
        with pytest.raises(ProviderUnavailable):
            await ask(one, HELLO)
        assert (await ask(one, HELLO)).finish == "stop"


async def test_events_and_blocks_of_unknown_kinds_are_skipped() -> None:
    unknown = {"type": "content_block_start", "index": 1, "content_block": {"type": "new", "x": 1}}
    events = (
        START,
        {"type": "new_event", "data": [1]},
        TEXT,
        {"type": "content_block_delta", "index": 0, "delta": {"type": "new_delta", "n": 2}},
        {"type": "content_block_delta", "index": 9, "delta": {"type": "text_delta", "text": "x"}},
        delta("Hello."),
        unknown,
        STOP,
        {"type": "message_stop"},
    )
    async with FakeAnthropic([stream(*events)]) as server:
        reply = await ask(server, HELLO)
    assert (reply.text, reply.provider_data) == ("Hello.", None)


async def test_an_answer_that_is_one_object_is_read_as_well() -> None:
    whole = {
        "type": "message",
        "model": "m",
        "content": [
            {"type": "text", "text": "Hello."},
            {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {"path": "a"}},
        ],
        "stop_reason": "tool_use",
        "usage": {"input_tokens": 3, "output_tokens": 4},
    }
    async with FakeAnthropic([Raw(json.dumps(whole).encode())]) as server:
        reply = await ask(server, HELLO)
    assert reply.text == "Hello."
    assert json.loads(reply.tool_calls[0].arguments) == {"path": "a"}
    assert reply.usage == Usage(3, 4)


async def test_silence_is_an_outage_but_a_long_prompt_has_its_own_patience() -> None:
    released = asyncio.Event()

    async with FakeAnthropic([]) as server:

        async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            await released.wait()
            writer.close()

        silent = await asyncio.start_server(slow, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{silent.sockets[0].getsockname()[1]}"
        with pytest.raises(ProviderUnavailable, match=r"sent nothing for 0\.2 seconds"):
            await ask(server, HELLO, base_url=url, stall_seconds=0.2)
        with pytest.raises(ProviderUnavailable, match=r"sent nothing for 0\.4 seconds"):
            await ask(server, HELLO, base_url=url, stall_seconds=0.2, first_token_seconds=0.4)
        released.set()
        silent.close()


@pytest.mark.parametrize("base_url", ["http://[::1", "http://[x]/v1", "nonsense"])
async def test_an_address_that_is_none_is_refused_with_the_setting_to_change(base_url: str) -> None:
    asked = AnthropicProvider(model="m", base_url=base_url, api_key="", max_tokens=0)
    with pytest.raises(ProviderRejected, match=r"model\.base_url"):
        await asked.complete(prompt(user_message("Hi")), ASK)


async def test_each_piece_of_thinking_is_reported_and_no_text() -> None:
    seen: list[str] = []
    async with FakeAnthropic([Says((Thinking("Let me see…"), "Done."))]) as server:
        claude = provider(server)
        options = CallOptions(effort="high", on_thinking=lambda: seen.append("?"))
        await claude.complete(
            prompt(user_message("Hello")), options, lambda text, _: seen.append(text)
        )
        await claude.close()
    assert "?" in seen
    assert "".join(seen).lstrip("?") == "Done."
