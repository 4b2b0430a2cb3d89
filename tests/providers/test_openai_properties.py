"""Properties of the parsers: the result depends on the bytes, never on how they were cut."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nanobot.errors import ProviderError
from nanobot.providers.endpoint import Endpoint
from nanobot.providers.port import CallOptions, Prompt, Reply, Toolset, user_message
from nanobot.providers.replies import IncomingReply
from nanobot.providers.response_body import EventParser
from tests.growth import assert_linear

ALWAYS_THE_SAME = settings(derandomize=True, deadline=None, database=None)


def event(delta: object, finish: str | None = None) -> bytes:
    fields = {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
    return b"data: " + json.dumps(fields).encode() + b"\n\n"


def call(**fields: object) -> dict[str, object]:
    return {"tool_calls": [{"index": 0, **fields}]}


SAMPLE = b"".join(
    [
        event({"content": "<think>né</thi"}),
        event({"content": "nk>Grüße \U0001f600, "}),
        event({"content": "welt\ud83d"}),
        event({"content": "\ude00"}),
        event(call(id="x", function={"name": "f", "arguments": '{"a":'})),
        event(call(function={"arguments": '"ü"}'})),
        event({}, "stop"),
        b"data: [DONE]\n\n",
    ]
)
ENDPOINT = Endpoint("http://h", "m")
HELLO = Prompt((user_message("Hello"),), Toolset.of([]))


def cut_up(body: bytes, cuts: Sequence[int]) -> list[bytes]:
    edges = [0, *sorted({cut % (len(body) + 1) for cut in cuts}), len(body)]
    return [body[start:end] for start, end in pairwise(edges)]


CUTS = st.lists(st.integers(min_value=0, max_value=10_000), max_size=40)
ENDINGS = st.sampled_from([b"\n", b"\r\n", b"\r"])


def feed_all(chunks: Sequence[bytes]) -> tuple[Reply, str]:
    pieces: list[str] = []
    incoming = IncomingReply(ENDPOINT, HELLO, on_text=lambda text, _: pieces.append(text))
    for chunk in chunks:
        incoming.feed(chunk)
    return incoming.finish(), "".join(pieces)


@ALWAYS_THE_SAME
@given(cuts=CUTS, ending=ENDINGS)
def test_any_chunking_of_the_same_bytes_gives_the_same_reply(
    cuts: list[int], ending: bytes
) -> None:
    body = SAMPLE.replace(b"\n", ending)
    reply, shown = feed_all(cut_up(body, cuts))
    assert reply == feed_all([SAMPLE])[0]
    assert shown == reply.text == "Grüße \U0001f600, welt\U0001f600"


@ALWAYS_THE_SAME
@given(
    events=st.lists(st.lists(st.binary(max_size=20), min_size=1, max_size=3), max_size=6),
    cuts=CUTS,
    ending=ENDINGS,
)
def test_event_data_survives_any_chunking(
    events: list[list[bytes]], cuts: list[int], ending: bytes
) -> None:
    clean = [[line.replace(b"\r", b"?").replace(b"\n", b"?") for line in event] for event in events]
    body = b"".join(
        b"".join(b"data: " + line + ending for line in event) + ending for event in clean
    )
    parser = EventParser()
    found = [data for chunk in cut_up(body, cuts) for data in parser.feed(chunk)]
    assert found + parser.close() == [b"\n".join(event) for event in clean]
    assert parser.pending == 0


@ALWAYS_THE_SAME
@given(st.lists(st.binary(max_size=50), max_size=10))
def test_no_bytes_make_the_reply_parser_raise_anything_but_provider_errors(
    chunks: list[bytes],
) -> None:
    with suppress(ProviderError):
        feed_all(chunks)


NAMES = st.sampled_from(
    [
        "choices",
        "delta",
        "message",
        "content",
        "tool_calls",
        "function",
        "name",
        "arguments",
        "index",
        "id",
        "finish_reason",
        "usage",
        "prompt_tokens",
        "prompt_tokens_details",
        "cached_tokens",
        "error",
        "code",
        "type",
        "text",
        "refusal",
        "reasoning_content",
        "reasoning_details",
        "extra_content",
        "prompt_progress",
    ]
)
WILD = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 600) | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)


@ALWAYS_THE_SAME
@given(st.lists(st.dictionaries(NAMES, WILD, min_size=1), min_size=1, max_size=3), st.booleans())
def test_no_json_makes_the_reply_parser_raise_anything_but_provider_errors(
    objects: list[dict[str, object]], as_stream: bool
) -> None:
    encoded = [json.dumps(one).encode() for one in objects]
    with suppress(ProviderError):
        feed_all([b"data: " + one + b"\n\n" for one in encoded] if as_stream else encoded[:1])


@ALWAYS_THE_SAME
@given(choice=WILD, delta=WILD, calls=st.lists(WILD, max_size=3))
def test_no_choice_makes_the_reply_parser_raise_anything_but_provider_errors(
    choice: object, delta: object, calls: list[object]
) -> None:
    wild_delta = {**(delta if isinstance(delta, dict) else {}), "tool_calls": calls}
    wild_choice = {**(choice if isinstance(choice, dict) else {}), "delta": wild_delta}
    body = json.dumps({"choices": [choice, {**wild_choice, "index": 0}]}).encode()
    with suppress(ProviderError):
        feed_all([b"data: " + body + b"\n\ndata: [DONE]\n\n"])


def details(*pieces: object) -> list[bytes]:
    """Return a stream with these `reasoning_details` that ends in a call."""
    deltas: list[dict[str, object]] = [{"reasoning_details": piece} for piece in pieces]
    deltas.append({"tool_calls": [{"id": "a", "function": {"name": "f", "arguments": "{}"}}]})
    events = [{"choices": [{"delta": delta}]} for delta in deltas]
    return [b"data: %s\n\n" % json.dumps(one).encode() for one in events] + [b"data: [DONE]\n\n"]


def test_reasoning_that_comes_in_many_pieces_takes_linear_time() -> None:
    piece = [{"type": "reasoning.text", "index": 0, "text": "word " * 4}]

    def receive(times: int) -> None:
        data = feed_all(details(*[piece] * times))[0].provider_data
        assert data is not None
        assert data.fields["reasoning_details"] == [{**piece[0], "text": "word " * 4 * times}]

    assert_linear(receive, 1_000)


def test_reasoning_in_an_odd_form_goes_back_as_far_as_it_is_understood() -> None:
    reply, _ = feed_all(details({"odd": 1}, [{"text": "a"}], [1, {"text": "b"}, {"text": None}]))
    assert reply.provider_data is not None
    assert reply.provider_data.fields["reasoning_details"] == [
        *({"text": "a"}, 1, {"text": "b"}, {"text": None})
    ]


def test_an_answer_without_text_has_begun_with_its_finish_reason() -> None:
    incoming = IncomingReply(ENDPOINT, HELLO)
    incoming.feed(event({"role": "assistant"}))
    assert not incoming.has_begun
    incoming.feed(event({}, "stop"))
    assert incoming.has_begun


@pytest.mark.parametrize(
    "deltas",
    [
        [{"reasoning_content": "hm"}, {"reasoning_content": " hm"}, {"content": "yes"}],
        [{"reasoning": "hm"}, {"reasoning": " hm"}, {"content": "yes"}],
        [{"reasoning_details": [{"type": "reasoning.text", "text": "hm"}]}] * 2
        + [{"content": "yes"}],
        [
            {"content": "<think>hm"},
            {"content": " hm"},
            {"content": "</think>yes"},
            {"content": "!"},
        ],
    ],
)
def test_each_piece_of_thinking_is_reported_and_no_other(deltas: list[dict[str, object]]) -> None:
    seen: list[str] = []
    incoming = IncomingReply(
        ENDPOINT,
        HELLO,
        on_text=lambda text, _: seen.append(text),
        options=CallOptions(on_thinking=lambda: seen.append("?")),
    )
    for delta in deltas:
        incoming.feed(event(delta))
    assert seen[:3] == ["?", "?", "yes"]
    assert "?" not in seen[2:]
