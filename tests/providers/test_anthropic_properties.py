"""Properties of requests to the Messages API: the strict server accepts any conversation, and its
prompt cache keeps matching as the conversation grows."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nanobot.messages import ProviderData, ToolCall
from nanobot.providers.anthropic import API_VERSION, AnthropicProvider, IncomingMessage
from nanobot.providers.anthropic_request import conversation_of
from nanobot.providers.dialogue import add_cache_breakpoint, anthropic_cache_breakpoints
from nanobot.providers.endpoint import Endpoint
from nanobot.providers.port import (
    CallOptions,
    Image,
    Prompt,
    PromptMessage,
    Toolset,
    ToolSpec,
    assistant_message,
    system_message,
    tool_message,
    user_message,
)
from tests.doubles.anthropic.caching import PromptCache
from tests.doubles.anthropic.rules import HAIKU_4_5, OPUS_4_8, SONNET, ModelRules, first_error, sign

EXAMPLES = int(os.environ.get("NANOBOT_EXAMPLES", "60"))
ALWAYS_THE_SAME = settings(derandomize=True, deadline=None, database=None, max_examples=EXAMPLES)
TOOLS = Toolset.of([ToolSpec("read", "Read a file.", {"type": "object"})])
URL = "http://127.0.0.1:9/v1"

WORDS = st.text(max_size=6) | st.sampled_from(["", " ", "\n", "a ", "\ud800", "ü\U0001f600"])
IDS = st.sampled_from(["a1", "b2", "c3", "functions.read:0", "", "x" * 70])
ARGUMENTS = st.sampled_from(["{}", '{"a": 1}', "", "[1]", "null", '{"a": "\\ud800"}', "{", "NaN"])
CALLS = st.builds(ToolCall, IDS, st.sampled_from(["read", "ä b", ""]), ARGUMENTS)
IMAGES = st.builds(Image, st.just("aGk="), st.sampled_from(["image/png", "image/svg+xml"]))


def thinking(model: str, text: str) -> ProviderData:
    block = {"type": "thinking", "thinking": text, "signature": sign(model, text)}
    return ProviderData(f"{URL} {model}", fields={"content": [block, {"type": "text", "text": ""}]})


THOUGHTS = st.none() | st.builds(
    thinking, st.sampled_from([SONNET.name, HAIKU_4_5.name]), st.just("Hm.")
)
MESSAGES = st.one_of(
    st.builds(system_message, WORDS),
    st.builds(user_message, WORDS, st.lists(IMAGES, max_size=2).map(tuple)),
    st.builds(assistant_message, WORDS, st.lists(CALLS, max_size=3).map(tuple), THOUGHTS),
    st.builds(tool_message, IDS, WORDS),
)
CONVERSATIONS = st.lists(MESSAGES, min_size=1, max_size=10)
OPTIONS = st.builds(
    CallOptions,
    tool_choice=st.sampled_from(["", "none", "read"]),
    effort=st.sampled_from(["", "none", "high"]),
)


def request(messages: Sequence[PromptMessage], options: CallOptions, model: ModelRules) -> bytes:
    claude = AnthropicProvider(model=model.name, base_url=URL, api_key="", max_tokens=0)
    return claude.body(Prompt(tuple(messages), TOOLS), options)


@ALWAYS_THE_SAME
@given(CONVERSATIONS, OPTIONS, st.sampled_from([SONNET, OPUS_4_8]), st.booleans())
def test_any_conversation_becomes_a_request_that_the_strict_server_takes(
    messages: list[PromptMessage], options: CallOptions, model: ModelRules, offers: bool
) -> None:
    claude = AnthropicProvider(model=model.name, base_url=URL, api_key="", max_tokens=0)
    asked = Prompt(tuple(messages), TOOLS if offers else Toolset.of([]))
    assert first_error(claude.body(asked, options), API_VERSION, model) is None


@ALWAYS_THE_SAME
@given(CONVERSATIONS)
def test_a_budget_for_thinking_is_taken_by_the_turns_that_are_said_to_take_it(
    messages: list[PromptMessage],
) -> None:
    source = f"{URL} {HAIKU_4_5.name}"
    body = json.loads(request(messages, CallOptions(), HAIKU_4_5))
    with_budget = body | {"thinking": {"type": "enabled", "budget_tokens": 1_024}}
    refused = first_error(json.dumps(with_budget).encode(), API_VERSION, HAIKU_4_5)
    assert conversation_of(messages, source).begins_with_thinking == (refused is None)


@ALWAYS_THE_SAME
@given(CONVERSATIONS, OPTIONS)
def test_the_same_conversation_is_the_same_bytes(
    messages: list[PromptMessage], options: CallOptions
) -> None:
    assert request(messages, options, SONNET) == request(messages, options, SONNET)


def flat(raw: bytes) -> list[tuple[str, str]]:
    """Return the blocks of a request in the order of the cache, without breakpoints."""
    body: Mapping[str, Any] = json.loads(raw)
    blocks = [("tools", tool) for tool in body["tools"]]
    blocks += [("system", block) for block in body.get("system", [])]
    blocks += [(one["role"], block) for one in body["messages"] for block in one["content"]]
    return [
        (role, json.dumps({name: block[name] for name in block if name != "cache_control"}))
        for role, block in blocks
    ]


WORD = st.sampled_from(["yes", "No.", "so be it "])


@st.composite
def runs(draw: st.DrawFn) -> list[list[PromptMessage]]:
    """Return the messages that each request adds, as in nanobot's turns: a step with its results,
    words in the middle, an answer and the next question."""
    messages = [[system_message("You help. " * 400), user_message("Begin.")]]
    for number in range(draw(st.integers(2, 8))):
        calls = tuple(
            ToolCall(f"call{number}x{index}", "read", '{"path": "a"}')
            for index in range(draw(st.integers(0, 30)))
        )
        added = [assistant_message(draw(WORD), calls, draw(THOUGHTS) if calls else None)]
        added += [tool_message(call.id, draw(WORD)) for call in calls]
        if not calls or draw(st.booleans()):
            images = (Image("aGk=", "image/png"),) if draw(st.booleans()) else ()
            added.append(user_message(draw(WORD), images))
        messages.append(added)
    return messages


@ALWAYS_THE_SAME
@given(runs())
def test_a_longer_prompt_extends_its_prefix_and_reads_all_of_it_from_the_cache(
    added: list[list[PromptMessage]],
) -> None:
    cache = PromptCache(minimum=1_024)
    conversation: list[PromptMessage] = []
    sent: list[bytes] = []
    before = 0
    for messages in added:
        conversation += messages
        sent.append(request(conversation, CallOptions(), SONNET))
        counted = cache.count(json.loads(sent[-1]))
        assert counted.read == before
        assert counted.uncached == 0
        before = counted.total
    for shorter, longer in pairwise(map(flat, sent)):
        assert longer[: len(shorter)] == shorter


@ALWAYS_THE_SAME
@given(CONVERSATIONS)
def test_there_are_at_most_four_breakpoints_and_none_on_what_the_model_said(
    messages: list[PromptMessage],
) -> None:
    positions = anthropic_cache_breakpoints(messages)
    assert len(positions) <= 4
    assert sorted(set(positions)) == list(positions)
    assert all(messages[position].role != "assistant" for position in positions)


def test_breakpoints_are_on_the_system_prompt_and_the_ends_of_the_last_three_requests() -> None:
    call = ToolCall("a1", "read", "{}")
    messages = [
        system_message("You help."),
        user_message("one"),
        assistant_message("1"),
        user_message("two"),
        assistant_message("", (call,)),
        tool_message("a1", "text"),
        user_message("a picture"),
        assistant_message("2"),
        user_message("three"),
    ]
    assert anthropic_cache_breakpoints(messages) == (0, 3, 6, 8)
    assert anthropic_cache_breakpoints(messages[:2]) == (0, 1)
    assert anthropic_cache_breakpoints(messages[1:3]) == (0,)
    assert anthropic_cache_breakpoints([]) == ()


@pytest.mark.parametrize(
    ("message", "content"),
    [
        (system_message("Grüße"), [{"type": "text", "text": "Grüße"}]),
        (tool_message("a1", "text"), [{"type": "text", "text": "text"}]),
        (
            user_message("See", (Image("aGk=", "image/png"),)),
            [
                {"type": "text", "text": "See"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}},
            ],
        ),
    ],
)
def test_for_chat_completions_a_breakpoint_is_on_the_last_part(
    message: PromptMessage, content: list[dict[str, Any]]
) -> None:
    plain, marked = json.loads(message.wire), json.loads(add_cache_breakpoint(message.wire))
    content[-1]["cache_control"] = {"type": "ephemeral"}
    assert marked == plain | {"content": content}


@pytest.mark.parametrize("message", [user_message(""), assistant_message("said")])
def test_what_has_no_place_for_a_breakpoint_stays_as_it_is(message: PromptMessage) -> None:
    assert add_cache_breakpoint(message.wire) == message.wire


HELLO = Prompt((user_message("Hello"),), TOOLS)
FIELDS = (
    "type index message content_block delta text usage error id name input partial_json"
    " stop_reason input_tokens thinking signature"
)
KINDS = (
    "message_start content_block_start content_block_delta message_delta message_stop ping error"
    " text tool_use thinking text_delta end_turn message"
)
NAMES, VALUES = (st.sampled_from(names.split()) for names in (FIELDS, KINDS))
WILD = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 9) | VALUES | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=5),
    max_leaves=15,
)


@ALWAYS_THE_SAME
@given(st.lists(st.dictionaries(NAMES, WILD, min_size=1), min_size=1, max_size=5), st.booleans())
def test_no_answer_makes_the_reader_raise_anything_but_provider_errors(
    objects: list[dict[str, object]], as_stream: bool
) -> None:
    from nanobot.errors import ProviderError

    incoming = IncomingMessage(Endpoint(URL, "m"), "s", HELLO, lambda text, _: None)
    encoded = [json.dumps(one).encode() for one in objects]
    chunks = [b"data: " + one + b"\n\n" for one in encoded] if as_stream else encoded[:1]
    try:
        for chunk in chunks:
            incoming.feed(chunk)
        incoming.finish()
    except ProviderError:
        pass


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        ({"type": "error", "message": "overloaded"}, "overloaded"),
        ({"type": "message_delta", "delta": {"stop_reason": "end_turn"}}, "not a message"),
    ],
)
def test_a_stream_of_another_form_is_no_empty_answer(event: dict[str, object], reason: str) -> None:
    from nanobot.errors import ProviderError

    incoming = IncomingMessage(Endpoint(URL, "m"), "s", HELLO, None)

    def read() -> None:
        incoming.feed(b"data: " + json.dumps(event).encode() + b"\n\n")
        incoming.finish()

    with pytest.raises(ProviderError, match=reason):
        read()
