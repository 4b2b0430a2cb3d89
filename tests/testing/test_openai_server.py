"""`FakeOpenAI` refuses the requests that the real API refuses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.doubles.openai.rules import first_error

USER = {"role": "user", "content": "Hello"}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


def call_tools(*ids: str, name: str = "f") -> dict[str, Any]:
    function = {"name": name, "arguments": "{}"}
    calls = [{"id": one, "type": "function", "function": function} for one in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def result(call_id: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": "done"}


def body(*messages: object, **fields: object) -> dict[str, object]:
    return {"model": "m", "messages": list(messages), **fields}


@pytest.mark.parametrize(
    "accepted",
    [
        body(USER),
        body({"role": "system", "content": "Be kind."}, USER),
        body(USER, call_tools("a", "b"), result("b"), result("a"), USER),
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
        (body(USER, call_tools("a"), result("b")), "must be a response to a preceding message"),
        (body(USER, call_tools("a"), result("a"), result("a")), "must be a response"),
        (body(USER, call_tools("a", "b"), result("a"), USER), "did not have response messages: b"),
        (body(USER, call_tools("a")), "did not have response messages: a"),
        (body(USER, call_tools("a", "a"), result("a"), result("a")), "Duplicate value"),
        (body(USER, call_tools("a", name="bad name"), result("a")), "does not match pattern"),
        (body(USER, call_tools(""), result("")), "Missing required parameter"),
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
def test_what_the_real_api_refuses_is_refused(refused: Mapping[str, object], text: str) -> None:
    error = first_error(refused)
    assert error is not None
    assert text in error.message
