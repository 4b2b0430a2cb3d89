"""The server that stands in for the real one refuses, records and counts like it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Mapping
from typing import Any

import aiohttp
import pytest

from tests.doubles.openai.answers import Answer, ChatRequest, Step
from tests.doubles.openai.faults import Held, Late
from tests.doubles.openai.rules import first_error
from tests.doubles.openai.server import FakeOpenAI, common_prefix

USER = {"role": "user", "content": "Hello"}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


def called(*ids: str, name: str = "f") -> dict[str, Any]:
    function = {"name": name, "arguments": "{}"}
    calls = [{"id": one, "type": "function", "function": function} for one in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def result(call_id: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": "done"}


def body(*messages: object, **fields: object) -> dict[str, object]:
    return {"model": "m", "messages": list(messages), **fields}


async def post(server: FakeOpenAI, content: object) -> tuple[int, str]:
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{server.base_url}/chat/completions", data=data) as answer,
    ):
        return answer.status, await answer.text()


@pytest.mark.parametrize(
    "accepted",
    [
        body(USER),
        body({"role": "system", "content": "Be kind."}, USER),
        body(USER, called("a", "b"), result("b"), result("a"), USER),
        body(USER, tools=[TOOL], tool_choice={"type": "function", "function": {"name": "f"}}),
        body({"role": "user", "content": [{"type": "text", "text": "x"}]}, max_tokens=1),
        body(USER, stream=True, stream_options={"include_usage": True}),
    ],
)
def test_what_the_real_api_takes_is_taken(accepted: Mapping[str, object]) -> None:
    assert first_error(accepted) is None


@pytest.mark.parametrize(
    ("refused", "text"),
    [
        ({"messages": [USER]}, "model parameter"),
        (body(), "empty array"),
        (body({"role": "robot", "content": "x"}), "'robot'"),
        (body({"role": "user", "content": None}), "got null"),
        (body({"role": "assistant", "content": None}), "got null"),
        (body({"role": "user", "content": 7}), "messages[0].content"),
        (body({"role": "user", "content": [{"type": "sound"}]}), "messages[0].content"),
        (
            body({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}),
            "messages[0].content",
        ),
        (body(USER, result("a")), "must be a response to a preceding message"),
        (body(USER, called("a"), result("b")), "must be a response to a preceding message"),
        (body(USER, called("a"), result("a"), result("a")), "must be a response"),
        (body(USER, called("a", "b"), result("a"), USER), "did not have response messages: b"),
        (body(USER, called("a")), "did not have response messages: a"),
        (body(USER, called("a", "a"), result("a"), result("a")), "Duplicate value"),
        (body(USER, called("a", name="bad name"), result("a")), "does not match pattern"),
        (body(USER, called(""), result("")), "Missing required parameter"),
        (body(USER, {"role": "assistant", "content": "x", "tool_calls": []}), "tool_calls"),
        (body(USER, tools=[]), "'tools'"),
        (body(USER, tools=[TOOL, TOOL]), "unique"),
        (body(USER, tools=[{"type": "function", "function": {"name": "f"}}]), "Invalid schema"),
        (body(USER, tools=[{"type": "function", "function": {"name": "a.b"}}]), "pattern"),
        (body(USER, tools=[TOOL], tool_choice={"function": {"name": "g"}}), "'g' not found"),
        (body(USER, tool_choice="auto"), "'tool_choice'"),
        (body(USER, stream_options={}), "'stream_options'"),
        (body(USER, max_tokens=1, max_completion_tokens=1), "at the same time"),
        (body(USER, max_tokens=0), "minimum value"),
    ],
)
async def test_what_the_real_api_refuses_is_refused_with_its_kind_of_error(
    refused: Mapping[str, object], text: str
) -> None:
    async with FakeOpenAI() as server:
        status, answer = await post(server, refused)
    error = json.loads(answer)["error"]
    assert status == 400
    assert text in error["message"]
    assert error["type"] == "invalid_request_error"


async def test_checking_can_be_left_out() -> None:
    async with FakeOpenAI(["fine"], validate=False) as server:
        status, answer = await post(server, body(result("a")))
    assert (status, json.loads(answer)["choices"][0]["message"]["content"]) == (200, "fine")


async def test_requests_are_recorded_byte_for_byte_also_refused_ones() -> None:
    raw = b'{ "model":"m", "messages":[{"role":"user","content":"caf\\u00e9"}] }'
    async with FakeOpenAI() as server:
        assert (await post(server, raw))[0] == 200
        assert (await post(server, b"{nonsense"))[0] == 400
    assert [request.raw for request in server.requests] == [raw, b"{nonsense"]
    assert server.requests[0].last_user_text == "café"


async def test_a_stream_has_pieces_an_end_and_the_usage_that_was_asked_for() -> None:
    wanted = body(USER, stream=True, stream_options={"include_usage": True})
    async with FakeOpenAI(["A sentence in several pieces."], characters=5) as server:
        _, answer = await post(server, wanted)
    events = [line.removeprefix("data: ") for line in answer.split("\n\n") if line]
    chunks = [json.loads(event) for event in events[:-1]]
    deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
    pieces = [delta.get("content") or "" for delta in deltas]
    assert "".join(pieces) == "A sentence in several pieces."
    assert len([piece for piece in pieces if piece]) == 6
    assert chunks[-1]["usage"]["completion_tokens"] > 0
    assert events[-1] == "[DONE]"


async def test_a_script_is_played_in_order_and_its_end_is_an_error() -> None:
    async with FakeOpenAI(["one"]) as server:
        server.then(Late(0.0, Answer("two")))
        answers = [await post(server, body(USER)) for _ in range(3)]
    assert [status for status, _ in answers] == [200, 200, 400]
    assert "two" in answers[1][1]
    assert "at its end" in answers[2][1]


async def test_a_function_answers_from_the_request() -> None:
    async with FakeOpenAI(lambda request: f"{len(request.messages)} messages") as server:
        assert "2 messages" in (await post(server, body(USER, USER)))[1]


async def test_an_answer_can_be_held_back() -> None:
    gate, asked = asyncio.Event(), asyncio.Event()

    def author(_: ChatRequest) -> Step | str:
        if asked.is_set():
            return "early"
        asked.set()
        return Held(gate, Answer("late"))

    async with FakeOpenAI(author) as server, asyncio.TaskGroup() as group:
        held = group.create_task(post(server, body(USER)))
        await asked.wait()
        assert "early" in (await post(server, body(USER)))[1]
        assert not held.done()
        gate.set()
    assert "late" in held.result()[1]


async def test_keys_and_context_are_checked_where_asked() -> None:
    async with FakeOpenAI(api_key="right") as server:
        assert (await post(server, body(USER)))[0] == 401
    async with FakeOpenAI(context_tokens=100) as server:
        assert (await post(server, body(USER)))[0] == 200
        status, answer = await post(server, body({**USER, "content": "x" * 1000}))
    assert status == 400
    assert json.loads(answer)["error"]["code"] == "context_length_exceeded"


async def test_cached_tokens_are_whole_blocks_of_the_common_beginning() -> None:
    long = {"role": "system", "content": "x" * 4000}
    async with FakeOpenAI() as server:
        usages = [
            json.loads((await post(server, body(long, {**USER, "content": text})))[1])["usage"]
            for text in ("one", "two")
        ]
    cached = [usage["prompt_tokens_details"]["cached_tokens"] for usage in usages]
    assert cached[0] == 0
    assert cached[1] == 4000 // 4 // 128 * 128


@pytest.mark.parametrize(
    ("one", "other", "length"), [(b"", b"x", 0), (b"abc", b"abd", 2), (b"ab", b"abc", 2)]
)
def test_common_beginnings(one: bytes, other: bytes, length: int) -> None:
    assert common_prefix(one, other) == length


async def test_it_runs_as_a_process_that_prints_its_address_and_ends_on_a_signal() -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "tests.doubles.openai.server", "--reply", "Hello there."),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert process.stdout is not None
    base_url = (await process.stdout.readline()).decode().strip()
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{base_url}/chat/completions", json=body(USER)) as answer,
    ):
        assert "Hello there." in await answer.text()
    process.send_signal(signal.SIGTERM)
    assert await process.wait() == 0


@pytest.mark.parametrize(
    ("fields", "name", "sound", "status"),
    [
        ({"model": "ears"}, "a.ogg", b"hello", 200),
        ({}, "a.ogg", b"hello", 400),
        ({"model": "ears"}, "a.exe", b"hello", 400),
        ({"model": "ears"}, "a.ogg", b"", 400),
        ({"model": "ears", "response_format": "srt"}, "a.ogg", b"hello", 400),
        ({"model": "ears"}, "", b"hello", 400),
    ],
)
async def test_a_form_with_sound_is_taken_as_strictly_as_by_the_real_one(
    fields: dict[str, str], name: str, sound: bytes, status: int
) -> None:
    form = aiohttp.FormData(fields, default_to_multipart=True)
    if name:
        form.add_field("file", sound, filename=name, content_type="audio/ogg")
    async with (
        FakeOpenAI() as server,
        aiohttp.ClientSession() as session,
        session.post(f"{server.base_url}/audio/transcriptions", data=form) as answer,
    ):
        assert answer.status == status
        told = await answer.json()
    assert told.get("text") == ("hello" if status == 200 else None)
