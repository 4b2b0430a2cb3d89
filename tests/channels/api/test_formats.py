"""Answers in a client's format, and reports about fields without effect."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import BaseModel

from nanobot.messages import ToolCall
from nanobot.providers.openai import OpenAIProvider
from nanobot.testing import ScriptedModel, calls, says
from tests.channels.api.support import Api, chat
from tests.doubles.openai.answers import Answer as Said
from tests.doubles.openai.answers import ChatRequest, Raw, Step
from tests.doubles.openai.server import FakeOpenAI
from tests.support import Probe, read_stored

if TYPE_CHECKING:
    from openai import AsyncOpenAI


class Walk(BaseModel):
    """The type that a client parses."""

    place: str
    hours: float
    tags: list[str]


WALK = {"place": "the lake", "hours": 2.5, "tags": ["flat"]}
SCHEMA = {
    "type": "object",
    "properties": {
        "place": {"type": "string"},
        "hours": {"type": "number"},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["place", "hours", "tags"],
    "additionalProperties": False,
}
BY_SCHEMA = {"type": "json_schema", "json_schema": {"name": "walk", "schema": SCHEMA}}
OBJECT = {"type": "json_object"}


async def test_the_sdks_parse_gets_its_object_after_tools_have_run(api: Api) -> None:
    probe = Probe()
    script = (calls("probe", text="lake"), says("Around the lake."), calls("answer", **WALK))
    model = ScriptedModel(*script, *script)
    async with api.running(model, tools=(probe,)), api.client() as client:
        parsed = await parse_chat(client)
        response = await client.responses.parse(model="nanobot", input="A walk?", text_format=Walk)
    assert parsed == Walk(**WALK)  # type: ignore[arg-type]
    assert response.output_parsed == parsed
    assert probe.called == ["lake", "lake"]


async def parse_chat(client: AsyncOpenAI) -> Walk | None:
    """Return the result of `parse` in Chat Completions."""
    answer = await client.chat.completions.parse(
        model="nanobot",
        messages=[{"role": "user", "content": "A walk?"}],
        response_format=Walk,
    )
    return answer.choices[0].message.parsed


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize(
    "path_and_field", [("chat/completions", "response_format"), ("responses", "text")]
)
async def test_only_the_json_is_sent(
    api: Api, path_and_field: tuple[str, str], stream: bool
) -> None:
    path, field = path_and_field
    form: dict[str, Any] = BY_SCHEMA
    asked = chat("A walk?", conversation="c")
    if path == "responses":
        form = {"format": {"type": "json_schema", "name": "walk", "schema": SCHEMA}}
        asked = {"model": "nanobot", "input": "A walk?", "conversation": "c"}
    model = ScriptedModel(
        calls("probe", text="x"),
        calls("message", text="One moment."),
        says("Let me think: around the lake."),
        calls("answer", **WALK),
    )
    async with api.running(model, tools=(Probe(),)):
        answer = await api.post(path, {**asked, field: form, "stream": stream})
    assert answer.status == 200
    if stream and path == "responses":
        text = answer.events[-1]["response"]["output"][-1]["content"][0]["text"]
        written = "".join(e["delta"] for e in answer.events if e["type"].endswith("text.delta"))
        assert written == text
    elif stream:
        deltas = (choice["delta"] for event in answer.events for choice in event["choices"])
        text = "".join(delta.get("content") or "" for delta in deltas)
    elif path == "responses":
        text = answer.data["output"][0]["content"][0]["text"]
    else:
        text = answer.data["choices"][0]["message"]["content"]
    assert json.loads(text) == WALK
    assert json.loads(read_stored(api.home, "api:laptop:c")[-1].content) == WALK


@pytest.mark.parametrize("form", [BY_SCHEMA, OBJECT], ids=["schema", "object"])
async def test_an_answer_that_fits_is_not_asked_for_again(
    api: Api, form: dict[str, object]
) -> None:
    model = ScriptedModel(says(f" {json.dumps(WALK)}\n"))
    async with api.running(model):
        assert json.loads(await api.chat("A walk?", response_format=form)) == WALK
    assert len(model.prompts) == 1


async def test_an_object_in_prose_may_be_an_example(api: Api) -> None:
    model = ScriptedModel(says('Not {"place": "x"}, but the lake.'), calls("answer", place="lake"))
    async with api.running(model):
        assert json.loads(await api.chat("Where?", response_format=OBJECT)) == {"place": "lake"}


async def test_what_does_not_fit_is_told_to_the_model_and_asked_for_once_more(api: Api) -> None:
    model = ScriptedModel(says("The lake."), calls("answer", place=1), calls("answer", **WALK))
    async with api.running(model):
        assert json.loads(await api.chat("A walk?", response_format=BY_SCHEMA)) == WALK
    assert "'hours' is missing" in model.prompts[-1].messages[-1].text


async def test_a_model_that_cannot_is_a_clear_error(api: Api) -> None:
    model = ScriptedModel(author=lambda _: says("The lake."))
    async with api.running(model):
        answer = await api.post("chat/completions", chat("Hi", response_format=BY_SCHEMA))
    assert (answer.status, answer.code) == (502, "model_failed")
    assert "does not match the schema" in answer.data["error"]["message"]
    assert len(model.prompts) == 3


CALLED = Said("", (ToolCall("call_1", "answer", json.dumps(WALK)),))
PROSE = Said("Around the lake.")


def by_name(request: ChatRequest) -> Step | str:
    """OpenAI's way: a call of one tool by its name."""
    return CALLED if isinstance(request.body.get("tool_choice"), dict) else PROSE


