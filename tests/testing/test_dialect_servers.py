"""Each kind of model server rejects the same requests as the real one, in its words, and no
others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.doubles.dialects.hosted import signature
from tests.doubles.dialects.server import KINDS

SYSTEM = {"role": "system", "content": "Be kind."}
USER = {"role": "user", "content": "Hello"}
ANSWER = {"role": "assistant", "content": "Hi"}
EMPTY = {"role": "assistant", "content": ""}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
SEEN = {"role": "user", "content": [{"type": "text", "text": "look"}, PICTURE]}
FORCED = {"type": "function", "function": {"name": "f"}}
NINE = "abcdefghi"


def call_tools(*ids: str, arguments: str = "{}", **fields: object) -> dict[str, Any]:
    function = {"name": "f", "arguments": arguments}
    calls = [{"id": one, "type": "function", "function": function} for one in ids or (NINE,)]
    return {"role": "assistant", "content": None, "tool_calls": calls, **fields}


def sign(given: object) -> dict[str, Any]:
    message = call_tools()
    message["tool_calls"][0]["extra_content"] = {"google": {"thought_signature": given}}
    return message


def add_details(data: str, call_id: str = NINE) -> dict[str, Any]:
    detail = {"type": "reasoning.encrypted", "data": data, "id": call_id}
    return call_tools(reasoning_details=[detail])


def result(call_id: str = NINE) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": "done"}


def body(*messages: object, **fields: object) -> dict[str, object]:
    tools = {} if "tools" in fields else {"tools": [TOOL]}
    return {"model": "m", "messages": list(messages), **tools, **fields}


def offering(**schema: object) -> dict[str, object]:
    parameters = {"type": "object", "properties": {"a": schema}}
    return {"tools": [{"type": "function", "function": {"name": "f", "parameters": parameters}}]}


CUT = '{"path": "a'
THOUGHT = {"reasoning_content": "hm"}
TURN = (USER, call_tools(), result())

TAKEN: dict[str, list[dict[str, object]]] = {
    "openai": [body(SYSTEM, *TURN, USER), body(USER, USER), body(USER, tool_choice=FORCED)],
    "mistral": [body(SYSTEM, *TURN, ANSWER, USER), body(USER, USER), body(*TURN)],
    "deepseek": [
        body(USER, call_tools(**THOUGHT), result(), USER),
        body(USER, call_tools(reasoning_content=""), result()),
        body(USER, ANSWER, USER),
        body(*TURN, thinking={"type": "disabled"}, tool_choice=FORCED),
        body(USER, tool_choice="none"),
    ],
    "kimi": [
        body(USER, call_tools(**THOUGHT), result(), USER),
        body(USER, call_tools(reasoning_content=" "), result()),
        body(*TURN, thinking={"type": "disabled"}),
    ],
    "openrouter-gemini": [
        body(USER, add_details(signature("1")), result()),
        body(*TURN, ANSWER, USER),
    ],
    "gemini": [
        body(USER, sign(signature("1")), result()),
        body(USER, sign("skip_thought_signature_validator"), result(), USER),
        body(*TURN, USER),
        body(USER, **offering(type="string", enum=["a"])),
    ],
    "groq": [body(SYSTEM, *TURN, USER), body(SEEN)],
    "minimax": [body(SYSTEM, *TURN, USER)],
    "xai": [body(SYSTEM, *TURN, USER)],
    "litellm": [body(*TURN, USER)],
    "vllm": [body(*TURN, USER), body(USER, call_tools(arguments=""), result())],
    "vllm-alternating": [body(SYSTEM, *TURN, ANSWER, USER)],
    "vllm-without-parser": [{"messages": [USER]}],
    "llama.cpp": [body(SYSTEM, *TURN, USER, USER)],
    "llama.cpp-alternating": [body(SYSTEM, *TURN, ANSWER, USER), body(*TURN)],
    "llama.cpp-alternating-new": [body(SYSTEM, *TURN, ANSWER, USER)],
    "llama.cpp-gemma": [body(SYSTEM, *TURN, ANSWER, USER)],
    "llama.cpp-blind": [body(USER)],
    "llama.cpp-without-tools": [{"messages": [USER, USER]}],
    "ollama": [body(*TURN, USER), body(SEEN)],
    "lm-studio": [body(*TURN, ANSWER, USER), body(USER, tool_choice="required")],
    "lenient": [body(*TURN, USER)],
}

REFUSED: list[tuple[str, dict[str, object], int, str]] = [
    ("openai", body(USER, call_tools("x" * 41), result("x" * 41)), 400, "maximum length 40"),
    ("openai", body(USER, call_tools()), 400, "did not have response messages"),
    ("openai", body(USER, max_tokens=9), 400, "'max_tokens' is not supported with this model"),
    ("mistral", body(*TURN, USER), 400, "Unexpected role 'user' after role 'tool'"),
    ("mistral", body(USER, ANSWER), 400, "Expected last role User or Tool"),
    ("mistral", body(USER, result()), 400, "Unexpected role 'tool' after role 'user'"),
    ("mistral", body(USER, call_tools(), USER), 400, "Not the same number of function calls"),
    ("mistral", body(USER, call_tools(), result(), result()), 400, "Unexpected tool call id"),
    ("mistral", body(USER, call_tools("call_1"), result("call_1")), 400, "with a length of 9"),
    ("mistral", body(USER, call_tools(NINE, NINE), result()), 400, "Duplicate tool call id"),
    ("mistral", body(USER, EMPTY, USER), 400, "either content or tool_calls, but not none"),
    ("mistral", body(USER, {**ANSWER, **THOUGHT}, USER), 422, "Extra inputs are not permitted"),
    ("mistral", body(USER, max_completion_tokens=9), 422, "Extra inputs are not permitted"),
    ("deepseek", body(*TURN), 400, "in the thinking mode must be passed back"),
    ("deepseek", body(*TURN, ANSWER, USER), 400, "in the thinking mode must be passed back"),
    ("deepseek", body(USER, tool_choice=FORCED), 400, "does not support this tool_choice"),
    ("kimi", body(*TURN), 400, "reasoning_content is missing in assistant tool call message at"),
    (
        "kimi",
        body(USER, call_tools(reasoning_content=""), result()),
        400,
        "reasoning_content is missi",
    ),
    ("kimi", body(USER, EMPTY, USER), 400, "at position 1 with role 'assistant' must not be empty"),
    ("kimi", body(USER, tool_choice=FORCED), 400, "tool_choice 'specified' is incompatible"),
    ("kimi", body(USER, tool_choice="required"), 400, "tool_choice 'required' is incompatible"),
    ("kimi", body(USER, thinking={}, reasoning_effort="low"), 400, "cannot specify both"),
    ("openrouter-gemini", body(*TURN), 400, "reasoning details to be preserved"),
    ("openrouter-gemini", body(USER, add_details("forged"), result()), 400, "to be preserved"),
    (
        "openrouter-gemini",
        body(USER, add_details(signature("1"), "other"), result()),
        400,
        "missing a thought_signature",
    ),
    ("gemini", body(*TURN), 400, "missing a thought_signature in functionCall parts"),
    ("gemini", body(USER, sign("forged"), result()), 400, "Corrupted thought signature"),
    ("gemini", body(USER, EMPTY, USER), 400, "contents.parts must not be empty"),
    (
        "gemini",
        body(USER, ANSWER, call_tools(), result(), USER),
        400,
        "immediately after a user turn",
    ),
    ("gemini", body(USER, **offering(const=1)), 400, 'Unknown name \\"const\\"'),
    ("gemini", body(USER, **offering(type=["string", "null"])), 400, "cannot start list"),
    ("groq", body(USER, {**ANSWER, **THOUGHT}, USER), 400, "'reasoning_content' is unsupported"),
    ("groq", body(USER, sign("x"), result()), 400, "property 'extra_content' is unsupported"),
    ("minimax", body(SYSTEM, USER, SYSTEM), 400, "invalid chat setting (2013)"),
    (
        "minimax",
        body(USER, call_tools(arguments=CUT), result()),
        400,
        "function arguments json string",
    ),
    (
        "minimax",
        body(USER, call_tools(arguments="[]"), result()),
        400,
        "function arguments json strin",
    ),
    ("xai", body(USER, EMPTY, USER), 400, "at least one content element"),
    ("litellm", {**body(*TURN, USER), "tools": None}, 400, "Anthropic doesn't support tool calli"),
    ("vllm", body(USER, call_tools(arguments=CUT), result()), 400, "Unterminated string"),
    ("vllm", body(USER, call_tools(arguments="[1]"), result()), 500, "has no attribute 'items'"),
    ("vllm-alternating", body(USER, USER), 400, "roles must alternate"),
    ("vllm-without-parser", body(USER), 400, "--tool-call-parser to be set"),
    (
        "llama.cpp",
        body(USER, call_tools(arguments=CUT), result()),
        500,
        "Failed to parse tool call",
    ),
    ("llama.cpp", body(USER, SYSTEM, USER), 400, "System message must be at the beginning"),
    ("llama.cpp", body(USER, {"role": "assistant"}, USER), 500, "Expected 'content'"),
    ("llama.cpp", body(USER, ANSWER, ANSWER), 400, "2 or more assistant messages at the end"),
    ("llama.cpp-alternating", body(USER, USER), 500, "roles must alternate"),
    ("llama.cpp-alternating", body(*TURN, USER), 500, "roles must alternate"),
    ("llama.cpp-alternating-new", body(USER, USER), 400, "Unable to generate parser"),
    ("llama.cpp-gemma", body(USER, USER), 500, "alternate user/assistant/user/assistant/"),
    ("llama.cpp-gemma", body(*TURN, USER), 500, "alternate user/assistant/user/assistant/"),
    ("llama.cpp-blind", body(SEEN), 500, "image input is not supported"),
    ("llama.cpp-without-tools", body(USER), 500, "tools param requires --jinja flag"),
    ("ollama", body(USER, call_tools(arguments=CUT), result()), 400, "invalid tool call arguments"),
    ("ollama", body(USER, call_tools(arguments="3"), result()), 400, "invalid tool call arguments"),
    ("ollama", body(USER, {**ANSWER, "content": None}, USER), 400, "invalid message content type"),
    ("lm-studio", body(USER, USER), 400, "Error rendering prompt with jinja template"),
    ("lm-studio", body(USER, tool_choice=FORCED), 400, "Invalid tool_choice type: 'object'"),
    ("lenient", body(USER, result()), 400, "must be a response to a preceding message"),
]


def test_every_kind_has_requests_that_it_takes() -> None:
    assert set(TAKEN) == set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_what_the_real_server_takes_is_taken(kind: str) -> None:
    for request in TAKEN[kind]:
        assert KINDS[kind].judge(request) is None


@pytest.mark.parametrize(("kind", "request_body", "status", "words"), REFUSED)
def test_what_the_real_server_refuses_is_refused_in_its_words(
    kind: str, request_body: Mapping[str, object], status: int, words: str
) -> None:
    refusal = KINDS[kind].judge(request_body)
    assert refusal is not None
    assert refusal.status == status
    assert words in refusal.body.decode()