def by_format(request: ChatRequest) -> Step | str:
    """A server that rejects forced calls, as thinking models do (see tests/providers)."""
    if "tool_choice" in request.body:
        return Raw(b'{"error":{"message":"tool_choice is not supported"}}', status=400)
    return json.dumps(WALK) if "response_format" in request.body else PROSE


def by_asking(request: ChatRequest) -> Step | str:
    """A model that supports neither, and follows instructions."""
    if "response_format" in request.body:
        return Raw(b'{"error":{"message":"response_format is not supported"}}', status=400)
    asked = "JSON Schema" in request.last_user_text
    return f"```json\n{json.dumps(WALK)}\n```" if asked else PROSE


@pytest.mark.parametrize("way", [by_name, by_format, by_asking])
async def test_the_form_is_had_by_any_way_that_a_server_knows(
    api: Api, way: Callable[[ChatRequest], Step | str]
) -> None:
    async with FakeOpenAI(way) as server:
        model = OpenAIProvider(model="m", base_url=server.base_url, api_key="", max_tokens=0)
        async with api.running(model):
            assert json.loads(await api.chat("A walk?", response_format=BY_SCHEMA)) == WALK


@pytest.mark.parametrize(
    "form",
    [
        {"type": "grammar"},
        {"type": "json_schema"},
        {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "array"}}},
        {"type": "json_schema", "json_schema": {"name": "x", "schema": {"required": [[1]]}}},
        {"type": "json_schema", "json_schema": {"name": "x", "schema": {"properties": [1]}}},
        {"type": "json_schema", "json_schema": {"name": "x", "schema": {"enum": ["x" * 50_000]}}},
        "json",
    ],
)
async def test_a_form_that_cannot_be_had_is_refused(api: Api, form: object) -> None:
    async with api.running(ScriptedModel()):
        answer = await api.post("chat/completions", chat("Hi", response_format=form))
    assert answer.status == 400
    assert answer.data["error"]["param"] == "response_format"


TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}


async def test_a_clients_tools_are_ignored_and_that_is_said(api: Api) -> None:
    model = ScriptedModel(author=lambda prompt: says(str([s.name for s in prompt.tools.specs])))
    async with api.running(model):
        for stream in (False, True):
            body = chat("Hi", tools=[TOOL], tool_choice="auto", stream=stream)
            answer = await api.post("chat/completions", body)
            assert answer.status == 200
            assert answer.headers["X-Nanobot-Ignored"] == "tools"
            assert b"look" not in answer.body
        old = await api.post("chat/completions", chat("Hi", functions=[TOOL["function"]]))
        assert old.headers["X-Nanobot-Ignored"] == "functions"
        plain = await api.post("chat/completions", chat("Hi"))
        assert "X-Nanobot-Ignored" not in plain.headers


@pytest.mark.parametrize(
    ("path", "more"),
    [
        ("chat/completions", {"tool_choice": "required"}),
        ("chat/completions", {"tool_choice": {"type": "function", "function": {"name": "look"}}}),
        (
            "chat/completions",
            {"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "required"}}},
        ),
        ("chat/completions", {"function_call": {"name": "look"}}),
        ("responses", {"tool_choice": {"type": "function", "name": "look"}}),
        ("responses", {"tool_choice": {"type": "web_search_preview"}}),
        ("responses", {"tool_choice": {"type": "allowed_tools", "mode": "required"}}),
    ],
)
async def test_a_call_of_the_clients_tools_cannot_be_asked_for(
    api: Api, path: str, more: dict[str, object]
) -> None:
    asked = chat("Hi", tools=[TOOL]) if path != "responses" else {"model": "nanobot", "input": "Hi"}
    async with api.running(ScriptedModel()):
        answer = await api.post(path, {**asked, **more})
    assert (answer.status, answer.code) == (400, "tools_not_supported")
